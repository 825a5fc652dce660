"""Files of results side by side: the lines of programs x GPUs with ratios to one of them, the best
kernel of each program, and a summary. Whether two runs of one GPU agree is told by differences.py.
"""

from statistics import geometric_mean
from typing import List, NamedTuple

from shared import data_sheets
from shared.measurements import (
    TableError,
    has_figure,
    key,
    of_experiment,
    own_kernels,
    plotted,
    rate,
    shown_rate,
    without_figure,
)
from shared.table import figure, number, ratio, short_titles, size

KINDS = ["matmul, tensor cores", "matmul, fp32", "fusion", "memory"]


def side_by_side(tables):
    """{what was measured: its row in each file, or None}, in the talk's order. A program that did
    not run has one row without a kernel: it stands for each kernel that another file has."""
    ran = {run for results in tables for row in results.rows if row["kernel"]
           for run in runs_of(row)}
    stopped = [{runs_of(row)[0]: row for row in results.rows if not row["kernel"]}
               for results in tables]
    cells_of = {}
    for i, table in enumerate(tables):
        for row in table.rows:
            if row["kernel"] or runs_of(row)[0] not in ran:
                cells_of.setdefault(key(row), [None] * len(tables))[i] = row
    for cells in cells_of.values():
        some = next(filter(None, cells))
        for i, row_of in enumerate(stopped):
            if cells[i] is None:
                cells[i] = next((row_of[run] for run in runs_of(some) if run in row_of), None)
    return cells_of


def runs_of(row):
    """The run that made a row, and what it is called where the program stopped before it told its
    data type."""
    run = tuple(row[name] for name in ("program", "shape", "n"))
    return (*run, row["dtype"]), (*run, "")


def nothing_in_common(tables):
    """What to say of files of which no two have a program in common; empty where two have."""
    names = [name for results in tables for name in {row["program"] for row in results.rows}]
    apart = len(tables) > 1 and len({*names}) == len(names)
    return apart * "no program was measured in two of these files, so there is nothing to compare"


class Line(NamedTuple):
    """What was measured, and what each file has of it. Of several best kernels all are named."""

    program: str
    kernel: str
    dtype: str
    size: str
    unit: str
    cells: List[tuple]  # of each file: its figure, and its ratio to the baseline's, as text


def lines_of(tables, wanted, baseline):
    """The lines of programs x GPUs, and what must be said below them."""
    lines, doubts = [], []
    for (program, kernel, _, _, _), rows in side_by_side(tables).items():
        some = next(filter(None, rows))
        if not wanted(some) or some["predicted_ms"]:  # a prediction compares no GPUs
            continue
        line = _line(kernel, rows, baseline)
        for i, (row, results) in enumerate(zip(rows, tables)):
            doubt = has_figure(row) and data_sheets.doubt(results.gpu, row)
            if doubt:
                line.cells[i] = line.cells[i][0] + "!", line.cells[i][1]
                doubts.append(f"! {results.gpu}, {program} {kernel} {size(row)}: {doubt}")
        lines.append(line)
    if not lines:
        raise TableError("no file has results of the sizes asked for")
    return lines, doubts


def _line(kernel, rows, baseline):
    """The Line of one row in each file."""
    some = next(filter(has_figure, rows), None) or next(filter(None, rows))
    units = [shown_rate(row)[1] for row in rows if row]
    unit = next((unit for unit in units if unit != "TFLOP/s"), "TFLOP/s")
    values = [shown_rate(row)[0] if has_figure(row) and shown_rate(row)[1] == unit else None
              for row in rows]
    cells = []
    for i, (row, value) in enumerate(zip(rows, values)):
        both = value and values[baseline] and i != baseline
        cells.append(("missing" if row is None else figure(row, value),
                      ratio(value, values[baseline]) if both else "-" * (i != baseline)))
    return Line(some["program"], kernel or "-", some["dtype"] or "-", size(some), unit, cells)


def kind(rows):
    """What a program's rows of one data type and shape say of a GPU."""
    if any(row["gb_per_s"] is not None for row in rows):
        return "memory"
    if any(row["role"] == "chain" for row in rows):
        return "fusion"
    return "matmul, fp32" if rows[0]["dtype"] == "fp32" else "matmul, tensor cores"


def best_kernels(tables, wanted):
    """[(kind, each file's best kernel)] of each program, data type, shape and size. Where a file
    has no figure, a row that says why, or None."""
    groups = {}
    for i, results in enumerate(tables):
        for row in plotted(results.rows):
            if wanted(row) and not of_experiment(row):
                at = tuple(row[name] for name in ("program", "dtype", "shape", "n"))
                groups.setdefault(at, [[] for _ in tables])[i].append(row)
    found = []
    for rows_of in groups.values():
        every = sum(rows_of, [])
        best = [max(own_kernels(rows), key=lambda row: rate(row)[0]) if rows else
                next(iter(without_figure(results.rows, every[0])), None)
                for rows, results in zip(rows_of, tables)]
        found.append((kind(every), best))
    return found


def best_of(tables, wanted, baseline):
    """A line for each program, data type and size: its best kernel on each GPU."""
    lines = []
    for _, rows in best_kernels(tables, wanted):
        names = dict.fromkeys(row["kernel"] for row in rows if has_figure(row))
        lines.append(_line(", ".join(names), rows, baseline))
    return lines


def summary_of(tables, wanted, baseline):
    """(head, lines) by kind of work: the ratio of each GPU to the baseline's, and in brackets of
    how many results it is the mean. Of one file: its best, and how much that is of the peak."""
    every = best_kernels(tables, wanted)
    found = {name: [best for kind, best in every if kind == name] for name in KINDS}
    if len(tables) == 1:
        return _peaks(tables[0], found)
    others = [i for i in range(len(tables)) if i != baseline]
    lines = []
    for name, kernels in found.items():
        cells = []
        for i in others:
            ratios = [rate(best[i])[0] / rate(best[baseline])[0] for best in kernels
                      if has_figure(best[baseline]) and has_figure(best[i])]
            cells.append(f"{ratio(geometric_mean(ratios), 1)} ({len(ratios)})" if ratios else "-")
        if set(cells) != {"-"}:
            lines.append([name, *cells])
    names = short_titles(tables)
    return [f"ratio to {names[baseline]}"] + [names[i] for i in others], lines


def _peaks(results, found):
    lines = []
    for name, kernels in found.items():
        if kernels:
            best = max((row for (row,) in kernels), key=lambda row: rate(row)[0])
            value, unit = rate(best)
            peak = data_sheets.peak(results.gpu, best)
            lesson, *_ = best["program"].split("_")
            program = lesson if lesson.isdecimal() else best["program"]  # 79 columns
            lines.append([name, f"{number(value)} {unit}", f"{value / peak:.0%}" if peak else "-",
                          f"{best['kernel']} of {program}"])
    return ["the best in", results.gpu, "of peak", "kernel"], lines


def about_summary(tables):
    """What the figures of summary_of() are."""
    if len(tables) == 1:
        return "Peak: what the data sheet says of the data type, or of the memory"
    return ("Geometric mean over the best kernel of each program, size and data type; in brackets: "
            "of how many")


def baseline_of(text, tables):
    """The place of the file that ratios are to: given by its number from 1, or by its name."""
    for i, results in enumerate(tables):
        if text in (str(i + 1), str(results.path), results.path.name):
            return i
    raise TableError(f"--baseline {text}: a file's number from 1 to {len(tables)}, or its name, is "
                     "expected")


def headed(lines, best):
    """{what some lines have in common: those lines}. The rest of a line's names is its kernel, or
    its program where it is about the best, and its data type."""
    found = {}
    for line in lines:
        title = f"{line.size}, {line.unit}"
        found.setdefault(title if best else f"{line.program} {title}", []).append(line)
    return found
