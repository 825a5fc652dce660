"""What the tests share: where programs run, how to run one, and how to read what it prints."""

import contextlib
import csv
import fcntl
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Tuple

import pytest

import pages
from shared import cuda_toolkit

ROOT = Path(__file__).resolve().parent.parent

PROGRAMS = sorted(path.stem for path in (ROOT / "src").glob("*.cu"))
# scripts/test.sh without --full: the programs whose mutants are tested, and then all is quick.
QUICK = os.environ.get("TEST_QUICK", "").split()
EVERYTHING = "TEST_ALL" in os.environ  # scripts/test.sh --all: what takes too long for every day

COLUMNS = (
    "program kernel gpu sm dtype shape n median_ms spread_pct tflops gb_per_s verified "
    "error_of_bound launches temp_bytes moved_bytes least_bytes role output_hash "
    "predicted_ms as_predicted figure unit"
).split()
TIMES = ("median_ms", "spread_pct", "tflops", "gb_per_s")  # empty with --once

VERIFIED, WRONG, USAGE, FAILED, SKIPPED = 0, 1, 2, 3, 77  # exit codes


class Backend(NamedTuple):
    """A place where the programs run: a folder of them, and what is tested there."""

    name: str
    folder: Path
    mutants: Path
    sizes: Tuple[int, ...]  # N: the smallest, and multiples of 32 that are none of the tiles'
    talk_sizes: Tuple[int, ...]  # S
    usual_size: int  # N of the runs that measure, and of most others
    largest_mutant: int  # N; S is up to an eighth of it
    schedules: Tuple[str, ...] = ("",)  # orders of the simulator's threads; the first is the usual
    block_schedules: Tuple[str, ...] = ()  # of its blocks, which otherwise run at the same time

    def run(self, program, *arguments, timeout=120, env=None):
        path = self.folder / program
        if path.exists() and lacks_its_kernels(path):
            pytest.skip(next(iter(needs(program).values())))
        done = run(path, *arguments, timeout=timeout, env=env)
        if done.returncode == SKIPPED and env is not NO_GPU and self.may_skip(program):
            pytest.skip(done.stderr.strip())
        return done

    def may_skip(self, program):
        """Whether all kernels of the program's own need what not every GPU has. (Yardsticks are not
        its own; the simulator has everything.)"""
        return self.name == "gpu" and all(
            contender["needs"] for contender in describe(program)["contenders"]
            if contender["role"] not in ("yardstick", "limit"))

    def size_of(self, program):
        """N of most runs. On the simulator that is less where the page says that it takes long."""
        if self.name == "gpu":
            return self.usual_size
        return min(self.usual_size, pages.of_page(program, "LARGEST", self.usual_size))

    def sizes_for(self, mutant):
        """The command lines with which a mutant is tried here."""
        sizes = [n for n in mutant.sizes if n <= self.largest_mutant]
        if self.name == "cpu" and mutant.cpu_sizes:
            sizes = mutant.cpu_sizes
        square = [(str(n),) for n in sizes]
        talk = [("--talk", str(s)) for s in mutant.talk_sizes if 8 * s <= self.largest_mutant]
        runs = mutant.cpu_runs if self.name == "cpu" else mutant.runs
        return square + talk + [tuple(run.split()) for run in runs]

    def why_not(self):
        """Why the programs can verify nothing here; empty where they can."""
        return _why_not(self)


GPU = Backend("gpu", ROOT, ROOT / "build/mutants", sizes=(32, 64, 96, 160, 2080, 4096, 4128),
              talk_sizes=(16, 32, 48, 112, 128, 1024), usual_size=1024, largest_mutant=8192)
CPU = Backend("cpu", ROOT / "cpu", ROOT / "cpu/mutants",
              sizes=(32, 160) if QUICK else (32, 64, 96, 160, 256), talk_sizes=(16,),
              usual_size=96, largest_mutant=160,
              schedules=("forward", "reverse", "random:7"), block_schedules=("alone",))
BACKENDS = [CPU] if QUICK and not cuda_toolkit.gpus_here() else [GPU, CPU]


@functools.lru_cache(maxsize=None)
def _why_not(backend):
    built = [backend.folder / name for name in PROGRAMS if (backend.folder / name).exists()]
    if not built:
        return f"no program is built in {backend.folder}"
    done = run(built[0], 32, "--once")
    return done.stderr.strip() if done.returncode == SKIPPED else ""


def run(program, *arguments, timeout=120, env=None, cwd=None, called=None, stdout=subprocess.PIPE,
        before=None):
    """Runs a program that was built beforehand, and skips the test where it was not. `called`: what
    it is told to be its file. `before` is called in the new process, before it is the program."""
    if not Path(program).exists():
        pytest.skip(f"{Path(program).relative_to(ROOT)} is not built")
    command = [str(called or program)] + [str(argument) for argument in arguments]
    return subprocess.run(command, executable=program, stdout=stdout, stderr=subprocess.PIPE,
                          text=True, timeout=timeout, cwd=cwd, stdin=subprocess.DEVNULL,
                          preexec_fn=before, env={**os.environ, **(env or {})})


@contextlib.contextmanager
def build_lock(tree=ROOT):
    """While it is held no other test builds in this tree."""
    (tree / "build").mkdir(exist_ok=True)
    with open(tree / "build/lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def scons(*arguments, env=None, cwd=ROOT):
    """Runs SCons, from where the scripts find it; skips the test where there is none."""
    pythons = [sys.executable, "python3", str(ROOT / ".venv/bin/python")]
    for program, *module in [["scons"], *([python, "-m", "SCons"] for python in pythons)]:
        found = shutil.which(program)  # in full, since `env` may have another PATH
        command = [found, *module]
        if found and subprocess.run(command + ["--version"], capture_output=True).returncode == 0:
            with build_lock(cwd):
                return subprocess.run(command + ["-Q", *arguments], cwd=cwd, capture_output=True,
                                      text=True, stdin=subprocess.DEVNULL,
                                      env={**os.environ, **(env or {})})
    pytest.skip("SCons is not installed")


def own_files():
    """The project's own files, none that is built; skips the test where git does not list them."""
    git = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                         cwd=ROOT, capture_output=True, text=True)
    files = [file for file in git.stdout.split("\0") if (ROOT / file).is_file()]
    return files or pytest.skip("git does not say which files the tree has: " + git.stderr.strip())


@functools.lru_cache(maxsize=None)
def toolkit():
    """The CUDA toolkit; skips the test where there is none."""
    try:
        return cuda_toolkit.find()
    except cuda_toolkit.ToolkitError as problem:
        pytest.skip(str(problem))


# CUDA finds no GPU then. What a program says of its command line must not depend on one.
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def runs_of(name):
    """(program, arguments) of all runs that the programs' pages hold under this name."""
    return [(program, tuple(arguments.split())) for program in PROGRAMS
            for arguments in pages.of_page(program, name)]


def words(value):
    """How a parameter is called in a test's name: a program, or arguments."""
    return value if isinstance(value, str) else " ".join(value) or "none"


def assert_one_line(text, who):
    """`text` is what a failing program may say: one line that begins with its name."""
    assert re.fullmatch(re.escape(who) + r": [^\n]+\n", text), f"not one line of {who}: {text!r}"


# --- What programs are, by their --describe -----------------------------------------------------


@functools.lru_cache(maxsize=None)
def declared_by(path, *arguments):
    """What the program that was built there declares of itself."""
    done = run(path, *arguments, "--describe", env=NO_GPU)
    assert done.returncode == 0 and done.stderr == "", (
        f"{path.relative_to(ROOT)} does not describe itself: {done.stderr}")
    return json.loads(done.stdout)


def lacks_its_kernels(path):
    """Whether a program was built without the compiler that all its own kernels need: that of CUDA
    Tile C++. Then it describes no more than that."""
    own = [c["needs"] for c in declared_by(path)["contenders"] if c["role"] == "ours"]
    return own != [] and all("nvcc" in (needs or "") for needs in own)


def declared(program, *arguments):
    """What a program declares of itself, and of its problem with these arguments; None where it is
    not built. The build that was made last says it."""
    built = [path for path in (backend.folder / program for backend in BACKENDS) if path.exists()]
    if not built:
        return None
    newest = max(built, key=lambda path: (not lacks_its_kernels(path), path.stat().st_mtime))
    return declared_by(newest, *arguments)


def describe(program, *arguments):
    """The same, for a test, which is skipped where the program is not built."""
    return declared(program, *arguments) or pytest.skip(f"{program} is not built")


def programs(*conditions):
    """The programs of which all conditions hold, for pytest.mark.parametrize. What is not built is
    among them, so that its tests are skipped for that reason."""
    return [name for name in PROGRAMS
            if declared(name) is None or all(holds(name) for holds in conditions)]


def takes(program, option):
    return any(known["name"] == option for known in describe(program)["options"])


def takes_n(program):
    return describe(program)["sizes"] is not None


def takes_talk(program):
    return describe(program)["talk"] is not None


def any_shape(program):
    """Whether it takes every N from 1, and --rows and --cols."""
    return describe(program)["shapes"] is not None


def any_n(program):
    """Whether it takes every N from 1."""
    return takes_n(program) and describe(program)["sizes"]["multiple"] == 1


def one_size(program):
    """Whether a run has one size; else it goes over all of them up to N."""
    return describe(program)["sweep"] != "always"


def one_comparison(program):
    """Whether a run computes one thing in each type; else it holds several comparisons."""
    dtypes = [problem["dtype"] for problem in describe(program)["problems"]]
    return len(set(dtypes)) == len(dtypes)


def kernels(program):
    return [contender["kernel"] for contender in describe(program)["contenders"]]


def needs(program):
    """The kernels that not every GPU can run, with what they need. The simulator runs them all."""
    path = GPU.folder / program
    about = declared_by(path) if path.exists() else describe(program)
    return {contender["kernel"]: contender["needs"]
            for contender in about["contenders"] if contender["needs"]}


def problem_of(live, row):
    """What --describe says of the problem that a row of this backend's run measured."""
    n = row["n"]
    size = [n] if row["shape"] == "square" else ["--talk", n] if row["shape"] == "talk" else [
        "--rows", row["shape"].split("x")[0], "--cols", row["shape"].split("x")[1]]
    dtype = ["--dtype", row["dtype"]] if takes(row["program"], "--dtype") else []
    about = declared_by(live.folder / row["program"], *size, *dtype)
    found = [problem for problem in about["problems"]
             if problem["dtype"] == row["dtype"] and row["kernel"] in problem["contenders"]]
    assert found, f"no problem has {row['kernel']}"
    # A copy stands in several comparisons.
    return next((p for p in found if str(p["least_bytes"]) == row["least_bytes"]), found[0])


# --- What programs print ------------------------------------------------------------------------


def read_rows(text):
    """The rows of a program's --csv output, after checking that it is nothing but that."""
    lines = text.splitlines()
    assert lines and lines[0] == ",".join(COLUMNS), f"not the CSV header: {text[:200]!r}"
    rows = list(csv.DictReader(lines, strict=True))
    assert rows, "a header and no rows"
    for row in rows:
        assert None not in row and None not in row.values(), f"too many or too few fields: {row}"
        for name in ("error_of_bound", "launches", "temp_bytes"):
            assert re.fullmatch(r"\d+(\.\d+)?", row[name]), f"{name} is {row[name]!r}"
        for name in TIMES + ("moved_bytes", "least_bytes", "predicted_ms"):
            assert re.fullmatch(r"(\d+(\.\d+)?)?", row[name]), f"{name} is {row[name]!r}"
        assert re.fullmatch("[0-9a-f]{16}", row["output_hash"]), row
        assert row["as_predicted"] in ("yes", "no", ""), row
        assert bool(row["figure"]) <= bool(row["unit"]), row
    return rows


def verified_rows(done, program):
    """The rows of a run that must have gone well: every one verified, and credibly so."""
    assert done.returncode == VERIFIED, f"exit code {done.returncode}: {done.stderr}"
    assert done.stderr == ""
    rows = read_rows(done.stdout)
    for row in rows:
        assert row["program"] == program
        assert row["verified"] == "yes", row
        # A copy is exact, as all is that is only moved; so are integers, and so may be what is
        # computed of a few elements, or in fp64, as the reference is.
        moved = describe(program)["problems"][0]["flops"] == 0
        exact = (row["role"] in ("yardstick", "mistake")
                 or row["dtype"] in ("int8", "fp64") or moved or any_shape(program))
        assert 0 <= float(row["error_of_bound"]) < 1, row
        assert float(row["error_of_bound"]) > 0 or exact, row
        assert int(row["launches"]) >= 1, row
    return rows
