"""Reads what counting a program printed: DEMO_COUNT=1 on the simulator, or ncu's by count.sh."""

import re
from typing import NamedTuple

from shared import kernel_names

# The last number is conflicts where a kind has no sectors; those have the sectors of a request.
ROW = re.compile(r"    (?P<kind>[a-z]+(?: [a-z]+)?) +(?P<threads>[\d,]+) +(?P<requests>[\d,]+)"
                 r"(?: +(?P<bytes>[\d,]+)"
                 r"(?: +(?P<sectors>[\d,]+) +[\d.]+| +(?P<conflicts>[\d,]+)))?")


class Kernel(NamedTuple):
    program: str
    name: str
    blocks: str  # (8 x 8) blocks of (32 x 32) threads
    counts: dict  # {"global loads": {"threads": 65536, ...}}


def read(program, text):
    """A program's head, and its kernels."""
    head, *tables = text.rstrip("\n").split("\n\n")
    lines = head.split("\n")
    kernels = []
    for lines_of_table in (table.split("\n") for table in tables):
        title = kernel_names.LAUNCH.fullmatch(lines_of_table[0])
        if not title:
            continue
        counts = {}
        for row in map(ROW.fullmatch, lines_of_table[2:]):
            if not row:
                break  # what the lines of source have
            counts[row["kind"]] = {
                column: int(number.replace(",", "")) for column, number in row.groupdict().items()
                if column != "kind" and number is not None}
        kernels.append(Kernel(program, title["name"], lines_of_table[0].rpartition(",")[0], counts))
    return lines[:2 if lines[0].endswith(":") else 1], kernels
