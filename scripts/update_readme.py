#!/usr/bin/env python3
"""Writes into README.md what is known elsewhere, each part between its markers: "programs", the
summary that each program gives of itself (--describe), for which all of them must be built, for the
GPU or for the simulator; "results", of results/*.csv; "frameworks", of results/frameworks/*.csv,
where there are any.

    update_readme.py             rewrites those parts
    update_readme.py --check     exits 1 where they are out of date, and changes nothing

Exit status: 2 usage, also of the files that it reads; 3 a program is not built.
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "shared"))
import command_line  # noqa: E402
import compare_frameworks  # noqa: E402
import programs  # noqa: E402
import table  # noqa: E402
from command_line import PROJECT, USAGE, WRONG, Stop  # noqa: E402


def section(results):
    """One GPU's tables in markdown."""
    lines = [f"### {results.gpu}", "", table.circumstances(results)]
    for title, (head, rows) in table.families(results.rows):
        rows = [[f"`{program}`", *cells] for program, *cells in rows]
        lines += ["", title + ":", "", table.markdown(head, rows, left=3)]
    return lines


def programs_table(names):
    """The table of what each program teaches. Raises ProgramError where they are not built."""
    paths = [programs.latest_build(name) for name in names]
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        raise programs.ProgramError("the table of programs needs all of them built (scons, or scons"
                                    " cpu), without which there are: " + " ".join(missing))
    rows = [[f"`{path.name}`", plain(programs.describe(path)["summary"])] for path in paths]
    return table.markdown(["program", "the idea"], rows, left=2)


def plain(text):
    """As markdown that shows it as it is. A * before a blank, or a _ within a word, needs no \\."""
    return re.sub(r"[\\`<]|\*(?=\S)|\b_", r"\\\g<0>", text)


@command_line.reporting("update_readme.py")
def main(arguments):
    if arguments not in ([], ["--check"]):
        raise Stop("the only option is --check", USAGE)

    files = sorted((PROJECT / "results").glob("*.csv"))
    if not files:
        raise Stop("results/ holds no measurements: scripts/compare_gpus.sh writes them", USAGE)
    frameworks = sorted((PROJECT / "results/frameworks").glob("*.csv"))
    names = programs.listed()
    parts = {}
    if names:
        parts["programs"] = [programs_table(names)]
    parts["results"] = ["\n".join(section(table.read(file))) for file in files]
    if frameworks:
        parts["frameworks"] = [compare_frameworks.markdown(file) for file in frameworks]

    readme = PROJECT / "README.md"
    old = new = readme.read_text(encoding="utf-8") if readme.exists() else ""
    for name, sections in parts.items():
        new = replaced(new, name, sections)
        if new is None:
            raise Stop(f"README.md lacks <!-- {name}:begin --> and <!-- {name}:end -->", USAGE)
    if arguments == ["--check"]:
        if new != old:
            raise Stop("README.md is out of date: run scripts/update_readme.py", WRONG)
    elif new != old:
        readme.write_text(new, encoding="utf-8")


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
