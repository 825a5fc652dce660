#!/usr/bin/env python3
"""Draws the documents' pictures from results/, each for a light and a dark page, as
docs/pictures/NAME-light.svg and NAME-dark.svg:

    ladder    README's: the steps from a naive matmul to the library's speed, and gating unfused and
              fused. The bars share one linear scale from 0, so that their lengths compare as the
              figures do
    grid-GPU  results/README.md's, of each file in results/grid/: ours over the library's best, by N
    gpus-GPU  the lecture's, of each file in results/gpus/: a layer on several GPUs
    waves, memory, loads
              of docs/experiments/: what bonus_waves and bonus_memory show, where results/ has it

    picture.py             draws them
    picture.py --check     exits 1 where they are out of date, and changes nothing

Exit status: 2 usage, also where results/ lacks a program.
"""

import functools
import math
import sys
from html import escape
from pathlib import Path
from typing import List, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent / "shared"))
import command_line  # noqa: E402
import grid  # noqa: E402
import plot  # noqa: E402
import programs  # noqa: E402
import several_gpus  # noqa: E402
import table  # noqa: E402
from command_line import PROJECT, USAGE, WRONG, Stop  # noqa: E402

RESULTS = PROJECT / "results/nvidia-h200.csv"
FOLDER = PROJECT / "docs/pictures"
N, S = 4096, 1024

# In units of the picture. 390 of a phone's pixels make 800 of them: text of 21 is 10 pixels high.
WIDTH, MARGIN, GAP = 800, 14, 36
PANEL = (WIDTH - 2 * MARGIN - GAP) / 2
TITLE, TEXT = 25, 21  # sizes
BAR, ROW = 13, 52  # heights: of a bar, and of its line of text, itself and a gap
CHART = 340  # height of a chart


# --- What is shown ----------------------------------------------------------------------------


def of(rows, number, shape, n, *roles):
    """A program's rows with these roles, in the order of the roles."""
    names = list(dict.fromkeys(row["program"] for row in rows))
    found = [row for role in roles for row in rows if row["role"] == role and row["shape"] == shape
             and row["program"] == programs.named(number, names) and row["n"] == n]
    if not found:
        raise table.TableError(f"{RESULTS.name} has nothing of program {number} at {n}")
    return found


def ladder(rows):
    """Matmul, step by step, and where that leads: our fastest, and the library."""
    steps = [row for number in "123" for row in of(rows, number, "square", N, "ours")]
    return steps + of(rows, "3", "square", N, "record", table.YARDSTICK)


def gating(rows, shape, n):
    """One kernel per operation, the library at its best, and our fastest fused kernel."""
    return of(rows, "6", shape, n, "chain", "library", "record")


# --- Drawing ----------------------------------------------------------------------------------


class Curve(NamedTuple):
    """A name and points (x, y). Dashed: what was predicted, or aimed at. `texts` stand at them."""

    name: str
    points: List[tuple]
    dashed: bool = False
    texts: tuple = ()


def scale(values, start, end, logarithmic):
    """Puts the least of some values at `start`, the largest at `end`, and others between."""
    function = math.log if logarithmic else float
    low, high = function(min(values)), function(max(values))
    return lambda value: start + (function(value) - low) / (high - low) * (end - start)


def plain(numbers):
    """Marks of a chart."""
    return {number: f"{number:g}" for number in numbers}


def even(values):
    """Numbers from 0 on, up to the largest value or more."""
    step = 10 ** math.floor(math.log10(max(values)))
    step = step / 2 if max(values) < 3 * step else step
    return [step * i for i in range(math.ceil(max(values) / step) + 1)]


def decades(values):
    """Those of 1, 2, 5, 10, 20, ... that have all values between them."""
    marks = [digit * 10 ** exponent for exponent in range(9) for digit in (1, 2, 5)]
    low = max(mark for mark in marks if mark <= min(values))
    high = min(mark for mark in marks if mark >= max(values))
    return [mark for mark in marks if low <= mark <= high]


class Picture:
    """The text of an SVG file. Its places are its own units, from the top left."""

    def __init__(self, theme):
        self.theme, self.parts = theme, []

    def text(self, x, y, text, color, size=TEXT, more=""):
        self.parts.append(f'<text x="{x:g}" y="{y:g}" fill="{color}" font-size="{size}"{more}>'
                          f"{escape(text)}</text>")

    def line(self, points, color, more=""):
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{places}" fill="none" stroke="{color}"{more}/>')

    def bars(self, x, y, rows, longest, over=None):
        """A name, a figure and a bar for each row: with its data type, or with its speed-up over
        another row. The bar of `longest` TFLOP/s fills its panel. Returns where the next thing may
        stand."""
        for row in rows:
            color = {"library": self.theme.muted, table.YARDSTICK: self.theme.muted,
                     "chain": self.theme.color(1)}.get(row["role"], self.theme.color(0))
            name, figure = row["kernel"], table.number(row["tflops"])
            if not over:
                name += f", {row['dtype']}"
            elif row is not over:
                figure = f"{table.ratio(row['tflops'], over['tflops'])} \u00a0 {figure}"
            self.text(x, y + TEXT, name, self.theme.ink)
            self.text(x + PANEL, y + TEXT, figure, self.theme.ink,
                      more=' font-weight="bold" text-anchor="end"')
            width = max(1, PANEL * row["tflops"] / longest)
            self.parts.append(f'<rect x="{x:g}" y="{y + TEXT + 9:g}" width="{width:.1f}" '
                              f'height="{BAR}" fill="{color}"/>')
            y += ROW
        return y

    def title(self, text):
        self.text(MARGIN, MARGIN + TITLE, text, self.theme.ink, TITLE, ' font-weight="bold"')

    def chart(self, top, curves, x_marks, log_x=False, log_y=False, y_marks=None, bold=None):
        """Curves, with their names above them. Marks are {number: text}; those of y are the lower
        and the upper end, too. Returns where the next thing may stand."""
        left, right, above = 68, WIDTH - 44, top + 2 * TEXT
        xs, ys = zip(*(point for one in curves for point in one.points))
        y_marks = y_marks or plain((decades if log_y else even)(ys))
        x_of = scale(xs, left, right, log_x)
        y_of = scale(y_marks, above + CHART, above, log_y)
        for value, text in y_marks.items():
            color = self.theme.ink if value == bold else self.theme.grid
            self.line([(left, y_of(value)), (right, y_of(value))], color, ' stroke-width="2"')
            self.text(left - 8, y_of(value) + TEXT / 3, text, self.theme.muted,
                      more=' text-anchor="end"')
        for value, text in x_marks.items():
            if min(xs) <= value <= max(xs):
                self.text(x_of(value), above + CHART + TEXT + 8, text, self.theme.muted,
                          more=' text-anchor="middle"')
        across = left
        for i, one in enumerate(curves):
            color = self.theme.muted if one.dashed else self.theme.color(i)
            self.text(across, above - 18, one.name, color, more=' font-weight="bold"')
            across += (0.65 * len(one.name) + 2) * TEXT
            places = [(x_of(x), y_of(y)) for x, y in one.points]
            self.line(places, color, ' stroke-width="1.5" stroke-dasharray="6 5"' if one.dashed
                      else ' stroke-width="2.5"')
            if not one.dashed:
                self.parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>'
                               for x, y in places]
            for (x, y), text in zip(places, one.texts):
                self.text(x + 8, y - 6, text, color)
        return above + CHART + 2 * TEXT + 20

    def svg(self, height, title):
        size = f'width="{WIDTH}" height="{height:g}"'
        return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {height:g}" '
                f'role="img" font-family="system-ui, sans-serif">\n<title>{escape(title)}</title>\n'
                f'<rect {size} fill="{self.theme.background}"/>\n'
                + "\n".join(self.parts) + "\n</svg>\n")


def draw_ladder(theme):
    """README's picture as the text of an SVG file."""
    results = table.read(RESULTS)
    rows = table.shown(results.rows)
    steps = ladder(rows)
    both = [(f"N = {N}", gating(rows, "square", N)),
            (f"tall and skinny, S = {S}", gating(rows, "talk", S))]
    every = steps + [row for _, some in both for row in some]
    picture, longest = Picture(theme), max(row["tflops"] for row in every)
    bold = ' font-weight="bold"'

    left, right = MARGIN, MARGIN + PANEL + GAP
    picture.text(left, MARGIN + TITLE, f"Matmul, N = {N}", theme.ink, TITLE, bold)
    picture.bars(left, MARGIN + 2 * TITLE, steps, longest)

    picture.text(right, MARGIN + TITLE, "Gating: unfused, fused", theme.ink, TITLE, bold)
    y = MARGIN + 2 * TITLE
    for name, some in both:
        picture.text(right, y + TEXT, f"{name}, {some[0]['dtype']}", theme.muted)
        y = picture.bars(right, y + 1.4 * TEXT, some, longest, some[0]) + 8
    picture.text(left, y + TEXT, f"TFLOP/s on one linear scale: longer is faster. {results.gpu}.",
                 theme.muted)
    return picture.svg(y + TEXT + MARGIN, f"Matmul from naive to the library's speed, and gating "
                       f"unfused and fused: TFLOP/s on {results.gpu}")


# --- The grid ---------------------------------------------------------------------------------


def draw_grid(file, theme):
    """Ours over the best of theirs, by N, as the text of an SVG file."""
    results = table.read(file)
    products, gating = grid.of_products(results), grid.of_gating(file)[:1]  # by pointers alone
    every = products + gating
    ratios = [pair.ratio for series in every for pair in series.pairs.values()]
    sizes = sorted({n for series in every for n in series.pairs})
    low, high = min(18, math.floor(20 * min(ratios))), max(22, math.ceil(20 * max(ratios)))  # / 20
    step = 2 if high - low > 8 else 1
    marks = [mark / 20 for mark in range(low - low % step, high + step, step)]
    curves = [Curve(series.name, [(n, pair.ratio) for n, pair in series.pairs.items()])
              for series in every]
    aims = Curve("", [(n, every[0].floor(n)) for n in sizes], dashed=True)

    picture = Picture(theme)
    title = f"Ours over the library's best, by N: {table.short(results.gpu)}"
    picture.title(title)
    y = picture.chart(MARGIN + TITLE + 12, curves + [aims], plain(512 << i for i in range(6)),
                      log_x=True, y_marks={mark: f"{mark:.2f}" for mark in marks}, bold=1)
    beside = "; gating: over PyTorch's best" * len(gating)
    picture.text(MARGIN, y, f"Above 1 ours is faster; dashed: the products' aim{beside}",
                 theme.muted)
    return picture.svg(y + MARGIN, title)


# --- Several GPUs -----------------------------------------------------------------------------


def draw_gpus(results, layers, theme):
    """How many times as fast as one GPU each way to split a layer is, as the text of an SVG file:
    a group of bars for each size, beside a dashed line at the number of its GPUs."""
    kernels = [kernel for kernel in layers[0].ms if kernel != several_gpus.FIRST]
    left, right, top = 52, WIDTH - MARGIN, MARGIN + TITLE + 2 * TEXT + 40
    high = max([layer.gpus for layer in layers] + [layer.speed_up(kernel) for layer in layers
                                                   for kernel in layer.ms]) + 0.1

    def height(speed_up):
        return CHART * speed_up / high

    picture = Picture(theme)
    title = f"Times as fast as one GPU: {table.short(results.gpu)}"
    picture.text(MARGIN, MARGIN + TITLE, title, theme.ink, TITLE, ' font-weight="bold"')
    x = left
    for i, kernel in enumerate(kernels):
        picture.text(x, top - 34, kernel, theme.color(i), more=' font-weight="bold"')
        x += 13.5 * len(kernel) + 22
    for mark in range(math.floor(high) + 1):
        y = top + CHART - height(mark)
        picture.line([(left, y), (right, y)], theme.grid, ' stroke-width="2"')
        picture.text(left - 10, y + TEXT / 3, str(mark), theme.muted, more=' text-anchor="end"')
    group = (right - left) / len(layers)
    for g, layer in enumerate(layers):
        bar, start = 0.86 * group / len(kernels), left + g * group + 0.07 * group
        for i, kernel in enumerate(kernels):
            if kernel in layer.ms:
                tall = height(layer.speed_up(kernel))
                picture.parts.append(
                    f'<rect x="{start + i * bar:.1f}" y="{top + CHART - tall:.1f}" '
                    f'width="{0.86 * bar:.1f}" height="{tall:.1f}" fill="{theme.color(i)}"/>')
        aim = top + CHART - height(layer.gpus)
        picture.line([(start, aim), (start + 0.86 * group, aim)], theme.muted,
                     ' stroke-width="2" stroke-dasharray="6 5"')
        for line, text in enumerate([f"N = {layer.n}", f"H = {layer.hidden}",
                                     f"{layer.gpus} GPUs"]):
            picture.text(start + 0.43 * group, top + CHART + (TEXT + 6) * (line + 1), text,
                         theme.muted, more=' text-anchor="middle"')
    y = top + CHART + 4 * (TEXT + 6) + 14
    picture.text(MARGIN, y, "Dashed: as many times as there are GPUs", theme.muted)
    return picture.svg(y + MARGIN, title)


# --- Experiments ------------------------------------------------------------------------------


def curves_of(rows, value=lambda row: table.shown_rate(row)[0]):
    """A curve for each kernel: its values by N."""
    return [Curve(kernel, [(row["n"], value(row)) for row in some])
            for (kernel,), some in plot.groups(rows, "kernel").items()]


def predicted(rows, value=lambda row: row["predicted_ms"]):
    points = [(row["n"], value(row)) for row in rows if row["predicted_ms"]]
    return Curve("predicted", points, dashed=True)


def draw_charts(title, charts, rows, theme):
    """Charts below each other: a caption, curves and marks of each."""
    picture, y = Picture(theme), MARGIN + TITLE
    picture.title(f"{title}: {table.short(rows[0]['gpu'])}")
    for caption, curves, *axes in charts:
        if any(curve.points for curve in curves):
            picture.text(MARGIN, y + TEXT + 12, caption, theme.muted)
            y = picture.chart(y + TEXT + 18, curves, *axes)
    return picture.svg(y - TEXT, title)


def draw_waves(rows, theme):
    stairs, teeth = [[row for row in rows if (row["shape"], row["dtype"]) == ("square", dtype)]
                     for dtype in ("fp32", "fp16")]
    return draw_charts("One wave more", [
        ("Time of N blocks, one on each multiprocessor, ms",
         [*curves_of(stairs, lambda row: row["median_ms"]), predicted(stairs)],
         plain(row["n"] for row in stairs[1::2])),
        ("C = A B of N x N, TFLOP/s",
         [*curves_of(teeth), predicted(teeth, lambda row: (
             row["tflops"] * row["median_ms"] / row["predicted_ms"]))],
         plain(range(1024, 4097, 512)))], rows, theme)


def draw_memory(rows, theme):
    sizes = {16: "16 KiB", 256: "256 KiB", 4096: "4 MiB", 65536: "64 MiB", 2**20: "1 GiB"}
    chases, reads = [[row for row in rows if (row["shape"], row["unit"]) == ("square", unit)]
                     for unit in ("cycles", "GB/s")]
    return draw_charts("Working sets", [
        ("Cycles until a load answers", curves_of(chases), sizes, True, True),
        ("Read, TB/s", curves_of(reads, lambda row: row["figure"] / 1000), sizes, True, True)],
        rows, theme)


def draw_loads(rows, theme):
    curves = []
    for name, shape, sectors in (("stride N", "strides", lambda n: min(32, 4 * n)),
                                 ("offset N", "offsets", lambda n: 4 + (n % 8 > 0))):
        for curve in curves_of([row for row in rows if row["shape"] == shape]):
            texts = tuple(str(sectors(n)) for n, _ in curve.points)
            curves.append(curve._replace(name=name, texts=texts))
    caption = "GB/s of what it asks for; at the points: sectors of a request"
    return draw_charts("A warp's loads", [
        (caption, curves, plain([1, 2, 4, 8, 16, 32]), True, True)], rows, theme)


EXPERIMENTS = {"waves": ("bonus_waves", draw_waves), "memory": ("bonus_memory", draw_memory),
               "loads": ("bonus_memory", draw_loads)}


@command_line.reporting("picture.py")
def main(arguments):
    if arguments not in ([], ["--check"]):
        raise Stop("the only option is --check", USAGE)
    drawn = {"ladder": draw_ladder}
    for file in grid.FOLDER.glob("*.csv"):
        drawn[grid.picture(file)] = functools.partial(draw_grid, file)
    for each in several_gpus.measured():
        drawn[several_gpus.picture(each[0])] = functools.partial(draw_gpus, *each)
    for name, (program, draw) in EXPERIMENTS.items():
        rows = [row for row in table.of_program(program, RESULTS.stem) if row["verified"] == "yes"]
        if rows:
            drawn[name] = functools.partial(draw, rows)
    for name, draw in drawn.items():
        for theme in plot.THEMES:
            path, text = FOLDER / f"{name}-{theme.name}.svg", draw(theme)
            if path.exists() and path.read_text(encoding="utf-8") == text:
                continue
            if arguments:
                raise Stop(f"{path.relative_to(PROJECT)} is out of date: run scripts/picture.py",
                           WRONG)
            path.parent.mkdir(parents=True, exist_ok=True)
            command_line.write_text(path, text)


if __name__ == "__main__":
    command_line.run(main, __doc__)
