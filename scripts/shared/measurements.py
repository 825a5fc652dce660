"""Reads and checks the CSV that the programs and compare_gpus.sh write, and tells which of its rows
have a figure, and which are of a program's own kernels. Columns are found by name, and a file may
begin with `# name: value` lines. How figures become text is in table.py."""

import collections
import csv
import math
import re
from pathlib import Path
from typing import Dict, List, NamedTuple

from shared.command_line import PROJECT, USAGE, Stop, say

REQUIRED = ("program kernel gpu sm dtype shape n median_ms spread_pct tflops gb_per_s verified role"
            .split())
# What else a file may have; empty where nobody measured or counted it.
OPTIONAL = ("error_of_bound launches temp_bytes moved_bytes least_bytes output_hash predicted_ms "
            "as_predicted figure unit sm_mhz temperature_c power_w throttled note").split()
NUMBERS = ("median_ms spread_pct tflops gb_per_s launches moved_bytes least_bytes predicted_ms "
           "figure sm_mhz temperature_c power_w").split()  # may be empty
WORDS = "program kernel dtype shape".split()
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.+-]*")
VERDICTS = ("yes", "no", "failed", "skipped")  # of the column `verified`
# What a kernel is to its program, in the column `role`. A program that stopped has none.
ROLES = ("ours", "chain", "library", "yardstick", "record", "mistake", "limit")
OWN = ("ours", "record")  # the suite's own kernels
YARDSTICK = "yardstick"  # a library's kernel, or a copy: that computes nothing, so no TFLOP/s
MISTAKE = "mistake"  # measured in a wrong way, to show what that claims
NOISY_PCT = 2.0  # a spread above it


class TableError(Stop):
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
        say(who, mixed(tables))
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
        verdicts = ", ".join(VERDICTS)
        raise TableError(f"{where}: verified is none of {verdicts}: {row['verified']!r}")
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


def measured(program, first):
    """Results with a program's rows alone: of the file `first` in results/, or else of the first
    that has any; None where no file has."""
    files = (PROJECT / "results").glob("*.csv")
    for file in sorted(files, key=lambda file: (file.stem != first, file)):
        results = read(file, mistakes=True)
        rows = [row for row in results.rows if row["program"] == program]
        if rows:
            return results._replace(rows=rows)
    return None


def of_program(program, first):
    """A program's rows in results/, as measured() chooses them."""
    results = measured(program, first)
    return results.rows if results else []


# --- Rows ---------------------------------------------------------------------------------------


def key(row):
    """What was measured."""
    return tuple(row[name] for name in ("program", "kernel", "dtype", "shape", "n"))


def groups(rows, *names):
    """{values of some columns: rows}, in the order of the rows."""
    found = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def rate(row):
    """(value, unit) by which rows are compared: GB/s where memory is the limit, else TFLOP/s."""
    return (row["tflops"], "TFLOP/s") if row["gb_per_s"] is None else (row["gb_per_s"], "GB/s")


def shown_rate(row):
    """(value, unit) that a program shows in its tables: its own figure, or else the rate."""
    return (row["figure"], row["unit"]) if row.get("figure") is not None else rate(row)


def simulated(row):
    """Whether a row's figures are the simulator's, which say nothing about a GPU."""
    return bool(row["kernel"]) and not row["sm"]


def noisy(row):
    return (row["spread_pct"] or 0) > NOISY_PCT


def has_figure(row):
    """Whether a row of a file, if that has it, says how fast a GPU is."""
    return row is not None and row["verified"] == "yes" and not simulated(row)


def shown(rows):
    """Rows with a figure."""
    return [row for row in rows if has_figure(row) and rate(row)[0]]


def plotted(rows):
    """The same of programs that compare one thing: of several there is no best kernel."""
    rows = shown(rows)
    seen = collections.Counter(map(key, rows))
    several = {at[0] for at, times in seen.items() if times > 1}
    return [row for row in rows if row["program"] not in several]


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


def fastest(rows, *roles):
    """The fastest of the verified ones that have one of these roles; None where there is none."""
    found = [row for row in rows if row["role"] in roles and row["verified"] == "yes"]
    return min(found, key=lambda row: row["median_ms"], default=None)
