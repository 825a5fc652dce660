#!/usr/bin/env python3
"""Writes the measured results of results/*.csv into README.md, between its two markers.

    update_readme.py             rewrites that part
    update_readme.py --check     exits 1 where README.md and results/ disagree
"""

import sys
from pathlib import Path

import table

PROJECT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"


def section(results):
    """One GPU's tables in markdown."""
    lines = [f"### {results.gpu}", "", table.circumstances(results)]
    for title, (head, rows) in table.families(results.rows):
        rows = [[f"`{program}`", *cells] for program, *cells in rows]
        lines += ["", title + ":", "", table.markdown(head, rows, left=3)]
    return lines


def main(arguments):
    if arguments in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    if arguments not in ([], ["--check"]):
        return fail("the only option is --check", 2)

    files = sorted((PROJECT / "results").glob("*.csv"))
    if not files:
        return fail("results/ holds no measurements: scripts/compare_gpus.sh writes them", 2)
    readme = PROJECT / "README.md"
    old = readme.read_text(encoding="utf-8") if readme.exists() else ""
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        return fail(f"README.md lacks the lines {BEGIN} and {END}", 2)
    try:
        sections = ["\n".join(section(table.read(file))) for file in files]
    except table.TableError as error:
        return fail(str(error), 2)

    new = before + BEGIN + "\n\n" + "\n\n".join(sections) + "\n\n" + END + after
    if arguments == ["--check"]:
        if new != old:
            return fail("README.md and results/ disagree: run scripts/update_readme.py", 1)
    elif new != old:
        readme.write_text(new, encoding="utf-8")
    return 0


def fail(message, status):
    print("update_readme.py: " + message, file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
