#!/usr/bin/env python3
"""Writes what compare_gpus.sh measured as one HTML file that needs nothing else: to open on stage,
to mail, to print. It begins with a table of the lessons. A part for each program follows, folded,
with its kernels, its plots and its tables; a word typed into the filter hides the others.

    report.sh [--size N] [--baseline FILE] [--out FILE] FILE ...

  --size N          N of the first tables and the rooflines (default: 4096, or what most programs
                    have); a program without it is shown at its largest
  --baseline FILE   ratios are to this file, or to the one of this number (default: 1)
  --out FILE        write there (default: build/report.html)
"""

import contextlib
import re
from html import escape
from pathlib import Path

import plot
from shared import command_line, comparison, data_sheets, measurements, one_gpu, table
from shared.command_line import PROJECT
from shared.differences import differences
from shared.measurements import has_figure, rate

MOST = 6  # figures in a line: more would not fit the narrowest screen that shows tables
COLORS = ["back", "ink", "muted", "line", *"abcdefg"]  # of plot.Theme.palette(), by name
STYLE = """
:root { color-scheme: light dark; LIGHT }
@media screen and (prefers-color-scheme: dark) { :root { DARK } }
* { box-sizing: border-box; } [hidden] { display: none !important; }
html { font-size: clamp(16px, 1.25vw, 48px); }
body { margin: 0; display: grid; grid-template-columns: 15rem minmax(0, 1fr); color: var(--ink);
       background: var(--back); font: 1rem/1.4 system-ui, sans-serif; overflow-wrap: anywhere; }
main { padding: 0 1rem 3rem; } h1 { line-height: 1.2; font-size: 1.6rem; }
nav { position: sticky; top: 0; height: 100vh; overflow: auto; padding: 0.6rem 0.8rem;
      border-right: 1px solid var(--line); font-size: 0.85rem; background: var(--back); }
nav a { display: block; text-decoration: none; padding: 0.06rem 0; }
input { font: inherit; width: 100%; padding: 0.2rem 0.4rem; margin-bottom: 0.4rem; }
a { color: inherit; } td a { display: inline-block; min-width: 14em; }
p, li, caption, summary span, td span { color: var(--muted); }
details { border-bottom: 1px solid var(--line); } details > div { scroll-margin-top: 4rem; }
summary { cursor: pointer; padding: 0.35rem 0; } summary b { margin-right: 0.7rem; }
figure { margin: 1rem 0; } svg { display: block; width: 100%; height: auto; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; overflow-wrap: normal; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: 0.4rem; font-weight: bold; }
th, td { padding: 0.25rem 0.4rem; border-bottom: 1px solid var(--line); text-align: left; }
th.number, td.number { text-align: right; white-space: nowrap; }
.bars { width: 100%; } td[style] { width: 50%; min-width: 11rem;
  background: linear-gradient(var(--of), var(--of)) 0 50% / calc(var(--bar) * (100% - 4.5rem))
              0.9rem no-repeat; }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--back); }
tr.title th { padding-top: 1rem; } td.stopped, li.note { color: var(--b); }
@media screen and (max-width: 800px) {
  body { display: block; } main { padding: 0 0.75rem 2rem; }
  nav { display: flex; gap: 0.9rem; height: auto; white-space: nowrap; z-index: 1;
        align-items: baseline; border-bottom: 1px solid var(--line); font-size: 1rem; }
  input { width: 7rem; flex: none; margin: 0; }
  thead { display: none; } table, caption, tbody { display: block; }
  tr.title th { display: block; border: 0; padding: 1rem 0 0; }
  tr { display: flex; flex-wrap: wrap; gap: 0 0.7rem; padding: 0.4rem 0;
       border-bottom: 1px solid var(--line); }
  tr::before { content: ""; order: 1; flex-basis: 100%; }  /* figures begin a line */
  td { border: 0; padding: 0; color: var(--muted); } td:first-child { color: var(--ink); }
  td a { min-width: 0; } td[style] { width: 100%; padding-bottom: 0.4rem; text-align: left;
    background-size: calc(var(--bar) * 100%) 0.3rem; background-position: 0 100%; }
  td.number { order: 2; color: var(--ink); }
  td.number::before { content: attr(data-head) " "; color: var(--muted); } }
@media print { body { display: block; font-size: 9pt; } nav { display: none; }
  details::details-content { content-visibility: visible; }
  .scroll { overflow: visible; } table { font-size: 7pt; }
  th, td { padding: 0.1rem 0.25rem; }
  figure, tr { break-inside: avoid; } summary, caption { break-after: avoid; }
  td { print-color-adjust: exact; } svg { max-width: 15cm; } }
"""
SCRIPT = """
const filter = document.querySelector("input"), links = document.querySelectorAll("a + a");
filter.hidden = false;
filter.addEventListener("input", () => document.querySelectorAll("details").forEach((part, i) => {
  const word = filter.value.toLowerCase();
  links[i].hidden = part.hidden = !part.textContent.toLowerCase().includes(word);
}));
"""


# --- Tables ---------------------------------------------------------------------------------------


def html_table(caption, head, rows, left):
    """A table whose first `left` columns are words, and the others figures."""
    return _table(caption, [_th(cell, i >= left) for i, cell in enumerate(head)],
                  [[_td(cell, i >= left, name) for i, (cell, name) in enumerate(zip(row, head))]
                   for row in rows])


def html_comparison(names, lines, baseline):
    """A program's kernels: each GPU's figure with a bar, and its ratio to the baseline's."""
    head = [_th("kernel"), _th("data")] + [
        _th(name, True, 1 + (i != baseline)) for i, name in enumerate(names)]
    body = []
    for title, some in comparison.headed(lines, True).items():
        body.append([f'<th colspan="{2 * len(names) + 1}">{escape(title)}</th>'])
        figures = [[float(value.rstrip("!")) if value[0].isdigit() else 0
                    for value, _ in line.cells] for line in some]
        longest = max(max(each) for each in figures) or 1
        for line, values in zip(some, figures):
            cells = [_td(line.kernel), _td(line.dtype)]
            for i, (value, ratio) in enumerate(line.cells):
                bar = f"--bar: {values[i] / longest:.3f}; --of: var(--{COLORS[4 + i % 7]})"
                cells += [_td(value, True, names[i], bar)] + [_td(ratio, True)] * (i != baseline)
            body.append(cells)
    return _table("", head, body).replace("<table", "<table class=bars")


def html_lessons(n, names, best, baseline):
    """A row for each lesson: its best kernel on each GPU."""
    shown = [i for i in range(len(names)) if any(has_figure(rows[i]) for rows, _ in best)]
    others = [i for i in shown if i != baseline and baseline in shown]
    head = [_th("lesson and kernel")] + [_th(names[i], True, 3 + (i in others)) for i in shown]
    body = []
    for rows, shares in best:
        some = next(filter(has_figure, rows))
        name = some["program"]
        kernels = dict.fromkeys(row["kernel"] for row in rows if has_figure(row))
        size = f", {table.size(some)}" * (table.size(some) != f"N={n}")
        cells = [f'<td><a href="#{anchor(name)}">{name}{size}</a> '
                 f"<span>{escape(', '.join([*kernels, some['dtype']]))}</span></td>"]
        for i in shown:
            if has_figure(rows[i]):
                texts = [table.number(rows[i]["median_ms"]) + " ms", _rate(rows[i]), shares[i]]
            else:
                texts = [table.figure(rows[i], None) if rows[i] else "missing", "", ""]
            if i in others:
                both = has_figure(rows[i]) and has_figure(rows[baseline])
                texts.append(table.ratio(rate(rows[i])[0], rate(rows[baseline])[0]) if both else "")
            cells += [_td(text, True, names[i] * (text is texts[0])) for text in texts]
        body.append(cells)
    return _table(f"The lessons at N = {n}", head, body)


def _rate(row):
    return "{} {}".format(table.number(rate(row)[0]), rate(row)[1])


def _th(text, number=False, columns=1):
    return (f'<th{" class=number" * number}' + f" colspan={columns}" * (columns > 1)
            + f">{escape(text)}</th>")


def _td(text, number=False, head="", style=""):
    """`head`: the column's name, for a narrow screen, which has no head."""
    stopped = text in ("failed", "skipped", "wrong") or text.endswith("!")
    kind = " ".join(["number"] * number + ["stopped"] * stopped)
    return ("<td" + f' class="{kind}"' * bool(kind) + f' data-head="{escape(head)}"' * bool(head)
            + f' style="{style}"' * bool(style) + f">{escape(text)}</td>")


def _table(caption, head, rows):
    body = "\n".join(f"<tr{' class=title' * (len(row) == 1)}>{''.join(row)}</tr>" for row in rows)
    caption = f"<caption>{escape(caption)}</caption>" * bool(caption)
    return (f'<div class="scroll" tabindex="0"><table>{caption}\n'
            f"<thead><tr>{''.join(head)}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>")


def _parts(head, rows, left):
    """A table as [(head, rows)] with as many of its columns as fit a page."""
    for start in range(left, len(head), MOST):
        some = [i for i in range(len(head)) if i < left or start <= i < start + MOST]
        kept = [row for row in rows if any(row[i] != "-" for i in some[left:])]
        yield [head[i] for i in some], [[row[i] for i in some] for row in kept]


def html_plot(drawing):
    """One plot in the page's colors."""
    text = next(plot.svgs(drawing.draw(plot.LIGHT)))
    for color, name in zip(plot.LIGHT.palette(), COLORS):
        text = text.replace(color, f"var(--{name})")
    text = re.sub('<metadata>.*?</metadata>| xmlns[^ =]*="[^"]*"', "", text[text.index("<svg"):],
                  flags=re.DOTALL)
    # Plots number what they draw alike, and here stand in one page.
    text = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{anchor(drawing.name)}-", text)
    label = f'<svg role="img" aria-label="{escape(drawing.title)}"'
    return f"<figure>{text.replace('<svg', label, 1)}</figure>"


def anchor(name):
    return re.sub(r"\W+", "-", name)


# --- The page -------------------------------------------------------------------------------------


def of_program(results, program):
    return results._replace(rows=[row for row in results.rows if row["program"] == program])


def best_of(tables, wanted):
    """{(program, shape): ([its best kernel's row in each file], [what part of a copy's or the
    peak's rate that is])}, in the first data type within a tenth of the fastest."""
    found = {}
    for _, rows in comparison.best_kernels(tables, wanted):
        some = next(filter(has_figure, rows))
        found.setdefault((some["program"], some["shape"]), []).append(rows)
    for at, types in found.items():
        fastest = [max(rate(row)[0] for row in rows if has_figure(row)) for rows in types]
        rows = types[[value >= 0.9 * max(fastest) for value in fastest].index(True)]
        found[at] = rows, [share(*both) for both in zip(tables, rows)]
    return found


def share(results, row):
    """What part of a copy's rate a row reaches, or of the data sheet's peak; empty if unknown."""
    copies = [rate(other)[0] for other in measurements.shown(results.rows) if has_figure(row)
              and other["role"] == measurements.YARDSTICK and other["tflops"] is None
              and all(row[name] == other[name] for name in ("program", "dtype", "shape", "n"))]
    if copies:
        return f"{rate(row)[0] / max(copies):.0%} of copy"
    peak = has_figure(row) and data_sheets.peak(results.gpu, row)
    return f"{rate(row)[0] / peak:.0%} of peak" if peak else ""


def program_part(program, tables, names, n, wanted, baseline):
    """What the files hold of one program."""
    here = [i for i, results in enumerate(tables)
            if any(row["program"] == program for row in results.rows)]
    some = [of_program(tables[i], program) for i in here]
    body = []
    with contextlib.suppress(measurements.TableError):  # nothing of that size
        at = here.index(baseline) if baseline in here else 0
        lines, _ = comparison.lines_of(some, wanted, at)
        body.append(html_comparison([names[i] for i in here], lines, at))
    body += [html_plot(each) for each in plot.plots(some, n) if "roofline-" not in each.name]
    for i, results in zip(here, some):
        about = f"{names[i]}: " * (len(tables) > 1)
        for caption, (head, rows) in one_gpu.families(results.rows):
            body += [html_table(about + caption, *part, 2)
                     for part in _parts(head[1:], [row[1:] for row in rows], 2)]
        for (_, dtype, shape), (head, rows) in one_gpu.experiments(results.rows).items():
            body += [html_table(f"{about}{dtype}, {shape}, by N", *part, 1)
                     for part in _parts(head, rows, 1)]
        stopped = [[table.size(row), row["verified"], row["note"]]
                   for row in results.rows if row["verified"] != "yes"]
        if stopped:
            body.append(html_table(about + "Without a figure", ["size", "result", "reason"],
                                   stopped, 3))
    return "\n".join(body)


def document(tables, n, baseline=0):
    names, sizes = table.short_titles(tables), {}
    programs = list(dict.fromkeys(row["program"] for results in tables for row in results.rows))
    programs.sort(key=lambda name: int(name.split("_")[0]) if name[0].isdecimal() else 99)
    for name in programs:
        with contextlib.suppress(measurements.TableError):  # no N at all
            sizes[name] = plot.usual_size([of_program(each, name) for each in tables], n)

    def wanted(row):
        return plot.chosen(row, sizes.get(row["program"], n))

    def warned(notes):
        return "<ul>" + "".join(f'<li class="note">{escape(note.strip())}</li>'
                                for note in notes) + "</ul>" if notes else ""

    doubts = comparison.lines_of(tables, wanted, baseline)[1] + differences(tables, baseline)
    head, summary = comparison.summary_of(tables, wanted, baseline)
    warnings = [*filter(None, (comparison.nothing_in_common(tables), measurements.mixed(tables)))]
    best = best_of(tables, wanted)
    lessons = [best[at] for name in programs if name[0].isdecimal()
               for at in ((name, "square"), (name, "talk")) if at in best]

    title = "GPUs and kernel fusion: " + ", ".join(
        dict.fromkeys(table.short(results.gpu) for results in tables))
    body = [f'<h1 id="top">{escape(title)}</h1>', warned(warnings)]
    if lessons:
        body += [html_lessons(n, names, lessons, baseline),
                 "<p>Each lesson's best kernel, in the first data type within a tenth of the "
                 "fastest. Figures are medians of verified launches on random data, with the cache "
                 "emptied before each. A copy moves as many bytes; the peak is the data sheet's."
                 "</p>"]
    if len(tables) > 1 and summary:
        body += [html_table("By kind of work", head, summary, 1),
                 f"<p>{comparison.about_summary(tables)}.</p>"]
    body.append(warned(doubts))
    parts = []
    for name in programs:
        rows = next((rows for at, (rows, _) in best.items() if at[0] == name), [])
        about = next((f"{row['kernel']}, {_rate(row)}" + f" on {names[i]}" * (len(names) > 1)
                      for i, row in enumerate(rows) if has_figure(row)), "")
        parts.append((name, about, program_part(name, tables, names, n, wanted, baseline)))
    parts += [(each.title, "", html_plot(each)) for each in plot.plots(tables, n)
              if "roofline-" in each.name]
    links = '<a href="#top">Lessons</a>'
    for name, text, inside in parts:
        links += f'<a href="#{anchor(name)}">{escape(name)}</a>'
        body.append(f"<details><summary><b>{escape(name)}</b> <span>{escape(text)}</span></summary>"
                    f'\n<div id="{anchor(name)}">{inside}</div></details>')
    body += [f"<p>{escape(name)}: {escape(one_gpu.circumstances(results))} Protocol "
             f"{escape(results.protocol)}.</p>" for name, results in zip(names, tables)]
    style, text = STYLE, "\n".join(body)
    for theme in plot.THEMES:
        style = style.replace(theme.name.upper(), " ".join(
            f"--{name}: {color};" for name, color in zip(COLORS, theme.palette())))
    return (f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
            f'<nav><input hidden placeholder="filter" aria-label="filter">{links}</nav>\n'
            f"<main>\n{text}\n</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n")


@command_line.reporting("report.sh")
def main(arguments):
    parser = command_line.Parser(prog="report.sh", add_help=False, allow_abbrev=False)
    parser.add_argument("--size", type=int)
    parser.add_argument("--baseline", default="1")
    parser.add_argument("--out", type=Path, default=PROJECT / "build/report.html")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args(arguments)
    tables = measurements.read_all("report.sh", options.files)
    if options.out.resolve() in [Path(file).resolve() for file in options.files]:
        parser.error(f"--out {options.out} would overwrite a file of results")
    baseline = comparison.baseline_of(options.baseline, tables)
    n = plot.choose_size(tables, options.size)
    command_line.run_with("report.sh", ["matplotlib"], "ensure_matplotlib")
    text = document(tables, n, baseline)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    command_line.write_text(options.out, text)
    return command_line.say("report.sh", f"wrote {options.out}")


if __name__ == "__main__":
    command_line.run(main, __doc__)
