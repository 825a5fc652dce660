"""docs/gpus.md: how long the lessons take on each GPU of the data sheets, at 90% of what limits
them, computed as limit_of() in src/demo/peak.cpp does, and what was measured."""

from docs.outputs import SHOWN_GPU
from docs.tables import described
from shared import data_sheets, measurements, programs, table
from shared.command_line import PROJECT

LAST, N, TALK = 10, 4096, 1024  # lesson, and the sizes that they have on a GPU by default
GENERATIONS = {"Blackwell: RTX 50, B200": 100, "Hopper: H100, H200": 90, "Ada: RTX 40, L4": 89,
               "Ampere: RTX 30, A100": 80, "Turing: RTX 20, T4": 75}


def limit(gpu, problem):
    """(what limits a problem of --describe, ms at 90% of it), or None where that rate is unknown.
    The other rate may be: its share of the time then counts as none."""
    sheet, dtype = data_sheets.sheets()[gpu], problem["dtype"]
    if not sheet.get("GB/s" if problem["memory_bound"] else dtype):
        return None
    moving = problem["least_bytes"] / sheet.get("GB/s", float("inf")) / 1e6
    computing = problem["flops"] / sheet.get(dtype, float("inf")) / 1e9
    return "memory" if moving > computing else dtype, max(moving, computing) / 0.9


def columns():
    """(title, what limits most GPUs, problems) of each column. Lessons share one if they move as
    many MiB at the same rate; bf16 is fp16's. The simulator's attention has a batch of 1, not 4."""
    found = {}
    for about in described(programs.lessons()[:LAST]):
        path = programs.latest_build(about["program"])
        heads = ["--heads", 64] * (path.parent.name == "cpu" and programs.takes(about, "--heads"))
        for run in [[N, *heads]] + [["--talk", TALK]] * bool(about["talk"]):
            for problem in programs.describe(path, *run)["problems"]:
                rate = problem["memory_bound"] or problem["dtype"].replace("bf16", "fp16")
                numbers, alike = found.setdefault((problem["least_bytes"] >> 20, rate), ({}, []))
                numbers[about["program"].split("_")[0]] = " `--talk`" * (run[0] == "--talk")
                alike.append(problem)
    for numbers, alike in found.values():
        limits = filter(None, (limit(gpu, alike[0]) for gpu in data_sheets.sheets()))
        whats = [each[0] for each in limits]
        what = max(sorted(set(whats)), key=whats.count)
        yield f"{', '.join(numbers)}{max(numbers.values())}: {what}", what, alike


def computed():
    """A table for each generation."""
    parts, shown = [], list(columns())
    for (generation, least), above in zip(GENERATIONS.items(), [999, *GENERATIONS.values()]):
        rows = []
        for gpu, sheet in data_sheets.sheets().items():
            if least <= sheet["capability"] < above:
                figures = [sheet.get(name) for name in ("fp32", "fp16", "GB/s")]
                figures.append(figures[2] and 1e3 * figures[1] / figures[2])
                rows.append([table.short(gpu), *map(table.number, figures),
                             *(cell(limit(gpu, alike[0]), what) for _, what, alike in shown)])
        head = ["GPU", "fp32", "fp16", "GB/s", "operations a byte", *(each[0] for each in shown)]
        parts += [f"### {generation}", table.markdown(head, rows)]
    return "\n\n".join(parts)


def cell(limit, usual):
    return table.number(limit[1]) + f" ({limit[0]})" * (limit[0] != usual) if limit else "-"


def measured():
    """Of each GPU in results/: the best kernel of ours, or of the library, beside the figure."""
    head = ["lessons: limit", "fastest kernel", "held back by", "computed", "measured", ""]
    parts, files = [], map(measurements.read, (PROJECT / "results").glob("*.csv"))
    for results in sorted(files, key=lambda results: results.path.stem != SHOWN_GPU):
        lines = []
        for title, _, alike in columns() if results.gpu in data_sheets.sheets() else []:
            rows = [row for row in results.rows if any(same(row, problem) for problem in alike)]
            best = measurements.fastest(rows, *measurements.OWN, "library")
            if best:
                ms, took = limit(results.gpu, alike[0])[1], best["median_ms"]
                lines.append([title, f"`{best['kernel']}` of `{best['program']}`",
                              best["throttled"], table.number(ms), table.number(took),
                              table.ratio(took, ms)])
        if lines:
            parts.append(f"{results.gpu}, ms:\n\n" + table.markdown(head, lines, left=3))
    return "\n\n".join(parts)


def same(row, problem):
    """Whether a row of results measured this problem, in whatever program."""
    flops = (row["tflops"] or 0) * (row["median_ms"] or 0) * 1e9
    return abs(flops / problem["flops"] - 1) < 0.01 and all(
        row[name] == problem[name] for name in ("dtype", "n", "least_bytes"))
