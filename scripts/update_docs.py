#!/usr/bin/env python3
"""Writes into the documents what is known elsewhere, each part between its markers:

    README.md           "terminal", from results/outputs/; "lessons", "bonuses": what each program
                        says of itself (--describe), what the lecture and results/ say of the
                        lessons; "headlines", from results/; "colab"
    results/README.md   "results", of results/*.csv; "grid", of results/grid/*.csv; "frameworks", of
                        results/frameworks/*.csv
    docs/gpus.md        "computed", from the data sheets; "measured", from results/
    docs/exercises.md   "sum": how many there are, and how long they take; README.md says how many
    docs/outputs.md     "outputs": what every program prints, from results/outputs/
    docs/lecture.md     "python": what the talk's Python files print, from results/outputs/
    docs/chapters/15-attention.md  "kernels", from results/
    docs/bonuses/       tables of the rungs, from results/: of attention.md also from their heads,
                        of gating_gpus.md from results/gpus/
    docs/figures.md     below each <!-- figures LESSON --> a table of its kernels, from results/
    src/, its lessons   the end of their heads: how long their kernels take, from results/
    docs/colab.ipynb    where the programs are, by CITATION.cff; README's "colab" has a link to it
    docs/experiments/   "output": what the program prints; "claims": its speed-ups; and, named after
                        what they show, tables of its figures, of results/*.csv
    docs/**.md          the lines of each function that a link names: [f](../src/x.cu#L1-L9); code
                        that they quote, below <!-- quote src=src/x.cu from="..." to="..." -->

All programs must be built, for the GPU or for the simulator.

    update_docs.py             rewrites those parts
    update_docs.py --check     exits 1 where they are out of date, and changes nothing
    update_docs.py --record    first runs every program where it can run here, on the GPU and on the
                               simulator, and keeps what it prints in results/outputs/

Exit status: 2 usage, also of the files that it reads; 3 a program is not built, or failed.
"""

import functools

from docs import gpus, links, outputs, quotes, tables
from shared import command_line, programs
from shared.command_line import PROJECT, USAGE, WRONG, Stop

PARTS = {
    "README.md": {"terminal": outputs.terminal, "lessons": tables.lessons,
                  "bonuses": tables.bonuses, "headlines": tables.headlines,
                  "colab": links.to_colab},
    "results/README.md": {"results": tables.results, "grid": tables.sizes,
                          "frameworks": tables.frameworks},
    "docs/gpus.md": {"computed": gpus.computed, "measured": gpus.measured},
    "docs/outputs.md": {"outputs": outputs.document},
    "docs/exercises.md": {"sum": tables.sum_of_exercises},
    "docs/lecture.md": {"python": outputs.python},
    "docs/chapters/15-attention.md": {"kernels": tables.attention},
    "docs/bonuses/attention.md": {"rungs": tables.attention_rungs},
    "docs/bonuses/gating_gpus.md": {"gpus": tables.several},
    "docs/bonuses/matmul_hopper.md": {"ladder": functools.partial(
        tables.ladder, "bonus_matmul_hopper", "fp16", 1024, 4096, 16384)},
    "docs/colab.ipynb": {},
    **{f"docs/experiments/{name}.md": {
        "output": functools.partial(outputs.shown, f"bonus_{name}"), **tables.of_page(name)}
       for name in ("async", "matmul_types", "memory", "pitfalls", "transpose", "waves")},
}


def replaced(text, name, part, file):
    """`text` with `part` between the markers of that name."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, has_begin, rest = text.partition(begin)
    _, has_end, after = rest.partition(end)
    if not has_begin or not has_end:
        raise Stop(f"{file} lacks {begin} and {end}", USAGE)
    return before + begin + "\n\n" + part + "\n\n" + end + after


def updated(file):
    """A document's text, brought up to date."""
    text = command_line.read_text(file)
    name = file.relative_to(PROJECT).as_posix()
    if file.suffix == ".ipynb":
        return links.in_notebook(text)
    if file.suffix == ".cu":
        return tables.in_lesson(text, file.stem)
    for part, write in PARTS.get(name, {}).items():
        text = replaced(text, part, write(), name)
    return quotes.updated(links.updated(tables.with_figures(tables.counted(text)), file), file)


@command_line.reporting("update_docs.py")
def main(arguments):
    if arguments not in ([], ["--check"], ["--record"]):
        raise Stop("the only options are --check and --record", USAGE)
    if arguments == ["--record"]:
        outputs.record()

    documents = [PROJECT / name for name in PARTS]
    found = {file for folder in ("docs", "docs/bonuses", "docs/chapters", "docs/experiments")
             for file in (PROJECT / folder).glob("*.md")}
    documents += sorted(found - set(documents))
    documents = [PROJECT / f"src/{name}.cu" for name in programs.lessons()] + documents
    stale = {file: new for file in documents if file.exists()
             for new in [updated(file)] if new != file.read_text(encoding="utf-8")}
    if arguments == ["--check"] and stale:
        names = " ".join(file.relative_to(PROJECT).as_posix() for file in stale)
        raise Stop(f"out of date: {names}: run scripts/update_docs.py", WRONG)
    for file, text in stale.items():
        command_line.write_text(file, text)


if __name__ == "__main__":
    command_line.run(main, __doc__)
