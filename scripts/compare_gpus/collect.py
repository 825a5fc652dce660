"""Makes one CSV of what measure.py left in a folder, of one GPU: every program's rows, one row for
each program that did not run, and the clocks seen meanwhile."""

import csv
from datetime import date

from shared import clocks, data_sheets, measurements
from shared.command_line import OK, SKIPPED, WRONG

COLUMNS = ["sm_mhz", "temperature_c", "power_w", "throttled", "note"]  # beside the programs' own


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
        for row, checked in zip(rows, measurements.read(path, mistakes=True).rows):
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
    sampled = clocks.read(folder / "samples")
    columns, rows, during = [], [], []
    for step in (folder / "steps").read_text().splitlines():
        new_columns, new_rows, (start, end) = rows_of(folder, step, about["GPU"])
        seen = [sample for sample in sampled if start <= sample.time <= end]
        during += seen
        values = dict(zip(COLUMNS, clocks.medians(seen)))
        columns += [name for name in new_columns if name not in columns]
        rows += [{**row, **values} if row["verified"] in ("yes", "no") else row for row in new_rows]

    about["date"] = date.today().isoformat()
    names = [("SM clock", " MHz"), ("temperature", " C"), ("power", " W"), ("throttled", "")]
    for (name, unit), value in zip(names, clocks.medians(during)):
        about[name] = value and value + unit
    about["rows"] = str(len(rows))
    for name, value in about.items():
        print(f"# {name}: {value}".rstrip(), file=stream)
    writer = csv.DictWriter(stream, columns + COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
