#!/usr/bin/env python3
"""Reads the CSV that the programs print, and shows it as tables.

    table.py summary FILE        one line: the best kernel of one program's run
    table.py run FILE ...        one table of one run
    table.py compare FILE ...    TFLOP/s side by side, a column for each file
    table.py merge FILE ...      one CSV of several

Columns are found by name; a file may begin with `# name: value` lines. Bad input: one line, exit 2.
"""

import csv
import math
import sys
from pathlib import Path
from typing import Dict, List, NamedTuple

REQUIRED = (
    "program kernel gpu sm dtype shape n median_ms spread_pct tflops gb_per_s verified".split()
)
NUMBERS = ("median_ms", "spread_pct", "tflops", "gb_per_s")  # may be empty
NOISY_PCT = 2.0


class TableError(Exception):
    """Input that is no table of results. The message is one line."""


class Results(NamedTuple):
    path: Path
    about: Dict[str, str]  # the `# name: value` lines
    columns: List[str]
    rows: List[dict]  # as text, but n is an int, and NUMBERS are floats or None

    @property
    def gpu(self):
        return self.about.get("GPU") or self.rows[0]["gpu"] or self.path.name


def read(path):
    """Reads and checks one file. Raises TableError."""
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
        rows = [_check(row, f"{path}, line {len(comments) + reader.line_num}") for row in reader]
    except csv.Error as error:
        raise TableError(f"{path}, line {len(comments) + reader.line_num}: {error}")
    if not rows:
        raise TableError(f"{path}: no results in it")
    return Results(path, about, list(reader.fieldnames), rows)


def _split(path):
    """A file's comment lines, and the CSV after them."""
    try:
        # Mailed files come with other line ends, and with a byte order mark.
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"{path}: {getattr(error, 'strerror', None) or 'not a text file'}")
    body = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return lines[:body], lines[body:]


def _check(row, where):
    if None in row or None in row.values():
        raise TableError(f"{where}: too {'many' if None in row else 'few'} fields")
    if not row["n"].isdecimal():
        raise TableError(f"{where}: n is no size: {row['n']!r}")
    if row["verified"] not in ("yes", "no"):
        raise TableError(f"{where}: verified is neither yes nor no: {row['verified']!r}")
    for name in NUMBERS:
        try:
            value = float(row[name]) if row[name] else None
        except ValueError:
            value = math.nan
        if value is not None and not 0 <= value < math.inf:
            raise TableError(f"{where}: {name} is no number: {row[name]!r}")
        row[name] = value
    row["n"] = int(row["n"])
    return row


def number(value):
    """Three digits that count: 716, 50.6, 3.06, 0.0041."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def size(row):
    return f"S={row['n']}" if row["shape"] == "talk" else f"N={row['n']}"


def rate(row):
    """(value, unit) by which rows are compared: TFLOP/s, or GB/s where a program counts only that."""
    return (row["tflops"], "TFLOP/s") if row["tflops"] is not None else (row["gb_per_s"], "GB/s")


def layout(head, rows, left=1):
    """Aligned text: the first `left` columns to the left, the rest to the right."""
    widths = [max(len(row[i]) for row in [head] + rows) for i in range(len(head))]
    lines = []
    for row in [head] + rows:
        cells = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def summary(files):
    (file,) = files
    rows = read(file).rows
    best = max(rows, key=lambda row: rate(row)[0] or 0)
    value, unit = rate(best)
    text = f"{number(value)} {unit} ({best['kernel']}"
    return text + (f", the best of {len(rows)})" if len(rows) > 1 else ")")


def run(files):
    rows = [row for file in files for row in read(file).rows]
    head = "program kernel size time/ms TFLOP/s GB/s spread verified".split()
    cells = []
    for row in rows:
        spread = "-" if row["spread_pct"] is None else f"{row['spread_pct']:.1f}%"
        if (row["spread_pct"] or 0) > NOISY_PCT:
            spread = "noisy " + spread
        cells.append(
            [row["program"], row["kernel"], size(row)]
            + [number(row[name]) for name in ("median_ms", "tflops", "gb_per_s")]
            + [spread, row["verified"]]
        )
    return layout(head, cells, left=3)


def compare(files):
    tables = [read(file) for file in files]
    protocols = sorted({table.about.get("protocol", "unknown") for table in tables})
    if len(protocols) > 1:
        warn("measured by different protocols, so not comparable: " + ", ".join(protocols))

    # Where two GPUs are alike, their files tell them apart.
    titles = [table.gpu for table in tables]
    titles = [t.path.name if titles.count(t.gpu) > 1 else t.gpu for t in tables]
    head = "program kernel dtype size unit".split() + titles[:1]
    for title in titles[1:]:
        head += [title, "ratio"]

    cells_of = {}  # by what was measured, in the order of the first file that has it
    for i, table in enumerate(tables):
        for row in table.rows:
            key = tuple(row[name] for name in ("program", "kernel", "dtype", "shape", "n"))
            cells_of.setdefault(key, [None] * len(tables))[i] = row

    lines = []
    for (program, kernel, dtype, shape, _), cells in cells_of.items():
        some = next(cell for cell in cells if cell)
        unit = rate(some)[1]
        what = size(some) if shape in ("square", "talk") else f"{size(some)} ({shape})"
        line = [program, kernel, dtype, what, unit]
        for i, cell in enumerate(cells):
            wrong = cell is not None and cell["verified"] == "no"
            value = rate(cell)[0] if cell and not wrong and rate(cell)[1] == unit else None
            line.append("wrong" if wrong else number(value))
            if i == 0:
                first = value
            else:
                line.append(f"{value / first:.2f}x" if value and first else "-")
        lines.append(line)
    return layout(head, lines, left=5)


def merge(files):
    """Keeps every column that any file has, in the order in which they first appear."""
    columns = list(dict.fromkeys(c for file in files for c in read(file).columns))
    writer = csv.DictWriter(sys.stdout, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for file in files:
        writer.writerows(csv.DictReader(_split(Path(file))[1]))


def warn(message):
    print("table.py: " + message, file=sys.stderr)


def main(arguments):
    commands = {"summary": summary, "run": run, "compare": compare, "merge": merge}
    if arguments in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    if len(arguments) < 2 or arguments[0] not in commands:
        warn("expected one of " + ", ".join(commands) + ", then files")
        return 2
    try:
        text = commands[arguments[0]](arguments[1:])
    except TableError as error:
        warn(str(error))
        return 2
    if text:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
