#!/usr/bin/env python3
"""Usage: scripts/compare_gpus.sh [OPTION ...]
       scripts/compare_gpus.sh --grid [OPTION ...]
       scripts/compare_gpus.sh --hosts HOST,... [OPTION ...]
       scripts/compare_gpus.sh --table [OPTION ...] FILE ...

Builds the programs, runs each on every GPU of this machine (MIG instances too), and writes one file
per GPU: results/<gpu>.csv. Then prints programs x GPUs. A program that fails gets a row that says
so. What an interrupted run has measured is kept: the same command goes on from there. On a machine
with several GPUs, CUDA_VISIBLE_DEVICES=1 measures only the one that nvidia-smi calls GPU 1.

Without a selection every program is measured at the sizes, in the data types and with the options
that it declares (PROGRAM --describe), which takes some minutes; a program that declares none is
left out. A selection is written to build/results/, so that results/ holds whole runs.

  --programs P,...   these alone, by name or number: 6, bonus_matmul_hopper
  --sizes N,...      these sizes N alone (multiples of 32)
  --talk S,...       these sizes S of the talk's shape alone (multiples of 16); with --sizes: both
  --standard         each lesson at its default size, the gating lessons also at S = 1024, in the
                     first data type: three minutes. To be sent: build/results/standard/<gpu>.csv
  --grid             our fastest matrix products beside the library's best call, at 40 sizes
                     from 512 to 16384: results/grid/<gpu>.csv. Takes 2.5 s a size: five minutes
  --rounds COUNT     let the kernels of a program take turns so many times (default 1)
  --out FOLDER       write there
  --fresh            forget what an interrupted run has measured
  --no-build         measure the programs that lie here; they were built elsewhere

  --hosts HOST,...   do that on these machines, all at once, over ssh, which must get there without
                     a question. Sends the files of this checkout that git tracks (with --no-build
                     the programs that lie here, too) to ~/.cache/compare_gpus/ there, and brings
                     results/<gpu>@<host>.csv back. The others go on where a host fails
  --as NAME          call this machine so, one of several that share a folder, as in a cluster:
                     results/<gpu>@<name>.csv, and no table. compare_gpus.sbatch uses it

  --table FILE ...   print such files side by side, with ratios to the first; runs and builds
                     nothing. --programs, --sizes and --talk choose rows. With it also:
  --best             one row for a program, data type and size: its best kernel
  --baseline FILE    ratios to this file, or to the one of this number: 2
  --markdown, --csv  one table in this form, without the summary

  --check FILE       judge a file that somebody sent: a line for each thing that speaks against it
  --add FILE         check it and, if nothing was found, copy it to results/<gpu>.csv

Exit status: 0 all that could run is verified; 1 a wrong result, or a file in doubt; 2 usage; 3 an
error, a host that failed, or an experiment that left its expected range (--describe); 77 no GPU.
"""

import argparse
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import sys
import tarfile
import tempfile
import time
from concurrent import futures
from pathlib import Path
from typing import NamedTuple

import collect
import expectations
import hosts
import judge
import print_table
from shared import clocks, command_line, cuda_toolkit, measurements, programs
from shared.command_line import FAILED, INTERRUPTED, OK, PROJECT, SKIPPED, USAGE, WRONG, Stop
from shared.runner import Runner

WHO = "compare_gpus.sh"
PROTOCOL = 3  # of measuring: changes when figures are no longer comparable with earlier ones
SEED = 1
SUITE = PROJECT / "build/suite.txt"  # on one of several hosts: the version of what it got
FEW = 5  # steps, after which the time left can be told
DEVICE_FACTS = PROJECT / "scripts/shared/device_facts.py"


# --- The command line ---------------------------------------------------------------------------


def parse_arguments(arguments):
    parser = command_line.Parser(prog=WHO, add_help=False, allow_abbrev=False)
    add = parser.add_argument
    add("--programs", type=lambda text: [programs.find(word) for word in text.split(",")])
    add("--sizes", type=command_line.sizes(32))
    add("--talk", type=command_line.sizes(16))
    for flag in ("--standard", "--grid", "--fresh", "--no-build"):
        add(flag, action="store_true")
    add("--rounds", type=command_line.number(1, 99), default=1)
    add("--out")
    add("--hosts", type=places)
    add("--as", dest="place", type=place)
    if "--table" in arguments:
        parser.error("--table comes first, and only files and its options after it")
    options = parser.parse_args(arguments)
    sized = options.sizes or options.talk
    if options.standard and (options.programs or sized or options.grid):
        parser.error("--standard excludes --programs, --sizes, --talk and --grid")
    if options.grid and sized:
        parser.error("--grid excludes --sizes and --talk")
    for asked, member in ((options.grid, "grid"), (options.talk and not options.sizes, "talk")):
        if asked and not any(f".{member} = " in programs.source(name)
                             for name in options.programs or programs.listed()):
            parser.error(f"--{member}: none of these programs declares that")
    if options.out == "":
        parser.error("--out needs a folder")
    if options.hosts and options.place:
        parser.error("--hosts and --as exclude each other")
    options.passed_on = passed_on(options)
    chosen = options.programs or sized
    named = ["standard"] * options.standard + ["grid"] * options.grid
    options.list = [*named, "selection" if chosen else "whole"][0]
    options.out = (Path(options.out).resolve() if options.out  # named from where the caller is
                   else Path("build/results" if chosen or options.standard else "results", *named))
    return options


def place(text):
    """What a machine is called in the names of files: node1 of me@node1."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@%+-]*", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no name of a machine")
    return command_line.file_stem(text.rpartition("@")[2])


def places(text):
    """A parser of "node1,me@node2": {"node1": "node1", "node2": "me@node2"}."""
    found = {place(host): host for host in text.split(",")}
    if len(found) <= text.count(","):
        raise argparse.ArgumentTypeError(f"'{text}' has a machine twice")
    return found


def passed_on(options):
    """What every host is told of the command line."""
    words = ["--rounds", str(options.rounds)]
    for name in ("programs", "sizes", "talk"):
        if getattr(options, name):
            words += [f"--{name}", ",".join(map(str, getattr(options, name)))]
    for name in ("standard", "grid", "fresh", "no_build"):
        words += ["--" + name.replace("_", "-")] * getattr(options, name)
    return words


# --- The GPUs -----------------------------------------------------------------------------------


class Gpu(NamedTuple):
    """A GPU, or an instance of a divided one (MIG)."""

    uuid: str
    clocks_uuid: str  # of the GPU whose clocks it shares
    name: str


def list_gpus(text):
    """Those of `nvidia-smi -L` that CUDA_VISIBLE_DEVICES leaves, where a number is nvidia-smi's. A
    GPU that is divided into instances is not visited itself."""
    gpus, whole = [], None
    for line in text.splitlines():
        gpu = re.match(r"GPU \d+: (.*) \(UUID: ([^)]+)\)", line)
        instance = re.match(r" +MIG (\S+) .*\(UUID: ([^)]+)\)", line)
        if gpu:
            whole = Gpu(gpu[2], gpu[2], gpu[1])
            gpus.append(whole)
        elif instance and whole:
            if gpus[-1] == whole:
                gpus.pop()
            gpus.append(Gpu(instance[2], whole.uuid, f"{whole.name} MIG {instance[1]}"))
    words = tuple(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")))
    wholes = list(dict.fromkeys(gpu.clocks_uuid for gpu in gpus))
    return [gpu for gpu in gpus if not words or gpu.uuid.startswith(words)
            or str(wholes.index(gpu.clocks_uuid)) in words]


def numbers(gpus):
    """The name of each GPU's file, and its number among those alike: "NVIDIA H200" becomes
    nvidia-h200; a GPU that has no like has no number."""
    names = [command_line.file_stem(gpu.name) for gpu in gpus]
    for i, name in enumerate(names):
        yield name, str(names[:i].count(name)) if names.count(name) > 1 else ""


# --- What is measured ---------------------------------------------------------------------------


class Step(NamedTuple):
    """One run of one program."""

    program: str
    run: programs.Run

    def __str__(self):
        return f"{self.program} {self.run.arguments}"


def steps_of(options):
    """All steps. Raises Stop where there are none."""
    steps = []
    every = programs.lessons() if options.standard else programs.listed()
    for name in options.programs or every:
        about = programs.describe(PROJECT / name)
        sizes = (options.sizes, options.talk) if not options.standard else (
            [about["sizes"]["default"]], [1024])  # S as in the talk
        runs = (programs.runs_of_grid(about) if options.grid else
                programs.runs_to_measure(about, *sizes, first_dtype_alone=options.standard))
        if runs is None and options.programs:
            what = "grid" if options.grid else "sizes to measure"
            raise Stop(f"{name} declares no {what}", USAGE)
        steps += [Step(name, run) for run in runs or []]
    if not steps:
        raise Stop("no program takes these sizes", USAGE)
    return steps


def suite_version():
    """Of the files that are measured. A host has those of another checkout, which says it."""
    return (SUITE.read_text().strip() if SUITE.is_file() else
            command_line.suite_version())


def toolkit_version():
    """The CUDA toolkit that built the programs."""
    note = PROJECT / "build/toolkit.txt"
    if note.is_file():
        return note.read_text().strip()
    try:
        return f"{cuda_toolkit.find().version} (found here; the programs were built elsewhere)"
    except cuda_toolkit.ToolkitError:
        return "unknown"


class Measuring:
    """Runs the same steps on one GPU after the other."""

    def __init__(self, options, gpus, steps):
        self.options, self.gpus, self.steps = options, gpus, steps
        # What was measured so far of this selection; it goes when the last GPU is done.
        selection = "\n".join(map(str, steps)).encode()
        self.measured = base(options) / "compare" / hashlib.sha256(selection).hexdigest()[:16]
        self.runner = Runner(WHO)
        self.left = len(steps) * len(gpus)
        self.began = time.monotonic()
        self.driver = command_line.driver_version()
        self.suite = suite_version()
        self.toolkit = toolkit_version()

    def time_left(self):
        """For a step's label, from how long the steps took so far."""
        if self.runner.count < FEW:
            return ""
        seconds = int((time.monotonic() - self.began) * self.left / self.runner.count)
        return f", about {seconds // 60}:{seconds % 60:02} left"

    def about(self, gpu, place):
        """What makes figures comparable, as lines. An interrupted run goes on only where all of it
        is the same."""
        _, facts = command_line.output(sys.executable, DEVICE_FACTS, CUDA_VISIBLE_DEVICES=gpu.uuid)
        limit = command_line.first_line("nvidia-smi", "-i", gpu.clocks_uuid,
                                        "--query-gpu=power.limit", "--format=csv,noheader")
        return (f"GPU: {gpu.name}\n" + f"place: {place}\n" * bool(place) +
                f"{facts}driver: {self.driver}\npower limit: {limit}\n"
                f"toolkit: {self.toolkit}\nseed: {SEED}\nrounds: {self.options.rounds}\n"
                f"suite: {self.suite}\nprotocol: {PROTOCOL}\nlist: {self.options.list}\n")

    def measure(self, gpu, name, number):
        """Runs all steps on one GPU, and returns the file that it wrote, or None."""
        stem, place = name + f"-{number}" * bool(number), self.options.place
        if place:
            stem, place = f"{stem}@{place}", f"{number}@{place}" if number else place
        folder = self.measured / stem  # which collect.py reads
        about, earlier = self.about(gpu, place), folder / "about"
        if self.options.fresh or not earlier.is_file() or earlier.read_text() != about:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            earlier.write_text(about)
        (folder / "steps").write_text("".join(f"{step}\n" for step in self.steps))

        kept = 0
        with clocks.sampling(gpu.clocks_uuid, folder / "samples"):
            for i, step in enumerate(self.steps, 1):
                if is_done(folder, step):
                    kept += 1
                    self.runner.verified += 1
                else:
                    label = f"[{i}/{len(self.steps)}{self.time_left()}] {gpu.name}: {step}"
                    self.run_step(gpu, folder, step, label)
                self.left -= 1
        if kept:
            command_line.say(WHO, f"{gpu.name}: {kept} of {len(self.steps)} steps were measured "
                                  "before an interruption")

        file = self.options.out / f"{stem}.csv"
        if not any(folder.glob("*.csv")):
            command_line.say(WHO, f"{gpu.name}: nothing ran, so {file.name} is not written")
            return None
        everything = folder / "all"
        with everything.open("w", encoding="utf-8") as stream:
            collect.collect(folder, stream)
        shutil.move(str(everything), str(file))
        return file

    def run_step(self, gpu, folder, step, label):
        for suffix in (".csv", ".csv.err", ".about", ".done"):
            with contextlib.suppress(FileNotFoundError):
                (folder / f"{step}{suffix}").unlink()
        start = time.time()
        status, reason = self.runner.run(
            label, folder / f"{step}.csv", PROJECT / step.program,
            step.run.arguments.split() + f"--seed {SEED} --rounds {self.options.rounds}".split(),
            {"CUDA_VISIBLE_DEVICES": self.visible(gpu, step)})
        (folder / f"{step}.about").write_text(
            f"program: {step.program}\nshape: {step.run.shape}\nn: {step.run.n}\n"
            f"dtype: {step.run.dtype}\nstatus: {status}\nreason: {reason}\n"
            f"start: {start:.9f}\nend: {time.time():.9f}\n")
        if status == OK and self.is_as_expected(gpu, step, folder / f"{step}.csv"):
            (folder / f"{step}.done").touch()  # what failed runs again

    def visible(self, gpu, step):
        """The GPUs that a step sees: its own and, if it asks for several, those of the same kind
        that follow. So each set of GPUs is measured once."""
        seen = [gpu]
        if "--gpus" in step.run.arguments.split():
            seen = [each for each in self.gpus[self.gpus.index(gpu):] if each.name == gpu.name]
        return ",".join(each.uuid for each in seen)

    def is_as_expected(self, gpu, step, file):
        """Says where an experiment's rows left their range: that is a failure."""
        path = PROJECT / step.program
        problems = programs.describe(path)["problems"]
        if any(problem.get("expected") for problem in problems):
            problems = programs.describe(path, *step.run.arguments.split())["problems"]
        found = expectations.left(problems, measurements.read(file, mistakes=True).rows, gpu.name)
        for text in found:
            self.runner.failed()
            command_line.say(WHO, f"{step}: {text}")
        return not found


def is_done(folder, step):
    """Whether a step was measured, with the program as it is now."""
    done, program = folder / f"{step}.done", PROJECT / step.program
    return done.is_file() and done.stat().st_mtime_ns > program.stat().st_mtime_ns


# --- The command --------------------------------------------------------------------------------


def base(options):
    """The folder of what is known of this machine. One that shares this checkout has another."""
    return Path("build/as", options.place) if options.place else Path("build")


@contextlib.contextmanager
def alone(path):
    """Two at a time would disturb each other's figures."""
    path.mkdir(parents=True, exist_ok=True)
    folder = os.open(path, os.O_RDONLY)  # a program that runs on does not keep it
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Stop("another compare_gpus.sh is measuring here: wait until it is done")
        yield
    finally:
        os.close(folder)


def measure_all(options):
    """Measures all GPUs, prints a table, and returns the exit status."""
    gpus = list_gpus(command_line.output("nvidia-smi", "-L")[1])
    if not gpus:
        raise Stop("no GPU here: measuring needs an NVIDIA GPU and its driver", SKIPPED)
    problem = cuda_toolkit.unusable(builds=not options.no_build)
    if problem:
        raise Stop(problem, SKIPPED)
    with alone(base(options)):
        if not options.no_build:
            command_line.set_up(WHO, "ensure_scons\nensure_cuda\nbuild programs")
        measuring = Measuring(options, gpus, steps_of(options))
        options.out.mkdir(parents=True, exist_ok=True)
        files = [measuring.measure(gpu, *named) for gpu, named in zip(gpus, numbers(gpus))]
        shutil.rmtree(measuring.measured)
        with contextlib.suppress(OSError):  # it holds what another selection has measured
            measuring.measured.parent.rmdir()
        if not options.place:
            show([str(file) for file in files if file], options.standard)
        return measuring.runner.status


def show(files, standard):
    if files:
        print("\n" + print_table.compare(["--best"] * standard + files), flush=True)
        how = "; send that. compare_gpus.sh --table --best FILE ... lays files side by side"
        command_line.say(WHO, "wrote " + " ".join(files) + how * standard)


def pack(archive, with_programs):
    """The files that git tracks, as they are now, and perhaps the programs that lie here."""
    listed, names = command_line.output("git", "ls-files", "-z")
    if not listed:
        raise Stop("--hosts sends the files that git tracks, and it knows of none here")
    names = names.split("\0")[:-1] + [*programs.listed(), "build/toolkit.txt"] * with_programs
    with tarfile.open(archive, "w:gz") as tar, tempfile.NamedTemporaryFile("w") as suite:
        for name in filter(os.path.exists, names):
            tar.add(name, recursive=False)
        print(suite_version(), file=suite, flush=True)
        tar.add(suite.name, SUITE.relative_to(PROJECT))


def measure_hosts(options):
    """Measures all GPUs of all hosts at once, prints a table, and returns the exit status."""
    for command in ("ssh", "scp"):
        if not shutil.which(command):
            raise Stop(f"--hosts needs {command}")
    options.out.mkdir(parents=True, exist_ok=True)
    threads = futures.ThreadPoolExecutor(len(options.hosts))
    with tempfile.TemporaryDirectory() as folder, threads as pool:
        archive = Path(folder, "suite.tar.gz")
        pack(archive, options.no_build)
        jobs = [pool.submit(hosts.measure, host, name, archive, options.passed_on, options.out, WHO)
                for name, host in options.hosts.items()]
        try:
            futures.wait(jobs, return_when=futures.FIRST_EXCEPTION)
            done = [job.result() for job in jobs]
        except BaseException:
            hosts.stop()
            raise
    show([file for _, files in done for file in files], options.standard)
    found = {status for status, _ in done}  # a host was asked for by its name: to skip is to fail
    return found.pop() if len(found) == 1 else WRONG if WRONG in found else FAILED


@command_line.reporting(WHO)
def main(arguments):
    if {"-h", "--help"} & set(arguments):
        return print(__doc__.strip())
    if arguments[:1] in (["--check"], ["--add"]):
        return judge.main(arguments, PROTOCOL)
    if arguments[:1] == ["--table"]:
        if len(arguments) == 1:
            raise Stop("--table needs files (--help shows the usage)", USAGE)
        return print(print_table.compare(arguments[1:]))
    options = parse_arguments(arguments)
    os.chdir(PROJECT)
    signal.signal(signal.SIGPIPE, command_line.interrupt)  # so that no sampling goes on
    try:
        return (measure_hosts if options.hosts else measure_all)(options)
    except KeyboardInterrupt:
        with contextlib.suppress(OSError, KeyboardInterrupt):
            print(flush=True)
        return command_line.say(WHO, "interrupted: the same command goes on from here", INTERRUPTED)


if __name__ == "__main__":
    command_line.run(main)
