#!/usr/bin/env python3
"""Makes build/watch/NAME.html, a page that plays what a kernel's threads did: which numbers each
warp loads and stores, in how many sectors, and where it waits. One file, to be opened in a browser.

The threads run on the simulator, which notes what each does. PROGRAM is a name or its number, or a
file that scripts/exercise.sh has laid out: build/exercises/06/2_matmul_sharedmem.cu. It is built
first, as it stands. A wrong result is no error here: the page shows where it comes from.
"""

import argparse
import base64
import gzip
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import trace_file
from presets import PRESETS
from shared import command_line, exercises, programs
from shared.command_line import OK, PROJECT, SKIPPED, USAGE, WRONG, Stop

FOLDER = PROJECT / "build/watch"
SCHEDULE = re.compile(r"forward|reverse|alone|random:[0-9]{1,18}")


class Shown(NamedTuple):
    """A kernel to be traced."""

    source: Path  # the program's
    kernel: str  # empty: the program's first
    title: str = ""

    name = property(lambda self: self.source.stem)

    @property
    def folder(self):
        """Where its build lies."""
        laid_out = self.source.parent.name != "src"
        return (self.source.parent if laid_out else PROJECT) / "cpu"


# --- What is asked for ----------------------------------------------------------------------------


def refuse(kernel, source, about):
    """Ends the script: the program lacks a kernel."""
    known = " ".join(each["kernel"] for each in about["contenders"]) if about else "others"
    raise Stop(f"{source.stem} has no kernel '{kernel}', it has {known}", USAGE)


def shown(word, kernel, size=()):
    """The kernel of a program: of its name, its number or its file. Raises Stop."""
    source = Path(word)
    if source.suffix == ".cu":
        laid_out = (PROJECT / "build/exercises").resolve()
        if laid_out not in source.resolve().parents or not source.is_file():
            raise Stop(f"{word} is no program that scripts/exercise.sh has laid out", USAGE)
        programs.checked(programs.find(source.stem), size)
    else:
        source = PROJECT / f"src/{programs.checked(programs.find(word), size)}.cu"
    folder = source.resolve().parent.name
    one = Shown(source.resolve(), kernel, "" if folder == "src" else f"exercise {folder}")
    files = [source, *(PROJECT / "src").rglob("*.cuh"), *(PROJECT / "src/demo").glob("*.cu")]
    if kernel and not any(f'"{kernel}"' in command_line.read_text(file) for file in files):
        built = one.folder / one.name
        refuse(kernel, source, programs.describe(built) if built.is_file() else None)
    return one


def changed_by(number, source):
    """The program as an exercise changes it, laid out beside the exercises."""
    exercise = next(each for each in exercises.read() if each.number == number)
    patch = exercises.read_patch(exercise.patch)
    try:
        text = exercises.with_edits("", patch.edits, source.read_text("utf-8"))
    except ValueError:
        raise Stop(f"{source.relative_to(PROJECT)} has changes: git checkout brings back what the "
                   "page is of", USAGE)
    file = PROJECT / f"build/exercises/watch-{number:02}/{source.name}"
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.is_file() or file.read_text("utf-8") != text:
        file.write_text(text, "utf-8")
    return Shown(file, "", exercise.title)


# --- Traces ---------------------------------------------------------------------------------------


def build(*wanted):
    targets = [each.folder.relative_to(PROJECT) / part / each.name
               for each in wanted for part in ("", "count")]
    command_line.set_up("watch.sh", "ensure_counting_compiler; ensure_scons; "
                        "ensure_simulator_libraries; "
                        f"build {' '.join(map(str, targets))} >&2")


def traced(one, n, schedule):
    """(the trace of a kernel, its size in words)"""
    about = programs.describe(one.folder / one.name)
    contenders = {each["kernel"]: each for each in about["contenders"]}
    by_role = {each["role"]: name for name, each in reversed(contenders.items())}
    kernel = one.kernel or by_role.get("ours") or by_role.get("chain") or next(iter(contenders))
    if kernel not in contenders:
        refuse(kernel, one.source, about)
    size = [n or str(min(64, about["sizes"]["default"]))] if about["sizes"] else []
    words = f"N = {size[0] if size else about['problems'][0]['n']}"
    if about["talk"] and (contenders[kernel]["only"] == "talk" or not size):
        size, words = ["--talk", "16"], "S = 16"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace"
        done = subprocess.run(
            [one.folder / one.name, *size, "--kernel", kernel, "--once"], cwd=PROJECT,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            env={**os.environ, "DEMO_COUNT": f"trace:{file}", "DEMO_SCHEDULE": schedule})
        if done.returncode not in (OK, WRONG):
            raise Stop((done.stderr or done.stdout).strip().splitlines()[-1], done.returncode)
        result = trace_file.Trace(file, kernel)
    if any(launch.has_engines for launch in result.launches):
        raise Stop(f"{kernel} copies by TMA, multiplies by wgmma, or is in CUDA Tile C++: the page "
                   "cannot show that yet", SKIPPED)
    if not result.launches:
        raise Stop(f"{one.name} {' '.join(size)} does not run {kernel}", USAGE)
    return result, words


def for_page(one, result, size, block):
    """One trace as the page's script reads it."""

    def fields(launch, index, event):
        if isinstance(event, trace_file.Meeting):
            return [event.place, event.warps]
        numbers = event.numbers(result.type_of(launch, event)) if index == block else []
        return [*event[:-2], [number for run in event.runs for number in run], numbers]

    def launch_of(launch):
        return {"name": launch.name, "file": launch.file, "line": launch.line, "grid": launch.grid,
                "shared": launch.shared, "read": list(launch.read.items()),
                "written": list(launch.written.items()), "totals": launch.totals(result.places),
                "blocks": {",".join(map(str, index)): [fields(launch, index, event)
                                                       for event in launch.blocks[index]]
                           for index in sorted(launch.blocks, key=lambda xyz: xyz[::-1])}}

    return {"program": one.name, "kernel": result.contender, "size": size, "title": one.title,
            "places": {number: list(place) for number, place in result.places.items()},
            "files": result.sources(),
            "wrong": [[*each, result.never_stored(*each)] for each in sorted(set(result.wrong))],
            "buffers": [list(buffer[1:]) for buffer in result.buffers],
            "launches": [launch_of(launch) for launch in result.launches]}


def write_page(name, page):
    here = Path(__file__).parent
    data = base64.b64encode(gzip.compress(json.dumps(page, separators=(",", ":")).encode(), 9,
                                          mtime=0)).decode()
    text = (here / "page.html").read_text("utf-8")
    for mark, value in (("TITLE", page["title"]), ("DATA", data),
                        ("SCRIPT", (here / "page.js").read_text("utf-8"))):
        text = text.replace(f"<!--{mark}-->", value)
    file = FOLDER / f"{name}.html"
    command_line.write_text(file, text)
    print(f"{file.relative_to(PROJECT)}: open it in a browser; ? lists the keys")


# --- The command line -----------------------------------------------------------------------------


def parse_arguments(arguments):
    parser = command_line.Parser(
        prog="watch.sh", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit status: 0; 2 usage; 3 an error; 77 a kernel that the page cannot show.")
    parser.add_argument("program", metavar="PROGRAM", nargs="?")
    parser.add_argument("n", metavar="N", nargs="?")
    parser.add_argument("--kernel", default="", help="else the first that the program is about")
    parser.add_argument("--block", nargs=2, type=command_line.number(0, 999999999),
                        metavar=("X", "Y"), help="the block to show, without it 0 0")
    parser.add_argument("--schedule", default="", metavar="S",
                        help="the order of the threads: forward, reverse, random:SEED or alone")
    parser.add_argument("--with", dest="other", metavar="PROGRAM[:KERNEL]",
                        help="a second kernel, to be played beside it")
    parser.add_argument("--preset", choices=PRESETS, metavar="NAME", help="a page with a question")
    parser.add_argument("--list", action="store_true", help="list the presets")
    options = parser.parse_intermixed_args(arguments)
    if options.schedule and not SCHEDULE.fullmatch(options.schedule):
        parser.error(f"--schedule takes forward, reverse, random:SEED or alone, not "
                     f"'{options.schedule}'")
    given = [key for key, value in vars(options).items() if value not in (None, "", False)]
    if options.preset or options.list:
        if len(given) > 1:
            parser.error("--preset NAME and --list stand alone")
    elif not options.program:
        parser.error("a PROGRAM is expected, or --preset NAME")
    return options


@command_line.reporting("watch.sh")
def main(arguments):
    options = parse_arguments(arguments)
    if options.list:
        for name, preset in PRESETS.items():
            print(f"{name:10}{preset['question']}")
        return
    preset = PRESETS.get(options.preset, {})
    size = [options.n] if options.n is not None else []
    wanted = [shown(preset.get("program") or options.program, options.kernel, size)]
    if "exercise" in preset:
        wanted.append(changed_by(preset["exercise"], wanted[0].source))
    other = options.other or preset.get("with")
    if other:
        word, _, kernel = other.partition(":")
        wanted.append(shown(word, kernel, size))
        if wanted[0] == wanted[1]:
            raise Stop(f"--with {other} is the very kernel that is shown", USAGE)
    FOLDER.mkdir(parents=True, exist_ok=True)
    name = options.preset or wanted[0].name
    (FOLDER / f"{name}.html").unlink(missing_ok=True)  # is of other sources, if this goes wrong
    build(*wanted)
    block = (*(options.block or (0, 0)), 0)
    runs = []
    for one in wanted:
        result, size = traced(one, options.n, options.schedule)
        grid = next((launch.grid for launch in result.launches if launch.blocks), None)
        if options.block and grid and not all(i < size for i, size in zip(block, grid)):
            raise Stop(f"--block {block[0]} {block[1]}: the grid has {grid[0]} x {grid[1]} blocks",
                       USAGE)
        runs.append(for_page(one, result, size, block))
    if len(runs) > 1 and all(wanted[0].source == one.source and runs[0]["kernel"] == run["kernel"]
                             for one, run in zip(wanted, runs)):
        raise Stop(f"--with {other} is the very kernel that is shown", USAGE)
    title = f"{runs[0]['program']}, {runs[0]['size']}"
    look = {"look": {"view": "both"}} if other and not preset else {}
    look |= {key: preset[key] for key in ("question", "words", "measure", "look")
            if key in preset}
    write_page(name,
               {"title": title, "block": ",".join(map(str, block)), "runs": runs, **look})


if __name__ == "__main__":
    command_line.run(main)
