"""The programs that the exercises' tests run: of each exercise with a patch the solution, and the
wrong answers of docs/exercises/facts.py; where they count, also the programs as they come."""

import functools
import re

from pages import SRC, in_one, in_place, kernel_headers
from shared import exercises
from shared.exercises import with_edits

QUICK = (4, 8, 16, 21, 40, 44)  # which count nothing; scripts/test.sh judges these without --full
FACTS = exercises.facts()
SOLVED = [each for each in exercises.read() if each.patch and each.number in FACTS]


def name_of(exercise, slip=None):
    """The name among those of bundles.all_in_one(): of its solution, or of a wrong answer."""
    wrong = "" if slip is None else f"_wrong_{FACTS[exercise.number].slips.index(slip) + 1}"
    return f"exercise_{exercise.number}{wrong}"


def bundle_of(exercise):
    """The program that holds its programs, cpu/exercises/NAME."""
    if exercise.number in QUICK:
        return "quick"
    return "counting" if exercises.counting(exercise, FACTS[exercise.number]) else "plain"


def slips(exercise):
    """Its wrong answers that are programs."""
    return [slip for slip in FACTS[exercise.number].slips if slip.edits]


@functools.lru_cache(maxsize=None)
def source(program, changed="", edits=()):
    """The text of a program with its kernels' headers in place, where lines keep their numbers, and
    with edits of one file."""
    parts = []
    headers = kernel_headers(program)
    for name in (*headers, f"{program}.cu"):
        text = (SRC / name).read_text("utf-8")
        if changed == f"src/{name}":
            text = with_edits(f"{program} {edits}", edits, text)
        parts.append(f'#line 1 "src/{name}"\n{in_place(text, headers)}')
    return "".join(parts)


def edits_of(exercise, slip=None):
    """What makes the solution, or a wrong answer, of the program as it comes."""
    solution = exercises.read_patch(exercise.patch).edits
    if slip is None:
        return tuple(solution)
    return (*solution, *slip.edits) if slip.of_solution else tuple(slip.edits)


def numberless(printed):
    """What a program of a bundle printed, with the kernels' own names: where versions of a program
    differ, bundles.share() has numbered their kernels."""
    return re.sub(r"\b([A-Za-z]\w*)_\d+(?=(<[^<>]*>)?(: |, block |, launched ))", r"\1", printed)


def texts(bundle):
    """{namespace: {name: text}} of a bundle's programs, for bundles.all_in_one(): the versions of a
    program share what they have in common."""
    some = [each for each in SOLVED if bundle_of(each) == bundle]
    found = {}
    for each in some:
        changed = exercises.read_patch(each.patch).file
        of_program = found.setdefault(in_one(each.program), {})
        for slip in (None, *slips(each)):
            of_program[name_of(each, slip)] = source(each.program, changed, edits_of(each, slip))
        if bundle == "counting":
            of_program[in_one(each.program)] = source(each.program)
    return found
