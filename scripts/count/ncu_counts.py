#!/usr/bin/env python3
"""Prints ncu's counts in the form in which the simulator prints its own, for count.sh.

    ncu_counts.py metrics KNOWN         what to ask ncu for, of what it knows of this GPU
    ncu_counts.py table RAW.csv SASS.csv
"""

import csv
import re
import shutil

from shared import command_line, kernel_names
from shared.command_line import USAGE, Stop

# What instructions do. LDGSTS (cp.async) loads from global and stores to shared memory.
OPCODES = {
    "global loads": ["LDG", "LD", "LDGSTS"], "global stores": ["STG", "ST"],
    "global atomics": ["RED", "REDG", "ATOM", "ATOMG"], "shared loads": ["LDS", "LDSM"],
    "shared stores": ["STS", "STSM", "LDGSTS"], "shared atomics": ["ATOMS"], "barriers": ["BAR"]}
# What to add up, by column and kind: the ends of metrics' names, and what these begin with.
BEGINNINGS = {"sectors": "l1tex__t_sectors_pipe_lsu_mem_", "bytes": "smsp__sass_data_bytes_mem_"}
OPERATIONS = {
    "sectors": {"global loads": ["ld"], "global stores": ["st"], "global atomics": ["red", "atom"]},
    "bytes": {"global loads": ["ld", "ldgsts"], "global stores": ["st"],
              "global atomics": ["red", "atom"], "shared loads": ["ld", "ldsm"],
              "shared stores": ["st", "stsm", "ldgsts"], "shared atomics": ["atom"]}}


def metrics_of(column, kind):
    """ncu's names of the metrics of a column."""
    memory = kind.split()[0]
    return [f"{BEGINNINGS[column]}{memory}_op_{operation}"
            for operation in OPERATIONS[column].get(kind, [])]


def metrics(known):
    """ncu's names of all the metrics that are asked for and that this GPU has."""
    wanted = {name for column in OPERATIONS for kind in OPCODES
              for name in metrics_of(column, kind)}
    return ",".join(sorted(f"{name}.sum" for name in wanted & set(known.split())))


def number(text):
    return int(float(text.replace(",", ""))) if re.match(r"[\d,.]+$", text) else 0


def tables_of(lines):
    """The CSV tables in ncu's output, each as (header, rows); notes between them are left out."""
    found = []
    for row in csv.reader(line for line in lines if line.startswith('"')):
        if row[0] in ("Kernel Name", "ID", "Address"):
            found.append((row, []))
        elif found:
            found[-1][1].append(row)
    return found


def full_name(name):
    """ncu spells template arguments in two ways: kernel<1>(float *) and kernel<(int)1>(float *)."""
    return re.sub(r"\([a-z_ ]+\)(?=-?\d)", "", name)


def instructions(lines):
    """What each kernel's first launch executed: {name: {kind: {column: number}}}."""
    kernels = {}
    for header, rows in tables_of(lines):
        if header[0] == "Kernel Name":
            counts = {}
            kernels.setdefault(full_name(header[1]), counts)
            continue
        for row in rows:
            of = dict(zip(header, row))
            threads = number(of["Predicated-On Thread Instructions Executed"])
            words = [word for word in of["Source"].split() if not word.startswith("@")]
            if threads == 0 or not words:
                continue
            opcode = words[0].split(".")[0]
            for kind in [kind for kind, opcodes in OPCODES.items() if opcode in opcodes]:
                sums = counts.setdefault(kind, {"threads": 0, "requests": 0, "conflicts": 0})
                sums["threads"] += threads
                sums["requests"] += number(of["Instructions Executed"])
                # From the addresses. The hardware's own counter has other stalls among them.
                sums["conflicts"] += number(of.get("L1 Wavefronts Shared Excessive", "0"))
    return kernels


def shape(text):
    """(8 x 8), of "(8, 8, 1)"."""
    x, y, z = re.findall(r"\d+", text)
    return f"({x} x {y})" if z == "1" else f"({x} x {y} x {z})"


def print_cells(name, *cells):
    """A line as the simulator prints it: without bytes, where 100 columns have no room."""
    wide = shutil.get_terminal_size((100, 24)).columns >= 100
    widths = (15, 14, 17, 14, 9, 11) if wide else (14, 12, 0, 13, 9, 11)
    print(f"{name:20}{''.join(f'{cell:>{w}}' for cell, w in zip(cells, widths) if w)}".rstrip())


def print_table(raw, sass):
    [(header, (_units, *launches))] = tables_of(raw)
    column = {name: i for i, name in enumerate(header)}
    kernels = instructions(sass)
    for launch in launches:
        name = full_name(launch[column["Kernel Name"]])
        counts = kernels.pop(name, None)
        # Those that make the data and verify results are in the namespace demo.
        if counts is None or re.match(r"(void )?demo::", name):
            continue
        _, called, *_ = kernel_names.shorten(name)  # kernel<1>, as the simulator says it
        print(f"\n{called}: {shape(launch[column['Grid Size']])} blocks of "
              f"{shape(launch[column['Block Size']])} threads, one launch")
        print_cells("", "threads", "requests", "bytes", "sectors", "/request", "conflicts")
        for kind in filter(counts.get, OPCODES):
            sums = counts[kind]
            for field in OPERATIONS:
                names = [name + ".sum" for name in metrics_of(field, kind)]
                sums[field] = sum(number(launch[column[name]]) for name in names if name in column)
            fields = ["", "", "", ""]  # bytes, sectors, sectors per request, conflicts
            if kind != "barriers":
                fields[0] = f"{sums['bytes']:,}"
            if kind in OPERATIONS["sectors"]:
                fields[1] = f"{sums['sectors']:,}"
                fields[2] = f"{sums['sectors'] / sums['requests']:.2f}"
            elif kind != "barriers":
                fields[3] = f"{sums['conflicts']:,}"
            print_cells(f"    {kind}", f"{sums['threads']:,}", f"{sums['requests']:,}", *fields)


@command_line.reporting("ncu_counts.py")
def main(arguments):
    what, *files = arguments or [""]
    if (what, len(files)) not in (("metrics", 1), ("table", 2)):
        raise Stop("metrics or table is expected, then files", USAGE)
    texts = [command_line.read_text(file) for file in files]
    if what == "metrics":
        print(metrics(*texts))
    else:
        print_table(*(text.splitlines() for text in texts))


if __name__ == "__main__":
    command_line.run(main, __doc__)
