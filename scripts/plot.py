#!/usr/bin/env python3
"""Draws what compare_gpus.sh measured, as PNG and SVG, for light and for dark slides.

    plot.py [--size N] [--out FOLDER] FILE ...

      curves-<program>   TFLOP/s, or GB/s where memory is the limit, over N, with the spread as a
                         band: a curve per kernel, or with several files one per GPU, of the
                         program's best kernel at each N
      bars-compute, bars-memory
                         all programs at one N, in TFLOP/s and in GB/s
      roofline-<file>    operations per byte against TFLOP/s, under the roofs that were measured

  --size N       N of the bars and the rooflines (default: 4096, or what most programs have); the
                 talk's shape is shown at S = N / 4, at most 1024
  --out FOLDER   write there (default: build/plots)

matplotlib goes into .venv if it is missing. Bad input: one line, exit 2; cannot write: 3.
"""

import importlib.util
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "shared"))
import command_line  # noqa: E402
import table  # noqa: E402
from command_line import PROJECT  # noqa: E402


class Theme:
    """Colours that tell apart with every kind of colour vision, dark enough for text on white or
    light enough on black: after Okabe and Ito."""

    def __init__(self, name, background, ink, muted, grid, colours):
        self.name, self.background, self.ink = name, background, ink
        self.muted, self.grid, self.colours = muted, grid, colours

    def colour(self, i):
        return self.colours[i % len(self.colours)]


THEMES = [
    Theme("light", "#ffffff", "#1b1f24", "#5b636d", "#e2e5e9",
          ["#0068a8", "#c04a00", "#007355", "#9c4280", "#7d6200", "#3d4650", "#2b93c9"]),
    Theme("dark", "#14181d", "#f1f3f5", "#aab2bc", "#333b45",
          ["#5ab8f0", "#ff9a52", "#35cfa2", "#e795cb", "#f0dc4e", "#d5dbe1", "#9ad7ff"]),
]
MARKERS = "osD^vPX"
SIZES = {"title": 26, "subtitle": 17, "label": 18, "tick": 16}  # in points, on 13 inches


# --- What is shown ----------------------------------------------------------------------------


def shown(rows):
    """Rows with a figure."""
    return [row for row in rows if row["verified"] == "yes" and rate(row)]


def short(name):
    """A program's or a GPU's name as a label."""
    return re.sub(r"^(bonus_|NVIDIA )", "", name).replace("_", " ")


def own_kernels(rows):
    """Rows without what a program is compared with. A program that has no kernel of its own is
    about the library, or about the many launches."""
    for roles in (table.OWN, ("library",), ("chain",)):
        own = [row for row in rows if row["role"] in roles]
        if own:
            return own
    return rows


def rate(row):
    return table.rate(row)[0]


def usual_size(tables):
    """The N that most programs have; 4096 where it is one of them."""
    programs = {}
    for results in tables:
        for row in shown(results.rows):
            if row["shape"] == "square":
                programs.setdefault(row["n"], set()).add((results.path, row["program"]))
    if not programs:
        raise table.TableError("nothing to draw: no program has a figure for an N x N matrix")
    return max(programs, key=lambda n: (n == 4096, len(programs[n]), n))


def talk_size(n):
    """The S of the talk's shape that is shown beside an N."""
    return min(1024, n // 4)


def chosen(row, n):
    """Whether a row is of one N, or of the S that goes with it."""
    return row["n"] == {"square": n, "talk": talk_size(n)}.get(row["shape"])


def at_size(rows, n):
    return [row for row in shown(rows) if chosen(row, n)]


def groups(rows, *names):
    """{values of some columns: rows}, in the order of the rows."""
    found = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


# --- Drawing ----------------------------------------------------------------------------------


class Figure:
    """A figure measured in inches, with a title at its top left."""

    TOP = 1.35  # of which title and subtitle need

    def __init__(self, theme, width, height, title, subtitle):
        import matplotlib.figure

        self.theme, self.width, self.height = theme, width, height
        self.figure = matplotlib.figure.Figure((width, height), facecolor=theme.background)
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        self.renderer = FigureCanvasAgg(self.figure).get_renderer()
        self.text(0.35, height - 0.28, title, "title", theme.ink, weight="bold")
        self.text(0.35, height - 0.8, subtitle, "subtitle", theme.muted)

    def text(self, x, y, text, size, colour, **more):
        """Text from a place in inches, to the right and down."""
        self.figure.text(x / self.width, y / self.height, text, fontsize=SIZES[size],
                         color=colour, va="top", **more)

    def axes(self, left, bottom, width, height):
        ax = self.figure.add_axes(
            [left / self.width, bottom / self.height, width / self.width, height / self.height],
            facecolor=self.theme.background)
        for side in ax.spines.values():
            side.set_visible(False)
        ax.tick_params(length=0, labelsize=SIZES["tick"], colors=self.theme.muted, pad=7)
        ax.minorticks_off()
        ax.grid(color=self.theme.grid, linewidth=1)
        ax.set_axisbelow(True)
        return ax

    def caption(self, ax, text):
        """A panel's own title."""
        ax.set_title(text, loc="left", fontsize=SIZES["label"], color=self.theme.ink, pad=12)

    def inches(self, text, size):
        """How wide a text gets."""
        drawn = self.figure.text(0, 0, text, fontsize=SIZES[size])
        width = drawn.get_window_extent(self.renderer).width / self.figure.dpi
        drawn.remove()
        return width

    def labels_at_right(self, ax, labels):
        """Names lines at their right end, [(y, text, colour)], so that no two names touch."""
        height = 1.25 * SIZES["label"] / 72 * self.figure.dpi
        labels = sorted(labels)
        wanted = [ax.transData.transform((1, y))[1] for y, _, _ in labels]
        low, high = (ax.transAxes.transform((0, y))[1] for y in (0, 1))
        for (_, text, colour), y in zip(labels, spread_out(wanted, height, low, high)):
            y = ax.transAxes.inverted().transform((0, y))[1]
            ax.text(1, y, "  " + text, transform=ax.transAxes, color=colour, va="center",
                    fontsize=SIZES["label"], clip_on=False)


def spread_out(wanted, gap, low, high):
    """Places near the wanted ones, in the same order, `gap` apart and within low and high."""
    places = list(wanted)
    for i, y in enumerate(places):  # from below
        places[i] = max(y, low, places[i - 1] + gap if i else low)
    for i in reversed(range(len(places))):  # from above
        limit = high if i == len(places) - 1 else places[i + 1] - gap
        places[i] = min(places[i], limit)
    # Neighbours that were pushed go to the middle of what they wanted.
    blocks = []  # [places wanted, first of them]
    for y, place in zip(wanted, places):
        blocks.append([[y], place])
        while len(blocks) > 1 and _start(blocks[-1], gap) < _end(blocks[-2], gap) + gap - 1e-9:
            last = blocks.pop()
            blocks[-1][0] += last[0]
    result = []
    for block in blocks:
        start = min(max(_start(block, gap), low), max(low, high - gap * (len(block[0]) - 1)))
        result += [start + gap * i for i in range(len(block[0]))]
    return result


def _start(block, gap):
    wanted = block[0]
    return sum(wanted) / len(wanted) - gap * (len(wanted) - 1) / 2


def _end(block, gap):
    return _start(block, gap) + gap * (len(block[0]) - 1)


# --- Curves -----------------------------------------------------------------------------------


def curves(tables, program, theme):
    """The rates of one program over N."""
    names = [short(title) for title in table.titles(tables)]
    several = len(tables) > 1
    panels = {}  # {(what x is, data type, unit): {(colour, name) of a curve: rows}}
    for i, results in enumerate(tables):
        rows = [row for row in shown(results.rows) if row["program"] == program]
        kernels = list(dict.fromkeys(row["kernel"] for row in rows))
        for (shape, dtype, _), rows in groups(rows, "shape", "dtype", "n").items():
            if shape not in ("square", "talk"):
                continue
            size = "S of the talk's shape" if shape == "talk" else "N"
            if several:
                rows = [max(own_kernels(rows), key=rate)]
            for row in rows:
                kernel, unit = row["kernel"], table.rate(row)[1]
                panel = panels.setdefault((size, dtype, unit), {})
                curve = (i, names[i]) if several else (kernels.index(kernel), kernel)
                panel.setdefault(curve, []).append(row)
    if not panels:
        return None

    columns = min(len(panels), 2)
    lines = -(-len(panels) // columns)
    width, height = (10, 5.4) if columns == 1 else (5.8, 4.8)
    units = " and ".join(dict.fromkeys(unit for _, _, unit in panels))
    subtitle = "Its best kernel, " if several else f"{names[0]}, "
    subtitle += f"{units} by size; the band is the middle half of the samples"
    probe = Figure(theme, 1, 1, "", "")
    margin = 0.25 + max(probe.inches("  " + name, "label") for panel in panels.values()
                        for _, name in panel)
    left = 1.15
    figure = Figure(theme, columns * (left + width + margin),
                    Figure.TOP + lines * (height + 1.6), short(program), subtitle)
    for at, ((size, dtype, unit), panel) in enumerate(panels.items()):
        line, column = divmod(at, columns)
        ax = figure.axes(left + column * (left + width + margin),
                         0.85 + (lines - 1 - line) * (height + 1.6), width, height)
        _draw_curves(figure, ax, panel)
        ax.set_xlabel(size, fontsize=SIZES["label"], color=theme.muted)
        figure.caption(ax, f"{dtype}, {unit}")
    return figure


def _draw_curves(figure, ax, panel):
    sizes = sorted({row["n"] for found in panel.values() for row in found})
    top = 0
    for (colour, name), found in panel.items():
        found = sorted(found, key=lambda row: row["n"])
        x, y = [row["n"] for row in found], [rate(row) for row in found]
        half = [value * (row["spread_pct"] or 0) / 200 for value, row in zip(y, found)]
        style = dict(color=figure.theme.colour(colour), zorder=3)
        ax.fill_between(x, [a - b for a, b in zip(y, half)], [a + b for a, b in zip(y, half)],
                        alpha=0.3, linewidth=0, **style)
        ax.plot(x, y, marker=MARKERS[colour % len(MARKERS)], linewidth=3, markersize=9, **style)
        top = max(top, *(a + b for a, b in zip(y, half)))
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.minorticks_off()
    if len(sizes) > 1:
        ax.set_xlim(sizes[0] / 1.12, sizes[-1] * 1.06)
    ax.set_ylim(0, top * 1.06)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.grid(axis="x", visible=False)
    figure.labels_at_right(ax, [
        (rate(max(found, key=lambda row: row["n"])), name, figure.theme.colour(colour))
        for (colour, name), found in panel.items()])


# --- Bars -------------------------------------------------------------------------------------

BAR = 0.33  # height of a bar with its gap, in inches


def bars(tables, n, column, theme):
    """The best kernel of every program, and the yardstick that it measured: TFLOP/s of those that
    compute, or GB/s of those whose time is their traffic."""
    found = {}  # {program, shape, dtype: {file: rows}}
    for i, results in enumerate(tables):
        for key, rows in groups(at_size(results.rows, n), "program", "shape", "dtype").items():
            if bool(rows[0]["gb_per_s"]) == (column == "gb_per_s"):
                found.setdefault(key, {})[i] = rows
    if not found:
        return None
    names = [short(title) for title in table.titles(tables)]
    several = len(tables) > 1
    height = len(found) * (len(tables) * BAR + BAR)
    probe = Figure(theme, 1, 1, "", "")
    left = 0.7 + max(probe.inches(_bar_name(key), "label") for key in found)
    kernels = {row["kernel"] for results in tables for row in at_size(results.rows, n)}
    right = 2.6 + max(probe.inches(kernel, "tick") for kernel in kernels)
    unit = "TFLOP/s" if column == "tflops" else "GB/s of the least possible traffic"
    figure = Figure(theme, left + 7 + right, Figure.TOP + height + 0.6 + 0.5 * several,
                    f"N = {n}: {unit}",
                    "Each program's best kernel, and its ratio to the mark: the library, or a "
                    "copy, in the same run")
    x = 0.35
    for i, name in enumerate(names if several else []):
        name = "\u25a0 " + name
        figure.text(x, figure.height - 1.25, name, "label", theme.colour(i))
        x += figure.inches(name, "label") + 0.5
    ax = figure.axes(left, 0.6, figure.width - left - right, height)
    _draw_bars(figure, ax, found, column, len(tables))
    return figure


def _bar_name(key):
    program, shape, dtype = key
    return short(program) + (", talk" if shape == "talk" else "") + f"  {dtype}"


def _draw_bars(figure, ax, found, column, files):
    theme, ticks = figure.theme, []
    ax.set_ylim(len(found) * (files + 1), 0)
    for at, (key, rows_of) in enumerate(found.items()):
        start = at * (files + 1) + 0.5
        ticks.append(start + files / 2)
        for i in range(files):
            y = start + i + 0.5
            if i not in rows_of:
                ax.text(0, y, "  not measured", va="center", fontsize=SIZES["tick"],
                        color=theme.muted)
                continue
            rows = rows_of[i]
            best = max(own_kernels(rows), key=lambda row: row[column])
            ax.barh(y, best[column], height=0.8, color=theme.colour(i), zorder=3)
            rival = max((row[column] for row in rows if row is not best
                         and row["role"] in ("library", table.YARDSTICK)), default=None)
            figures = [(1.0, f"{table.number(best[column])}", dict(weight="bold", color=theme.ink))]
            if rival:
                for width, colour in ((8, theme.background), (4, theme.ink)):
                    ax.plot([rival, rival], [y - 0.46, y + 0.46], linewidth=width, zorder=4,
                            solid_capstyle="butt", color=colour)
                figures.append((2.05, table.ratio(best[column], rival), dict(color=theme.ink)))
            for right, text, style in figures:
                ax.annotate(text, (1, y), (72 * right, 0), xycoords=("axes fraction", "data"),
                            textcoords="offset points", ha="right", va="center",
                            fontsize=SIZES["label"], annotation_clip=False, **style)
            ax.annotate(best["kernel"], (1, y), (72 * 2.3, 0), va="center",
                        xycoords=("axes fraction", "data"), textcoords="offset points",
                        fontsize=SIZES["tick"], color=theme.muted, annotation_clip=False)
    ax.set_yticks(ticks, [_bar_name(key) for key in found])
    ax.tick_params(axis="y", labelsize=SIZES["label"], labelcolor=theme.ink)
    ax.set_xlim(0)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.grid(axis="y", visible=False)


# --- Roofline ---------------------------------------------------------------------------------


def intensity(row):
    """Operations per byte that it moved, by its own count, or must move at least."""
    moved = row["moved_bytes"] or row["least_bytes"]
    return row["tflops"] * row["median_ms"] * 1e9 / moved if moved else None


def roofs(rows):
    """(GB/s of a copy, {data type: TFLOP/s of the library}), the best that the file has."""
    copies = [row["gb_per_s"] for row in rows if row["role"] == table.YARDSTICK
              and row["tflops"] is None and row["gb_per_s"]]
    peaks = {}
    for row in rows:
        if row["role"] in ("library", table.YARDSTICK) and row["gb_per_s"] is None:
            peaks[row["dtype"]] = max(peaks.get(row["dtype"], 0), row["tflops"])
    return max(copies, default=None), peaks


def placed(rows):
    """[(name, row, row of the many launches or None)]: the best kernel of every program in its
    first data type. A program that has no kernel of its own shows all that it runs, without a name
    where it runs the library alone: the roofs name that already."""
    points, seen = [], {}
    rows = [row for row in rows if row["tflops"]]
    for (program, shape), rows in groups(rows, "program", "shape").items():
        talk = ", talk" if shape == "talk" else ""
        own = own_kernels(rows)
        if own[0]["role"] in table.OWN:
            own = [row for row in own if row["dtype"] == own[0]["dtype"]]
            best = max(own, key=lambda row: row["tflops"])
            chains = [row for row in rows if row["role"] == "chain" and row["moved_bytes"]
                      and row["dtype"] == best["dtype"]]
            start = max(chains, key=lambda row: row["tflops"], default=None)
            # What another program is about has its point already.
            start = start and seen.get((start["kernel"], shape), start)
            points.append((short(program) + talk, best, start))
            continue
        about_library = all(row["role"] in ("library", table.YARDSTICK) for row in rows)
        for row in rows:
            kernel = row["kernel"].replace("_", " ")
            name = "" if about_library else f"{program.split('_')[0]} {kernel}{talk}"
            points.append((name, row, None))
            seen[row["kernel"], shape] = row
    return points


def roofline(results, n, theme):
    rows = shown(results.rows)
    bandwidth, peaks = roofs(rows)
    points = [point for point in placed(at_size(results.rows, n)) if intensity(point[1])]
    if not points:
        return None
    names = {dtype: f"library {dtype}  {table.number(peak)}" for dtype, peak in peaks.items()}
    probe = Figure(theme, 1, 1, "", "")
    margin = 0.3 + max([probe.inches("  " + text, "label") for text in names.values()] or [0])
    subtitle = (f"N = {n}, S = {talk_size(n)}. Arrows: from unfused to fused. Hollow: placed by "
                "the least bytes possible, its own were not counted")
    figure = Figure(theme, 1.2 + 12 + margin, 10.4,
                    f"{short(results.gpu)}: what holds each program back",
                    subtitle if bandwidth else subtitle + ". No copy was measured")
    ax = figure.axes(1.2, 1.05, 12, 10.4 - Figure.TOP - 1.15)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.minorticks_off()
    every = [row for _, row, start in points for row in (row, start) if row]
    x, y = [intensity(row) for row in every], [row["tflops"] for row in every]
    low_x, high_x = min(x) / 2.5, max(x) * 15
    low_y, high_y = min(y) / 3, max(y + list(peaks.values())) * 4
    ax.set_xlim(low_x, high_x)
    ax.set_ylim(low_y, high_y)
    ax.set_xlabel("operations per byte moved", fontsize=SIZES["label"], color=theme.muted)
    ax.set_ylabel("TFLOP/s", fontsize=SIZES["label"], color=theme.muted)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")

    covered = []  # places on lines, in pixels, that labels should leave free
    line = dict(color=theme.muted, linewidth=3, zorder=2, solid_capstyle="round")
    if bandwidth:
        ridge = max(peaks.values(), default=high_y) * 1000 / bandwidth  # where the roofs meet
        ends = [(low_x, low_x * bandwidth / 1000), (ridge, ridge * bandwidth / 1000)]
        ax.plot(*zip(*ends), **line)
        covered += _along(ax, *ends)
        _name_roof(figure, ax, bandwidth, low_x, ridge, x)
    for peak in peaks.values():
        ends = [(peak * 1000 / bandwidth if bandwidth else low_x, peak), (high_x, peak)]
        ax.plot(*zip(*ends), **line)
        covered += _along(ax, *ends)
    figure.labels_at_right(ax, [(peaks[dtype], text, theme.muted) for dtype, text in names.items()])

    marks, labels, bends = [], [], 0
    for name, row, start in points:
        kind = _kind(row, start)
        colour = theme.colour(kind)
        place = intensity(row), row["tflops"]
        _mark(ax, row, kind, theme)
        marks.append(place)
        if name:
            labels.append((name, place, colour))
        if start:
            began = intensity(start), start["tflops"]
            if not any(start is other for _, other, _ in points):
                _mark(ax, start, kind, theme)
                marks.append(began)
            # Along the roof they would lie on each other.
            bend = 0.12 + 0.1 * (bends % 4) if row["gb_per_s"] else 0.2
            bends += bool(row["gb_per_s"])
            ax.annotate("", place, began, zorder=4, arrowprops=dict(
                arrowstyle="-|>,head_width=0.4,head_length=0.8", color=colour, linewidth=2.2,
                shrinkA=9, shrinkB=9, connectionstyle=f"arc3,rad={bend}"))
            covered += _along(ax, began, place, bend)
    place_labels(figure, ax, labels, marks, covered)
    return figure


def _along(ax, start, end, bend=0.0):
    """Places on a line between two points, bent as matplotlib's arc3 does, in pixels."""
    (x0, y0), (x1, y1) = ax.transData.transform([start, end])
    cx, cy = (x0 + x1) / 2 + bend * (y1 - y0), (y0 + y1) / 2 - bend * (x1 - x0)
    steps = max(2, int(math.hypot(x1 - x0, y1 - y0) / 12))
    parts = [i / steps for i in range(steps + 1)]
    return [((1 - t) ** 2 * x0 + 2 * t * (1 - t) * cx + t * t * x1,
             (1 - t) ** 2 * y0 + 2 * t * (1 - t) * cy + t * t * y1) for t in parts]


def _kind(row, start):
    """Which colour and mark: fp32, tensor cores, fusion or its many launches, or work that is all
    memory traffic."""
    if row["gb_per_s"]:
        return 3
    if start or row["role"] == "chain":
        return 2
    return 0 if row["dtype"] == "fp32" else 1


def _mark(ax, row, kind, theme):
    colour = theme.colour(kind)
    ax.plot([intensity(row)], [row["tflops"]], marker=MARKERS[kind], markersize=13, zorder=5,
            markeredgewidth=3, markeredgecolor=colour,
            markerfacecolor=colour if row["moved_bytes"] else theme.background)


def _name_roof(figure, ax, bandwidth, low_x, ridge, taken):
    """Writes the copy's bandwidth along its roof, far from the intensities that are taken."""
    a, b = (ax.transData.transform((x, x * bandwidth / 1000)) for x in (low_x, ridge))
    angle = math.degrees(math.atan2(b[1] - a[1], b[0] - a[0]))
    places = [low_x * (ridge / low_x) ** (i / 20) for i in range(4, 17)]
    x = max(places, key=lambda place: min(abs(math.log(place / other)) for other in taken))
    ax.annotate(f"a copy: {table.number(bandwidth)} GB/s", (x, x * bandwidth / 1000), (0, 7),
                textcoords="offset points", rotation=angle, rotation_mode="anchor", ha="center",
                va="bottom", fontsize=SIZES["label"], color=figure.theme.muted)


def place_labels(figure, ax, labels, marks, covered):
    """Names points, [(text, (x, y), colour)], where names cover neither each other nor points, and
    what is `covered` as little as possible. A name that had to go far is tied to its point."""
    to_pixels = ax.transData.transform
    frame = ax.get_window_extent(figure.renderer)
    obstacles = [tuple(to_pixels(mark)) for mark in marks]
    taken = [_box(text.get_window_extent(figure.renderer)) for text in ax.texts if text.get_text()]
    height = 1.15 * SIZES["label"] / 72 * figure.figure.dpi

    def options(text, point):
        """[(cost, box, tie)] of the places where a name could go."""
        x, y = to_pixels(point)
        width = figure.inches(text, "label") * figure.figure.dpi
        aside = [-width - far for far in (120, 60, 30, 15)] + [15, 30, 60, 120, 200]
        for row in range(-7, 8):
            bottom = y + row * 0.9 * height - height / 2
            for shift in aside + [-part / 8 * width for part in range(9)]:
                box = (x + shift, bottom, x + shift + width, bottom + height)
                if (box[0] < frame.x0 + 4 or box[2] > frame.x1 - 4 or box[1] < frame.y0 + 4
                        or box[3] > frame.y1 - 4):
                    continue
                near = (min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3]))
                tie = [((1 - t) * x + t * near[0], (1 - t) * y + t * near[1])
                       for t in (0.35, 0.5, 0.65, 0.8, 0.95)]
                cost = _distance(box, (x, y)) / 3
                cost += 300 * sum(_inside(box, mark, 11) for mark in obstacles)
                cost += 25 * sum(_inside(box, place, 4) for place in covered)
                cost += 2000 * sum(_overlap(box, other) for other in taken)
                cost += 30 * sum(_close(a, b, 14) for a in tie for b in obstacles if b != (x, y))
                cost += 4 * sum(_close(a, b, 6) for a in tie for b in covered)
                # Nor should it seem to name another point.
                cost += 25 * sum(_distance(box, mark) <= _distance(box, (x, y))
                                 for mark in obstacles if mark != (x, y))
                yield cost, box, tie

    def conflict(one, other):
        cost = 2000 * _overlap(one[1], other[1])
        cost += 100 * sum(_inside(one[1], place, 2) for place in other[2])
        return cost + 100 * sum(_inside(other[1], place, 2) for place in one[2])

    choices = [sorted(options(text, point)) for text, point, _ in labels]
    best = [found[0] for found in choices]
    for _ in range(6):  # each in turn looks for the best place beside the others
        for i, found in enumerate(choices):
            others = best[:i] + best[i + 1:]
            best[i] = min(found, key=lambda option: option[0] + sum(
                conflict(option, other) for other in others))
    back = ax.transData.inverted().transform
    for (text, point, colour), (_, box, _) in zip(labels, best):
        x, y = to_pixels(point)
        if _distance(box, (x, y)) > 22:
            near = min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3])
            ax.plot(*zip(point, back(near)), color=colour, linewidth=1.2, zorder=3)
        ax.text(*back(((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)), text, ha="center",
                va="center", fontsize=SIZES["label"], color=colour, zorder=6)


def _box(extent):
    return extent.x0, extent.y0, extent.x1, extent.y1


def _inside(box, point, margin):
    return (box[0] - margin < point[0] < box[2] + margin
            and box[1] - margin < point[1] < box[3] + margin)


def _distance(box, point):
    return math.hypot(max(box[0] - point[0], 0, point[0] - box[2]),
                      max(box[1] - point[1], 0, point[1] - box[3]))


def _close(a, b, distance):
    return abs(a[0] - b[0]) < distance and abs(a[1] - b[1]) < distance


def _overlap(a, b):
    """Whether two boxes touch, or nearly so: names side by side need a gap."""
    return a[0] < b[2] + 14 and b[0] < a[2] + 14 and a[1] < b[3] and b[1] < a[3]


# --- All of them ------------------------------------------------------------------------------


def figures(tables, n, theme):
    """(file name, title, Figure) of every plot."""
    stems = [results.path.stem for results in tables]
    for i, results in enumerate(tables):
        figure = roofline(results, n, theme)
        stem = stems[i] + (f"-{i + 1}" if stems.count(stems[i]) > 1 else "")
        if figure:
            yield f"roofline-{stem}", f"Roofline of {results.gpu}", figure
    for column, name in (("tflops", "compute"), ("gb_per_s", "memory")):
        figure = bars(tables, n, column, theme)
        if figure:
            yield f"bars-{name}", f"All programs at N = {n}, bound by {name}", figure
    for program in dict.fromkeys(row["program"] for t in tables for row in t.rows):
        figure = curves(tables, program, theme)
        if figure:
            yield f"curves-{program}", f"{program} over N", figure


def save(figure, target, form):
    """Writes a figure to a file or stream; the same input gives the same bytes."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "plot.py"}):
        figure.figure.savefig(target, format=form, dpi=150, facecolor=figure.theme.background,
                              metadata={"Date": None} if form == "svg" else {"Software": None})


def choose_size(tables, size):
    n = usual_size(tables) if size is None else size
    if not any(at_size(results.rows, n) for results in tables):
        raise table.TableError(f"no file has figures for N = {n}")
    return n


def run_with_matplotlib(who):
    """Starts this program once more, where matplotlib is, if it is missing here."""
    if importlib.util.find_spec("matplotlib"):
        return
    python = command_line.set_up(who, 'ensure_matplotlib >&2\necho "$PLOT_PYTHON"',
                                 stdout=subprocess.PIPE).strip()
    python = str(PROJECT / python) if "/" in python else shutil.which(python)
    os.execv(python, [python] + sys.argv)


@command_line.reporting("plot.py")
def main(arguments):
    parser = command_line.Parser(prog="plot.py", add_help=False, allow_abbrev=False)
    parser.add_argument("--size", type=int)
    parser.add_argument("--out", type=Path, default=PROJECT / "build/plots")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args(arguments)
    tables = table.read_all(options.files)
    n = choose_size(tables, options.size)
    run_with_matplotlib("plot.py")
    names = []
    options.out.mkdir(parents=True, exist_ok=True)
    for theme in THEMES:
        for name, _, figure in figures(tables, n, theme):
            names.append(name)
            for form in ("svg", "png"):
                save(figure, options.out / f"{name}-{theme.name}.{form}", form)
    wrote = ", ".join(dict.fromkeys(names))
    return command_line.say("plot.py", f"wrote {wrote} to {options.out}")


if __name__ == "__main__":
    command_line.run(main, __doc__)
