#!/usr/bin/env python3
"""Prints the programs whose mutants scripts/test.sh builds and tests: those that differ from the
main branch, by their .cu, their page in tests/programs or a header in src/ that they include.

Compared is the tree as it is, uncommitted files too, with where its branch left origin's default
branch, or `main`. Where what all programs share differs, a sample of them is printed, a lesson of
each room; where nothing does, or git knows no such commit, lessons 1, 2, 3 and 6.
"""

import re

from shared import command_line, programs
from shared.command_line import PROJECT

USUAL = {"1", "2", "3", "6"}  # lessons' numbers
SAMPLE = USUAL | {"7", "11", "12", "13"}
SHARED = re.compile(r"include/|src/demo/|simulator/|tests/[^/]*$|tests/simulator/")


def git(*arguments):
    """What git prints; nothing where it is not there."""
    return command_line.output("git", *arguments)[1]


def changed_files():
    """The names of all files that differ."""
    branch = git("symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD").strip()
    base = git("merge-base", "HEAD", branch or "main").strip()
    if not base:
        return set()
    new = git("ls-files", "-z", "--others", "--exclude-standard")
    return set(filter(None, (git("diff", "--name-only", "-z", base) + new).split("\0")))


def own_files(program):
    """Those whose change is this program's: its source, with its headers of src/, and its page."""
    found = set()

    def visit(name):
        path = PROJECT / "src" / name
        if f"src/{name}" not in found and path.is_file():
            found.add(f"src/{name}")
            text = path.read_text(encoding="utf-8")
            for included in re.findall(r'^#include "(\w+/\w+\.\w+)"', text, re.MULTILINE):
                visit(included)

    visit(f"{program}.cu")
    return found | {f"tests/programs/{program}.py"}


def chosen():
    changed = changed_files()
    names = programs.listed()
    different = [name for name in names if changed & own_files(name)]
    numbers = SAMPLE if any(map(SHARED.match, changed)) else set() if different else USUAL
    return [name for name in names if name in different or name.split("_")[0] in numbers]


if __name__ == "__main__":
    print("\n".join(chosen()))
