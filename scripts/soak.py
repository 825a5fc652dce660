#!/usr/bin/env python3
"""Runs the programs with random command lines for a time. Every run must end verified and soon. For
people who distrust their card, and for people who write kernels.

    soak.py [--seconds S | --runs R] [--jobs J] [--seed SEED] [--largest N] [--programs 1,6,...]
            [--repeat] [--simulator | --sanitize | --compute-sanitizer] [--out FOLDER]

  --seconds S    begin no run after that time (default 600; with --compute-sanitizer unlimited)
  --runs R       make so many runs instead, those of earlier calls included
  --jobs J       so many at a time (default 1)
  --seed SEED    decides all that is drawn (default 1). The same command goes on where it stopped,
                 with newly built programs from the beginning
  --largest N    the largest matrices are about N x N (default 4096; on the simulator 160, with
                 --compute-sanitizer 256)
  --programs     these, by name or number; else all that are built
  --repeat       every command line twice, without timing, and all kernels each time: says how many
                 launches gave the same bits again
  --simulator    run cpu/NAME (scons cpu), with another order of threads each time; without a GPU
                 that happens anyway
  --sanitize     the same with cpu/sanitize/NAME (scons cpu sanitize=1)
  --compute-sanitizer
                 something else: each kernel once under each tool of compute-sanitizer, on a GPU, at
                 a random small size
  --out FOLDER   keep a line for each finished run there (default build/soak)

It builds nothing. At the end it prints how many runs there were, and for each failure why, and the
command that repeats it. A quarter of the command lines run twice, and must give the same results.

Exit status: 0 none failed; 1 a result was wrong; 2 usage; 3 another failure; 77 nothing here can
run the programs; 130 interrupted.
"""

import argparse
import hashlib
import os
import re
import shutil
import signal
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "shared"), str(HERE / "soak")]
import command_line  # noqa: E402
import cuda_toolkit  # noqa: E402
import programs  # noqa: E402
from command_line import INTERRUPTED, PROJECT, SKIPPED, Stop  # noqa: E402
from finished import Finished  # noqa: E402
from running import Processes, perform  # noqa: E402
from series import Anything, EveryKernel  # noqa: E402

WHO = "soak.py"
SECONDS = 600
GPU, SIMULATOR, SANITIZE, TOOLS = "gpu", "simulator", "sanitize", "compute-sanitizer"


class Place(NamedTuple):
    """Where programs run, and what they can do there."""

    folder: str
    built_by: str
    largest: int  # N
    limit_s: int  # of a command; most take a second


PLACES = {GPU: Place(".", "scons", 4096, 120),
          SIMULATOR: Place("cpu", "scons cpu", 160, 300),
          SANITIZE: Place("cpu/sanitize", "scons cpu sanitize=1", 160, 900),
          TOOLS: Place(".", "scons", 256, 900)}


# --- The command line -----------------------------------------------------------------------------


def number(text):
    if not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 1 up")
    return int(text)


def parse_arguments(arguments):
    parser = command_line.Parser(prog=WHO, add_help=False, allow_abbrev=False)
    add = parser.add_argument
    length, place = (parser.add_mutually_exclusive_group() for _ in range(2))
    length.add_argument("--seconds", type=number)
    length.add_argument("--runs", type=number)
    add("--jobs", type=command_line.count, default=1)
    add("--seed", type=number, default=1)
    add("--largest", type=number)
    add("--programs", type=lambda text: [programs.find(word) for word in text.split(",")])
    add("--repeat", action="store_true")
    for name in (SIMULATOR, SANITIZE, TOOLS):
        place.add_argument(f"--{name}", dest="place", action="store_const", const=name, default=GPU)
    add("--out", type=lambda text: Path(text).resolve(), default=PROJECT / "build/soak")
    options = parser.parse_args(arguments)
    if options.repeat and options.place == TOOLS:
        parser.error("--repeat excludes --compute-sanitizer")
    if options.place in (GPU, TOOLS) and not cuda_toolkit.gpus_here():
        if options.place == TOOLS:
            raise Stop("no GPU here: compute-sanitizer needs one", SKIPPED)
        command_line.say(WHO, "no GPU here: these are runs of the simulator (cpu/)")
        options.place = SIMULATOR
    options.largest = options.largest or PLACES[options.place].largest
    return options


def describe_programs(options):
    """{path: what the program says of itself}, for those asked for, or for all that are built.
    Raises Stop."""
    place = PLACES[options.place]
    names = options.programs or [name for name in programs.listed()
                                 if (PROJECT / place.folder / name).exists()]
    if not names:
        raise Stop(f"no program is built in {place.folder}/: {place.built_by}")
    paths = [f"{place.folder}/{name}" for name in names]
    return {path: programs.describe(PROJECT / path) for path in paths}


def find_sanitizer():
    try:
        path = cuda_toolkit.find().tool("compute-sanitizer")
    except cuda_toolkit.ToolkitError:
        path = shutil.which("compute-sanitizer")
    if not path:
        raise Stop("compute-sanitizer is not here: it comes with the CUDA Toolkit", SKIPPED)
    return path


def open_series(options):
    """The series that was asked for, and the file of its finished runs. Raises Stop."""
    abouts = describe_programs(options)
    if options.place == TOOLS:
        series = EveryKernel(options.seed, abouts, options.largest, find_sanitizer())
    else:
        series = Anything(options.seed, abouts, options.largest, options.place != GPU,
                          options.repeat)
    # Runs of other programs, builds or sizes are another series, in another file.
    built = [(path, (PROJECT / path).stat().st_mtime_ns) for path in abouts]
    name = hashlib.sha256(
        repr((options.largest, options.repeat, built)).encode()).hexdigest()[:8]
    return series, options.out / f"{options.place}-{options.seed}-{name}.jsonl"


# --- The runs -------------------------------------------------------------------------------------


class Progress:
    """A line on a terminal, which goes on stderr and erases itself."""

    def __init__(self):
        self.shown = sys.stderr.isatty()

    def show(self, text):
        if self.shown:
            width = shutil.get_terminal_size().columns - 1
            print("\r\033[K" + text[:width], end="", file=sys.stderr, flush=True)


def to_do(options, series, finished):
    """The numbers of the runs that are to be made while there is time, with how much is left."""
    count = options.runs or series.length
    seconds = options.seconds or (None if count else SECONDS)
    end = time.monotonic() + (seconds or 0)
    for i in range(count or sys.maxsize):
        left = end - time.monotonic()
        if seconds and left <= 0:
            return
        if i not in finished.runs:
            yield i, (f"{left // 60:.0f}:{int(left % 60):02} left" if seconds else
                      f"{count - len(finished.runs)} to go")


class Soak:
    """Makes runs, several at a time."""

    def __init__(self, options, series, finished):
        self.series, self.finished = series, finished
        self.limit_s = PLACES[options.place].limit_s
        self.to_do = to_do(options, series, finished)
        self.processes, self.progress, self.lock = Processes(), Progress(), threading.Lock()

    def work(self):
        """Makes one run after the other."""
        while True:
            with self.lock:
                i, left = next(self.to_do, (None, None))
            if i is None:
                return
            run = self.series.draw(self.processes, i)
            with self.lock:
                self.progress.show(f"{len(self.finished.runs)} runs, {len(self.finished.failed)} "
                                   f"failed, {left}: {run.commands[0]}")
            began = time.monotonic()
            outcome = perform(self.processes, run, self.limit_s)
            with self.lock:
                self.finished.add(i, run.commands[0], time.monotonic() - began, outcome)

    def make(self, jobs):
        pool = ThreadPoolExecutor(jobs)
        try:
            working = {pool.submit(self.work) for _ in range(jobs)}
            while working:  # not one long wait: a signal that reaches another thread never ends it
                done, working = wait(working, timeout=0.2, return_when=FIRST_COMPLETED)
                for job in done:
                    job.result()
        finally:
            self.processes.stop()
            pool.shutdown()
            self.progress.show("")


def interrupt(*_):
    raise KeyboardInterrupt


@command_line.reporting(WHO)
def main(arguments):
    options = parse_arguments(arguments)
    os.chdir(str(PROJECT))
    series, file = open_series(options)
    finished = Finished(file)
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, interrupt)  # so that no program goes on
    interrupted = False
    try:
        Soak(options, series, finished).make(options.jobs)
    except KeyboardInterrupt:
        interrupted = True
    print(finished.summary(), flush=True)
    if options.repeat:
        print(f"{finished.alike} launches gave the same bits again", flush=True)
    if interrupted:
        return command_line.say(WHO, "interrupted: the same command goes on from here", INTERRUPTED)
    return finished.status


if __name__ == "__main__":
    command_line.run(main, __doc__)
