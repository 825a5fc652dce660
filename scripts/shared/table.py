#!/usr/bin/env python3
"""Reads the CSV that the programs and compare_gpus.sh write, and shows it as tables.

    table.py summary FILE            one line: the best kernel of one program's run
    table.py lessons FILE ...        one run in brief: a line for each program and size
    table.py run FILE ...            one run in full: a line for each kernel

compare_gpus.sh --table is compare(): programs x GPUs, a column for each file, with its ratio to one
of them. Columns are found by name; a file may begin with `# name: value` lines. Bad input: one
line, exit 2.
"""

import collections
import csv
import io
import math
import re
import statistics
import textwrap
from pathlib import Path
from typing import Dict, List, NamedTuple

from shared import command_line, data_sheets, programs
from shared.command_line import USAGE

REQUIRED = (
    "program kernel gpu sm dtype shape n median_ms spread_pct tflops gb_per_s verified role".split()
)
# What else a file may have; empty where nobody measured or counted it.
OPTIONAL = (
    "error_of_bound launches temp_bytes moved_bytes least_bytes output_hash "
    "predicted_ms as_predicted figure unit sm_mhz temperature_c power_w throttled note".split()
)
NUMBERS = (  # may be empty
    "median_ms spread_pct tflops gb_per_s launches moved_bytes least_bytes "
    "predicted_ms figure sm_mhz temperature_c power_w"
).split()
WORDS = "program kernel dtype shape".split()
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.+-]*")
VERDICTS = ("yes", "no", "failed", "skipped")  # of the column `verified`
# What a kernel is to its program, in the column `role`. A program that stopped has none.
ROLES = ("ours", "chain", "library", "yardstick", "record", "mistake", "limit")
OWN = ("ours", "record")  # the suite's own kernels
YARDSTICK = "yardstick"  # a library's kernel, or a copy: that computes nothing, so no TFLOP/s
MISTAKE = "mistake"  # measured in a wrong way, to show what that claims
NOISY_PCT = 2.0  # a spread above it
ALIKE_PCT = 3.0  # two runs of one GPU, or of two of one kind, lie within it
WORST = 5  # of the rows that do not, so many are shown
COLUMNS = 79  # of the tables for a screen


class TableError(command_line.Stop):
    """Input that is no table of results. The message is one line."""

    status = USAGE


class Results(NamedTuple):
    path: Path
    about: Dict[str, str]  # the `# name: value` lines
    rows: List[dict]  # as text, but n is an int, and NUMBERS are floats or None

    @property
    def gpu(self):
        return self.about.get("GPU") or self.rows[0]["gpu"] or self.path.name

    @property
    def place(self):
        """Which machine of several measured it, and which GPU there: node1, 0@node1. Or empty."""
        return self.about.get("place", "")

    @property
    def protocol(self):
        return self.about.get("protocol") or "unknown"


# --- Reading ----------------------------------------------------------------------------------


def read(path, mistakes=False):
    """Reads and checks one file, without the rows that are wrong on purpose, unless these are asked
    for. Raises TableError."""
    path = Path(path)
    comments, lines = _split(path)
    pairs = (comment.lstrip("# ").partition(":") for comment in comments)
    about = {name.strip(): value.strip() for name, _, value in pairs}
    reader = csv.DictReader(lines, strict=True)
    try:
        missing = [name for name in REQUIRED if name not in (reader.fieldnames or [])]
        if not reader.fieldnames:
            raise TableError(f"{path}: no results in it")
        if missing:
            raise TableError(f"{path}: no column named {', '.join(missing)}")
        rows, seen = [], set()
        for row in reader:
            where = f"{path}, line {len(comments) + reader.line_num}"
            rows.append(_check(row, where))
            # A yardstick stands in each of a program's comparisons; all else is measured once.
            if key(rows[-1]) in seen and rows[-1]["role"] != YARDSTICK:
                raise TableError(f"{where}: a second row of what was measured before; remove one")
            seen.add(key(rows[-1]))
    except csv.Error as error:
        raise TableError(f"{path}, line {len(comments) + reader.line_num}: {error}")
    if not rows:
        raise TableError(f"{path}: no results in it")
    if about.get("rows", str(len(rows))) != str(len(rows)):
        raise TableError(f"{path}: truncated? {len(rows)} rows, and it says {about['rows']}")
    right = [row for row in rows if row["role"] != MISTAKE]
    return Results(path, about, rows if mistakes else right or rows)


def read_all(who, paths):
    """Several files to be shown side by side: says so, as `who`, where their figures are not
    comparable."""
    tables = [read(path) for path in paths]
    if mixed(tables):
        command_line.say(who, mixed(tables))
    return tables


def mixed(tables):
    """What to say of files that were not measured alike; empty where they were."""
    protocols = sorted({table.protocol for table in tables})
    text = "measured by different protocols, so not comparable: " + ", ".join(protocols)
    return text if len(protocols) > 1 else ""


def _split(path):
    """A file's comment lines, and the CSV after them."""
    try:
        # Mailed files come with other line ends, and with a byte order mark.
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"{path}: {getattr(error, 'strerror', None) or 'not a text file'}")
    for number, line in enumerate(lines, 1):
        if not line.isprintable():
            raise TableError(f"{path}, line {number}: control characters, so no line of results")
    body = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return lines[:body], lines[body:]


def _check(row, where):
    if None in row or None in row.values():
        raise TableError(f"{where}: too {'many' if None in row else 'few'} fields")
    row = {**dict.fromkeys(OPTIONAL, ""), **row}
    for name in WORDS:
        if row[name] and not WORD.fullmatch(row[name]):
            raise TableError(f"{where}: {name} is no name: {row[name]!r}")
    if not re.fullmatch("[1-9][0-9]{0,8}", row["n"]):
        raise TableError(f"{where}: n is no size: {row['n']!r}")
    if row["verified"] not in VERDICTS:
        raise TableError(f"{where}: verified is none of {', '.join(VERDICTS)}: "
                         f"{row['verified']!r}")
    if row["role"] not in ROLES and (row["role"] or row["kernel"]):
        raise TableError(f"{where}: role is none of {', '.join(ROLES)}: {row['role']!r}")
    for name in NUMBERS:
        row[name] = _figure(row[name], f"{where}: {name}")
    if row["verified"] == "yes" and not row["median_ms"]:
        raise TableError(f"{where}: verified, but without a median_ms above 0")
    row["n"] = int(row["n"])
    return row


def _figure(cell, what):
    """A cell's number, or None where it is empty."""
    if not cell:
        return None
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise TableError(f"{what} is no number: {cell!r}")
    return value


# --- Cells ------------------------------------------------------------------------------------


def number(value):
    """Three significant digits, and every digit before the point: 4800, 716, 50.6, 0.200."""
    if value is None:
        return "-"
    exponent = int(f"{value:.2e}".partition("e")[2])  # after rounding: 9.999 is 10.0
    return f"{value:.{max(0, 2 - exponent)}f}" if value else "0"


def ratio(value, to):
    return number(value / to) + "x"


def size(row):
    """N=4096, S=1024 of the talk's shape, 4096x1000, or "dot N=2048" of a shape with a name."""
    shape, n = row["shape"], row["n"]
    return {"square": f"N={n}", "talk": f"S={n}"}.get(
        shape, f"{shape} N={n}" if shape[:1].isalpha() else shape)


def rate(row):
    """(value, unit) by which rows are compared: GB/s where memory is the limit, else TFLOP/s."""
    memory_bound = row["gb_per_s"] is not None
    return (row["gb_per_s"], "GB/s") if memory_bound else (row["tflops"], "TFLOP/s")


def shown_rate(row):
    """(value, unit) that a program shows in its tables: its own figure, or else the rate."""
    return (row["figure"], row["unit"]) if row.get("figure") is not None else rate(row)


def figure(row, value):
    """`value` of a row as a cell, or why there is none."""
    if simulated(row) and row["verified"] == "yes":
        return "(CPU)"
    return {"yes": number(value), "no": "wrong"}.get(row["verified"], row["verified"])


def simulated(row):
    """Whether a row's figures are the simulator's, which say nothing about a GPU."""
    return bool(row["kernel"]) and not row["sm"]


def noisy(row):
    return (row["spread_pct"] or 0) > NOISY_PCT


def layout(head, rows, left=1):
    """Aligned text: the first `left` columns to the left, the rest to the right."""
    widths = [max(len(row[i]) for row in [head] + rows) for i in range(len(head))]
    lines = []
    for row in [head] + rows:
        cells = [c.ljust(w) for c, w in zip(row[:left], widths)]
        cells += [c.rjust(w) for c, w in zip(row[left:], widths[left:])]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def markdown(head, rows, left=1):
    """The same as a table in markdown."""
    line = "|" + "---|" * left + "---:|" * (len(head) - left)
    return "\n".join([_bars(head), line] + [_bars(row) for row in rows])


def _bars(cells):
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def as_csv(head, rows):
    """The same as CSV, for spreadsheets."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head] + rows)
    return text.getvalue().rstrip("\n")


# --- One run ----------------------------------------------------------------------------------


def summary(files):
    (file,) = files
    rows = read(file).rows
    if all(map(simulated, rows)):
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
    labels, last = [], None
    for (program, at), group in groups.items():
        at = "talk " * (group[0]["shape"] == "talk") + at
        labels.append((" " if program == last else program) + f" {at}" * (at != usual))
        last = program
    title = f"{rows[0]['gpu']}, {usual}"
    if not all(map(simulated, rows)):
        text = _speeds(title, labels, groups.values())
    else:
        text = _kernels(f"{title}; no times, which would say nothing about a GPU",
                        labels, groups.values())
    wrong = sum(row["verified"] != "yes" for row in rows)
    verdict = f"{wrong} of {len(rows)} WRONG" if wrong else "all verified"
    return f"{text}\nresults: {verdict}"


def _speeds(title, labels, groups):
    """What GPUs show: the program's best kernel, and below it what is wrong, and its record."""
    head = ["lesson", "kernel", "data", "rate" + 8 * " ", "chain", "library"]
    lines = []
    for label, group in zip(labels, groups):
        best = _fastest(group, "ours") or _fastest(group, "chain", "library")
        wrong = [row for row in group if row["verified"] != "yes"]
        for row in filter(None, [best, *wrong, _fastest(group, "record")]):
            lines.append([label or "  record" * (row["role"] == "record"), *_speed(row, group)])
            label = ""
    text = layout(head, lines, left=3)
    over = "speed-up over".rjust(text.index("\n") - len(title) - 2)
    notes = ["chain: one kernel per operation; library: its best call or calls"]
    if any(line[0] == "  record" for line in lines):
        notes.append("record: our fastest kernel, which another program explains")
    if any(line[3].startswith("~") for line in lines):
        notes.append(f"~: noisy, its samples spread over more than {NOISY_PCT:.0f}%")
    return "\n".join([f"{title}  {over}", text, *notes])


def _speed(row, group):
    """A kernel's cells: its name, data, rate, and speed-up over the others of the same work."""
    value, unit = rate(row)
    good = row["verified"] == "yes"
    rivals = [other for other in group if other["dtype"] == row["dtype"] and other is not row
              and other["tflops"] is not None]  # a copy has none
    against = [_fastest(rivals, "chain"), _fastest(rivals, "library", YARDSTICK)]
    return [
        row["kernel"], row["dtype"],
        "~" * noisy(row) + f"{number(value)} {unit:7}" if good else f"{figure(row, value):12}",
        *(ratio(other["median_ms"], row["median_ms"]) if good and other else "-"
          for other in against),
    ]


def _fastest(rows, *roles):
    found = [row for row in rows
             if row["role"] in roles and row["verified"] == "yes" and row["median_ms"]]
    return min(found, key=lambda row: row["median_ms"], default=None)


def _kernels(title, labels, groups):
    """What the simulator shows: the kernels that ran."""
    room = COLUMNS - 2 - max(map(len, labels))
    lines = []
    for label, group in zip(labels, groups):
        names = [row["kernel"] + " (WRONG)" * (row["verified"] != "yes") for row in group
                 if row["role"] != YARDSTICK or row["verified"] != "yes"]
        for text in textwrap.wrap(", ".join(names), room):
            lines.append([label, text])
            label = ""
    return "\n".join([title, layout(["lesson", "kernels that ran"], lines, left=2)])


def run(files):
    """A line for each kernel, below the name of its program: at most 79 columns."""
    rows = [row for file in files for row in read(file).rows]
    head = ["  kernel", "data", "size", "time/ms", "rate", "verified"]
    cells = []
    for row in rows:
        value, unit = rate(row)
        unit = unit if value is not None else ""
        verdict = {"no": "wrong"}.get(row["verified"], row["verified"])
        figures = [number(row["median_ms"]), f"{number(value)} {unit:7}"]
        if simulated(row):
            figures = ["(CPU) " + figures[0], ""]
        else:
            verdict += ", noisy" * noisy(row)
        cells.append(["  " + row["kernel"], row["dtype"], size(row), *figures, verdict])
    lines = layout(head, cells, left=3).splitlines()
    text, program = lines[:2], None
    for row, line in zip(rows, lines[2:]):
        if row["program"] != program:
            program = row["program"]
            text.append(program)
        text.append(line)
    return "\n".join(text)


# --- Side by side -----------------------------------------------------------------------------


def titles(tables):
    """A name for each file: its GPU's. Where two are alike the place is added, or where that does
    not tell them apart, it is the file's own."""
    names = []
    for table in tables:
        places = [other.place for other in tables if other.gpu == table.gpu]
        if len(places) == 1:
            names.append(table.gpu)
        elif all(places) and len(set(places)) == len(places):
            names.append(f"{table.gpu} {table.place}")
        else:
            names.append(_file(table, tables))
    return names


def short_titles(tables):
    """The same without the words that all GPUs share, for where there is little room."""
    return [short(title) for title in titles(tables)]


def short(gpu):
    return re.sub("^NVIDIA (GeForce )?", "", gpu)


def _file(table, tables):
    names = [other.path.name for other in tables]
    return table.path.name if names.count(table.path.name) == 1 else str(table.path)


def key(row):
    """What was measured."""
    return tuple(row[name] for name in ("program", "kernel", "dtype", "shape", "n"))


def side_by_side(tables):
    """{what was measured: its row in each file, or None}, in the talk's order. A program that did
    not run has one row without a kernel: it stands for each kernel that another file has."""
    ran = {run for table in tables for row in table.rows if row["kernel"] for run in _runs(row)}
    stopped = [{_runs(row)[0]: row for row in table.rows if not row["kernel"]} for table in tables]
    cells_of = {}
    for i, table in enumerate(tables):
        for row in table.rows:
            if row["kernel"] or _runs(row)[0] not in ran:
                cells_of.setdefault(key(row), [None] * len(tables))[i] = row
    for cells in cells_of.values():
        some = next(filter(None, cells))
        for i, row_of in enumerate(stopped):
            if cells[i] is None:
                cells[i] = next((row_of[run] for run in _runs(some) if run in row_of), None)
    return cells_of


def _runs(row):
    """The run that made a row, and what it is called where the program stopped before it told its
    data type."""
    run = tuple(row[name] for name in ("program", "shape", "n"))
    return (*run, row["dtype"]), (*run, "")


class Line(NamedTuple):
    """What was measured, and what each file has of it. Of several best kernels all are named."""

    program: str
    kernel: str
    dtype: str
    size: str
    unit: str
    cells: List[tuple]  # of each file: its figure, and its ratio to the baseline's, as text


def comparison(tables, wanted=lambda row: True, baseline=0):
    """The lines of programs x GPUs, and what must be said below them."""
    lines, doubts = [], []
    for (program, kernel, _, _, _), rows in side_by_side(tables).items():
        some = next(filter(None, rows))
        if not wanted(some) or some["predicted_ms"]:  # a prediction compares no GPUs
            continue
        line = _line(kernel, rows, baseline)
        for i, (row, results) in enumerate(zip(rows, tables)):
            doubt = _has_figure(row) and data_sheets.doubt(results.gpu, row)
            if doubt:
                line.cells[i] = line.cells[i][0] + "!", line.cells[i][1]
                doubts.append(f"! {results.gpu}, {program} {kernel} {size(row)}: {doubt}")
        lines.append(line)
    if not lines:
        raise TableError("no file has results of the sizes asked for")
    return lines, doubts


def _line(kernel, rows, baseline):
    """The Line of one row in each file."""
    some = next(filter(_has_figure, rows), None) or next(filter(None, rows))
    units = [shown_rate(row)[1] for row in rows if row]
    unit = next((unit for unit in units if unit != "TFLOP/s"), "TFLOP/s")
    values = [shown_rate(row)[0] if _has_figure(row) and shown_rate(row)[1] == unit else None
              for row in rows]
    cells = []
    for i, (row, value) in enumerate(zip(rows, values)):
        both = value and values[baseline] and i != baseline
        cells.append(("missing" if row is None else figure(row, value),
                      ratio(value, values[baseline]) if both else "-" * (i != baseline)))
    return Line(some["program"], kernel or "-", some["dtype"] or "-", size(some), unit, cells)


def _has_figure(row):
    return row is not None and row["verified"] == "yes" and not simulated(row)


def kind(rows):
    """What a program's rows of one data type and shape say of a GPU."""
    if any(row["gb_per_s"] is not None for row in rows):
        return "memory"
    if any(row["role"] == "chain" for row in rows):
        return "fusion"
    return "matmul, fp32" if rows[0]["dtype"] == "fp32" else "matmul, tensor cores"


KINDS = ["matmul, tensor cores", "matmul, fp32", "fusion", "memory"]


def best_kernels(tables, wanted=lambda row: True):
    """{(program, data type, shape, n): (its kind, each file's best kernel)}. Where a file has no
    figure, a row that says why, or None."""
    groups_of = [_comparisons(results.rows, wanted) for results in tables]
    found = {}
    for at in dict.fromkeys(at for groups in groups_of for at in groups):
        every = [row for groups in groups_of for row in groups.get(at, [])]
        some = every[0]
        best = [max(own_kernels(groups[at]), key=lambda row: rate(row)[0]) if at in groups else
                next(iter(without_figure(results.rows, some)), None)
                for groups, results in zip(groups_of, tables)]
        found[at] = kind(every), best
    return found


def _comparisons(rows, wanted):
    """{(program, data type, shape, n): its rows with a figure}."""
    found = {}
    for row in plotted(rows):
        if wanted(row) and not of_experiment(row):
            at = tuple(row[name] for name in ("program", "dtype", "shape", "n"))
            found.setdefault(at, []).append(row)
    return found


def shown(rows):
    """Rows with a figure."""
    return [row for row in rows if _has_figure(row) and rate(row)[0]]


def plotted(rows):
    """The same of programs that compare one thing: of several there is no best kernel."""
    rows = shown(rows)
    seen = collections.Counter(map(key, rows))
    several = {at[0] for at, times in seen.items() if times > 1}
    return [row for row in rows if row["program"] not in several]


def measured(program, first):
    """Results with a program's rows alone: of the file `first` in results/, or else of the first
    that has any; None where no file has."""
    files = sorted((command_line.PROJECT / "results").glob("*.csv"),
                   key=lambda file: (file.stem != first, file))
    for results in (read(file, mistakes=True) for file in files):
        rows = [row for row in results.rows if row["program"] == program]
        if rows:
            return results._replace(rows=rows)
    return None


def of_program(program, first):
    """A program's rows in results/, as measured() chooses them."""
    results = measured(program, first)
    return results.rows if results else []


def of_experiment(row):
    """Whether a row says something else than how fast a kernel is: how long a load takes, say, or
    whether a time is as predicted."""
    return row["figure"] is not None or row["predicted_ms"] is not None


def own_kernels(rows):
    """Rows without what a program is compared with. A program that has no kernel of its own is
    about the library, or about the many launches."""
    for roles in (OWN, ("library",), ("chain",)):
        own = [row for row in rows if row["role"] in roles]
        if own:
            return own
    return rows


def without_figure(rows, like):
    """What became of the program, shape, size and data type of a row; a program that stopped may
    not have told its data type."""
    return [row for row in rows if row["verified"] != "yes" and row["dtype"] in ("", like["dtype"])
            and all(row[name] == like[name] for name in ("program", "shape", "n"))]


def best_of(tables, wanted=lambda row: True, baseline=0):
    """A line for each program, data type and size: its best kernel on each GPU."""
    lines = []
    for _, rows in best_kernels(tables, wanted).values():
        names = dict.fromkeys(row["kernel"] for row in rows if _has_figure(row))
        lines.append(_line(", ".join(names), rows, baseline))
    return lines


def summary_of(tables, wanted=lambda row: True, baseline=0):
    """(head, lines) by kind of work: the ratio of each GPU to the baseline's, and in brackets of
    how many results it is the mean. Of one file: its best, and how much that is of the peak."""
    found = {name: [] for name in KINDS}
    for name, best in best_kernels(tables, wanted).values():
        found[name].append(best)
    found = {name: every for name, every in found.items() if every}
    if len(tables) == 1:
        return _peaks(tables[0], found)
    others = [i for i in range(len(tables)) if i != baseline]
    lines = []
    for name, every in found.items():
        cells = []
        for i in others:
            pairs = [(best[baseline], best[i]) for best in every
                     if _has_figure(best[baseline]) and _has_figure(best[i])]
            logs = [math.log(rate(other)[0] / rate(one)[0]) for one, other in pairs]
            cells.append(f"{number(math.exp(sum(logs) / len(logs)))}x ({len(logs)})" if logs
                         else "-")
        if set(cells) != {"-"}:
            lines.append([name, *cells])
    names = short_titles(tables)
    return [f"ratio to {names[baseline]}"] + [names[i] for i in others], lines


def _peaks(results, found):
    lines = []
    for name, every in found.items():
        best = max((row for (row,) in every), key=lambda row: rate(row)[0])
        value, unit = rate(best)
        peak = data_sheets.peak(results.gpu, best)
        lines.append([name, f"{number(value)} {unit}", f"{value / peak:.0%}" if peak else "-",
                      f"{best['kernel']} of {best['program']}"])
    return ["the best in", results.gpu, "of peak", "kernel"], lines


def about_summary(tables):
    """What the figures of summary_of() are."""
    if len(tables) == 1:
        return "Peak: what the data sheet says of the data type, or of the memory"
    return ("Geometric mean over the best kernel of each program, size and data type; in brackets: "
            "of how many")


def differences(tables, baseline=0, wanted=lambda row: True):
    """Lines about files of the same kind of GPU: who is slower than another as a whole, and how far
    each agrees with the baseline, or where that is another GPU's, with the first of its kind."""
    names = short_titles(tables)
    steady = [_steady(results, wanted) for results in tables]
    alike = {}
    for i in [baseline, *range(len(tables))]:
        alike.setdefault(tables[i].gpu, {})[i] = steady[i]
    lines = []
    for group in alike.values():
        lines += [_slower(i, group, names) for i in sorted(group)]
        (first, its_rows), *others = group.items()
        for i, rows in others:
            lines += _apart(f"{names[first]} -> {names[i]}", its_rows, rows)
    return [line for line in lines if line]


def _steady(results, wanted):
    """{what was measured: its row} of figures that two runs should agree in."""
    return {key(row): row for row in results.rows
            if _has_figure(row) and rate(row)[0] and not noisy(row) and wanted(row)}


def _change(row, to):
    """Of a figure, in percent."""
    return 100 * (rate(row)[0] / rate(to)[0] - 1)


def _slower(i, group, names):
    """A line, where a GPU is slower than another of its kind by the median of what both have."""
    behind = []
    for j, rows in group.items():
        changes = [_change(row, rows[at]) for at, row in group[i].items() if at in rows]
        if changes and statistics.median(changes) < -ALIKE_PCT:
            behind.append((statistics.median(changes), j, len(changes)))
    if not behind:
        return ""
    change, most, count = min(behind)
    line = (f"{names[i]} is {-change:.1f}% slower than {names[most]}, by the median of {count} "
            "results")
    others = f", and over {ALIKE_PCT:.0f}% slower than {len(behind) - 1} more of its kind"
    return line + others * (len(behind) > 1)


def _apart(what, first, other):
    """How many steady rows of two files agree, and what differed between those that do not: the
    worst of them."""
    common = [(row, other[at]) for at, row in first.items() if at in other]
    if not common:
        return []
    far = [(_change(b, a), a, b) for a, b in common if abs(_change(b, a)) > ALIKE_PCT]
    far.sort(key=lambda some: -abs(some[0]))
    lines = []
    for change, a, b in far[:WORST]:
        seen = [
            f"{what} {a[name]:.0f} -> {b[name]:.0f} {unit}"
            for name, what, unit in (("sm_mhz", "SM clock", "MHz"), ("power_w", "power", "W"),
                                     ("temperature_c", "temperature", "C"))
            if a[name] is not None and b[name] is not None
        ]
        if a["throttled"] != b["throttled"]:
            seen.append(f"throttled: {a['throttled'] or 'no'} -> {b['throttled'] or 'no'}")
        row = f"{a['program']} {a['kernel']} {a['dtype']} {size(a)}"
        lines.append(f"  {row}: {change:+.1f}%; " + ("; ".join(seen) or "clocks were not sampled"))
    if len(far) > WORST:
        lines.append(f"  and {len(far) - WORST} more, by less")
    count = f"{len(common) - len(far)} of {len(common)} steady results within {ALIKE_PCT:.0f}%"
    return [f"{what}: {count}" + (", but" if far else "")] + lines


def baseline_of(text, tables):
    """The place of the file that ratios are to: given by its number from 1, or by its name."""
    names = [{str(i), str(results.path), results.path.name}
             for i, results in enumerate(tables, 1)]
    found = [i for i, some in enumerate(names) if text in some]
    if not found:
        raise TableError(f"--baseline {text}: a file's number from 1 to {len(tables)}, or its name,"
                         " is expected")
    return found[0]


def compare(arguments):
    who = "compare_gpus.sh"
    parser = command_line.Parser(prog=who, add_help=False, allow_abbrev=False)
    parser.add_argument("--programs", type=lambda text: text.split(","))
    parser.add_argument("--sizes", type=command_line.sizes())
    parser.add_argument("--talk", type=command_line.sizes())
    parser.add_argument("--baseline", default="1")
    parser.add_argument("--best", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--csv", action="store_true")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args(arguments)
    if options.markdown and options.csv:
        parser.error("--markdown and --csv exclude each other")
    chosen = {"square": options.sizes or [], "talk": options.talk or []}

    tables = read_all(who, options.files)
    names = {row["program"]: None for results in tables for row in results.rows}
    for word in options.programs or []:
        if not programs.named(word, names):
            parser.error(f"there are no rows of a program '{word}'")

    def wanted(row):
        of_program = not options.programs or any(
            programs.named(word, [row["program"]]) for word in options.programs)
        of_size = not any(chosen.values()) or row["n"] in chosen.get(row["shape"], [])
        return of_program and of_size

    baseline = baseline_of(options.baseline, tables)
    lines, notes = comparison(tables, wanted, baseline)
    lines = best_of(tables, wanted, baseline) if options.best else lines
    if not lines:
        raise TableError("no program has a figure at the sizes asked for")
    notes += differences(tables, baseline, wanted)
    if options.csv:
        for note in notes:
            command_line.say(who, note)
        return as_csv(*_flat(tables, lines, baseline))
    if options.markdown:
        parts = [markdown(*_flat(tables, lines, baseline), left=5)]
    else:
        parts = [_on_a_screen(tables, lines, baseline, options.best)]
        head, ratios = summary_of(tables, wanted, baseline)
        if ratios:
            note = "\n".join(textwrap.wrap(about_summary(tables), COLUMNS))
            parts.insert(0, f"{layout(head, ratios)}\n{note}\n")
    return "\n".join(parts + [""] * bool(notes) + notes)


def _flat(tables, lines, baseline):
    """(head, lines) with a column for everything, for other programs."""
    head = "program kernel data size unit".split()
    for i, title in enumerate(titles(tables)):
        head += [title] + ["ratio"] * (i != baseline)
    return head, [[*line[:5], *(cell for i, both in enumerate(line.cells)
                                for cell in both[:1 + (i != baseline)])] for line in lines]


def headed(lines, best):
    """{what some lines have in common: those lines}. The rest of a line's names is its kernel, or
    its program where it is about the best, and its data type."""
    found = {}
    for line in lines:
        title = f"{line.size}, {line.unit}"
        found.setdefault(title if best else f"{line.program} {title}", []).append(line)
    return found


def _on_a_screen(tables, lines, baseline, best):
    """The same on at most 79 columns, where there are up to three files. The name of a GPU stands
    over its figure and its ratio."""
    widths = [[max(len(line.cells[i][part]) for line in lines) for part in (0, 1)]
              for i in range(len(tables))]

    def cell(i, value, over):
        return value.rjust(widths[i][0]) + f" {over.rjust(widths[i][1])}" * (i != baseline)

    head = ["  program", "data"] if best else ["  kernel", "data"]
    head += ["kernel"] * (best and len(tables) == 1)  # of several GPUs there is no room
    rows, starts = [], {}
    for title, some in headed(lines, best).items():
        starts[len(rows)] = title
        for line in some:
            names = [line.program, line.dtype, line.kernel] if best else [line.kernel, line.dtype]
            names[0] = "  " + names[0]
            rows.append(names[:len(head)] + [cell(i, *both) for i, both in enumerate(line.cells)])
    text = layout(head + short_titles(tables), rows, left=len(head)).splitlines()
    result = text[:2]
    for i, line in enumerate(text[2:]):
        result += [starts[i], line] if i in starts else [line]
    if len(tables) > 1:
        result.append(f"x: the ratio to {short_titles(tables)[baseline]}")
    return "\n".join(result)


# --- One GPU ----------------------------------------------------------------------------------


def families(rows):
    """[(title, (head, lines))]: the tables of one GPU's results, a line for each kernel."""
    apart = {program for program, _, _ in experiments(rows)}
    rows = [row for row in rows if row["program"] not in apart]
    bandwidth = {row["program"] for row in rows if row["gb_per_s"] and row["shape"] != "talk"}
    memory = [row for row in rows if row["program"] in bandwidth and row["shape"] != "talk"]
    parts = [
        ("TFLOP/s by N",
         [row for row in rows if row["shape"] != "talk" and row["program"] not in bandwidth],
         lambda row: number(row["tflops"])),
        ("The talk's shape, TFLOP/s and GB/s by S", [r for r in rows if r["shape"] == "talk"],
         lambda row: f"{number(row['tflops'])}, {number(row['gb_per_s'])}"),
        ("GB/s of the least possible traffic, by N",
         [row for row in memory if row["shape"] == "square"],
         lambda row: number(row["gb_per_s"])),
        ("The same for other shapes", [row for row in memory if row["shape"] != "square"],
         lambda row: number(row["gb_per_s"])),
    ]
    tables = [(title, _grid(rows, show)) for title, rows, show in parts if rows]
    saved = fusion(rows)
    return tables + ([("What fusion saved, at the largest size", saved)] if saved[1] else [])


def fusion(rows):
    """(head, lines): what each program starts from, the many launches and the library's calls, each
    against the program's fastest kernel."""
    groups = {}
    for row in rows:
        if (row["verified"] == "yes" and row["median_ms"] and row["moved_bytes"]
                and row["launches"]):
            groups.setdefault((row["program"], row["dtype"], row["shape"]), []).append(row)
    lines = []
    for (program, dtype, _), group in groups.items():
        largest = max(row["n"] for row in group)

        def fastest(*roles):
            found = [row for row in group if row["n"] == largest and row["role"] in roles]
            return min(found, key=lambda row: row["median_ms"], default=None)

        fused = fastest(*OWN)
        for start in (fastest("chain"), fastest("library")):
            if not fused or not start or start["launches"] <= fused["launches"]:
                continue

            def change(show):
                return f"{show(start)} -> {show(fused)}"

            lines.append([
                program, change(lambda row: row["kernel"]), dtype, size(fused),
                change(lambda row: f"{row['launches']:g}"),
                change(lambda row: number(row["moved_bytes"] / 1e9)),
                change(lambda row: number(row["median_ms"])),
                ratio(start["median_ms"], fused["median_ms"])])
    return "program kernel data size launches moved/GB time/ms speed-up".split(), lines


def experiments(rows):
    """{(program, data type, shape): (head, lines)} of programs that show or predict something: a
    line for each N, a column for each kernel, and beside its time the predicted one."""
    apart = {row["program"] for row in rows if of_experiment(row)}
    groups = {}
    for row in rows:
        if row["program"] in apart:
            at = row["program"], row["dtype"], row["shape"]
            groups.setdefault(at, []).append(row)
    return {at: _by_size(group) for at, group in groups.items()}


def _by_size(rows):
    lines = {}
    for row in rows:
        own = row["figure"] is not None
        value, unit = (row["figure"], row["unit"]) if own else (row["median_ms"], "ms")
        cells = lines.setdefault(row["n"], {})
        if row["predicted_ms"]:
            cells["predicted, ms"] = number(row["predicted_ms"])
        cells[f"{row['kernel']}, {unit}"] = figure(row, value)
    head = list(dict.fromkeys(name for cells in lines.values() for name in cells))
    return ["N", *head], [[str(n), *(cells.get(name, "-") for name in head)]
                          for n, cells in sorted(lines.items())]


def _grid(rows, show):
    sizes = sorted({(row["n"], size(row)) for row in rows})
    kernels = {}  # in the order of the file, which is the talk's
    for row in rows:
        line = kernels.setdefault((row["program"], row["kernel"], row["dtype"]), {})
        line[row["n"], size(row)] = show(row) if row["verified"] == "yes" else figure(row, None)
    head = ["program", "kernel", "data"] + [text.replace("=", " = ") for _, text in sizes]
    return head, [
        [program, kernel or "-", dtype or "-"] + [cells.get(at, "-") for at in sizes]
        for (program, kernel, dtype), cells in kernels.items()
    ]


def circumstances(results):
    """How one GPU's results came about, in a sentence."""
    about = results.about
    hardware = [
        f"{about['SMs']} SMs" if about.get("SMs") else "",
        f"{about['memory']} of memory" if about.get("memory") else "",
        f"driver {about.get('driver', 'unknown')}",
        f"CUDA {about.get('toolkit', 'unknown')}",
    ]
    seen = [
        f"{name} {about[name]}" for name in ("SM clock", "power", "temperature") if about.get(name)
    ]
    text = ", ".join(filter(None, hardware))
    text += f"; measured on {about.get('date', 'an unknown day')}"
    text += f" with version {about.get('suite', 'unknown')} of the suite"
    if seen:
        text += ", median " + ", ".join(seen)
    if about.get("throttled"):
        text += "; held back by: " + about["throttled"]
    return text[0].upper() + text[1:] + "."


# --- The command ------------------------------------------------------------------------------


@command_line.reporting("table.py")
def main(arguments):
    commands = {"summary": summary, "lessons": lessons, "run": run}
    if len(arguments) < 2 or arguments[0] not in commands:
        raise TableError("expected one of " + ", ".join(commands) + ", then files")
    print(commands[arguments[0]](arguments[1:]))


if __name__ == "__main__":
    command_line.run(main, __doc__)
