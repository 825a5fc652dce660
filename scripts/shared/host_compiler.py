"""Whether a C++ compiler of the host can compile the programs. The build and the scripts ask here.

    host_compiler.py COMMAND...    says nothing, or in one line what is wrong, and exits 3
"""

import os
import re
import shutil
import subprocess
import sys


def words(command):
    """Those of $CXX: a path with blanks is one."""
    return [command] if shutil.which(command) else command.split()


def problem(command):
    """What is wrong with a compiler, in one line; nothing where it will do. The youngest piece of
    C++20 that the programs need is std::bit_cast: g++ 11 has it, or clang with g++ 11's headers."""
    if os.path.basename(command[0]) == "nvc++":
        return (f"{' '.join(command)}, which modules of NVIDIA's HPC SDK put into CXX, is not "
                "supported; CXX=g++ names another compiler")
    macros = ["-std=c++20", "-dM", "-E", "-x", "c++", "-include", "bit", os.devnull]
    said = output([*command, *macros])
    if "#define __cpp_lib_bit_cast " in said:
        return ""
    version = re.search(r"\d+\.\d+[\d.]*", output([*command, "--version"]))
    return (f"{' '.join(command)}{' ' + version[0] if version else ''} does not compile C++20: "
            "g++ 11 or later is needed, or clang 14 with such a g++ beside it; CXX=g++-12, say, "
            "names another compiler")


def output(command):
    """What a command prints, on stdout or stderr; nothing where it cannot run."""
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, universal_newlines=True).stdout
    except OSError:
        return ""


if __name__ == "__main__":
    said = problem(sys.argv[1:])
    if said:
        print(said, file=sys.stderr)
        sys.exit(3)
