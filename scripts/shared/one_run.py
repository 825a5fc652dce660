"""What run.sh prints of its runs: the best kernel of each in a line, and at the end one table, of
the lessons or of all kernels. How files are put side by side is in comparison.py."""

import textwrap

from shared.measurements import NOISY_PCT, OWN, YARDSTICK, fastest, noisy, rate, read, simulated
from shared.table import figure, layout, number, ratio, size

COLUMNS = 79


def summary(file):
    rows = read(file).rows
    if all(map(simulated, rows)):
        rows = [row for row in rows if row["role"] != YARDSTICK] or rows  # as the table has them
        return f"{len(rows)} kernel{'s' * (len(rows) != 1)} verified"
    own = [row for row in rows if row["role"] in OWN]
    rows = own or [row for row in rows if row["role"] != YARDSTICK] or rows
    # The rows of a run may differ in their unit, but each has TFLOP/s, except a copy.
    best = max(rows, key=lambda row: (row["tflops"] or 0, row["gb_per_s"] or 0))
    value, unit = rate(best)
    text = f"{number(value)} {unit} ({best['kernel']}"
    return text + (f", the best of {len(rows)})" if len(rows) > 1 else ")")


def lessons(files):
    """A line for each program and size, below the usual size: at most 79 columns."""
    rows = [row for file in files for row in read(file).rows]
    usual, groups = size(rows[0]), {}
    for row in rows:
        groups.setdefault((row["program"], size(row)), []).append(row)
    labeled, last = [], None
    for (program, at), group in groups.items():
        at = "talk " * (group[0]["shape"] == "talk") + at
        label = (" " if program == last else program) + f" {at}" * (at != usual)
        labeled.append((label, group))
        last = program
    show = _kernels if all(map(simulated, rows)) else _speeds
    text = show(f"{rows[0]['gpu']}, {usual}", labeled)
    wrong = sum(row["verified"] != "yes" for row in rows)
    verdict = f"{wrong} of {len(rows)} WRONG" if wrong else "all verified"
    return f"{text}\nresults: {verdict}"


def _speeds(title, labeled):
    """What GPUs show: the program's best kernel, and below it what is wrong, and its record."""
    head = ["lesson", "kernel", "data", "rate" + 8 * " ", "chain", "library"]
    lines = []
    for label, group in labeled:
        best = fastest(group, "ours") or fastest(group, "chain", "library")
        wrong = [row for row in group if row["verified"] != "yes"]
        for row in filter(None, [best, *wrong, fastest(group, "record")]):
            lines.append([label or "  record" * (row["role"] == "record"), *_speed(row, group)])
            label = ""
    text = layout(head, lines, left=3)
    over = "speed-up over".rjust(text.index("\n") - len(title) - 2)
    notes = ["chain: one kernel per operation; library: its best call or calls"]
    if any(line[0] == "  record" for line in lines):
        notes.append("record: our fastest kernel, which another program explains")
    if any(line[3].startswith("~") for line in lines):
        notes.append(f"~: noisy, its samples spread over {NOISY_PCT:.0f}%: run that program again")
    return "\n".join([f"{title}  {over}", text, *notes])


def _speed(row, group):
    """A kernel's cells: its name, data, rate, and speed-up over the others of the same work."""
    value, unit = rate(row)
    good = row["verified"] == "yes"
    rivals = [other for other in group if other["dtype"] == row["dtype"] and other is not row
              and other["tflops"] is not None]  # a copy has none
    against = [fastest(rivals, "chain"), fastest(rivals, "library", YARDSTICK)]
    shown = "~" * noisy(row) + f"{number(value)} {unit:7}" if good else f"{figure(row, value):12}"
    return [row["kernel"], row["dtype"], shown,
            *(ratio(other["median_ms"], row["median_ms"]) if good and other else "-"
              for other in against)]


def _kernels(title, labeled):
    """What the simulator shows: the kernels that ran."""
    room = COLUMNS - 2 - max(len(label) for label, _ in labeled)
    lines = []
    for label, group in labeled:
        names = [row["kernel"] + " (WRONG)" * (row["verified"] != "yes") for row in group
                 if row["role"] != YARDSTICK or row["verified"] != "yes"]
        for text in textwrap.wrap(", ".join(names), room):
            lines.append([label, text])
            label = ""
    return (f"{title}; no times, which would say nothing about a GPU\n"
            + layout(["lesson", "kernels that ran"], lines, left=2))


def run(files):
    """A line for each kernel, below the name of its program: at most 79 columns."""
    rows = [row for file in files for row in read(file).rows]
    head = ["  kernel", "data", "size", "time/ms", "rate", "verified"]
    cells, above, program = [], {}, None
    for row in rows:
        value, unit = rate(row)
        unit = unit if value is not None else ""
        verdict = {"no": "wrong"}.get(row["verified"], row["verified"])
        figures = [number(row["median_ms"]), f"{number(value)} {unit:7}"]
        if simulated(row):
            figures = ["(CPU) " + figures[0], ""]
        else:
            verdict += ", noisy" * noisy(row)
        if row["program"] != program:
            program = above[len(cells)] = row["program"]
        cells.append(["  " + row["kernel"], row["dtype"], size(row), *figures, verdict])
    return layout(head, cells, left=3, above=above)
