#!/usr/bin/env python3
"""Prints ncu's counts in the form in which the CPU lane prints its own, for count.sh.

usage: ncu_counts.py metrics KNOWN         what to ask ncu for, of what it knows of this GPU
       ncu_counts.py table RAW.csv SASS.csv
"""

import csv
import re
import sys

KINDS = ["global loads", "global stores", "global atomics", "shared loads", "shared stores",
         "shared atomics", "barriers"]

# What an instruction does. LDGSTS (cp.async) loads from global and stores to shared memory.
OPCODES = {
    "LDG": ["global loads"], "LD": ["global loads"], "LDGSTS": ["global loads", "shared stores"],
    "STG": ["global stores"], "ST": ["global stores"],
    "RED": ["global atomics"], "REDG": ["global atomics"], "ATOM": ["global atomics"],
    "ATOMG": ["global atomics"],
    "LDS": ["shared loads"], "LDSM": ["shared loads"],
    "STS": ["shared stores"], "STSM": ["shared stores"],
    "ATOMS": ["shared atomics"],
    "BAR": ["barriers"],
}  # yapf: disable

SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_"
BYTES = "smsp__sass_data_bytes_mem_"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_"
METRICS = {  # what to add up, by column and row
    "sectors": {"global loads": [SECTORS + "ld"], "global stores": [SECTORS + "st"],
                "global atomics": [SECTORS + "red", SECTORS + "atom"]},
    "bytes": {"global loads": [BYTES + "global_op_ld", BYTES + "global_op_ldgsts"],
              "global stores": [BYTES + "global_op_st"],
              "global atomics": [BYTES + "global_op_red", BYTES + "global_op_atom"],
              "shared loads": [BYTES + "shared_op_ld", BYTES + "shared_op_ldsm"],
              "shared stores": [BYTES + "shared_op_st", BYTES + "shared_op_stsm",
                                BYTES + "shared_op_ldgsts"],
              "shared atomics": [BYTES + "shared_op_atom"]},
    "conflicts": {"shared loads": [CONFLICTS + "ld"], "shared stores": [CONFLICTS + "st"],
                  "shared atomics": [CONFLICTS + "atom"]},
}  # yapf: disable


def metrics(known):
    """ncu's names of all the metrics above that this GPU has."""
    wanted = {name for rows in METRICS.values() for names in rows.values() for name in names}
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


def instructions(lines):
    """Of each kernel's first launch: {name: {kind: (threads, requests)}}, by opcode."""
    kernels = {}
    for header, rows in tables_of(lines):
        if header[0] == "Kernel Name":
            counts = {}
            kernels.setdefault(header[1], counts)
            continue
        column = {name: i for i, name in enumerate(header)}
        for row in rows:
            words = [w for w in row[column["Source"]].split() if not w.startswith("@")]
            for kind in OPCODES.get(words[0].split(".")[0], []) if words else []:
                threads, requests = counts.get(kind, (0, 0))
                counts[kind] = (
                    threads + number(row[column["Predicated-On Thread Instructions Executed"]]),
                    requests + number(row[column["Instructions Executed"]]))
    return kernels


def plain_name(name):
    """kernel<float>, of "void kernel<float>(const T1 *)", as the CPU lane says it."""
    name = re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", name)
    name = re.sub(r"^void ", "", name)
    depth = 0
    for i in range(len(name) - 1, -1, -1):
        depth += (name[i] == ")") - (name[i] == "(")
        if name[i] == "(" and depth == 0:
            return name[:i]
    return name


def shape(text):
    """(8 x 8), of "(8, 8, 1)"."""
    x, y, z = re.findall(r"\d+", text)
    return f"({x} x {y})" if z == "1" else f"({x} x {y} x {z})"


def print_table(raw, sass):
    [(header, (_units, *launches))] = tables_of(raw)
    column = {name: i for i, name in enumerate(header)}
    kernels = instructions(sass)
    for launch in launches:
        name = launch[column["Kernel Name"]]
        counts = kernels.pop(name, None)
        # Those that make the data and verify results are in the namespace demo.
        if counts is None or plain_name(name).startswith("demo::"):
            continue
        print(f"\n{plain_name(name)}: {shape(launch[column['Grid Size']])} blocks of "
              f"{shape(launch[column['Block Size']])} threads, one launch")
        print(f"{'':20}{'threads':>15}{'requests':>14}{'bytes':>17}{'sectors':>14}"
              f"{'/request':>9}{'conflicts':>11}")
        for kind in KINDS:
            threads, requests = counts.get(kind, (0, 0))
            if requests == 0:
                continue
            fields = {"sectors": "", "bytes": "", "conflicts": ""}
            for field, rows in METRICS.items():
                if kind in rows:
                    values = [launch[column[m + ".sum"]] for m in rows[kind]
                              if m + ".sum" in column]
                    fields[field] = f"{sum(map(number, values)):,}"
            per_request = ""
            if kind in METRICS["sectors"]:
                per_request = f"{number(fields['sectors']) / requests:.2f}"
            print(f"    {kind:16}{threads:15,}{requests:14,}{fields['bytes']:>17}"
                  f"{fields['sectors']:>14}{per_request:>9}{fields['conflicts']:>11}")


def main(arguments):
    def read(path):
        with open(path, encoding="utf-8") as file:
            return file.read()

    if arguments[:1] == ["metrics"] and len(arguments) == 2:
        print(metrics(read(arguments[1])))
    elif arguments[:1] == ["table"] and len(arguments) == 3:
        print_table(read(arguments[1]).splitlines(), read(arguments[2]).splitlines())
    else:
        sys.exit(__doc__.strip())


if __name__ == "__main__":
    main(sys.argv[1:])
