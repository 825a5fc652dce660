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
    about = results.about
    lines = [
        f"### {results.gpu}",
        "",
        f"Driver {about.get('driver', 'unknown')}, CUDA {about.get('toolkit', 'unknown')}, "
        f"measured on {about.get('date', 'an unknown day')}.",
    ]
    talk = [row for row in results.rows if row["shape"] == "talk"]
    others = [row for row in results.rows if row["shape"] != "talk"]
    if others:
        lines += ["", "TFLOP/s by N:", ""] + grid(others, "N", _rate)
    if talk:
        lines += ["", "The talk's shape, TFLOP/s and GB/s by S:", ""] + grid(talk, "S", _both)
    return lines


def grid(rows, name, show):
    """A markdown table: a line for each kernel, a column for each size."""
    sizes = sorted({row["n"] for row in rows})
    kernels = {}  # in the order of the file, which is the talk's
    for row in rows:
        kernels.setdefault((row["program"], row["kernel"], row["dtype"]), {})[row["n"]] = row
    lines = [
        "| program | kernel | data | " + " | ".join(f"{name} = {size}" for size in sizes) + " |",
        "|---|---|---|" + "---:|" * len(sizes),
    ]
    for (program, kernel, dtype), cells in kernels.items():
        shown = (show(cells[size]) if size in cells else "-" for size in sizes)
        lines.append(f"| `{program}` | {kernel} | {dtype} | " + " | ".join(shown) + " |")
    return lines


def _rate(row):
    value, unit = table.rate(row)
    text = table.number(value) + ("" if unit == "TFLOP/s" else f" {unit}")
    return text if row["verified"] == "yes" else "wrong"


def _both(row):
    text = f"{table.number(row['tflops'])}, {table.number(row['gb_per_s'])}"
    return text if row["verified"] == "yes" else "wrong"


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
