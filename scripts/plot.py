#!/usr/bin/env python3
"""Draws what compare_gpus.sh and compare_frameworks.py measured, for slides, as SVG and PNG, on a
light and on a dark ground. Each plot is a file, 16:9, with no text below 18 points on a slide 13.33
inches wide.

    plot.py [--size N] [--out FOLDER] FILE ...
    plot.py --documents [--out FOLDER]

      curves-<program>-<data type>[-talk][-<unit>]
                         TFLOP/s, or GB/s where memory is the limit, or the figures that a program
                         has instead (bonus_memory: cycles), over N, or over the talk's S,
                         with the spread as a band: a curve per kernel, dashed where it is the
                         library's or a copy; with several files one per GPU, of the program's best
                         kernel at each N; dotted where the data sheet's peak is, unless it is far
      roofline-<file>[-bonuses]
                         operations per byte against TFLOP/s, under the roofs that were measured
                         and, dotted, those of the data sheet: the lessons, and the bonuses
      times-<program>-<data type>
                         of compare_frameworks.py, where it has five shapes or more: time over size,
                         a curve for each contender

  --size N       N of the rooflines (default: 4096, or what most programs have); the talk's shape
                 is shown at S = N / 4, at most 1024
  --out FOLDER   write there (default: build/plots); older plots there are removed
  --documents    draw the documents' pictures from results/ instead, as SVG into docs/pictures:
                 README's ladder; grid-GPU, ours over the library's best, by N; gpus-GPU, a layer on
                 several GPUs; what docs/chapters and docs/experiments show

matplotlib goes into .venv if it is missing. Bad input: one line, exit 2; cannot write: 3.
"""

import collections
import functools
import io
import math
import multiprocessing
import os
import re
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from shared import command_line, data_sheets, grid, measurements, programs, several_gpus, table
from shared.command_line import PROJECT


class Theme:
    """Colors that tell apart with every kind of color vision, and dark enough for text on white or
    light enough on black: after Okabe and Ito."""

    def __init__(self, name, background, ink, muted, grid, colors):
        self.name, self.background, self.ink = name, background, ink
        self.muted, self.grid, self.colors = muted, grid, colors

    def color(self, i):
        """The i-th, or that of what the others are compared with: None."""
        return self.muted if i is None else self.colors[i % len(self.colors)]

    def palette(self):
        return [self.background, self.ink, self.muted, self.grid, *self.colors]


LIGHT = Theme("light", "#ffffff", "#1b1f24", "#5b636d", "#e2e5e9",
              ["#005fa9", "#9a442c", "#007b53", "#934186", "#835e00", "#3e4750", "#7265d7"])
DARK = Theme("dark", "#14181d", "#f1f3f5", "#aab2bc", "#333b45",
             ["#5ab8f0", "#ff9a52", "#35cfa2", "#e77dcb", "#f0dc4e", "#d5dbe1", "#9ad7ff"])
THEMES = [LIGHT, DARK]
MARKERS = "osD^vPX"
WIDTH, HEIGHT = 40 / 3, 7.5  # of a slide, in inches
SIZES = {"title": 28, "text": 18}  # in points
PIXELS = 1920  # across, as PNG


# --- What is shown ----------------------------------------------------------------------------


def short(name):
    """A program's or a GPU's name as a label."""
    return table.short(re.sub("^bonus_", "", name)).replace("_", " ")


def of_shape(program, shape):
    """A program's name as a label, with its shape where that is the talk's."""
    name = short(program)
    return name + ", talk" * (shape == "talk" and not name.endswith("talk"))


def rate(row):
    return measurements.shown_rate(row)[0]


def usual_size(tables, preferred=4096):
    """The N that most programs have, or the preferred one where any has it."""
    runs = {(row["n"], results.path, row["program"]) for results in tables
            for row in measurements.shown(results.rows) if row["shape"] == "square"}
    if not runs:
        raise measurements.TableError(
            "nothing to draw: no program has a figure for an N x N matrix")
    programs = collections.Counter(n for n, _, _ in runs)
    return max(programs, key=lambda n: (n == preferred, programs[n], n))


def talk_size(n):
    """The S of the talk's shape that is shown beside an N."""
    return min(1024, n // 4)


def chosen(row, n):
    """Whether a row is of one N, or of the S that goes with it."""
    return row["n"] == {"square": n, "talk": talk_size(n)}.get(row["shape"])


def at_size(rows, n):
    return [row for row in measurements.plotted(rows) if chosen(row, n)]


# --- Drawing ----------------------------------------------------------------------------------


class Figure:
    """A figure, as large as a slide or as is asked for in inches, with a title at its top left."""

    TOP, BOTTOM = 1.6, 0.95  # what titles need, and the names of an axis and its ticks

    def __init__(self, theme, title, subtitle, width=WIDTH, height=HEIGHT):
        import matplotlib.figure
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        self.theme, self.width, self.height = theme, width, height
        matplotlib.rcParams.update({
            "font.size": SIZES["text"], "axes.titlesize": "medium", "axes.titlecolor": theme.muted,
            "axes.labelcolor": theme.muted, "axes.facecolor": theme.background, "axes.grid": True,
            "axes.axisbelow": True, "grid.color": theme.grid, "grid.linewidth": 1,
            "text.parse_math": False})
        self.figure = matplotlib.figure.Figure((width, height), facecolor=theme.background)
        self.renderer = FigureCanvasAgg(self.figure).get_renderer()
        # A long one is smaller; bold letters are wider by a tenth.
        fitting = (width - 0.7) / (1.12 * inches(title, "title"))
        self.text(0.35, height - 0.28, title, theme.ink, weight="bold",
                  fontsize=SIZES["title"] * min(1, fitting))
        self.text(0.35, height - 0.84, subtitle, theme.muted)

    def text(self, x, y, text, color, **more):
        """Text from a place in inches, to the right and down."""
        self.figure.text(x / self.width, y / self.height, text, color=color, va="top", **more)

    def key(self, names):
        """A line that says what colors mean: [(text, color)]."""
        x = 0.35
        for text, color in names:
            self.text(x, self.height - 1.2, text, color)
            x += inches(text) + 0.45

    def axes(self, left, right, bottom=BOTTOM, top=TOP):
        """Axes between margins, in inches."""
        across, up = self.width, self.height
        ax = self.figure.add_axes([left / across, bottom / up, (across - left - right) / across,
                                   (up - top - bottom) / up])
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0, colors=self.theme.muted, pad=7)
        return ax

    def labels_at_right(self, ax, labels):
        """Names lines at their right end, [(y, text, color)], so that no two names touch."""
        height = 1.25 * SIZES["text"] / 72 * self.figure.dpi
        labels = sorted(labels)
        places = [ax.transData.transform((1, y))[1] for y, _, _ in labels]
        for i in range(1, len(places)):
            places[i] = max(places[i], places[i - 1] + height)
        limit = ax.transAxes.transform((0, 1))[1]
        for i in reversed(range(len(places))):
            places[i] = limit = min(places[i], limit)
            limit -= height
        for (_, text, color), y in zip(labels, places):
            y = ax.transAxes.inverted().transform((0, y))[1]
            ax.text(1, y, "  " + text, transform=ax.transAxes, color=color, va="center")


def plain_ticks(ax):
    """Numbers as they are, also after a scale has become logarithmic, and nothing between them."""
    ax.minorticks_off()
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter("{x:g}")


@functools.lru_cache(maxsize=None)
def inches(text, size="text"):
    """How wide a text gets."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=SIZES[size])
    return text_to_path.get_text_width_height_descent(text, font, False)[0] / 72


# --- Curves -----------------------------------------------------------------------------------


class Curve(NamedTuple):
    name: str
    color: Optional[int]  # of the theme


def curves(tables):
    """{(program, data type, shape, unit): {curve: its rows}}, a plot for each."""
    names = [short(title) for title in table.titles(tables)]
    found = {}
    for program in dict.fromkeys(row["program"] for t in tables for row in t.rows):
        for i, results in enumerate(tables):
            rows = [row for row in measurements.plotted(results.rows) if row["program"] == program
                    and row["shape"] in ("square", "talk")]
            for (dtype, shape, n), rows in measurements.groups(rows, "dtype", "shape", "n").items():
                own = measurements.own_kernels(rows)
                if len(tables) > 1:
                    rows = [max(own, key=rate)]
                for row in rows:
                    rival = row["role"] in ("library", measurements.YARDSTICK) and row not in own
                    unit = measurements.shown_rate(row)[1]
                    plot = found.setdefault((program, dtype, shape, unit), {})
                    if len(tables) > 1:
                        curve = Curve(names[i], i)
                    else:
                        curve = next((c for c in plot if c.name == row["kernel"]), None) or Curve(
                            row["kernel"], None if rival else sum(
                                c.color is not None for c in plot))
                    plot.setdefault(curve, []).append(row)
    return found


def draw_curves(tables, at, plot, theme, title=None):
    """The rates of one program over its sizes."""
    program, dtype, shape, unit = at
    peaks, far = _peaks_beside(tables, plot)
    about = "Each GPU's best kernel" if len(tables) > 1 else short(table.titles(tables)[0])
    about += "; dotted: the data sheet's peak" * bool(peaks)
    if far and not peaks:
        about += ("; the data sheet's peaks are far above" if len(tables) > 1 else
                  f"; the data sheet's peak is {table.number(far[0])}")
    figure = Figure(theme, title or f"{of_shape(program, shape)}: {dtype}, {unit}",
                    about + "; band: the middle half of the samples")
    names = [curve.name for curve in plot] + [name for _, name, _ in peaks]
    ax = figure.axes(1.15, 0.25 + max(inches("  " + name) for name in names))
    top, dashes = 0, iter([(4, 2), (6, 2, 1, 2), (8, 3)] * len(plot))
    for curve, rows in plot.items():
        rows = sorted(rows, key=lambda row: row["n"])
        x, y = [row["n"] for row in rows], [rate(row) for row in rows]
        half = [value * (row["spread_pct"] or 0) / 200 for value, row in zip(y, rows)]
        color = theme.color(curve.color)
        low, high = [a - b for a, b in zip(y, half)], [a + b for a, b in zip(y, half)]
        ax.fill_between(x, low, high, alpha=0.3, linewidth=0, color=color, zorder=3)
        if curve.color is None:
            style = dict(linestyle=(0, next(dashes)), marker="o", markersize=6)
        else:  # where colors begin again, markers are others
            turn = curve.color // len(theme.colors)
            style = dict(marker=MARKERS[(curve.color + turn) % len(MARKERS)], markersize=11)
        ax.plot(x, y, linewidth=3.5, color=color, zorder=3, **style)
        top = max(top, *high)
    for value, _, color in peaks:
        ax.axhline(value, linewidth=2.5, linestyle=(0, (1, 2)), zorder=2, color=theme.color(color))
        top = max(top, value)
    sizes = sorted({row["n"] for rows in plot.values() for row in rows})
    ax.set_xscale("log", base=2)
    plain_ticks(ax)
    named = [n for n, before in zip(sizes, [0] + sizes) if n > 1.12 * before]  # others would touch
    if len(named) > MANY:
        named = [n for n in named if n & (n - 1) == 0]  # powers of two
        named = named[::-(-len(named) // MANY)]
    ax.set_xticks(named, list(map(str, named)))
    if len(sizes) > 1:
        ax.set_xlim(sizes[0] / 1.12, sizes[-1] * 1.06)
    ax.set(xlabel="S" if shape == "talk" else "N", ylabel=unit, ylim=(0, top * 1.06))
    ax.grid(axis="x", visible=False)
    ends = [(rate(max(rows, key=lambda row: row["n"])), *curve) for curve, rows in plot.items()]
    figure.labels_at_right(ax, [(y, name, theme.color(color)) for y, name, color in ends + peaks])
    return figure


RATES = ("GB/s", "TFLOP/s")
MANY = 9  # sizes: of more not all have room for their names
FAR = 4  # times the best figure: a peak beyond it would press the curves together


def _peaks_beside(tables, plot):
    """[(data sheet's peak, its label, a curve's color)] of each GPU, and the peaks that are too far
    from the curves to be drawn."""
    near, far = {}, []
    for i, results in enumerate(tables):
        rows = [row for curve, rows in plot.items() for row in rows
                if len(tables) == 1 or curve.color == i]
        is_rate = rows and measurements.shown_rate(rows[0])[1] in RATES
        peak = is_rate and data_sheets.peak(results.gpu, rows[0])
        if peak and peak <= FAR * max(map(rate, rows)):
            near.setdefault(peak, i if len(tables) > 1 else None)
        elif peak:
            far.append(peak)
    return [(peak, f"peak {table.number(peak)}", color) for peak, color in near.items()], far


# --- Times ------------------------------------------------------------------------------------

SWEEP = 5  # shapes that make a curve
IN_WORDS = {"eager": "PyTorch eager", "compile": "torch.compile", "script": "torch.jit.script"}


def sweeps(results):
    """{(program, data type): {contender: {elements: its row}}}, of what compare_frameworks.py
    measured at many shapes. Of two shapes with as many elements the one with more rows counts."""
    found = {}
    for row in sorted(results.rows, key=lambda row: row["n"]):
        if (row.get("contender") and row["verified"] == "yes"
                and re.fullmatch(r"\d+x\d+", row["shape"])):
            curves_of = found.setdefault((row["program"], row["dtype"]), {})
            elements = math.prod(map(int, row["shape"].split("x")))
            curves_of.setdefault(row["contender"], {})[elements] = row
    return {at: curves_of for at, curves_of in found.items()
            if max(map(len, curves_of.values())) >= SWEEP}


def draw_times(results, heading, curves_of, theme, title=None):
    """How long each contender takes, over the size. The copy, which computes nothing, is
    dashed."""
    figure = Figure(theme, title or heading,
                    f"{short(results.gpu)}; lower is faster; dashed: a copy of as many bytes")
    names = {contender: IN_WORDS.get(contender, contender) for contender in curves_of}
    ax = figure.axes(1.4, 0.25 + max(inches("  " + name) for name in names.values()), bottom=1.3)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    plain_ticks(ax)
    labels = []
    for contender, row_of in curves_of.items():
        x = sorted(row_of)
        y = [row_of[elements]["median_ms"] * 1000 for elements in x]
        if all(row["tflops"] is None for row in row_of.values()):
            color, style = theme.muted, dict(linestyle=(0, (4, 2)), marker="o", markersize=6)
        else:
            i = sum(color != theme.muted for _, _, color in labels)
            i = (0, 1, 2, 3, 4, 6, 5)[i % 7]  # last the color that is near to the copy's
            color, style = theme.color(i), dict(marker=MARKERS[i % len(MARKERS)], markersize=11)
        ax.plot(x, y, linewidth=3.5, color=color, zorder=3, **style)
        labels.append((y[-1], names[contender], color))
    ticks = {x: row["shape"].replace("x", "\nx ") for row_of in curves_of.values()
             for x, row in sorted(row_of.items())}
    ax.set_xticks(list(ticks), list(ticks.values()))
    ax.set(xlabel="rows x columns", ylabel="microseconds")
    ax.grid(axis="x", visible=False)
    figure.labels_at_right(ax, labels)
    return figure


# --- Roofline ---------------------------------------------------------------------------------


def intensity(row):
    """Operations per byte that it moved, by its own count, or must move at least."""
    moved = row["moved_bytes"] or row["least_bytes"]
    return row["tflops"] * row["median_ms"] * 1e9 / moved if moved else None


def roofs(rows):
    """(GB/s of a copy, {data type: TFLOP/s of the library's matmul}), the best of the file."""
    copies = [row["gb_per_s"] for row in rows if row["role"] == measurements.YARDSTICK
              and row["tflops"] is None and row["gb_per_s"]]
    peaks = {}
    for row in rows:
        if row["role"] in ("library", measurements.YARDSTICK) and "matmul" in row["program"]:
            peaks[row["dtype"]] = max(peaks.get(row["dtype"], 0), row["tflops"])
    return max(copies, default=None), peaks


def placed(rows):
    """[(name, row, row of the many launches or None)]: the best kernel of every program in its
    first data type. A program that has no kernel of its own shows all that it runs, without a name
    where it runs the library alone: the roofs name that already."""
    points, seen = [], {}
    rows = [row for row in rows if row["tflops"] and not measurements.of_experiment(row)]
    for (program, shape), rows in measurements.groups(rows, "program", "shape").items():
        own = measurements.own_kernels(rows)
        if own[0]["role"] in measurements.OWN:
            own = [row for row in own if row["dtype"] == own[0]["dtype"]]
            best = max(own, key=lambda row: row["tflops"])
            chains = [row for row in rows if row["role"] == "chain" and row["moved_bytes"]
                      and row["dtype"] == best["dtype"]]
            start = max(chains, key=lambda row: row["tflops"], default=None)
            # What another program is about has its point already.
            start = start and seen.get((start["kernel"], shape), start)
            points.append((of_shape(program, shape), best, start))
            continue
        about_library = all(row["role"] in ("library", measurements.YARDSTICK) for row in rows)
        for row in rows:
            kernel = of_shape(row["kernel"], shape)
            name = "" if about_library else f"{program.split('_')[0]} {kernel}"
            points.append((name, row, None))
            seen[row["kernel"], shape] = row
    return points


KINDS = ["\u25cf fp32", "\u25a0 tensor cores", "\u25c6 fusion", "\u25b2 all memory traffic"]


def draw_roofline(results, n, what, points, theme, title=None):
    figure = Figure(theme, title or f"{short(results.gpu)}: what holds each {what} back",
                    f"N = {n}, S = {talk_size(n)}; arrow: fusion; hollow: by the least bytes; "
                    "dotted: the data sheet")
    every = [row for _, row, start in points for row in (row, start) if row]
    ax = _under_roofs(figure, results, [intensity(row) for row in every],
                      [row["tflops"] for row in every])
    figure.key([(text, theme.color(i)) for i, text in enumerate(KINDS)]
               + [("No copy was measured", theme.muted)] * (not roofs(results.rows)[0]))
    marks, labels, bends = [], [], 0
    for name, row, start in points:
        kind = _kind(row, start)
        color = theme.color(kind)
        place = intensity(row), row["tflops"]
        _mark(ax, place, kind, theme, hollow=not row["moved_bytes"])
        marks.append(place)
        if name:
            labels.append((name, place, color))
        if start:
            began = intensity(start), start["tflops"]
            if not any(start is other for _, other, _ in points):
                _mark(ax, began, kind, theme)
                marks.append(began)
            # Along the roof they would lie on each other.
            bend = 0.12 + 0.1 * (bends % 4) if row["gb_per_s"] else 0.2
            bends += bool(row["gb_per_s"])
            _arrow(ax, began, place, color, bend)
    _name_points(figure, ax, labels, marks)
    return figure


def _under_roofs(figure, results, x, y):
    """Axes for points at (x, y) with the roofs of all data types."""
    theme = figure.theme
    bandwidth, peaks = roofs(measurements.shown(results.rows))
    sheet = data_sheets.sheets().get(results.gpu, {})
    names = {dtype: f"library {dtype}  {table.number(peak)}"
             + f" of {table.number(sheet.get(dtype))}" * (dtype in sheet)
             for dtype, peak in peaks.items()}
    ax = figure.axes(1.2, 0.3 + max([inches("  " + text) for text in names.values()] or [0]))
    low_x, high_x = min(x) / 2.6, max(x) * 15
    low_y, high_y = min(y) / 2.5, max(y + list(peaks.values())) * 4
    ax.set(xscale="log", yscale="log", xlim=(low_x, high_x), ylim=(low_y, high_y),
           xlabel="operations per byte moved", ylabel="TFLOP/s")
    plain_ticks(ax)

    measured = dict(linewidth=3, solid_capstyle="round")
    by_data_sheet = dict(linewidth=2, linestyle=(0, (1, 2)))
    for slope, flats, style in ((bandwidth, peaks, measured),
                                (sheet.get("GB/s"), {dtype: sheet[dtype] for dtype in peaks
                                                     if dtype in sheet}, by_data_sheet)):
        lines = [[(peak * 1000 / slope if slope else low_x, peak), (high_x, peak)]
                 for peak in flats.values()]
        if slope:
            ridge = max(flats.values(), default=high_y) * 1000 / slope  # where the roofs meet
            lines.append([(low_x, low_x * slope / 1000), (ridge, ridge * slope / 1000)])
        for ends in lines:
            ax.plot(*zip(*ends), color=theme.muted, zorder=2, **style)
    if bandwidth:
        ridge = max(peaks.values(), default=high_y) * 1000 / bandwidth
        _name_roof(figure, ax, bandwidth, low_x, ridge, x)
    figure.labels_at_right(ax, [(peaks[dtype], text, theme.muted) for dtype, text in names.items()])
    return ax


def _arrow(ax, start, end, color, bend):
    ax.annotate("", end, start, zorder=4, arrowprops=dict(
        arrowstyle="-|>,head_width=4,head_length=8", mutation_scale=1, color=color, linewidth=2.2,
        shrinkA=9, shrinkB=9, connectionstyle=f"arc3,rad={bend}"))


def _kind(row, start):
    """Which color and mark, of KINDS."""
    if row["gb_per_s"]:
        return 3
    if start or row["role"] == "chain":
        return 2
    return 0 if row["dtype"] == "fp32" else 1


def _mark(ax, place, kind, theme, hollow=False):
    color = theme.color(kind)
    ax.plot(*zip(place), marker=MARKERS[kind], markersize=14, zorder=5, color=color,
            markeredgewidth=3, markeredgecolor=color,
            markerfacecolor=theme.background if hollow else color)


def _name_roof(figure, ax, bandwidth, low_x, ridge, taken):
    """Writes the copy's bandwidth along its roof, far from the intensities that are taken."""
    a, b = (ax.transData.transform((x, x * bandwidth / 1000)) for x in (low_x, ridge))
    angle = math.degrees(math.atan2(b[1] - a[1], b[0] - a[0]))
    places = [low_x * (ridge / low_x) ** (i / 20) for i in range(4, 17)]
    x = max(places, key=lambda place: min(abs(math.log(place / other)) for other in taken))
    ax.annotate(f"a copy: {table.number(bandwidth)} GB/s", (x, x * bandwidth / 1000), (0, 7),
                textcoords="offset points", rotation=angle, rotation_mode="anchor", ha="center",
                va="bottom", color=figure.theme.muted)


def _name_points(figure, ax, labels, marks):
    """Names points, [(text, (x, y), color)], and ties the names to them. Of the places around a
    point, from the nearest on, its name takes the one that has the least in its way."""
    from matplotlib.transforms import Bbox

    dpi, to_pixels = figure.figure.dpi, ax.transData.transform
    height = 1.2 * SIZES["text"] / 72 * dpi
    taken = [Bbox.from_bounds(x - 11, y - 11, 22, 22) for x, y in map(to_pixels, marks)]
    taken += [text.get_window_extent(figure.renderer) for text in ax.texts if text.get_rotation()]
    lines = [line.get_path().transformed(line.get_transform()) for line in ax.lines]
    for text, point, color in labels:
        width = inches(text) * dpi
        shifts = [(right, (up - 0.5) * height) for up in (0, 1, -1, 2, -2, 3, -3, 4, -4)
                  for right in (16, -width - 16, 60, -width - 60, -width / 2)]
        boxes = [Bbox.from_bounds(*(to_pixels(point) + shift), width, height) for shift in shifts]
        costs = [9 * (4 - ax.bbox.count_contains(box.corners())) + 3 * box.count_overlaps(taken)
                 + sum(line.intersects_bbox(box, filled=False) for line in lines) for box in boxes]
        best = costs.index(min(costs))
        taken.append(boxes[best])
        ax.annotate(text, point, [part / dpi * 72 for part in shifts[best]],
                    textcoords="offset points", color=color, zorder=6,
                    arrowprops=dict(arrowstyle="-", color=color, shrinkB=9))


# --- The documents' pictures ------------------------------------------------------------------

SHOWN, N, S = PROJECT / "results/nvidia-h200.csv", 4096, 1024
DOCUMENT = 10  # inches across: on a phone its text is 10 pixels high


def of(number, shape, n, *roles):
    """A program's rows with these roles, in the order of the roles."""
    rows = measurements.shown(measurements.read(SHOWN).rows)
    program = programs.named(number, dict.fromkeys(row["program"] for row in rows))
    found = [row for role in roles for row in rows if row["role"] == role and row["n"] == n
             and row["program"] == program and row["shape"] == shape]
    if not found:
        raise measurements.TableError(f"{SHOWN.name} has nothing of program {number} at {n}")
    return found


def ladder():
    """[[(heading, rows)]] of the left and the right: matmul step by step, and where that leads;
    gating by one kernel per operation, by the library, and by our fastest."""
    matmul = [row for number in "123" for row in of(number, "square", N, "ours")]
    gating = "chain", "library", "record"
    return [[(f"Matmul, N = {N}", matmul + of("3", "square", N, "record", measurements.YARDSTICK))],
            [(f"Gating, fp16, N = {N}", of("6", "square", N, *gating)),
             (f"Tall and skinny, S = {S}", of("6", "talk", S, *gating))]]


def draw_ladder(title, panels, theme):
    """Names above bars, in one column or two. All bars have one scale from 0, so that lengths
    compare as figures do."""
    most = max(sum(1 + len(rows) for _, rows in parts) for parts in panels)
    figure = Figure(theme, title, "TFLOP/s on one linear scale: longer is faster. "
                    + table.short(measurements.read(SHOWN).gpu), DOCUMENT, 1.5 + 0.565 * most)
    longest = max(row["tflops"] for parts in panels for _, rows in parts for row in rows)
    across = (DOCUMENT - 0.3) / len(panels)
    for i, parts in enumerate(panels):
        ax = figure.axes(0.35 + i * across, DOCUMENT - (i + 1) * across, bottom=0.2, top=1.3)
        ax.set(xlim=(0, longest), ylim=(most, 0))
        ax.axis("off")
        y = 0
        for heading, rows in parts:
            lines = [(heading, "", 0, None)]
            for row in rows:
                name, text = row["kernel"], table.number(row["tflops"])
                if rows[0]["role"] != "chain":
                    name += f", {row['dtype']}"
                elif row is not rows[0]:
                    text = f"{table.ratio(rows[0]['median_ms'], row['median_ms'])}  {text}"
                color = {"library": theme.muted, measurements.YARDSTICK: theme.muted,
                         "chain": theme.color(1)}.get(row["role"], theme.color(0))
                lines.append((name, text, row["tflops"], color))
            for name, text, rate_of, color in lines:
                style = dict(color=theme.ink, va="center")
                ax.text(0, y + 0.4, name, weight="normal" if text else "bold", **style)
                ax.text(longest, y + 0.4, text, weight="bold", ha="right", **style)
                ax.barh(y + 0.85, rate_of, height=0.25, color=color)
                y += 1
    return figure


def ladders():
    """{picture: (title, panels)} of README and of the chapters that climb one."""
    products = of("3", "square", N, "ours", measurements.YARDSTICK)
    gating = [row for row in of("6", "square", N, "library", "ours", "record")
              if row["tflops"] > 100]  # with tensor cores
    return {
        "ladder": ("Feeding, then fusing", ladder()),
        "register_tiles": ("More sums in a thread", [[
            (f"C = A B, N = {N}, no tensor cores",
             of("2", "square", N, "ours") + of("bonus_matmul_register_tiled", "square", N, "ours",
                                               measurements.YARDSTICK))]]),
        "tensor_cores": ("Feeding the tensor cores", [[
            (f"C = A B, N = {N}", products + of("3", "square", N, "record"))]]),
        "attention": ("Without the matrix of scores", [[
            (f"Attention, N = {N}, D = 128", of("10", "square", N, "chain", "library", "ours",
                                                "record"))]]),
        "tiles": ("By hand, and by a compiler", [
            [(f"Matmul, N = {N}", products[1:] + [row for row in of(
                "bonus_tile", "square", N, "ours", "record") if not row["gb_per_s"]])],
            [(f"Gating, N = {N}", gating)]])}


class Chart(NamedTuple):
    """Lines {name: [(x, y)]} over marks {x: text}; what was predicted, or is aimed at, is dashed.
    `texts` stand at the points. `low`: where y begins."""

    caption: str
    lines: dict
    marks: dict
    dashed: dict = {}
    texts: dict = {}
    xscale: str = "log"
    low: Optional[float] = 0
    yscale: str = "linear"


def draw_charts(title, subtitle, charts, theme):
    """Charts below each other."""
    figure = Figure(theme, title, subtitle, DOCUMENT, 1.2 + 4.7 * len(charts))
    for i, chart in enumerate(charts):
        ax = figure.axes(1.1, 0.3, 0.55 + 4.7 * (len(charts) - 1 - i), 1.75 + 4.7 * i)
        ax.set_title(chart.caption, loc="left")
        for j, (name, points) in enumerate(chart.lines.items()):
            ax.plot(*zip(*points), marker="o", label=name, color=theme.color(j), linewidth=2.5)
            for point, text in zip(points, chart.texts.get(name, [])):
                ax.annotate(text, point, (6, 6), textcoords="offset points", color=theme.color(j))
        for name, points in chart.dashed.items():
            ax.plot(*zip(*points), "--", label=name, color=theme.muted, linewidth=1.5)
        ax.set_xscale(chart.xscale)
        ax.set_yscale(chart.yscale)
        ax.set_ylim(chart.low)
        plain_ticks(ax)
        ax.set_xticks(list(chart.marks), list(chart.marks.values()))
        ax.legend(labelcolor="linecolor", frameon=False)
    return figure


def draw_grid(file, theme):
    """Ours over the best of theirs, by N."""
    results = measurements.read(file)
    gating = grid.of_gating(file)[:1]  # by pointers alone
    every = grid.of_products(results) + gating
    lines = {series.name: [(n, pair.ratio) for n, pair in series.pairs.items()]
             for series in every}
    sizes = sorted({n for series in every for n in series.pairs})
    chart = Chart("Above 1 ours is faster" + ";\ngating: over PyTorch's best" * len(gating), lines,
                  plain(512 << i for i in range(6)),
                  {"the products' aim": [(n, every[0].floor(n)) for n in sizes]},
                  low=None)
    figure = draw_charts("Ours over the library's best, by N", results.gpu, [chart], theme)
    figure.figure.axes[0].axhline(1, color=theme.ink)
    return figure


def draw_gpus(results, layers, theme):
    """How many times as fast as one GPU each way to split a layer is: a group of bars for each
    size, below a dashed line at the number of its GPUs."""
    figure = Figure(theme, "Times as fast as one GPU", "Dashed: as many times as there are GPUs. "
                    + table.short(results.gpu), DOCUMENT, 6.5)
    ax = figure.axes(0.7, 0.2, bottom=1.3)
    kernels = [kernel for kernel in layers[0].ms if kernel != several_gpus.FIRST]
    for g, layer in enumerate(layers):
        for i, kernel in enumerate(kernels):
            if kernel in layer.ms:
                ax.bar(g + (i + 0.5) / (len(kernels) + 1), layer.speed_up(kernel),
                       0.8 / (len(kernels) + 1), color=theme.color(i), zorder=3)
        ax.hlines(layer.gpus, g, g + 0.9, color=theme.muted, linestyle="--")
    figure.key([(kernel, theme.color(i)) for i, kernel in enumerate(kernels)])
    ax.set_xticks([g + 0.45 for g in range(len(layers))], [
        f"N = {layer.n}\nH = {layer.hidden}\n{layer.gpus} GPUs" for layer in layers])
    ax.grid(axis="x", visible=False)
    return figure


def plain(numbers):
    """Marks of a chart."""
    return {number: str(number) for number in numbers}


def lines_of(rows, value=rate):
    """{kernel: its values by N}"""
    return {kernel: [(row["n"], value(row)) for row in some]
            for (kernel,), some in measurements.groups(rows, "kernel").items()}


def waves(rows):
    stairs, teeth = [[row for row in rows if (row["shape"], row["dtype"]) == ("square", dtype)]
                     for dtype in ("fp32", "fp16")]
    predicted = [row for row in teeth if row["predicted_ms"]]
    return "One wave more", [
        Chart("Time of N blocks, one on each multiprocessor, ms",
              lines_of(stairs, lambda row: row["median_ms"]),
              plain(row["n"] for row in stairs[1::2]),
              {"predicted": [(row["n"], row["predicted_ms"]) for row in stairs]}, xscale="linear"),
        Chart("C = A B of N x N, TFLOP/s", lines_of(teeth), plain(range(1024, 4097, 512)),
              {"predicted": [(row["n"], row["tflops"] * row["median_ms"] / row["predicted_ms"])
                             for row in predicted]}, xscale="linear")]


def memory(rows):
    sizes = {16: "16 KiB", 256: "256 KiB", 4096: "4 MiB", 65536: "64 MiB", 2**20: "1 GiB"}
    chases, reads = [[row for row in rows if (row["shape"], row["unit"]) == ("square", unit)]
                     for unit in ("cycles", "GB/s")]
    return "Working sets", [
        Chart("Cycles until a load answers", lines_of(chases), sizes),
        Chart("Read, TB/s", lines_of(reads, lambda row: row["figure"] / 1000), sizes)]


def latency(rows):
    title, charts = memory(rows)
    return title, charts[:1]


def loads(rows):
    lines, texts = {}, {}
    for name, shape, sectors in (("stride N", "strides", lambda n: min(32, 4 * n)),
                                 ("offset N", "offsets", lambda n: 4 + (n % 8 > 0))):
        for points in lines_of([row for row in rows if row["shape"] == shape]).values():
            lines[name], texts[name] = points, [str(sectors(n)) for n, _ in points]
    return "A warp's loads", [
        Chart("GB/s of what it asks for; at the points: sectors of a request", lines,
              plain([1, 2, 4, 8, 16, 32]), texts=texts)]


def launches(rows):
    by_role = {row["role"]: row["kernel"] for row in rows[::-1]}  # the first of each
    lines = {name: [(math.prod(map(int, row["shape"].split("x"))), 1000 * row["median_ms"])
                    for row in rows if row["kernel"] == by_role[role] and row["dtype"] == "fp32"
                    and "x" in row["shape"]]
             for name, role in (("two kernels", "chain"), ("one kernel", "ours"))}
    return "Bias and ReLU", [
        Chart("Time in microseconds, over the numbers in the matrix", lines,
              {16: "16", 2**10: "1 thousand", 2**16: "65 thousand", 2**22: "4 million",
               2**28: "268 million"}, low=None, yscale="log")]


def softmax(rows):
    columns = [(int(row["shape"].rpartition("x")[2]) if "x" in row["shape"] else row["n"], row)
               for row in rows if row["dtype"] == "fp32"]
    roles = {row["kernel"]: row["role"] for row in rows}
    lines = {kernel: sorted((n, row["gb_per_s"]) for n, row in columns if row["kernel"] == kernel)
             for kernel, role in roles.items() if role != "chain"}
    copy = lines.pop(next(kernel for kernel in roles if roles[kernel] == measurements.YARDSTICK))
    return "One read, or more", [
        Chart("GB/s, over the numbers in a row", lines,
              {n: f"{n:,}" for n in (1000, 4096, 16384, 131072)},
              {"a copy": copy})]


def in_flight(rows):
    """2048 threads of a multiprocessor load a number each, or 16 bytes."""
    rows = [row for row in rows if row["shape"] == "square" and row["n"] == 16384]
    plainly, vectorized = dict.fromkeys(row["kernel"] for row in rows if row["role"] == "ours")
    size = {"fp32": 4, "fp16": 2}
    lines = {"a number in each thread": [(2 * size[row["dtype"]], row["gb_per_s"])
                                         for row in rows[::-1] if row["kernel"] == plainly],
             "16 bytes in each thread": [(32, row["gb_per_s"]) for row in rows
                                         if row["kernel"] == vectorized]}
    copy = max(row["gb_per_s"] for row in rows if row["role"] == measurements.YARDSTICK)
    return "Full of loads", [Chart("GB/s, over KiB in flight in each multiprocessor", lines,
                                   plain([4, 8, 16, 32]), {"a copy": [(4, copy), (32, copy)]})]


def draw_claims(rows, theme):
    """What each way to measure says of one speed, over what is right, from 1 to both sides."""
    claims = [(row["kernel"], row["tflops"] / rows[0]["tflops"]) for row in rows[1:]]
    figure = Figure(theme, "Nine ways to be wrong", "The speed that each claims, over the true "
                    f"one. {table.short(rows[0]['gpu'])}", DOCUMENT, 6.1)
    ax = figure.axes(3.6, 0.9, bottom=0.6, top=1.4)
    for y, (name, ratio) in enumerate(claims):
        ax.barh(y, ratio - 1, left=1, height=0.6, color=theme.color(0 if ratio < 1 else 1))
        ax.text(max(ratio, 1), y, f"  {ratio:.3g}x", color=theme.ink, va="center")
    ax.set(xscale="log", ylim=(len(claims) - 0.5, -0.5))
    plain_ticks(ax)
    ax.set_yticks(range(len(claims)), [name for name, _ in claims])
    return figure


PROFILES = [("5_gating_unfused-4096", 0), ("6_gating_fused-4096", -1), ("12_mlp-1048576", 0),
            ("12_mlp-1048576", -2),  # the last is a copy
            ("13_dlrm-2048", 0), ("13_dlrm-2048", -1)]


def slices(file, i):
    """(name, span, [(kernel, ms)]) of a timed range: each row's share of its median pass."""
    text = command_line.read_text(PROJECT / f"results/profiles/{SHOWN.stem}/{file}.txt")
    part = [each.split("\n\n")[0] for each in text.split("\ntimed / ") if " times, " in each][i]
    name, span = re.match(r"(\w+): .* median ([\d.]+) ms", part).groups()
    rows = re.findall(r"^  (\S.*?) +\d+ +[\d.]+ +[\d.]+ +([\d.]+)%", re.sub(r"\n {20,}", " ", part),
                      re.MULTILINE)
    return name, float(span), [(row, float(span) * float(share) / 100) for row, share in rows]


def draw_profiles(theme):
    """Where a pass goes: a bar for each range, of products, kernels beside them, and gaps."""
    figure = Figure(theme, "Where the time goes", "Of a pass, in ms. H200", DOCUMENT, 5.6)
    ax = figure.axes(3.6, 0.9, bottom=0.6, top=1.75)
    kinds = [("products", theme.color(0)), ("kernels between them", theme.color(1)),
             ("one kernel for both", theme.color(2)), ("gaps", theme.muted)]
    figure.key(kinds)
    labels = []
    for y, (file, i) in enumerate(PROFILES):
        name, span, rows = slices(file, i)
        labels.append(f"{file.split('_')[0]} {name}")
        left = 0
        for kind, ms in sorted((0 if re.match("nvjet|cutlass|splitK|gemv", kernel) else
                                2 if name in kernel else 3 if kernel[0] == "(" else 1, ms)
                               for kernel, ms in rows):
            ax.barh(y, ms, left=left, height=0.6, color=kinds[kind][1])
            left += ms
        ax.text(left, y, f"  {span:.3f}", color=theme.ink, va="center")
    ax.set(ylim=(len(labels) - 0.5, -0.5))
    plain_ticks(ax)
    ax.set_yticks(range(len(labels)), labels)
    return figure


def roofline(results):
    """The roofline of a few lessons, so that each name has room: a list of it, if it is there."""
    few = [row for row in results.rows if re.match("[12467]_", row["program"])]
    return [p._replace(name="roofline") for p in _rooflines([results._replace(rows=few)], N)]


def documents():
    """The documents' pictures, where results/ has them."""
    for name, (title, panels) in ladders().items():
        yield Plot(name, "", functools.partial(draw_ladder, title, panels))
    yield from roofline(measurements.read(SHOWN))
    yield Plot("profiles", "", draw_profiles)
    for file in grid.FOLDER.glob("*.csv"):
        yield Plot(grid.picture(file), "", functools.partial(draw_grid, file))
    for each in several_gpus.measured():
        yield Plot(several_gpus.picture(each[0]), "", functools.partial(draw_gpus, *each))
    pitfalls = [row for row in measurements.of_program("bonus_pitfalls", SHOWN.stem)
                if row["n"] == N]
    yield Plot("pitfalls", "", functools.partial(draw_claims, pitfalls))
    for charts, program in ((waves, "bonus_waves"), (memory, "bonus_memory"),
                            (latency, "bonus_memory"), (loads, "bonus_memory"),
                            (launches, "9_bias_activation"), (in_flight, "7_gelu"),
                            (softmax, "8_softmax")):
        rows = [row for row in measurements.of_program(program, SHOWN.stem)
                if row["verified"] == "yes"]
        if rows:
            title, found = charts(rows)
            yield Plot(charts.__name__, title, functools.partial(
                draw_charts, title, table.short(rows[0]["gpu"]), found))


# --- All of them ------------------------------------------------------------------------------


class Plot(NamedTuple):
    name: str  # of its files
    title: str
    draw: Callable  # draw(theme, title=...): a Figure


def plots(tables, n):
    """Every plot that the files have figures for. Nothing is drawn yet."""
    return [*_rooflines(tables, n), *_curves(tables), *_times(tables)]


def _rooflines(tables, n):
    names, stems = table.short_titles(tables), [results.path.stem for results in tables]
    for i, results in enumerate(tables):
        stem = stems[i] + (f"-{i + 1}" if stems.count(stems[i]) > 1 else "")
        rows = at_size(results.rows, n)
        for bonuses in (False, True):
            some = [row for row in rows if row["program"].startswith("bonus_") == bonuses]
            points = [point for point in placed(some) if intensity(point[1])]
            if points:
                what = "bonus" if bonuses else "lesson"
                yield Plot(f"roofline-{stem}" + "-bonuses" * bonuses,
                           f"Roofline of {names[i]}" + ", the bonuses" * bonuses,
                           functools.partial(draw_roofline, results, n, what, points))


def _curves(tables):
    for at, plot in curves(tables).items():
        program, dtype, shape, unit = at
        talk = "-talk" if shape == "talk" else ""
        own = "" if unit in RATES else f"-{command_line.file_stem(unit)}"
        yield Plot(f"curves-{program}-{dtype}{talk}{own}",
                   f"{program} over {'S' if talk else 'N'}, {dtype}{own and f', {unit}'}",
                   functools.partial(draw_curves, tables, at, plot))


def _times(tables):
    for results in tables:
        for (program, dtype), curves_of in sweeps(results).items():
            yield Plot(f"times-{program}-{dtype}", f"{program} over the size, {dtype}",
                       functools.partial(draw_times, results,
                                         f"{short(program)}: {dtype}, time over size",
                                         curves_of))


def save(figure, target, form):
    """Writes a figure to a file or stream; the same input gives the same bytes."""
    import matplotlib

    more = ({"metadata": {"Date": None, "Creator": None}} if form == "svg" else
            {"pil_kwargs": {"compress_level": 1}})  # packing it tighter takes half of the time
    with matplotlib.rc_context({"svg.hashsalt": "plot.py", "svg.fonttype": "none"}):
        figure.figure.savefig(target, format=form, dpi=PIXELS / WIDTH,
                              facecolor=figure.theme.background, **more)


def svgs(figure):
    """A light figure as SVG in each theme, which differ in their colors alone."""
    stream = io.StringIO()
    save(figure, stream, "svg")
    text = stream.getvalue()
    for theme in THEMES:
        other = dict(zip(LIGHT.palette(), theme.palette()))
        yield re.sub("#[0-9a-f]{6}", lambda color: other.get(color[0], color[0]), text)


def write(folder, png, plot):
    """Writes a plot in each theme: as SVG, and as PNG where that is asked for."""
    light = plot.draw(LIGHT)
    for theme, text in zip(THEMES, svgs(light)):
        command_line.write_text(folder / f"{plot.name}-{theme.name}.svg", text)
        if png:
            figure = light if theme is LIGHT else plot.draw(theme)
            save(figure, folder / f"{plot.name}-{theme.name}.png", "png")


def remove_older(folder):
    """Plots of other files or sizes, which would stand beside the new ones."""
    for path in folder.glob("*-*-*.*"):
        if re.fullmatch(r"(roofline|curves|times)-.+-(light|dark)\.(svg|png)", path.name):
            path.unlink()


def choose_size(tables, size):
    n = usual_size(tables) if size is None else size
    rows = [row for results in tables for row in at_size(results.rows, n)]
    if not any(row["shape"] == "square" for row in rows):
        raise measurements.TableError(f"no file has figures for N = {n}")
    return n


@command_line.reporting("plot.py")
def main(arguments):
    parser = command_line.Parser(prog="plot.py", add_help=False, allow_abbrev=False)
    parser.add_argument("--size", type=int)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--documents", action="store_true")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args(arguments)
    if options.documents == bool(options.files):
        parser.error("either files or --documents is expected")
    if options.documents:
        found, out = list(documents()), options.out or PROJECT / "docs/pictures"
    else:
        tables = measurements.read_all("plot.py", options.files)
        found = plots(tables, choose_size(tables, options.size))
        out = options.out or PROJECT / "build/plots"
    command_line.run_with("plot.py", ["matplotlib"], "ensure_matplotlib")
    out.mkdir(parents=True, exist_ok=True)
    remove_older(out)
    # Forked before matplotlib is imported: a process with threads may not.
    with multiprocessing.get_context("fork").Pool(
            len(os.sched_getaffinity(0)), command_line.be_a_worker) as pool:
        pool.map(functools.partial(write, out, not options.documents), found, chunksize=1)
    wrote = ", ".join(plot.name for plot in found)
    return command_line.say("plot.py", f"wrote {wrote} to {out}")


if __name__ == "__main__":
    command_line.run(main, __doc__)
