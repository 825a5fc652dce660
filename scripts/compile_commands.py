#!/usr/bin/env python3
"""compile_commands.py writes compile_commands.json, which tells clangd and editors about every
source and header of kernels. Needs no CUDA, and nothing that is built.

Exit status: 2 usage; 3 the file cannot be written.
"""

import json

from shared import command_line
from shared.command_line import PROJECT

WHO = "compile_commands.py"
SOURCES = ("src/*.cu", "src/*/*.c*", "include/*.cuh",
           "include/demo/*.cuh", "tests/*/*.cu", "tests/*/*.cpp", "simulator/*.cpp")
ALL = ["clang++", "-std=c++20", "-Iinclude", "-Isrc", "-Isimulator/cuda", "-Wall", "-Wextra",
       "-Wno-unknown-pragmas", "-Wno-unknown-attributes"]
# clang's CUDA mode, but with simulator/cuda for CUDA's headers: a toolkit may be missing, or newer
# than this clang knows. simulator/for_clangd.cuh says more.
CUDA = ["-x", "cuda", "--cuda-host-only", "-nocudainc", "-nocudalib", "-U__CUDACC__",
        "-Xclang", "-fcuda-allow-variadic-functions", "-Wno-unknown-cuda-version",
        "-Wno-pragma-once-outside-header", "-Wno-unused-const-variable",  # in a header
        "-include", "simulator/for_clangd.cuh"]
# In that mode clang 14 crashes on GoogleTest; in this one it marks each <<<.
TESTS = ["-x", "c++", "-include", "cuda_runtime.h"]


def entry(file):
    own = [] if file.endswith(".cpp") else TESTS if file.startswith("tests/") else CUDA
    return {"directory": str(PROJECT), "file": file, "arguments": [*ALL, *own, "-c", file]}


@command_line.reporting(WHO)
def main(arguments):
    command_line.Parser(prog=WHO, add_help=False).parse_args(arguments)
    files = [str(file.relative_to(PROJECT)) for names in SOURCES for file in PROJECT.glob(names)]
    text = json.dumps([entry(file) for file in sorted(files)], indent=1)
    command_line.write_text(PROJECT / "compile_commands.json", text + "\n")


if __name__ == "__main__":
    command_line.run(main, __doc__)
