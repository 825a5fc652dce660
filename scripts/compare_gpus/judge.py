"""compare_gpus.sh --check and --add: whether a file that somebody sends may go to results/."""

import re
from pathlib import Path

from shared import data_sheets, measurements, programs
from shared.command_line import PROJECT, USAGE, WRONG, Stop, file_stem, read_text, say, write_text
from shared.table import size


def doubts(results, place, protocol):
    """What speaks against a file. `place`: where it would go; `protocol`: this suite's."""
    suite, kind = (results.about.get(name, "") for name in ("suite", "list"))
    if kind not in ("", "whole", "standard"):
        yield f"it is a {kind}: results/ holds whole runs and standard lists"
    if results.protocol != str(protocol):
        yield f"it was measured by protocol {results.protocol}, and this suite has {protocol}"
    if suite in ("", "unknown") or "-dirty" in suite:
        yield f"suite {suite or 'unknown'} is no commit, so nobody can repeat this"
    if place.exists() and not place.samefile(results.path):
        yield f"{results.gpu} has results already, in {place.relative_to(PROJECT)}"
    if "rows" not in results.about or all(row["verified"] != "yes" for row in results.rows):
        yield "its head lacks the number of rows, or no row is verified"
    if re.search(r"[][<>`|$\\]", "".join(results.about.values())):  # documents show some
        yield "its head has characters that no GPU, driver or suite has"
    if any(row["gpu"] != results.gpu for row in results.rows):
        yield "rows of another GPU than its head names"
    sources = "".join(map(read_text, (PROJECT / "src").rglob("*.[ch]*")))
    for program, kernel in dict.fromkeys((row["program"], row["kernel"]) for row in results.rows):
        if program not in programs.listed() or f'"{kernel}"' not in sources and kernel:
            yield f"this suite has no {kernel or 'kernel'} of {program}"
    for row in results.rows:
        why = {"no": "a wrong result", "failed": f"failed: {row['note']}"}.get(row["verified"])
        why = why or measurements.simulated(row) and "the simulator's figure"
        why = why or data_sheets.doubt(results.gpu, row)
        if why:
            names = filter(None, (row["program"], row["kernel"], row["dtype"], size(row)))
            yield f"{' '.join(names)}: {why}"


def main(arguments, protocol):
    """Judges one file, and returns the exit status."""
    command, *files = arguments
    if len(files) != 1 or not Path(files[0]).is_file():
        raise Stop(f"{command} needs one file (--help shows the usage)", USAGE)
    results = measurements.read(files[0])
    place = PROJECT / f"results/{file_stem(results.gpu)}.csv"
    found = list(doubts(results, place, protocol))
    for text in found:
        say("compare_gpus.sh", f"{results.path}: {text}")
    if found:
        return WRONG
    if command == "--check":
        return print(f"{results.path}: nothing found in {len(results.rows)} rows of {results.gpu}")
    lines = read_text(results.path, encoding="utf-8-sig").splitlines()
    write_text(place, "\n".join(lines) + "\n")
    return print(f"wrote {place.relative_to(PROJECT)}; its tables: scripts/update_docs.py")
