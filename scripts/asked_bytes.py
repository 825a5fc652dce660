#!/usr/bin/env python3
"""How many bytes of global memory the threads of our matmul kernels ask for, as the simulator
counts them, for plot.py's second roofline.

    asked_bytes.py         counts, and writes results/counts/asked_bytes.csv: takes some two minutes

A kernel asks for a N^3 + b N^2 bytes: every multiply-add has its share of loads, and every result a
store. So counts at two sizes give those of any. Of a kernel whose tile depends on N, as of those
that not every GPU runs, this would not be true: it is left out. Needs what `scons cpu` builds with
g++.
"""

import csv
import functools
import io
import os
import subprocess
from typing import Dict, NamedTuple

from shared import command_line, programs
from shared.command_line import FAILED, PROJECT, USAGE, Stop

FILE = PROJECT / "results/counts/asked_bytes.csv"
SIZES = (256, 512)


class Kernel(NamedTuple):
    program: str
    name: str


def read() -> Dict[Kernel, Dict[int, int]]:
    """{kernel: {N: bytes}}, as counted."""
    found = {}
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            kernel = Kernel(row["program"], row["kernel"])
            found.setdefault(kernel, {})[int(row["n"])] = int(row["asked_bytes"])
    return found


def at(counted, n):
    """The bytes at another N: a N^3 + b N^2 through both counts."""
    (n0, bytes0), (n1, bytes1) = sorted(counted.items())
    a = (bytes1 / n1**2 - bytes0 / n0**2) / (n1 - n0)
    return a * n**3 + (bytes0 / n0**2 - a * n0) * n**2


@functools.lru_cache(maxsize=None)  # count() asks again, for each size
def own_kernels(program):
    """The names of a program's own kernels that run on every GPU, if it is about one product of
    matrices."""
    about = programs.describe(PROJECT / "cpu" / program)
    contenders = about["contenders"]
    one = [problem["memory_bound"] for problem in about["problems"]] == [False]
    sweeps = about["sweep"] == "always"
    if sweeps or not one or any(each["role"] == "chain" for each in contenders):
        return set()
    return {each["kernel"] for each in contenders if each["role"] == "ours" and not each["needs"]}


def count(program, n):
    """{(kernel, the instance of it that was launched): bytes} of the program's own kernels, from
    one run on the simulator."""
    own = own_kernels(program)
    done = subprocess.run([str(PROJECT / "cpu" / program), str(n)], capture_output=True, text=True,
                          env={**os.environ, "DEMO_COUNT": "csv"})
    if done.returncode:
        raise Stop(done.stderr.strip() or f"{program} {n} ended with {done.returncode}",
                   done.returncode if done.returncode > 0 else FAILED)  # below 0: a signal
    asked = {}
    lines = done.stdout[done.stdout.index("kernel,what,"):].splitlines()
    for row in csv.DictReader(lines):
        name = row["kernel"].partition("<")[0]  # without template arguments
        if name in own and row["what"].split()[0] in ("global", "bulk", "tile"):
            launched = Kernel(program, name), row["kernel"]
            asked[launched] = asked.get(launched, 0) + int(row["asked_bytes"])
    return asked


@command_line.reporting("asked_bytes.py")
def main(arguments):
    if arguments:
        raise Stop("no arguments are expected", USAGE)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow("program kernel n asked_bytes".split())
    for program in filter(own_kernels, programs.listed()):
        counts = [count(program, n) for n in SIZES]
        for kernel, instance in counts[0]:
            if all((kernel, instance) in asked for asked in counts):
                for n, asked in zip(SIZES, counts):
                    writer.writerow([*kernel, n, asked[kernel, instance]])
    FILE.parent.mkdir(exist_ok=True)
    command_line.write_text(FILE, text.getvalue())


if __name__ == "__main__":
    command_line.run(main, __doc__)
