#!/usr/bin/env python3
"""Asks a program what it is (--describe), and prints how it is to be run, a line for each run.

    programs.py show PROGRAM N S        for run.sh: what the run is called, a tab, its arguments
    programs.py measure [--quick] [--sizes N,...] [--talk S,...] PROGRAM
                                        for compare_gpus.sh: the program's name and its arguments

Sizes that the program does not take are left out. Exit status: 2 usage; 3 the program does not
describe itself; 77 it declares no sizes to measure.
"""

import json
import subprocess
from pathlib import Path

import command_line
from command_line import FAILED, OK, PROJECT, SKIPPED, USAGE

LIMIT_S = 60
KEYS = "program sweep sizes talk shapes dtypes options".split()  # what the scripts need of it
QUICK_SIZE, QUICK_TALK_SIZE = 4096, 1024


class ProgramError(Exception):
    """A program that does not describe itself. The message is one line that names it."""


def describe(path, *arguments):
    """What a program declares of itself, and of its problem with these arguments. Raises
    ProgramError."""
    path = Path(path)

    def fail(reason):
        raise ProgramError(f"{path.name} does not describe itself: {reason}")

    if not path.exists():
        fail("it is not built")
    command = [str(path.absolute()), *map(str, arguments), "--describe"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, universal_newlines=True, timeout=LIMIT_S)
        about = None if done.returncode else json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        fail(f"it took more than {LIMIT_S} s")
    except OSError as error:
        fail(error.strerror)
    except ValueError:
        fail("--describe printed no JSON")
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it gave no reason"]
        fail(f"exit status {done.returncode}: " + said[-1].replace(f"{path.name}: ", "", 1))
    if not isinstance(about, dict) or any(key not in about for key in KEYS):
        fail("--describe printed something else")
    return about


def listed():
    """The names of the programs of src/, in the order of the talk: as list_programs prints them."""
    if not any((PROJECT / "src").glob("*.cu")):
        return []
    command = ["bash", "-c", "source scripts/shared/programs.sh && list_programs"]
    return subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, check=True,
                          universal_newlines=True).stdout.split()


def latest_build(name):
    """Where a program lies: built for the GPU or for the simulator, whichever was done last."""
    builds = [PROJECT / name, PROJECT / "cpu" / name]
    return max((path for path in builds if path.exists()), default=builds[0],
               key=lambda path: path.stat().st_mtime)


def takes(about, option):
    return any(declared["name"] == option for declared in about["options"])


def fitting(sizes, declared):
    """Those of some sizes that a program can take."""
    return [size for size in sizes if size % declared["multiple"] == 0] if declared else []


def runs_to_show(about, n, s):
    """[(what it is called, arguments)] for one table of all programs."""
    runs = [(f"N={n}", str(n)) for n in fitting([n], about["sizes"])]
    if about["sweep"] == "always":  # its one run has every size, and the talk's shape
        return [("up to " + label, arguments) for label, arguments in runs]
    return runs + [(f"talk S={s}", f"--talk {s}") for s in fitting([s], about["talk"])]


def runs_to_measure(about, sizes=None, talk_sizes=None, first_dtype_alone=False):
    """[arguments] of the runs at the sizes asked for or, without any, at those that the program
    declares; None where it declares none at all."""
    declared, talk = [(about[key] or {}).get("measured", []) for key in ("sizes", "talk")]
    shapes = about["shapes"] or []
    if not (declared or talk or shapes):
        return None
    if sizes or talk_sizes:
        shapes = []
        declared = fitting(sizes or [], about["sizes"])
        talk = fitting(talk_sizes or [], about["talk"])
    dtypes = [""]
    if takes(about, "--dtype"):
        dtypes = [f" --dtype {name}" for name in about["dtypes"][:1 if first_dtype_alone else None]]
    return [
        arguments + dtype
        for dtype in dtypes
        for arguments in [str(n) for n in declared] + [f"--talk {s}" for s in talk]
        + [f"--rows {rows} --cols {cols}" for rows, cols in shapes]
    ]


def show(arguments):
    parser = command_line.Parser(prog="programs.py", add_help=False, allow_abbrev=False)
    parser.add_argument("program")
    parser.add_argument("n", type=int)
    parser.add_argument("s", type=int)
    options = parser.parse_args(arguments)
    for label, run in runs_to_show(describe(options.program), options.n, options.s):
        print(label, run, sep="\t")
    return OK


def measure(arguments):
    parser = command_line.Parser(prog="programs.py", add_help=False, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sizes", type=command_line.sizes())
    parser.add_argument("--talk", type=command_line.sizes())
    parser.add_argument("program")
    options = parser.parse_args(arguments)
    if options.quick:
        options.sizes, options.talk = [QUICK_SIZE], [QUICK_TALK_SIZE]
    about = describe(options.program)
    runs = runs_to_measure(about, options.sizes, options.talk, first_dtype_alone=options.quick)
    for run in runs or []:
        print(Path(options.program).name, run)
    return SKIPPED if runs is None else OK


def main(arguments):
    commands = {"show": show, "measure": measure}
    if not arguments or arguments[0] not in commands:
        return command_line.say("programs.py", "show or measure is expected", USAGE)
    try:
        return commands[arguments[0]](arguments[1:])
    except ProgramError as error:
        return command_line.say("programs.py", error, FAILED)


if __name__ == "__main__":
    command_line.run(main, __doc__)
