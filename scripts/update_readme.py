#!/usr/bin/env python3
"""Writes measured results into README.md: those of results/*.csv between its markers "results", and
those of results/frameworks/*.csv, where there are any, between its markers "frameworks".

    update_readme.py             rewrites those parts
    update_readme.py --check     exits 1 where README.md and results/ disagree
"""

import sys
from pathlib import Path

import compare_frameworks
import table

PROJECT = Path(__file__).resolve().parent.parent


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
    frameworks = sorted((PROJECT / "results/frameworks").glob("*.csv"))
    try:
        parts = {"results": ["\n".join(section(table.read(file))) for file in files]}
        if frameworks:
            parts["frameworks"] = [compare_frameworks.markdown(file) for file in frameworks]
    except table.TableError as error:
        return fail(str(error), 2)

    readme = PROJECT / "README.md"
    old = new = readme.read_text(encoding="utf-8") if readme.exists() else ""
    for name, sections in parts.items():
        new = replaced(new, name, sections)
        if new is None:
            return fail(f"README.md lacks <!-- {name}:begin --> and <!-- {name}:end -->", 2)
    if arguments == ["--check"]:
        if new != old:
            return fail("README.md and results/ disagree: run scripts/update_readme.py", 1)
    elif new != old:
        readme.write_text(new, encoding="utf-8")
    return 0


def replaced(text, name, sections):
    """`text` with these sections between the markers of that name, or None where it lacks them."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, has_begin, rest = text.partition(begin)
    _, has_end, after = rest.partition(end)
    if not has_begin or not has_end:
        return None
    return before + begin + "\n\n" + "\n\n".join(sections) + "\n\n" + end + after


def fail(message, status):
    print("update_readme.py: " + message, file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
