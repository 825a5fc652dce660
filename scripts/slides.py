#!/usr/bin/env python3
"""Makes the slides: docs/slides/NAME.md becomes NAME.html, one file that needs no network.

    slides.py [--results FILE] [--out FOLDER] [NAME ...]
    slides.py --check

  NAME             a deck (default: all of docs/slides/)
  --results FILE   show the figures of another GPU's results (default: results/nvidia-h200.csv)
  --out FOLDER     write there (default: docs/slides)
  --check          exits 1 where a deck is out of date, and changes nothing

A slide is a heading, which is a sentence, and what follows it. Markdown is pandoc's, and also:

  {{6 six_kernels 4096 tflops}}                a figure: program, kernel, N, [data type,] column
  {{6 fused_wmma over six_kernels S1024 gb_per_s}}
                                               a ratio; S1024 is the talk's shape
  {{peak fp16}}, {{peak fp16 per byte}}        what the data sheet says, also over its GB/s
  {{gpu}}, {{about SMs}}                       what the results say of the GPU
  ``` {src=src/2_matmul_sharedmem.cu kernel=matmul_sharedmem from="float sum" to="C[row"}
  ```                                          code: a file, of that a kernel, of that some lines;
                                               .comment shows a comment without its //, and
                                               lit="A[row;B[k, sum" lights lines, step by step
  ![sentence](plot:NAME)                       a plot of plot.py, with the sentence as its title
  ![sentence](picture:NAME)                    of docs/pictures
  ``` {.draw}                                  a drawing on 1216 x 445, a shape a line: SHAPES says
  box 40 0 500 330 L2 .blue                    which there are
  ![sentence](qr:)                             the address that CITATION.cff gives, if it does
  # Sentence {from=DECK minutes=1}             that deck's slide; notes that follow replace its own

Columns are those of results/, and of_peak, gb_moved. from and to may be anchored: ^ begins the line
that they stand in, $ ends it. Notes with "Talk 1 begins here" get what the run sheet says there.
In a browser: arrows or a presenter's remote turn pages, f fills the screen, s opens the notes with
a clock and the next slide, b or . is black, g goes to a number, ? lists all keys. To print, open
NAME.html?print-pdf, for a handout with the notes NAME.html?print-pdf&showNotes=separate-page.

pandoc, matplotlib and segno go into .venv if they are missing. Bad input, also a marker that finds
nothing: one line, exit 2.
"""

import base64
import math
import re
import shlex
import subprocess
import textwrap
from html import escape
from pathlib import Path

import plot
from docs import links
from shared import command_line, data_sheets, measurements, programs, table
from shared.command_line import PROJECT, USAGE, WRONG, Stop

SLIDES = PROJECT / "docs/slides"
TEMPLATE = PROJECT / "scripts/slides/template.html"
REVEAL = PROJECT / "scripts/slides/reveal"  # reveal.js 5.2.0, as it is published
SHEET = PROJECT / "docs/lecture.md"
MOST_LINES = 25  # of code on a slide
CODE = re.compile(r"^``` *\{(.*)\}\n```$", re.MULTILINE)
DRAWING = re.compile(r"^``` \{\.draw\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FIGURE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
SLIDE = re.compile(r"^# (.*?) \{(.*?)\}\n(.*?)(?=^# |\Z)", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"(^((?:Talk|Lecture|Course) \d+) begins here.*?)^:::", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
IMAGE = re.compile(r"!\[([^]]*)\]\((plot|picture|qr):([^)]*)\)")
# Without what would take $, ^, ~ and @ for markup.
FORMAT = ("markdown-tex_math_dollars-raw_tex-superscript-subscript-citations-implicit_figures"
          "-example_lists")


def fail(reason):
    raise Stop(reason, USAGE)


# --- Figures ----------------------------------------------------------------------------------


class Figures:
    """What a deck may quote of one GPU's results."""

    def __init__(self, results):
        self.results = results
        self.rows = [row for row in measurements.shown(results.rows) if row["kernel"]]
        self.names = list(dict.fromkeys(row["program"] for row in self.rows))
        self.sheet = data_sheets.sheets().get(results.gpu, {})

    def value(self, program, kernel, size, dtype, column):
        """One row's column."""
        rows = [row for row in self.rows if row["kernel"] == kernel
                and row["program"] == programs.named(program, self.names)
                and size in (str(row["n"]) if row["shape"] == "square" else row["shape"],
                             f"S{row['n']}" if row["shape"] == "talk" else "")
                and dtype in ("", row["dtype"])]
        if len(rows) != 1:
            fail(f"{self.results.path.name} has {len(rows)} rows of program {program}, {kernel}, "
                 f"{size} {dtype}")
        row = rows[0]
        derived = {
            "of_peak": lambda: 100 * row["tflops"] / self.sheet[row["dtype"]],
            "gb_moved": lambda: row["moved_bytes"] / 1e9,
        }
        value = derived[column]() if column in derived else row.get(column)
        if not isinstance(value, float):
            fail(f"{program} {kernel} has no figure named {column}")
        return value

    def text(self, marker):
        """What stands for a marker."""
        words = marker.split()
        if words == ["gpu"]:
            return self.results.gpu
        if words[:1] == ["about"] and words[1:] and " ".join(words[1:]) in self.results.about:
            return self.results.about[" ".join(words[1:])]
        if len(words) > 1 and words[0] == "peak" and words[2:] in ([], ["per", "byte"]):
            if words[1] not in self.sheet:
                fail(f"no data sheet has {words[1]} of {self.results.gpu}")
            peak = self.sheet[words[1]]
            return f"{peak:g}" if not words[2:] else f"{1000 * peak / self.sheet['GB/s']:.0f}"
        found = re.fullmatch(r"(\S+) (\S+)(?: over(?: (\S+))? (\S+))? (S?\d+|\d+x\d+)"
                             r"(?: ([a-z]+\d+))? (\w+)", " ".join(words))
        if not found:
            fail(f"{{{{{marker}}}}} is no figure: slides.py --help has examples")
        program, kernel, other_program, other, size, dtype, column = found.groups()
        if other:  # by the times, as the programs print it
            return table.ratio(*(self.value(*one, size, dtype or "", "median_ms")
                                 for one in [(other_program or program, other), (program, kernel)]))
        value = self.value(program, kernel, size, dtype or "", column)
        if column == "of_peak":
            return f"{value:.2g}%" if value < 99.5 else f"{value:.0f}%"
        return f"{value:g}" if column == "launches" else table.number(value)


# --- Code -------------------------------------------------------------------------------------


def excerpt(where, kernel="", first="", last="", comment=False, width=None):
    """Lines of a file: those of a kernel, or all, from the one line that holds `first` to the next
    that holds `last`. A comment's are shown without their //, and only so wide."""
    path = PROJECT / where
    if not path.is_file():
        fail(f"there is no {where}")
    lines = command_line.read_text(path).splitlines()
    if kernel:
        found = list(links.definitions("\n".join(lines), kernel))
        if len(found) != 1:
            fail(f"{where}: {len(found)} kernels are named {kernel}, and one is expected")
        lines = lines[found[0][0] - 1:found[0][1]]
    begin, end = 0, len(lines)
    if first:
        found = [i for i, line in enumerate(lines) if holds(line, first)]
        if len(found) != 1:
            fail(f"{where} {kernel}: {len(found)} lines hold {first!r}, and one is expected")
        begin = found[0]
    if last:
        end = next((i + 1 for i in range(begin, len(lines)) if holds(lines[i], last)), None)
        if end is None:
            fail(f"{where} {kernel}: after {first!r}, no line holds {last!r}")
    lines = lines[begin:end]
    if comment:
        lines = [re.sub(r"^\s*// ?", "", line) for line in lines]
    if len(lines) > MOST_LINES:
        fail(f"{where} {kernel}: {len(lines)} lines from {first!r} to {last!r}, and a slide holds "
             f"{MOST_LINES}")
    lines = textwrap.dedent("\n".join(lines)).splitlines()
    return "\n".join(line[:width].rstrip() for line in lines).strip("\n")


def holds(line, text):
    """Whether a line holds a text, at its beginning with ^, at its end with $."""
    begins, ends = text.startswith("^"), text.endswith("$")
    words = re.escape(text[begins:len(text) - ends])
    return re.search("^" * begins + words + "$" * ends, line)


def named_excerpt(text):
    """The lines that src=..., kernel=..., from=... and to=... name, with .comment those of a
    comment. Raises ValueError where the text says something else."""
    words = shlex.split(text)
    options = {"kernel": "", "from": "", "to": "", "width": 0,
               **dict(word.split("=", 1) for word in words if word != ".comment")}
    options.pop("lit", None)
    if sorted(options) != ["from", "kernel", "src", "to", "width"]:
        raise ValueError
    return excerpt(options["src"], options["kernel"], options["from"], options["to"],
                   ".comment" in words, int(options["width"]) or None)


def code(match):
    """The code block that a marker stands for, as Markdown."""
    try:
        text = named_excerpt(match[1])
    except ValueError:
        fail(f"{{{match[1]}}} is no excerpt: slides.py --help has an example")
    words = shlex.split(match[1])
    lit = "".join(f' data-lit="{word[4:]}"' for word in words if word.startswith("lit="))
    return f"``` {{{'.text' if '.comment' in words else '.cpp'}{lit}}}\n{text}\n```"


# --- Pictures ---------------------------------------------------------------------------------


class Pictures:
    """Plots, each drawn when a deck first asks for it."""

    def __init__(self, results):
        tables = [results]
        drawn = [*plot.plots(tables, plot.choose_size(tables, None)), *plot.roofline(results)]
        self.plots = {p.name: p for p in drawn}

    def image(self, match):
        """A slide's image, as HTML that holds it."""
        sentence, kind, name = match.groups()
        try:
            svgs = getattr(self, kind)(name, sentence)
        except (KeyError, FileNotFoundError):
            fail(f"there is no {kind} named {name}")
        html = svgs[0].decode() if svgs else ""
        if len(svgs) > 1:
            light, dark = ("data:image/svg+xml;base64," + base64.b64encode(svg).decode()
                           for svg in svgs)
            html = ('<picture><source media="screen and (prefers-color-scheme: dark)" '
                    f'srcset="{dark}"><img alt="{escape(sentence)}" src="{light}"></picture>')
        return f"```{{=html}}\n{html}\n```"

    def plot(self, name, title):
        return [next(plot.svgs(self.plots[name].draw(theme, title))).encode()
                for theme in plot.THEMES]

    @staticmethod
    def picture(name, _):
        return [(PROJECT / f"docs/pictures/{name}-{theme.name}.svg").read_bytes()
                for theme in plot.THEMES]

    @staticmethod
    def qr(*_):
        """The repository's address, once CITATION.cff has it."""
        citation = command_line.read_text(PROJECT / "CITATION.cff")
        address = re.search(r"^repository-code: *[\"']?(https:[^\s\"']+)", citation, re.MULTILINE)
        if not address:
            return []
        import segno

        return [segno.make(address[1]).svg_inline(svgclass="qr", omitsize=True).encode()]


# --- Drawings ---------------------------------------------------------------------------------

# A drawing's shapes, and how many numbers each begins with: x, y, width, height, columns, rows; two
# ends; in a roofline GB/s and a peak, or operations per byte and TFLOP/s. Words and colors follow.
SHAPES = {"box": 4, "grid": 6, "cells": 4, "text": 2, "line": 4, "arrow": 4, "roof": 2, "point": 2}


def shape(line):
    """A line of a drawing as SVG."""
    kind, *words = line.split()
    try:
        n = [float(word) for word in words[:SHAPES[kind]]]
        x, y, width, height, columns, rows = n + [0, 0, 0, 0, 1, 1][len(n):]
    except (KeyError, ValueError):
        fail(f"'{line}' is no shape: see SHAPES in slides.py")
    looks = [word for word in words[len(n):] if re.match(r"\.[a-z]", word)]
    said = " ".join(word for word in words[len(n):] if word not in looks)
    look = f'class="{kind} {" ".join(looks).replace(".", "")}"'
    if kind in ("line", "arrow"):
        head = ' marker-end="url(#head)"' * (kind == "arrow")
        return f'<path {look}{head} d="M{x:g} {y:g}L{width:g} {height:g}"/>'
    if kind == "cells":  # a row of boxes, each with a word, and orange after a *
        return "".join(shape(f"box {x + width * i} {y} {width} {height} {word.lstrip('*')}"
                             + " .orange" * word.startswith("*"))
                       for i, word in enumerate(said.split()))
    if kind in ("roof", "point"):  # a point is words in a roofline
        def at(operations, rate):
            return f"{260 + 205 * math.log10(operations * 10)} {370 - 105 * math.log10(rate * 2)} "

        if kind == "point":
            return shape(f"text {at(x, y)} {said} {' '.join(looks)}")
        ridge = at(1000 * y / x, y)
        return (shape("line " + at(0.1, x / 1e4) + ridge) + shape("line " + ridge + at(1000, y))
                + shape("text " + at(1000, 1.5 * y) + said + " .end"))
    inside = [f"M{x + width * i / columns:g} {y:g}v{height:g}" for i in range(1, int(columns))]
    inside += [f"M{x:g} {y + height * i / rows:g}h{width:g}" for i in range(1, int(rows))]
    return (f'<rect {look} x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'
            f'<path {look} d="{"".join(inside)}"/>' * (kind != "text")
            + f'<text {look} x="{x + width / 2:g}" y="{y + height / 2:g}">{escape(said)}</text>')


def drawing(match):
    """A block of shapes as an SVG element, whose colors the style sheet sets: light or dark."""
    head = f"head-{match.start()}"
    shapes = "".join(map(shape, match[1].splitlines())).replace("#head", f"#{head}")
    return ("```{=html}\n" '<svg class="drawn" viewBox="0 0 1216 445" aria-hidden="true">'
            f'<marker id="{head}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="5" '
            'markerHeight="5" orient="auto"><path d="M0 0 L10 5 L0 10 z"/></marker>'
            f"{shapes}</svg>\n```")


# --- Decks ------------------------------------------------------------------------------------


def generator():
    """What made a deck: its versions decide on every byte."""
    import matplotlib

    version = subprocess.check_output([pandoc(), "--version"], text=True).split()[1]
    return f"pandoc {version}, matplotlib {matplotlib.__version__}"


def pandoc():
    import pypandoc

    try:
        return pypandoc.get_pandoc_path()
    except OSError:
        raise Stop("this Python's pypandoc has no pandoc: install pypandoc_binary")


def included(match):
    """A slide that a deck takes from another, by its sentence; any other as it is."""
    sentence, attributes, own = match.groups()
    deck = re.search(r"from=(\w+) ?", attributes)
    if not deck:
        return match[0]
    path = SLIDES / f"{deck[1]}.md"
    text = command_line.read_text(path) if path.is_file() else ""
    found = re.search(rf"^# {re.escape(sentence)} \{{(.*?)\}}\n(.*?)(^::: notes.*?)(?=^# |\Z)",
                      text, re.MULTILINE | re.DOTALL)
    if not found:
        fail(f"{deck[1]} has no slide '{sentence}' of its own")
    attributes = attributes.replace(deck[0], " ".join(re.findall(r"\.[a-z]+", found[1])) + " ")
    return f"# {sentence} {{{attributes}}}\n{found[2]}{own.strip() or found[3].strip()}\n\n"


def prompted(match):
    """Notes that begin a step of the run sheet, with what is to be said there."""
    step = re.search(rf"^### {match[2]}:.*?(?=^##|\Z)", command_line.read_text(SHEET),
                     re.MULTILINE | re.DOTALL)
    if not step:
        fail(f"{SHEET.name} has no {match[2]}")
    items = re.findall(r"^- \*\*.*?(?=^-|^$|\Z)", step[0], re.MULTILINE | re.DOTALL)
    return f"{match[1]}\n" + LINK.sub(r"\1", "".join(items)) + ":::"


def filled(markdown, figures, pictures):
    """A deck's Markdown with what its markers stand for."""
    text = re.sub(STEP, prompted, re.sub(SLIDE, included, markdown))
    text = re.sub(FIGURE, lambda match: figures.text(match[1]), text)
    text = re.sub(DRAWING, drawing, text)
    text = re.sub(CODE, code, text)
    return re.sub(IMAGE, pictures.image, text)


def deck(path, figures, pictures):
    """A deck as the text of one HTML file."""
    try:
        text = filled(command_line.read_text(path), figures, pictures)
    except Stop as stop:
        raise Stop(f"{path.name}: {stop}", stop.status)
    command = [pandoc(), f"--from={FORMAT}", "--to=revealjs", "--standalone", "--slide-level=1",
               f"--template={TEMPLATE}", f"--variable=made-by:{generator()}",
               "--wrap=preserve", "--columns=1000"]  # tables as wide as they are
    done = subprocess.run(command, input=text.encode(), capture_output=True)
    if done.returncode or done.stderr:
        said = done.stderr.decode().strip().splitlines() or ["pandoc failed"]
        raise Stop(f"{path.name}: {said[0]}")
    return re.sub(r"/\* (\w+\.(?:js|css)) \*/", lambda file: command_line.read_text(
        REVEAL / file[1]), done.stdout.decode())


@command_line.reporting("slides.py")
def main(arguments):
    parser = command_line.Parser(prog="slides.py", add_help=False, allow_abbrev=False)
    parser.add_argument("--results", type=Path, default=PROJECT / "results/nvidia-h200.csv")
    parser.add_argument("--out", type=Path, default=SLIDES)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(arguments)
    decks = sorted(path.stem for path in SLIDES.glob("*.md"))
    for name in options.names:
        if name not in decks:
            fail(f"no deck '{name}'; there are {' '.join(decks)}")
    results = measurements.read(options.results)
    command_line.run_with("slides.py", ["matplotlib", "pypandoc", "segno"], "ensure_pandoc")
    figures, pictures = Figures(results), Pictures(results)
    for name in options.names or decks:
        text = deck(SLIDES / f"{name}.md", figures, pictures)
        path = options.out / f"{name}.html"
        if not options.check:
            options.out.mkdir(parents=True, exist_ok=True)
            command_line.write_text(path, text)
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            raise Stop(f"{path.name} is out of date: run scripts/slides.py", WRONG)


if __name__ == "__main__":
    command_line.run(main, __doc__)
