"""The documents' tables, in markdown: what programs say of themselves, and what results/ holds."""

import csv
import functools
import re
import textwrap
from pathlib import Path

import compare_frameworks
from docs.outputs import SHOWN_GPU
from shared import (
    command_line,
    data_sheets,
    exercises,
    grid,
    measurements,
    one_gpu,
    programs,
    several_gpus,
    table,
)
from shared.command_line import PROJECT, USAGE, Stop

# What the README shows first: before and after as PROGRAM:KERNEL, at what size and in which type,
# and why the one is faster.
HEADLINES = Path(__file__).with_name("headlines.csv")
NOT_YET = "not measured yet"


# --- The programs ---------------------------------------------------------------------------------


def described(names):
    """[what each program says of itself]. Raises ProgramError where they are not built."""
    paths = [programs.latest_build(name) for name in names]
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        raise programs.ProgramError("the tables of programs need all of them built (scons, or scons"
                                    " cpu), without which there are: " + " ".join(missing))
    return [programs.describe(path) for path in paths]


def plain(text):
    """As markdown that shows it as it is. A * before a blank, or a _ within a word, needs no \\."""
    return re.sub(r"[\\`<]|\*(?=\S)|\b_", r"\\\g<0>", text)


def lessons():
    """A row for each lesson: the idea, what to run, its fastest kernel, its minutes of the course.
    """
    rows = []
    for about in described(programs.lessons()):
        name = about["program"]
        command = f"`./{name}`" + (" and `--talk 1024`" if about["talk"] else "")
        rows.append([command, plain(about["summary"]), figure(name), minutes(name)])
    return table.markdown(["run", "the idea", "its best on an H200", "minutes"], rows, left=3)


def bonuses():
    names = [name for name in programs.listed() if name not in programs.lessons()]
    rows = [[f"`{about['program']}`", plain(about["summary"])] for about in described(names)]
    return table.markdown(["program", "what it holds"], rows, left=2)


def minutes(program):
    """How long the course of 90 minutes takes over a lesson: the lecture says it."""
    text = command_line.read_text(PROJECT / "docs/lecture.md")
    course = text.partition("## The course: 90 minutes")[2].partition("\n## ")[0]
    for time, step in re.findall(r"^\*\*Minutes\*\* (\d+)\. \*\*Program\*\* (.*)\.$", course,
                                 re.MULTILINE):
        first, *others = re.findall(r"`(\w+)`", step)
        if program == first:
            return time
        if program in others:
            return "with " + first.split("_")[0]
    return "at home"


# --- Figures of one GPU ---------------------------------------------------------------------------


def headline_rows():
    return measurements.read(PROJECT / f"results/{SHOWN_GPU}.csv").rows


def rate(row):
    """"2.95 TFLOP/s"; in GB/s where memory is the limit."""
    value, unit = measurements.rate(row)
    if row["shape"] == "talk":
        value, unit = row["gb_per_s"], "GB/s"
    return f"{table.number(value)} {unit}"


def figure(program):
    """A lesson's fastest kernel at N = 4096, or else at the size where it is fastest."""
    rows = [row for row in headline_rows() if row["program"] == program
            and row["verified"] == "yes" and row["shape"] == "square"
            and row["role"] not in (measurements.YARDSTICK, "limit")]
    if not rows:
        return "-"
    rows = [row for row in rows if row["n"] == 4096] or rows
    best = max(rows, key=lambda row: measurements.rate(row)[0])
    return f"{rate(best)} ({best['kernel']})"


def headlines():
    """A row for each headline: before, after, why, how many times faster."""
    found = {(row["program"] + ":" + row["kernel"], table.size(row), row["dtype"]): row
             for row in headline_rows() if row["verified"] == "yes"}
    lines = []
    with HEADLINES.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            try:
                rows = [found[line[name], line["size"], line["dtype"]]
                        for name in ("before", "after")]
            except KeyError as missing:
                raise Stop("results/{}.csv has no figure of {} at {} in {}".format(
                    SHOWN_GPU, *missing.args[0]), USAGE)
            old, new = rows
            what = f"{line['what']}, {line['size'].replace('=', ' = ')}"
            lines.append([what, *(f"{row['kernel']}, {rate(row)}" for row in rows),
                          line["why"], table.ratio(old["median_ms"], new["median_ms"])])
    return table.markdown(["what", "before", "after", "why", "faster"], lines, left=4)


# --- docs/figures.md ------------------------------------------------------------------------------

# The cases of a lesson's table, with their size and type. The first one has all columns, each other
# one its speed-up.
SHOWN = {
    1: {"N = 4096, fp32": "N=4096 fp32"},
    3: {"N = 4096, fp16": "N=4096 fp16"},
    4: {"N = 4096": "N=4096"},  # of each type
    # The talk's shape, where fusion gains much, and the square one, where it gains little.
    6: {"S = 1024, fp16": "S=1024 fp16", "N = 4096": "N=4096 fp16"},
    7: {"N = 4096, fp32": "N=4096 fp32", "fp16": "N=4096 fp16"},
    # A row of 131072 does not fit into shared memory.
    8: {"N = 4096, fp32": "N=4096 fp32", "rows of 131072": "4096x131072 fp32"},
    # The operation with more to save, and a size where only launches count.
    9: {"N = 4096, fp32": "N=4096 fp32", "add_mul": "add_mul N=4096 fp32", "4 x 4": "4x4 fp32"},
    10: {"N = 4096, fp16": "N=4096 fp16", "causal": "d128h16causal N=4096 fp16"},
    11: {"N = 4096, fp16": "N=4096 fp16", "N = 1024": "N=1024 fp16"},
    # Many rows, where memory counts, and few, where launches do; so, too, lesson 13's samples.
    12: {"N = 1048576, fp16": "N=1048576 fp16", "N = 256, L = 64": "d64l64 N=256 fp16"},
    13: {"N = 2048, fp16": "N=2048 fp16", "N = 128": "N=128 fp16", "--dot": "dot N=2048 fp16"},
}
FIGURES = re.compile(r"^(<!-- figures (.*) -->\n)(?:\|.*\n)*", re.MULTILINE)


def with_figures(text):
    """A document with the table of each comment that names lessons."""
    return FIGURES.sub(lambda found: f"{found[1]}{figures(*found[2].split())}\n", text)


def cases_of(name, *others):
    """{case: rows} of a lesson, and of other programs in its first case."""
    return {title: [row for row in headline_rows() if row["program"] in (name, *others)
                    and row["verified"] == "yes"
                    and f"{table.size(row)} {row['dtype']} ".startswith(case + " ")]
            for title, case in SHOWN.get(int(name.split("_")[0]), {}).items()}


def times(lesson):
    """Of the head of a lesson's source: how long its kernels take, and those that it goes on from.
    """
    text = command_line.read_text(PROJECT / "docs/figures.md")
    section = next(part for part in text.split("\n## ") if lesson in part.partition("\n")[0])
    title, rows = next(iter(cases_of(*FIGURES.search(section)[2].split()).items()))
    rows = [row for row in rows if row["role"] not in ("record", measurements.YARDSTICK)]
    own = {row["kernel"] for row in headline_rows() if row["program"] == lesson}
    last = max(i for i, row in enumerate(rows) if row["kernel"] in own)
    ms = ", ".join(f"{row['kernel']}~{table.number(row['median_ms'])}" for row in rows[:last + 1])
    return textwrap.fill(f"H200, {title.split(',')[0]}, ms: {ms} (docs/figures.md)", 100,
                         initial_indent="// ", subsequent_indent="// ").replace("~", " ")


def in_lesson(text, lesson):
    """A lesson's source with times() at the end of its head."""
    return re.sub(r"^// H200, (.+\n)+?(?=#include)", lambda _: times(lesson) + "\n", text,
                  count=1, flags=re.MULTILINE)


def figures(name, *others):
    """The kernels of a lesson, and of other programs in its first case."""
    cases = cases_of(name, *others)
    title, rows = next(iter(cases.items()), ("", []))
    copy = next((row["gb_per_s"] for row in rows if row["tflops"] is None), None)
    rows = [row for row in rows if row["tflops"] is not None]
    if not rows:
        raise Stop(f"results/{SHOWN_GPU}.csv has no figures of {name} that docs/figures.md shows",
                   USAGE)
    columns = {title: [f"`{row['kernel']}`" for row in rows]}
    if len({row["launches"] for row in rows}) > 1:
        columns["launches"] = [f"{row['launches']:g}" for row in rows]
    if all(row["moved_bytes"] for row in rows):
        columns["GB moved"] = [table.number(row["moved_bytes"] / 1e9) for row in rows]
    columns["ms"] = [table.number(row["median_ms"]) for row in rows]
    rates, (unit, *_) = zip(*map(measurements.rate, rows))
    columns[f"{unit} (of {'a copy' if copy else 'peak'})"] = [
        f"{table.number(rate)} ({rate / (copy or data_sheets.peak(row['gpu'], row)):.0%})"
        for rate, row in zip(rates, rows)]
    columns["step"] = [""] + [table.ratio(above["median_ms"], row["median_ms"])
                              for above, row in zip(rows, rows[1:])]
    names = [row["kernel"].replace("talk_", "") for row in rows]
    for case, found in cases.items():
        ms = {row["kernel"].replace("talk_", ""): row["median_ms"] for row in found}
        columns["speed-up" + f", {case}" * (case != title)] = [
            table.ratio(ms[names[0]], ms[name]) if {name, names[0]} <= ms.keys() else "-"
            for name in names]
    return table.markdown(list(columns), list(zip(*columns.values())))


# --- Experiments --------------------------------------------------------------------------------


def claims(program):
    """The speed-ups of an experiment, beside the ranges that it expects, at the sizes measured: of
    the README's GPU, or else of the first that ran it."""
    path, rows = programs.latest_build(program), measurements.of_program(program, SHOWN_GPU)
    head, lines = [rows[0]["gpu"] if rows else NOT_YET], {}
    for n in (programs.describe(path)["sizes"] or {}).get("measured", []):
        head += [f"N = {n}", "range"]
        [problem] = programs.describe(path, n)["problems"]
        ms = {row["kernel"]: row["median_ms"] for row in rows if row["n"] == n}
        first = ms.get(problem["contenders"][0])
        for kernel, (least, most) in problem["expected"].items():
            ratio = f"{first / ms[kernel]:.2g}x" if first and ms.get(kernel) else "-"
            lines.setdefault(kernel, [f"`{kernel}`"]).extend([ratio, f"{least:g} to {most:g}"])
    return table.markdown(head, list(lines.values()), left=1)


def by_size(program, dtype, shape="square"):
    """What an experiment shows: a line for each N."""
    rows = measurements.of_program(program, SHOWN_GPU)
    found = one_gpu.experiments(rows).get((program, dtype, shape))
    if not found:
        return NOT_YET
    (_, *head), lines = found
    return table.markdown([rows[0]["gpu"], *head], [[f"N = {n}", *line] for n, *line in lines])


def by_kernel(program, dtype, n):
    """A line for each kernel: its time, its rate, and how much faster it is than the first."""
    rows = [row for row in measurements.of_program(program, SHOWN_GPU)
            if (row["dtype"], row["n"]) == (dtype, n)]
    if not rows:
        return NOT_YET
    first = rows[0]
    return table.markdown(
        [first["gpu"], "time, ms", measurements.rate(first)[1], "speed-up"],
        [[f"`{row['kernel']}`", table.number(row["median_ms"]),
          table.number(measurements.rate(row)[0]),
          table.ratio(first["median_ms"], row["median_ms"])] for row in rows])


def attention():
    """Lesson 10's kernels at N = 4096, causal and D = 64 beside it."""
    return of_attention("10_attention", "temporaries",
                        lambda row: f"{float(row['temp_bytes']) / 2**30:.3g} GiB")


def attention_rungs():
    """The same of its bonus's rungs, and what limits each: the head's first words on that."""
    text = "".join((PROJECT / "src" / name).read_text() for name in (
        "bonus_attention.cu", "attention/attention_mma.cuh", "attention/attention_hopper.cuh"))
    heads = re.findall(r"// Limits:(.*?)\n// Source:.*?__global__.*?(\w+)\((?:Operands|const)",
                       text, re.DOTALL)
    limits = {kernel: re.split(r"[:.](?: |$)", " ".join(limit.replace("\n//", "").split()))[0]
              for limit, kernel in heads}
    return of_attention("bonus_attention", "what limits it",
                        lambda row: limits.get(row["kernel"], ""))


def of_attention(program, column, value):
    """Its kernels, with one more column: value(row)."""
    found = {}
    for row in measurements.of_program(program, SHOWN_GPU):
        if row["n"] == 4096 and row["role"] != "record":
            found.setdefault(row["kernel"], {}).setdefault(row["shape"], row)
    if not found:
        return NOT_YET
    lines = []
    for kernel, by_shape in found.items():
        row = by_shape["square"]
        share = row["tflops"] / data_sheets.peak(row["gpu"], row)
        lines.append([f"`{kernel}`", value(row), table.number(row["median_ms"]),
                      table.number(row["tflops"]), f"{share:.0%}",
                      *(table.number(by_shape[shape]["tflops"])
                        for shape in ("d128h16causal", "d64h16"))])
    head = [row["gpu"], column, "time, ms", "TFLOP/s", "of peak", "causal", "D = 64"]
    return table.markdown(head, lines, left=2)


def ladder(program, dtype, *sizes):
    """A bonus's kernels: a line for each, with its time at these N."""
    rows = [row for row in measurements.of_program(program, SHOWN_GPU)
            if (row["dtype"], row["shape"]) == (dtype, "square")]
    ms = {(row["kernel"], row["n"]): table.number(row["median_ms"]) for row in rows}
    if not rows:
        return NOT_YET
    return table.markdown([f"ms, {rows[0]['gpu']}", *(f"N = {n}" for n in sizes)],
                          [[f"`{kernel}`", *(ms.get((kernel, n), "-") for n in sizes)]
                           for kernel in dict.fromkeys(row["kernel"] for row in rows)])


# Which working set of bonus_memory, in KiB, one memory alone answers; and by which kernels.
LEVELS = [("shared memory", 64, "chase_shared", "read_shared"), ("L1", 64, "chase", "read"),
          ("L2", 16384, "chase", "read"), ("DRAM", 1048576, "chase", "read")]
REGISTER_BYTES = 128 * 3 * 4  # a cycle and SM: 128 multiply-adds read three each


def levels():
    """How soon each memory answers, and how much it delivers."""
    results = measurements.measured("bonus_memory", SHOWN_GPU)
    found = {(row["kernel"], row["n"]): row for row in (results.rows if results else [])
             if row["shape"] == "square"}
    if any((kernel, kib) not in found for _, kib, *kernels in LEVELS for kernel in kernels):
        return NOT_YET
    clocks = float(results.about["SMs"]) * results.rows[0]["sm_mhz"] * 1e6  # of all SMs, a second
    lines = [["registers, by arithmetic", "at once", table.number(REGISTER_BYTES * clocks / 1e9),
              str(REGISTER_BYTES)]]
    for name, kib, chase, read in LEVELS:
        gb_per_s = found[read, kib]["figure"]
        lines.append([name, f"{found[chase, kib]['figure']:.0f}", table.number(gb_per_s),
                      f"{gb_per_s * 1e9 / clocks:.0f}"])
    return table.markdown([results.gpu, "answers after, cycles", "delivers, GB/s",
                           "bytes a cycle and SM"], lines)


def of_page(name):
    """{part: what writes it} of an experiment's page."""
    program, by = f"bonus_{name}", functools.partial
    return {"async": {"copies": by(by_kernel, program, "fp32", 4096)},
            "memory": {"levels": levels, **{shape: by(by_size, program, "uint32", shape)
                                            for shape in ("strides", "offsets")}},
            "pitfalls": {"claims": by(claims, program)},
            "waves": {"saw_tooth": by(by_size, program, "fp16"),
                      "block_sizes": by(by_size, program, "fp32", "block_sizes")}}.get(name, {})


# --- results/README.md ----------------------------------------------------------------------------


def results():
    files = sorted((PROJECT / "results").glob("*.csv"))
    if not files:
        raise Stop("results/ holds no measurements: scripts/compare_gpus.sh writes them", USAGE)
    measured = [measurements.read(file) for file in files]
    return "\n\n".join(map(section, table.titles(measured), measured))


def section(title, measured):
    """One GPU's tables."""
    lines = [f"### {title}", "", one_gpu.circumstances(measured)]
    for title, (head, rows) in one_gpu.families(measured.rows):
        rows = [[f"`{program}`", *cells] for program, *cells in rows]
        lines += ["", title + ":", "", table.markdown(head, rows, left=3)]
    for (program, dtype, shape), (head, rows) in one_gpu.experiments(measured.rows).items():
        title = f"`{program}`, {dtype}" + f", {shape}" * (shape != "square")
        lines += ["", f"{title}, by N:", "", table.markdown(head, rows, left=0)]
    return "\n".join(lines)


def frameworks():
    files = sorted((PROJECT / "results/frameworks").glob("*.csv"))
    return "\n\n".join(compare_frameworks.markdown(file) for file in files) or "None yet."


def sizes():
    """Of each GPU: ours beside the library's best at the sizes of the grid."""
    return "\n\n".join(map(sizes_of, sorted(grid.FOLDER.glob("*.csv")))) or "None yet."


def sizes_of(file):
    measured = measurements.read(file)
    products, gating = grid.of_products(measured), grid.of_gating(file)
    lines = [f"### {measured.gpu}, the grid", "", one_gpu.circumstances(measured), "",
             "Ours over the best of theirs:", ""]
    head = ["program", "data", "against", "sizes", "geometric mean", "lowest", "below the aim"]
    lines.append(table.markdown(head, [summary_of(series) for series in products + gating], left=3))
    lines += ["", picture_of(grid.picture(file), "Ours over the library's best, by N")]

    head, every = ["N"], sorted({n for series in products for n in series.pairs})
    for series in products:
        head += [f"`{series.program}` {series.dtype}", series.against, "ratio"]
    rows = [[str(n)] + [cell for series in products for cell in cells_of(series.pairs.get(n))]
            for n in every]
    lines += ["", "TFLOP/s by N:", "", table.markdown(head, rows, left=0)]
    return "\n".join(lines)


def summary_of(series):
    short = ", ".join(f"{n} ({ratio:.3f})" for n, ratio in series.short.items())
    lowest = series.pairs[series.lowest].ratio
    return [f"`{series.program}`", series.dtype, series.against, str(len(series.pairs)),
            f"{series.mean:.3f}", f"{lowest:.3f} at {series.lowest}", short or "none"]


def cells_of(pair):
    if not pair:
        return ["-"] * 3
    return [table.number(pair.ours), table.number(pair.theirs), f"{pair.ratio:.3f}"]


def picture_of(name, text, folder="../docs/pictures"):
    """A picture in docs/pictures/, in the reader's theme."""
    path = f"{folder}/{name}"
    return (f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="{path}-dark.svg">\n'
            f'  <img alt="{text}" src="{path}-light.svg">\n</picture>')


# --- docs/exercises.md ----------------------------------------------------------------------------


def sum_of_exercises():
    """How many there are, how long they take, and which need a GPU."""
    found, facts = exercises.read(), exercises.facts()
    hours = sum(each.minutes for each in found) / 60
    with_gpu = [str(each.number) for each in found if facts[each.number].gpu]
    return (f"{len(found)} exercises, {hours:.1f} hours in all. Only exercise "
            f"{', '.join(with_gpu)} needs a GPU.")


def counted(text):
    """A document that says how many exercises there are, with the number of today."""
    return re.sub(r"\[\d+ exercises\]", lambda _: f"[{len(exercises.read())} exercises]", text)


# --- docs/bonuses/gating_gpus.md ------------------------------------------------------------------


def several():
    """The layer of bonus_gating_gpus on several GPUs, of each file that has some."""
    return "\n\n".join(several_of(*each) for each in several_gpus.measured()) or "None yet."


def several_of(measured, layers):
    kernels = list(dict.fromkeys(kernel for layer in layers for kernel in layer.ms))
    rows = []
    for layer in layers:
        cells = [f"{layer.gpus} GPUs: N = {layer.n}, H = {layer.hidden}"]
        for kernel in kernels:
            ms = layer.ms.get(kernel)
            times = f" ({layer.speed_up(kernel):.2f}x)" if kernel != several_gpus.FIRST else ""
            cells.append(f"{ms:.4g}{times}" if ms else "-")
        rows.append(cells)
    head = [f"ms, {measured.gpu}", *(f"`{kernel}`" for kernel in kernels)]
    picture = picture_of(several_gpus.picture(measured), "Times as fast as one GPU", "../pictures")
    return table.markdown(head, rows) + "\n\n" + picture
