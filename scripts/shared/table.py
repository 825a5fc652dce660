"""Results as text: figures, sizes, names of files and GPUs, and tables of such cells, aligned for a
screen or in markdown. What results are is in measurements.py."""

import re

from shared.measurements import simulated


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


def figure(row, value):
    """`value` of a row as a cell, or why there is none."""
    if simulated(row) and row["verified"] == "yes":
        return "(CPU)"
    return {"yes": number(value), "no": "wrong"}.get(row["verified"], row["verified"])


def titles(tables):
    """A name for each file: its GPU's. Where two are alike the place is added, or where that does
    not tell them apart, it is the file's own."""
    names, files = [], [results.path.name for results in tables]
    for results in tables:
        places = [other.place for other in tables if other.gpu == results.gpu]
        if len(places) == 1:
            names.append(results.gpu)
        elif all(places) and len(set(places)) == len(places):
            names.append(f"{results.gpu} {results.place}")
        else:
            alone = files.count(results.path.name) == 1
            names.append(results.path.name if alone else str(results.path))
    return names


def short_titles(tables):
    """The same without the words that all GPUs share, for where there is little room."""
    return [short(title) for title in titles(tables)]


def short(gpu):
    return re.sub("^NVIDIA (GeForce )?", "", gpu)


def layout(head, rows, left=1, above=()):
    """Aligned text: the first `left` columns to the left, the rest to the right. `above`: {the
    number of a row: a line before it}."""
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    lines = []
    for row in [head] + rows:
        cells = [c.ljust(w) for c, w in zip(row[:left], widths)]
        cells += [c.rjust(w) for c, w in zip(row[left:], widths[left:])]
        lines.append("  ".join(cells).rstrip())
    text = [lines[0], "-" * max(map(len, lines))]
    for i, line in enumerate(lines[1:]):
        text += [above[i], line] if i in above else [line]
    return "\n".join(text)


def markdown(head, rows, left=1):
    """The same as a table in markdown."""
    line = "|" + "---|" * left + "---:|" * (len(head) - left)
    return "\n".join([_bars(head), line] + [_bars(row) for row in rows])


def _bars(cells):
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
