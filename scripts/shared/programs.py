#!/usr/bin/env python3
"""The programs: what they are called, what each says of itself (--describe), how it is to be run.

    programs.py WHO WORD [ARGUMENT ...]    prints the name of the program that WORD is the name or
                                           number of; where there is none, or it does not take the
                                           arguments, WHO says so, and the exit status is 2
"""

import json
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from shared import command_line
from shared.command_line import PROJECT, USAGE

LIMIT_S = 60
# What the scripts need of it.
KEYS = "program sweep sizes talk shapes dtypes options".split()


# --- Their names ----------------------------------------------------------------------------------


def listed():
    """The names of the programs of src/, in the order of the talk: the numbers, then the bonuses.
    """

    def place(name):
        number = name.split("_")[0]
        return (0, int(number), name) if number.isdecimal() else (1, 0, name)

    return sorted((path.stem for path in (PROJECT / "src").glob("*.cu")), key=place)


def lessons():
    """The numbers among them."""
    return [name for name in listed() if name[0].isdecimal()]


def named(word, names):
    """The one of some programs that has this name or number, or None."""
    for name in names:
        if word == name or re.fullmatch("[0-9]+", word) and name.startswith(word + "_"):
            return name
    return None


def find(word):
    """The program of that name or number. Raises Stop."""
    names = listed()
    found = named(word, names)
    if not found:
        raise command_line.Stop(f"no program '{word}'; there are {' '.join(names)}", USAGE)
    return found


def source(name):
    """The text of its file, which tells some of what it declares before it is built."""
    return command_line.read_text(PROJECT / f"src/{name}.cu")


def checked(name, arguments):
    """The program's name. Raises Stop where it would refuse the arguments: an N, which comes first,
    or an option that no program has."""
    step, kind = 32, "a multiple of 32"
    if re.search(r"\.any_(n|shape) = true", source(name)):
        step, kind = 1, "a whole number from 1 up"
    for word in arguments:
        if word.startswith("--"):
            if not any(f'"{word}"' in command_line.read_text(path) for folder in ("include", "src")
                       for path in (PROJECT / folder).rglob("*.[ch]*")):
                raise command_line.Stop(f"{name} has no option '{word}'", USAGE)
        elif word == arguments[0] != "-h" and not (
                re.fullmatch("[0-9]{1,18}", word) and int(word) and int(word) % step == 0):
            raise command_line.Stop(f"{name} takes an N that is {kind}, not '{word}'", USAGE)
    return name


def latest_build(name):
    """Where a program lies: built for the GPU or for the simulator, whichever was done last."""
    builds = [PROJECT / name, PROJECT / "cpu" / name]
    return max((path for path in builds if path.exists()), default=builds[0],
               key=lambda path: path.stat().st_mtime)


# --- What they are --------------------------------------------------------------------------------


class ProgramError(command_line.Stop):
    """A program that does not describe itself. The message names it."""


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


def takes(about, option):
    """Whether a program declares an option."""
    return any(declared["name"] == option for declared in about["options"])


# --- How they are run -----------------------------------------------------------------------------


def fitting(sizes, declared):
    """Those of some sizes that a program can take."""
    return [size for size in sizes if size % declared["multiple"] == 0] if declared else []


def runs_to_show(about, n, s):
    """[(what it is called, arguments)] for one table of all programs. Without n each program has
    the N that it would take by itself."""
    sizes = about["sizes"]
    n = n or (sizes or {}).get("default")
    runs = [(f"N={n}", str(n)) for n in fitting([n], sizes)]
    if about["sweep"] == "always":  # its one run has every size, and the talk's shape
        return [("up to " + label, arguments) for label, arguments in runs]
    return runs + [(f"talk S={s}", f"--talk {s}") for s in fitting([s], about["talk"])]


class Run(NamedTuple):
    """One run of a program, and what its rows say of it. dtype: empty where there is no choice."""

    arguments: str
    shape: str
    n: int
    dtype: str = ""


def runs_to_measure(about, sizes=None, talk_sizes=None, first_dtype_alone=False):
    """[Run] at the sizes asked for or, without any, at those that the program declares; None where
    it declares none at all."""
    declared, talk = [(about[key] or {}).get("measured", []) for key in ("sizes", "talk")]
    asked = sizes or talk_sizes
    shapes, variants = about["shapes"] or [], [] if asked else about.get("variants", [])
    if not (declared or talk or shapes or variants):
        return None
    if asked:
        shapes = []
        declared = fitting(sizes or [], about["sizes"])
        talk = fitting(talk_sizes or [], about["talk"])
    runs = [Run(str(n), "square", n) for n in declared]
    runs += [Run(f"--talk {s}", "talk", s) for s in talk]
    runs += [Run(f"--rows {rows} --cols {cols}", f"{rows}x{cols}", rows) for rows, cols in shapes]
    for variant in variants:
        n, options = variant.split(" ", 1)
        runs.append(Run(variant, options.replace("--", ""), int(n)))  # a name begins with no dash
    return in_each_dtype(about, runs, first_dtype_alone)


def runs_of_grid(about):
    """[Run] of the kernels and at the sizes that a program declares for its grid; None without."""
    grid = about.get("grid")
    if not grid:
        return None
    kernels = ",".join(grid["kernels"])
    return in_each_dtype(about, [Run(f"{n} --kernel {kernels}", "square", n)
                                 for n in grid["sizes"]])


def in_each_dtype(about, runs, first_alone=False):
    """[Run] of all data types, one type after the other."""
    if not takes(about, "--dtype"):
        return runs
    return [run._replace(arguments=f"{run.arguments} --dtype {dtype}", dtype=dtype)
            for dtype in about["dtypes"][:1 if first_alone else None] for run in runs]


def main(arguments):
    if len(arguments) < 2:
        return command_line.say("programs.py", "WHO and WORD are expected", USAGE)
    who, word, *more = arguments
    return command_line.attempt(who, lambda: print(checked(find(word), more)))


if __name__ == "__main__":
    command_line.run(main, __doc__)
