#!/usr/bin/env python3
"""Prints the counts of several kernels in one table, for count.sh.

    side_by_side.py PROGRAM FILE [PROGRAM FILE ...]     FILE: what counting PROGRAM printed
"""

import textwrap

from shared import command_line
from shared.command_line import USAGE, Stop
from shared.counts import read

WIDTH = 79  # of a line that projects
NAME, NUMBER = 20, (15, 15, 15, 14)  # its columns
COLUMNS = ["threads", "requests", "bytes"]


def labels(kernels):
    """What the kernels are called: with the number of their program, where there are several."""
    if len({kernel.program for kernel in kernels}) == 1:
        return [kernel.name for kernel in kernels]
    words = [kernel.program.split("_")[0] for kernel in kernels]
    return [f"{word} {kernel.name}" if word.isdecimal() else kernel.name
            for word, kernel in zip(words, kernels)]


def spell(number):
    """With commas, as long as that fits."""
    return f"{number:,}" if number < 10**10 else f"{number:.4g}"


def spell_ratio(ratio):
    return f"{ratio:,.0f}" if ratio >= 1000 else f"{ratio:.3g}"


def compared(first, other):
    """How many times fewer, or more, that is than the first one."""
    if not first or not other:
        return ""
    if first == other:
        return "the same"
    return f"{spell_ratio(first / other)}x fewer" if first > other else (
        f"{spell_ratio(other / first)}x more")


def line(label, cells):
    """One or, where the label is too long, two lines."""
    numbers = "".join(cell.rjust(width) for cell, width in zip(cells, NUMBER))
    if len(label) > NAME:
        return f"{label}\n{'':{NAME}}{numbers}".rstrip()
    return f"{label:{NAME}}{numbers}".rstrip()


def print_kind(kind, kernels, names):
    found = [kernel.counts.get(kind) for kernel in kernels]
    known = set().union(*filter(None, found))
    columns = [column for column in [*COLUMNS, "sectors", "conflicts"] if column in known]
    print("\n" + line(kind, columns))
    for i, (name, counts) in enumerate(zip(names, found)):
        if counts is None:
            print(f"  {name:{NAME - 2}}{'none':>{NUMBER[0]}}")
            continue
        print(line(f"  {name}", [spell(counts[column]) for column in columns]))
        if i and found[0]:
            print(line("", [compared(found[0][column], counts[column]) for column in columns]))


def print_sentences(kernels, names):
    """The comparison in words: how often each asks global memory for something to load."""
    requests = [kernel.counts.get("global loads", {}).get("requests") for kernel in kernels]
    for name, other in zip(names[1:], requests[1:]):
        if not requests[0] or not other:
            continue
        more, less = (names[0], name) if requests[0] >= other else (name, names[0])
        ratio = max(requests[0], other) / min(requests[0], other)
        often = "as often" if ratio == 1 else f"{spell_ratio(ratio)} times as often"
        print(textwrap.fill(f"{more} loads from global memory {often} as {less}.", WIDTH))


def show(programs):
    """Prints what [(program, its output)] have counted."""
    kernels = []
    for program, text in programs:
        head, found = read(program, text)
        for said in (*head, *(f"  {kernel.blocks}" for kernel in found)):
            print(said if len(said) <= WIDTH else said.replace(": (", ":\n      ("))
        kernels += found
    if len(kernels) < 2:
        raise Stop("one kernel was counted, and it takes two to compare" if kernels else
                   "no kernel of these programs was counted")
    names = labels(kernels)
    kinds = dict.fromkeys(kind for kernel in kernels for kind in kernel.counts)
    for kind in kinds:
        print_kind(kind, kernels, names)
    print()
    print_sentences(kernels, names)


@command_line.reporting("count.sh")
def main(arguments):
    if not arguments or len(arguments) % 2:
        raise Stop("a program and a file are expected, for each", USAGE)
    show([(program, command_line.read_text(file))
          for program, file in zip(arguments[::2], arguments[1::2])])


if __name__ == "__main__":
    command_line.run(main, __doc__)
