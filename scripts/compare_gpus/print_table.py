"""compare_gpus.sh --table: its options, and what it prints of files side by side. How they are
measured is in measure.py."""

import csv
import io
import textwrap

from shared import command_line, comparison, programs
from shared.differences import differences
from shared.measurements import TableError, mixed, read
from shared.table import layout, markdown, short_titles, titles

WHO = "compare_gpus.sh"
COLUMNS = 79  # of a screen


def compare(arguments):
    parser = command_line.Parser(prog=WHO, add_help=False, allow_abbrev=False)
    parser.add_argument("--programs", type=lambda text: text.split(","))
    parser.add_argument("--sizes", type=command_line.sizes())
    parser.add_argument("--talk", type=command_line.sizes())
    parser.add_argument("--baseline", default="1")
    for flag in ("--best", "--markdown", "--csv"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args(arguments)
    if options.markdown and options.csv:
        parser.error("--markdown and --csv exclude each other")
    chosen = {"square": options.sizes or [], "talk": options.talk or []}

    tables = [read(file) for file in options.files]
    names, words = {row["program"] for each in tables for row in each.rows}, options.programs or []
    for word in words:
        if not programs.named(word, names):
            parser.error(f"there are no rows of a program '{word}'")

    standard = {comparison.runs_of(row)[0] for results in tables for row in results.rows
                if results.about.get("list") == "standard"}

    def wanted(row):
        if standard and standard.isdisjoint(comparison.runs_of(row)):
            return False  # of a whole run, beside a standard list
        of_program = not words or any(programs.named(word, [row["program"]]) for word in words)
        return of_program and (not any(chosen.values())
                               or row["n"] in chosen.get(row["shape"], []))

    baseline = comparison.baseline_of(options.baseline, tables)
    lines, notes = comparison.lines_of(tables, wanted, baseline)
    lines = comparison.best_of(tables, wanted, baseline) if options.best else lines
    if not lines:
        raise TableError("no program has a figure at the sizes asked for")
    apart = comparison.nothing_in_common(tables)
    notes = [note for note in (apart, mixed(tables), *notes) if note]
    notes += differences(tables, baseline, wanted)
    if apart and not options.csv:
        return "\n".join(notes)
    if options.csv:
        for note in notes:
            command_line.say(WHO, note)
        head, cells = _flat(tables, lines, baseline)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([head, *cells])
        return text.getvalue().rstrip("\n")
    if options.markdown:
        parts = [markdown(*_flat(tables, lines, baseline), left=5)]
    else:
        parts = [_on_a_screen(tables, lines, baseline, options.best)]
        head, ratios = comparison.summary_of(tables, wanted, baseline)
        if ratios:
            note = "\n".join(textwrap.wrap(comparison.about_summary(tables), COLUMNS))
            parts.insert(0, f"{layout(head, ratios)}\n{note}\n")
    return "\n".join(parts + [""] * bool(notes) + notes)


def _flat(tables, lines, baseline):
    """(head, lines) with a column for everything, for other programs."""
    head = "program kernel data size unit".split()
    for i, title in enumerate(titles(tables)):
        head += [title] + ["ratio"] * (i != baseline)
    return head, [[*line[:5], *(cell for i, both in enumerate(line.cells)
                                for cell in both[:1 + (i != baseline)])] for line in lines]


def _on_a_screen(tables, lines, baseline, best):
    """The same on at most 79 columns, where there are up to three files. The name of a GPU stands
    over its figure and its ratio."""
    widths = [[max(len(line.cells[i][part]) for line in lines) for part in (0, 1)]
              for i in range(len(tables))]

    def cell(i, value, over):
        return value.rjust(widths[i][0]) + f" {over.rjust(widths[i][1])}" * (i != baseline)

    head = ["  program", "data"] if best else ["  kernel", "data"]
    head += ["kernel"] * (best and len(tables) == 1)  # of several GPUs there is no room
    rows, above = [], {}
    for title, some in comparison.headed(lines, best).items():
        above[len(rows)] = title
        for line in some:
            names = [line.program, line.dtype, line.kernel] if best else [line.kernel, line.dtype]
            names[0] = "  " + names[0]
            rows.append(names[:len(head)] + [cell(i, *both) for i, both in enumerate(line.cells)])
    names = short_titles(tables)
    text = layout(head + names, rows, left=len(head), above=above)
    return text + f"\nx: the ratio to {names[baseline]}" * (len(tables) > 1)
