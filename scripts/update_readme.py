#!/usr/bin/env python3
"""Writes measured results into README.md: those of results/*.csv between its markers "results", and
those of results/frameworks/*.csv, where there are any, between its markers "frameworks".

    update_readme.py             rewrites those parts
    update_readme.py --check     exits 1 where README.md and results/ disagree
"""

import functools

import command_line
import compare_frameworks
import table
from command_line import PROJECT, USAGE, WRONG

say = functools.partial(command_line.say, "update_readme.py")


def section(results):
    """One GPU's tables in markdown."""
    lines = [f"### {results.gpu}", "", table.circumstances(results)]
    for title, (head, rows) in table.families(results.rows):
        rows = [[f"`{program}`", *cells] for program, *cells in rows]
        lines += ["", title + ":", "", table.markdown(head, rows, left=3)]
    return lines


def main(arguments):
    if arguments not in ([], ["--check"]):
        return say("the only option is --check", USAGE)

    files = sorted((PROJECT / "results").glob("*.csv"))
    if not files:
        return say("results/ holds no measurements: scripts/compare_gpus.sh writes them", USAGE)
    frameworks = sorted((PROJECT / "results/frameworks").glob("*.csv"))
    try:
        parts = {"results": ["\n".join(section(table.read(file))) for file in files]}
        if frameworks:
            parts["frameworks"] = [compare_frameworks.markdown(file) for file in frameworks]
    except table.TableError as error:
        return say(error, USAGE)

    readme = PROJECT / "README.md"
    old = new = readme.read_text(encoding="utf-8") if readme.exists() else ""
    for name, sections in parts.items():
        new = replaced(new, name, sections)
        if new is None:
            return say(f"README.md lacks <!-- {name}:begin --> and <!-- {name}:end -->", USAGE)
    if arguments == ["--check"]:
        if new != old:
            return say("README.md and results/ disagree: run scripts/update_readme.py", WRONG)
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


if __name__ == "__main__":
    command_line.run(main, __doc__)
