"""Makes one CSV of what measure.py left in a folder, of one GPU: every program's rows, one row for
each program that did not run, and the clocks seen meanwhile."""

import csv
from datetime import date, datetime
from statistics import median
from typing import List, NamedTuple, Optional

import data_sheets
import table
from command_line import OK, SKIPPED, WRONG

# Why clocks are lower than they could be: bits as in NVML's nvmlClocksEventReasons.
REASONS = {
    0x2: "clocks set", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "thermal", 0x40: "hardware thermal", 0x80: "power brake", 0x100: "display clocks",
}
COLUMNS = ["sm_mhz", "temperature_c", "power_w", "throttled", "note"]  # beside the programs' own


class Sample(NamedTuple):
    """One line of nvidia-smi, whose fields may be None: it does not know them on every GPU."""

    time: float  # seconds since 1970
    busy: Optional[float]  # percent of the time
    values: List[Optional[float]]  # SM clock in MHz, temperature in degrees C, power in W
    reasons: int


def samples(path):
    """The lines that can be read: the last one may be cut off."""
    found = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        fields = [field.strip() for field in line.split(",")]
        try:
            time = datetime.strptime(fields[0], "%Y/%m/%d %H:%M:%S.%f").timestamp()
            busy, *values = (_number(field, float) for field in fields[1:5])
            reasons = _number(fields[5], lambda text: int(text, 16)) or 0
            found.append(Sample(time, busy, values, reasons))
        except (ValueError, IndexError):
            continue
    return found


def _number(text, convert):
    try:
        return convert(text)
    except ValueError:
        return None  # N/A, [Not Supported], ...


def clocks(seen):
    """The medians of some samples as text, and how often something held the clocks back."""
    # A program also starts, and fills memory: what the GPU did meanwhile is no part of its figures.
    seen = [sample for sample in seen if (sample.busy or 0) >= 50] or seen
    texts = []
    for values in zip(*(sample.values for sample in seen)):
        known = [value for value in values if value is not None]
        texts.append(f"{median(known):.0f}" if known else "")
    shares = []
    for bit, name in REASONS.items():
        count = sum(1 for sample in seen if sample.reasons & bit)
        if count:
            shares.append(f"{name} {max(1, round(100 * count / len(seen)))}%")
    return (texts or ["", "", ""]) + ["; ".join(shares)]


def read_about(path):
    pairs = (line.partition(": ") for line in path.read_text().splitlines())
    return {name: value for name, _, value in pairs}


def rows_of(folder, step, gpu):
    """(columns, rows, start and end) of what a step left: its rows, and one that says why there
    are none or not all of them."""
    about = read_about(folder / f"{step}.about")
    status, path = int(about["status"]), folder / f"{step}.csv"
    columns, rows = [], []
    if path.exists():
        reader = csv.DictReader(path.read_text().splitlines())
        rows, columns = list(reader), reader.fieldnames
        for row, checked in zip(rows, table.read(path).rows):
            wrong = about["reason"] if row["verified"] == "no" else ""
            row["note"] = wrong or data_sheets.doubt(gpu, checked)
    if status not in (OK, WRONG) or not rows:  # a wrong result has a row already
        what = {name: about[name] for name in ("program", "shape", "n", "dtype")}
        verdict = "skipped" if status == SKIPPED else "failed"
        rows.append({**what, "gpu": gpu, "verified": verdict, "note": about["reason"]})
    return columns, rows, (float(about["start"]), float(about["end"]))


def collect(folder, stream):
    """Writes the CSV to a stream."""
    about = read_about(folder / "about")
    sampled = samples(folder / "samples")
    columns, rows, during = [], [], []
    for step in (folder / "steps").read_text().splitlines():
        new_columns, new_rows, (start, end) = rows_of(folder, step, about["GPU"])
        seen = [sample for sample in sampled if start <= sample.time <= end]
        during += seen
        values = dict(zip(COLUMNS, clocks(seen)))
        columns += [name for name in new_columns if name not in columns]
        rows += [{**row, **values} if row["verified"] in ("yes", "no") else row for row in new_rows]

    about["date"] = date.today().isoformat()
    names = [("SM clock", " MHz"), ("temperature", " C"), ("power", " W"), ("throttled", "")]
    for (name, unit), value in zip(names, clocks(during)):
        about[name] = value and value + unit
    about["rows"] = str(len(rows))
    for name, value in about.items():
        print(f"# {name}: {value}".rstrip(), file=stream)
    writer = csv.DictWriter(stream, columns + COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
