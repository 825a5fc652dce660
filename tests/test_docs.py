"""The documents: that their links lead somewhere, that the commands in the lecture print what it
promises, that figures in prose are those of results/, and that the outputs shown are today's."""

import csv
import json
import os
import re
import subprocess

import pytest

from docs import outputs
from fakes import copy_tree
from shared import table
from suite import CPU, PROGRAMS, ROOT, SKIPPED, VERIFIED, WRONG, describe, run, scons

LECTURE = ROOT / "docs/lecture.md"
PAGES = sorted(file for name in ("bonuses", "chapters") for file in ROOT.glob(f"docs/{name}/*.md"))
DOCUMENTS = [*sorted(ROOT.glob("*.md")), ROOT / "results/README.md",
             *sorted((ROOT / "docs").glob("*.md")),
             *PAGES,
             *sorted((ROOT / "docs/experiments").glob("*.md"))]
CODE = re.compile(r"^```(?:.*\n)*?```$|^(?:    .*\n)+", re.MULTILINE)


def read(file):
    return file.read_text(encoding="utf-8")


def named(file):
    return file.relative_to(ROOT).as_posix()


def prose(text):
    """A document without its blocks of code and its generated parts."""
    text = re.sub(r"<!-- (\w+):begin -->.*?<!-- \1:end -->", "", text, flags=re.DOTALL)
    return CODE.sub("", text)


# --- Links --------------------------------------------------------------------------------------


def anchors(text):
    """What a page's headings are called in links to them."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_links_lead_somewhere(document):
    text = CODE.sub("", read(document))
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    for target in targets + re.findall(r"(?:src|srcset)=\"([^\"]+)\"", text):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        file = document.parent / path if path else document
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            assert anchor in anchors(read(file)), target


# --- The README ---------------------------------------------------------------------------------


def test_ones_own_kernel_takes_what_the_readme_says(tmp_path):
    """Also a wrong one. The first exercise's solution is the same, and so is the notebook's."""
    _, _, section = read(ROOT / "README.md").partition("\n## Your own kernel")
    kernel, contenders = re.findall(r"^```cpp\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    target, program, n = re.search(r"^    scons (\S+) && (\S+) (\d+) ", section, re.M).groups()
    wrong = re.search(r"with `(k .*)` the row says `WRONG`", section)[1]
    copy_tree(tmp_path)
    source = tmp_path / re.search(r"\[(src/\S+)\]", section)[1]
    before = read(source)
    first = contenders.partition(",\n")[0]
    after = before.replace("\nstatic void run(", f"\n{kernel}\nstatic void run(").replace(
        f"{first}}});\n", contenders)
    for text, code, verdict in ((after, VERIFIED, "verified"),
                                (after.replace("k < N; ++k)", f"{wrong}; ++k)"), WRONG, "WRONG")):
        source.write_text(text)
        assert scons(target, cwd=tmp_path).returncode == 0
        done = run(tmp_path / program, n)
        assert done.returncode == code, done.stderr
        assert re.search(rf"^  mine .* {verdict}$", done.stdout, re.MULTILINE), done.stdout
    source.write_text(before)
    subprocess.run(["git", "apply", "docs/exercises/00-mine.patch"], cwd=tmp_path, check=True)
    assert read(source) == after
    notebook = read(ROOT / "docs/colab.ipynb")
    assert all(json.dumps(f"{line}\n") in notebook for line in kernel.splitlines())


# --- Figures ------------------------------------------------------------------------------------


def measured():
    """{unit: all figures of results/*.csv}"""
    found = {"TFLOP/s": [], "GB/s": []}
    for file in (ROOT / "results").glob("*.csv"):
        lines = [line for line in read(file).splitlines() if not line.startswith("#")]
        for row in csv.DictReader(lines):
            for unit, column in (("TFLOP/s", "tflops"), ("GB/s", "gb_per_s")):
                if row[column]:
                    found[unit].append(float(row[column]))
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_figures_in_prose_are_measured(document):
    known = measured()
    text = prose(read(document))
    for digits, unit in re.findall(r"(?<![\w.,-])(\d[\d.,]*) (TFLOP/s|GB/s)", text):
        figure = float(digits.replace(",", ""))
        decimals = len(digits.partition(".")[2])
        assert any(abs(value - figure) <= 0.5001 * 10**-decimals for value in known[unit]), (
            f"{digits} {unit} is nowhere in results/")


# --- The lecture --------------------------------------------------------------------------------


def promises(info):
    """[(command, the lines that must appear)] of the blocks in these pages, each once."""
    found = {}
    text = "".join(map(read, [LECTURE, *PAGES]))
    for block in re.findall(rf"^```{info}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for part in ("\n" + block).split("\n$ ")[1:]:
            command, *lines = part.rstrip("\n").split("\n")
            found[command, tuple(lines)] = None
    return list(found)


WITHOUT_GPU, WITH_GPU = promises("console"), promises("console gpu")
SHEETS = read(LECTURE)  # whose commands run on a projector


def says(line):
    """A pattern of a promised line, in which ... stands for anything, and any blanks for blanks:
    columns are as wide as their figures."""
    pattern = re.escape(line.strip()).replace(r"\.\.\.", ".*")
    return re.sub(r"(\\ )+", r"\\s+", pattern)


@pytest.fixture(scope="module")
def ready():
    """All that the commands need beyond the simulator's programs, built in one go."""
    if CPU.why_not():
        pytest.skip(CPU.why_not())
    commands = " ; ".join(command for command, _ in WITHOUT_GPU)
    counted = sorted(set(re.findall(r"DEMO_COUNT=1 cpu/(\w+)", commands)))
    mutants = sorted(set(re.findall(r"cpu/mutants/\w+", commands)))
    for built in (scons(*(f"cpu/count/{name}" for name in counted), *mutants),
                  scons("debug=1", "cpu/2_matmul_sharedmem", "cpu/bonus_matmul_hopper")):
        assert built.returncode == 0, built.stdout + built.stderr


def assert_promised(command, lines):
    for name in set(re.findall(r"cpu/(\w+)", command)) & set(PROGRAMS):
        run(CPU.folder / name, "--help")  # skips where it is not built
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=120,
                          env={**os.environ, "COLUMNS": "80" if command in SHEETS else "100"})
    if done.returncode == SKIPPED:
        pytest.skip(done.stderr.strip())
    rest = done.stdout + done.stderr
    for line in lines:
        found = re.search(says(line), rest)
        assert found, f"{command} does not print, or not in this order: {line}\n{done.stdout}"
        rest = rest[found.end():]


@pytest.mark.full
@pytest.mark.parametrize("command, lines", WITHOUT_GPU, ids=[each[0] for each in WITHOUT_GPU])
def test_the_lecture_keeps_its_promises(ready, command, lines):
    assert_promised(command, lines)


def test_the_lectures_figures_are_those_of_results():
    """Those of a GPU differ from run to run: they are checked as figures, by their kernel's row.
    The slides take theirs from the same rows."""
    rows = [row for file in (ROOT / "results").glob("*.csv") for row in csv.DictReader(
        line for line in read(file).splitlines() if not line.startswith("#"))]
    times = {(row["kernel"], as_printed(row["median_ms"]), as_printed(row[rate])):
             float(row["median_ms"]) for row in rows for rate in ("tflops", "gb_per_s")
             if row["median_ms"] and row[rate]}
    for command, lines in WITH_GPU:
        first = None
        for *row, faster in re.findall(
                r"^  (\w+) (?:\.\.\. |\s+)~?([\d.]+) ms +([\d.]+).*?(?: ([\d.]+x) .*)?$",
                "\n".join(lines), re.MULTILINE):
            assert tuple(row) in times, f"{command}: {row}"
            first = times[tuple(row)] if faster == "1.00x" else first
            assert not (faster and first) or faster == table.ratio(first, times[tuple(row)]), row


def as_printed(milliseconds):
    """A time or a rate as the programs print it: four digits that count."""
    value = float(milliseconds)
    decimals = 3
    while value and value < 1:
        value, decimals = value * 10, decimals + 1
    while value >= 10 and decimals:
        value, decimals = value / 10, decimals - 1
    return f"{float(milliseconds):.{decimals}f}"


# --- Outputs ------------------------------------------------------------------------------------


def recorded_outputs(folder):
    return sorted(file.stem for file in (outputs.FOLDER / folder).iterdir())


@pytest.mark.full
@pytest.mark.parametrize("program", recorded_outputs(outputs.SIMULATOR))
def test_the_outputs_are_what_the_program_prints(program):
    run(CPU.folder / program, "--help")  # skips where it is not built
    recorded = outputs.FOLDER / outputs.SIMULATOR / f"{program}.txt"
    assert outputs.printed(program, on_gpu=False) == read(recorded), (
        "scripts/update_docs.py --record writes it")


def test_every_program_has_its_outputs():
    """Of lessons on the GPU that the README shows. Of the others on some GPU: each output says on
    which, and where there are several the pages show the README's (`outputs.shown`)."""
    committed = subprocess.run(["git", "ls-files", "src/*.cu"], cwd=ROOT, capture_output=True,
                               text=True).stdout.split()
    programs = sorted(path[4:-3] for path in committed if path.count("/") == 1)
    if not programs:
        pytest.skip("git does not say which programs there are")
    assert recorded_outputs(outputs.SIMULATOR) == programs
    gpus = [path.name for path in outputs.FOLDER.iterdir() if path.name != outputs.SIMULATOR]
    recorded = {name for gpu in gpus for name in recorded_outputs(gpu)}
    assert {name for name in programs if name[0].isdecimal()} <= set(
        recorded_outputs(outputs.SHOWN_GPU))
    assert all("--gpus" in {option["name"] for option in describe(name)["options"]}
               for name in set(programs) - recorded), "on a GPU they were not recorded"
