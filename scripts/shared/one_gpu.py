"""One GPU's results in full: tables by program and size, what fusion saved, what experiments show,
and how all that was measured. Several GPUs are put side by side in comparison.py."""

from shared.measurements import OWN, fastest, groups, of_experiment
from shared.table import figure, number, ratio, size


def families(rows):
    """[(title, (head, lines))]: the tables of one GPU's results, a line for each kernel."""
    apart = {program for program, _, _ in experiments(rows)}
    rows = [row for row in rows if row["program"] not in apart]
    talk = [row for row in rows if row["shape"] == "talk"]
    others = [row for row in rows if row["shape"] != "talk"]
    bandwidth = {row["program"] for row in others if row["gb_per_s"]}
    memory = [row for row in others if row["program"] in bandwidth]
    parts = [
        ("TFLOP/s by N", [row for row in others if row["program"] not in bandwidth], ["tflops"]),
        ("The talk's shape, TFLOP/s and GB/s by S", talk, ["tflops", "gb_per_s"]),
        ("GB/s of the least possible traffic, by N",
         [row for row in memory if row["shape"] == "square"], ["gb_per_s"]),
        ("The same for other shapes", [row for row in memory if row["shape"] != "square"],
         ["gb_per_s"]),
    ]
    tables = [(title, _grid(rows, names)) for title, rows, names in parts if rows]
    saved = fusion(rows)
    return tables + ([("What fusion saved, at the largest size", saved)] if saved[1] else [])


def fusion(rows):
    """(head, lines): what each program starts from, the many launches and the library's calls, each
    against the program's fastest kernel."""
    rows = [row for row in rows
            if row["verified"] == "yes" and row["moved_bytes"] and row["launches"]]
    lines = []
    for (program, dtype, _), group in groups(rows, "program", "dtype", "shape").items():
        largest = max(row["n"] for row in group)
        group = [row for row in group if row["n"] == largest]
        fused = fastest(group, *OWN)
        for start in (fastest(group, "chain"), fastest(group, "library")):
            if fused and start and start["launches"] > fused["launches"]:
                both = [(row["kernel"], f"{row['launches']:g}", number(row["moved_bytes"] / 1e9),
                         number(row["median_ms"])) for row in (start, fused)]
                kernels, *figures = map(" -> ".join, zip(*both))
                lines.append([program, kernels, dtype, size(fused), *figures,
                              ratio(start["median_ms"], fused["median_ms"])])
    return "program kernel data size launches moved/GB time/ms speed-up".split(), lines


def experiments(rows):
    """{(program, data type, shape): (head, lines)} of programs that show or predict something: a
    line for each N, a column for each kernel, and beside its time the predicted one."""
    apart = {row["program"] for row in rows if of_experiment(row)}
    rows = [row for row in rows if row["program"] in apart]
    return {at: _by_size(group) for at, group in groups(rows, "program", "dtype", "shape").items()}


def _by_size(rows):
    lines = {}
    for row in rows:
        cells = lines.setdefault(row["n"], {})
        if row["predicted_ms"]:
            cells["predicted, ms"] = number(row["predicted_ms"])
        name, unit = ("median_ms", "ms") if row["figure"] is None else ("figure", row["unit"])
        cells[f"{row['kernel']}, {unit}"] = figure(row, row[name])
    head = list(dict.fromkeys(name for cells in lines.values() for name in cells))
    return ["N", *head], [[str(n), *(cells.get(name, "-") for name in head)]
                          for n, cells in sorted(lines.items())]


def _grid(rows, names):
    sizes = sorted({(row["n"], size(row)) for row in rows})
    kernels = {}  # in the order of the file, which is the talk's
    for row in rows:
        line = kernels.setdefault((row["program"], row["kernel"], row["dtype"]), {})
        shown = ", ".join(number(row[name]) for name in names)
        line[row["n"], size(row)] = shown if row["verified"] == "yes" else figure(row, None)
    head = ["program", "kernel", "data"] + [text.replace("=", " = ") for _, text in sizes]
    return head, [[program, kernel or "-", dtype or "-"] + [cells.get(at, "-") for at in sizes]
                  for (program, kernel, dtype), cells in kernels.items()]


def circumstances(results):
    """How one GPU's results came about, in a sentence."""
    about = results.about
    hardware = [form.format(about[name]) for name, form in (
        ("SMs", "{} SMs"), ("memory", "{} of memory")) if about.get(name)]
    hardware += [f"driver {about.get('driver', 'unknown')}",
                 f"CUDA {about.get('toolkit', 'unknown')}"]
    seen = [f"{name} {about[name]}" for name in ("SM clock", "power", "temperature")
            if about.get(name)]
    text = (f"{', '.join(hardware)}; measured on {about.get('date', 'an unknown day')} with "
            f"version {about.get('suite', 'unknown')} of the suite")
    if seen:
        text += ", median " + ", ".join(seen)
    if about.get("throttled"):
        text += "; held back by: " + about["throttled"]
    return text[0].upper() + text[1:] + "."
