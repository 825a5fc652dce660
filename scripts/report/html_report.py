#!/usr/bin/env python3
"""Writes what compare_gpus.sh measured as one HTML file, with tables and plots, that needs nothing
else: to open on stage, to mail, to print.

    report.sh [--size N] [--baseline FILE] [--out FILE] FILE ...

  --size N          N of the first tables, the bars and the rooflines (default: 4096, or what most
                    programs have)
  --baseline FILE   ratios are to this file, or to the one of this number (default: 1)
  --out FILE        write there (default: build/report.html)
"""

import base64
from html import escape
from pathlib import Path

import plot
from shared import command_line, comparison, measurements, one_gpu, table
from shared.command_line import PROJECT
from shared.differences import differences

MOST = 6  # figures in a line: more would not fit the narrowest screen that shows tables
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --muted: #5b636d; --line: #e2e5e9;
        --back: #ffffff; --mark: #c04a00; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #f1f3f5; --muted: #aab2bc; --line: #333b45; --back: #14181d; --mark: #ff9a52; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 75rem; background: var(--back); color: var(--ink);
       font: 1.05rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
p, nav, caption { color: var(--muted); } a { color: inherit; }
nav a { margin-right: 1rem; white-space: nowrap; }
figure { margin: 1.5rem 0; } img { display: block; width: 100%; height: auto; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: 0.4rem; font-weight: bold; }
th, td { padding: 0.3rem 0.6rem; border-bottom: 1px solid var(--line); text-align: left; }
th.number, td.number { text-align: right; white-space: nowrap; }
tr.title th { padding-top: 1rem; }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--back); }
td.stopped { color: var(--mark); } li.note { color: var(--mark); }
@media screen and (max-width: 600px) {
  body { padding: 0.75rem; font-size: 1rem; }
  thead { display: none; } table, caption, tbody { display: block; }
  tr.title th { display: block; border: 0; padding: 1rem 0 0; }
  tr { display: flex; flex-wrap: wrap; gap: 0 0.7rem; padding: 0.4rem 0;
       border-bottom: 1px solid var(--line); }
  tr::before { content: ""; order: 1; flex-basis: 100%; }  /* figures begin a line */
  td { border: 0; padding: 0; color: var(--muted); } td:first-child { color: var(--ink); }
  td.number { order: 2; color: var(--ink); }
  td.number::before { content: attr(data-head) " "; color: var(--muted); } }
@media print { body { max-width: none; font-size: 9pt; } nav { display: none; }
  .scroll { overflow: visible; } table { font-size: 7pt; } th, td { padding: 0.1rem 0.25rem; }
  figure, tr { break-inside: avoid; } }
"""


def html_table(caption, head, rows, left):
    """A table whose first `left` columns are words, and the others figures."""
    return _table(caption, _line("th", [(cell, 1) for cell in head], left),
                  [_line("td", [(cell, name) for cell, name in zip(row, head)], left)
                   for row in rows])


def html_comparison(caption, tables, lines, baseline, best):
    """A table of GPUs side by side: the name of each stands over its figures and its ratios."""
    names = ["program", "data", "kernel"] if best else ["kernel", "data"]
    gpus = table.short_titles(tables)
    head = [(name, 1) for name in names]
    head += [(gpu, 1 + (i != baseline)) for i, gpu in enumerate(gpus)]
    width = sum(columns for _, columns in head)
    body = []
    for title, some in comparison.headed(lines, best).items():
        body.append(f'<tr class="title"><th colspan="{width}">{escape(title)}</th></tr>')
        for line in some:
            words = [line.program, line.dtype, line.kernel] if best else [line.kernel, line.dtype]
            cells = [(word, "") for word in words]
            for i, (value, ratio) in enumerate(line.cells):
                cells += [(value, gpus[i])] + [(ratio, "")] * (i != baseline)
            body.append(_line("td", cells, len(words)))
    return _table(caption, _line("th", head, len(names)), body)


def _line(tag, cells, left):
    """A row of cells: (text, how many columns wide) of the head, else (text, its column's name)."""
    parts = []
    for i, (cell, more) in enumerate(cells):
        kind = ["number"] * (i >= left)
        kind += ["stopped"] * (cell in ("failed", "skipped", "wrong") or cell.endswith("!"))
        names = f' class="{" ".join(kind)}"' if kind else ""
        if tag == "th" and more > 1:
            names += f' colspan="{more}"'
        if i >= left and tag == "td" and more:  # a narrow screen has no head
            names += f' data-head="{escape(more)}"'
        parts.append(f"<{tag}{names}>{escape(cell)}</{tag}>")
    return "<tr>" + "".join(parts) + "</tr>"


def _table(caption, head, lines):
    body = "\n".join(lines)
    return (f'<div class="scroll" tabindex="0"><table><caption>{escape(caption)}</caption>\n'
            f"<thead>{head}</thead>\n<tbody>\n{body}\n</tbody></table></div>")


def _parts(head, rows, left):
    """A table as [(head, rows)] with as many of its columns as fit a page."""
    for start in range(left, len(head), MOST):
        some = [i for i in range(len(head)) if i < left or start <= i < start + MOST]
        kept = [row for row in rows if any(row[i] != "-" for i in some[left:])]
        yield [head[i] for i in some], [[row[i] for i in some] for row in kept]


def html_plot(drawing):
    """One plot in both themes: the reader's system chooses, and print is light."""
    sources = ["data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
               for svg in plot.svgs(drawing.draw(plot.LIGHT))]
    light, dark = sources
    return (f'<figure><picture><source media="screen and (prefers-color-scheme: dark)" '
            f'srcset="{dark}"><img alt="{escape(drawing.title)}" src="{light}"></picture></figure>')


def document(tables, n, baseline=0):
    def wanted(row):
        return plot.chosen(row, n)

    names = table.titles(tables)
    lines, notes = comparison.lines_of(tables, wanted, baseline)
    notes = [measurements.mixed(tables)] * bool(measurements.mixed(tables)) + notes
    notes += differences(tables, baseline)

    title = "GPUs and kernel fusion: " + ", ".join(
        dict.fromkeys(table.short(results.gpu) for results in tables))
    parts = [f"<h1>{escape(title)}</h1>", "<nav>"]
    parts += [f'<a href="#{anchor}">{escape(text)}</a>' for anchor, text in [
        ("plots", "Plots"), ("best", "Programs"), ("kernels", "Kernels")] + [
        (f"gpu{i}", name) for i, name in enumerate(names)]]
    head, summary = comparison.summary_of(tables, wanted, baseline)
    parts += ["</nav>", html_table(f"In short, at N = {n}", head, summary, 1),
              f"<p>{comparison.about_summary(tables)}. Figures are medians of launches on random "
              "data, the cache emptied before each, of verified results.</p>"]
    if notes:
        parts.append("<ul>" + "".join(f'<li class="note">{escape(note.strip())}</li>'
                                      for note in notes) + "</ul>")
    parts.append('<h2 id="plots">Plots</h2>')
    parts += [html_plot(drawing) for drawing in plot.plots(tables, n)]
    parts += [f'<h2 id="best">Programs at N = {n}</h2>', html_comparison(
        "The best kernel of each program", tables, comparison.best_of(tables, wanted, baseline),
        baseline, True)]
    parts += [f'<h2 id="kernels">Kernels at N = {n}</h2>',
              html_comparison("All kernels", tables, lines, baseline, False)]
    for i, (results, name) in enumerate(zip(tables, names)):
        parts += [f'<h2 id="gpu{i}">{escape(name)}</h2>',
                  f"<p>{escape(one_gpu.circumstances(results))} "
                  f"Protocol {escape(results.protocol)}.</p>"]
        for caption, (head, rows) in one_gpu.families(results.rows):
            parts += [html_table(caption, *part, 3) for part in _parts(head, rows, 3)]
        for (program, dtype, shape), (head, rows) in one_gpu.experiments(results.rows).items():
            parts += [html_table(f"{program}, {dtype}, {shape}, by N", *part, 1)
                      for part in _parts(head, rows, 1)]
        stopped = [[row["program"], table.size(row), row["verified"], row["note"]]
                   for row in results.rows if row["verified"] != "yes"]
        if stopped:
            parts.append(html_table("Without a figure", ["program", "size", "result", "reason"],
                                    stopped, 4))
    body = "\n".join(parts)
    return (f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n"
            f"</body>\n</html>\n")


@command_line.reporting("report.sh")
def main(arguments):
    parser = command_line.Parser(prog="report.sh", add_help=False, allow_abbrev=False)
    parser.add_argument("--size", type=int)
    parser.add_argument("--baseline", default="1")
    parser.add_argument("--out", type=Path, default=PROJECT / "build/report.html")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args(arguments)
    tables = measurements.read_all("report.sh", options.files)
    baseline = comparison.baseline_of(options.baseline, tables)
    n = plot.choose_size(tables, options.size)
    command_line.run_with("report.sh", ["matplotlib"], "ensure_matplotlib")
    text = document(tables, n, baseline)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    command_line.write_text(options.out, text)
    return command_line.say("report.sh", f"wrote {options.out}")


if __name__ == "__main__":
    command_line.run(main, __doc__)
