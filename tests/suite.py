"""What the tests share: where programs run, how to run one, and how to read what it prints."""

import csv
import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Tuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "site_scons"))
import cuda_toolkit  # noqa: E402

PROGRAMS = sorted(path.stem for path in (ROOT / "src").glob("*.cu"))
GATING = [name for name in PROGRAMS if "gating" in name or "fused" in name]
BENCHMARK = "bonus_benchmark_fused"  # runs many sizes, and prints tables
MATRIX = ["7_gelu", "8_softmax", "9_bias_relu", "10_add_mul_activation"]  # any shape, two dtypes
HOPPER = {"bonus_matmul_hopper"}  # nothing but a GPU of compute capability 9.0 can run these
HOPPER_KERNELS = {"fused_hopper"}  # nor these, of programs that have others

COLUMNS = (
    "program kernel gpu sm dtype shape n median_ms spread_pct tflops gb_per_s verified "
    "error_of_bound launches temp_bytes moved_bytes least_bytes"
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
    timed_size: int  # N of the runs that measure
    largest_mutant: int  # N; S is up to an eighth of it
    schedules: Tuple[str, ...] = ("",)  # orders in which the CPU lane can run threads

    def run(self, program, *arguments, timeout=120, env=None):
        done = run(self.folder / program, *arguments, timeout=timeout, env=env)
        if program in HOPPER and done.returncode == SKIPPED and env is not NO_GPU:
            pytest.skip(done.stderr.strip())
        return done

    def sizes_for(self, mutant):
        """The command lines with which a mutant is tried here."""
        if self.name == "cpu" and not mutant.on_cpu:
            return []
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


BACKENDS = [
    Backend("gpu", ROOT, ROOT / "build/mutants", sizes=(32, 64, 96, 160, 2080, 4096, 4128),
            talk_sizes=(16, 32, 48, 112, 128, 1024), timed_size=1024, largest_mutant=8192),
    Backend("cpu", ROOT / "cpu", ROOT / "cpu/mutants", sizes=(32, 96, 160), talk_sizes=(16,),
            timed_size=96, largest_mutant=160, schedules=("forward", "reverse", "random:7")),
]
GPU = BACKENDS[0]


@functools.lru_cache(maxsize=None)
def _why_not(backend):
    program = backend.folder / PROGRAMS[0]
    if not program.exists():
        return f"{program.relative_to(ROOT)} is not built"
    done = run(program, 32, "--once")
    return done.stderr.strip() if done.returncode == SKIPPED else ""


def run(program, *arguments, timeout=120, env=None, cwd=None):
    """Runs a program that was built beforehand, and skips the test where it was not."""
    if not Path(program).exists():
        pytest.skip(f"{Path(program).relative_to(ROOT)} is not built")
    command = [str(program)] + [str(argument) for argument in arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=cwd,
                          stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})


def scons(*arguments, env=None):
    """Runs SCons, from where the scripts find it; skips the test where there is none."""
    pythons = [sys.executable, "python3", str(ROOT / ".venv/bin/python")]
    for command in [["scons"], *([python, "-m", "SCons"] for python in pythons)]:
        if shutil.which(command[0]) and subprocess.run(command + ["--version"],
                                                       capture_output=True).returncode == 0:
            return subprocess.run(command + ["-Q", *arguments], cwd=ROOT, capture_output=True,
                                  text=True, stdin=subprocess.DEVNULL,
                                  env={**os.environ, **(env or {})})
    pytest.skip("SCons is not installed")


@functools.lru_cache(maxsize=None)
def toolkit():
    """The CUDA toolkit; skips the test where there is none."""
    try:
        return cuda_toolkit.find()
    except cuda_toolkit.ToolkitError as problem:
        pytest.skip(str(problem))


# CUDA finds no GPU then. What a program says of its command line must not depend on one.
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def assert_one_line(text, who):
    """`text` is what a failing program may say: one line that begins with its name."""
    assert re.fullmatch(re.escape(who) + r": [^\n]+\n", text), f"not one line of {who}: {text!r}"


def kernels_of(backend, program):
    """The kernels that a program's --kernel takes, by its help; none where it has no --kernel."""
    text = backend.run(program, "--help").stdout
    names = re.search(r"--kernel NAME .*: (.*)", text)
    return names[1].split() if names else []


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
        for name in TIMES + ("moved_bytes", "least_bytes"):
            assert re.fullmatch(r"(\d+(\.\d+)?)?", row[name]), f"{name} is {row[name]!r}"
    return rows


def verified_rows(done, program):
    """The rows of a run that must have gone well: every one verified, and credibly so."""
    assert done.returncode == VERIFIED, f"exit code {done.returncode}: {done.stderr}"
    assert done.stderr == ""
    rows = read_rows(done.stdout)
    for row in rows:
        assert row["program"] == program
        assert row["verified"] == "yes", row
        # A copy is exact, and so may be what the matrix programs compute of few numbers.
        exact = row["kernel"] == "copy" or program in MATRIX
        assert 0 <= float(row["error_of_bound"]) < 1, row
        assert float(row["error_of_bound"]) > 0 or exact, row
        assert int(row["launches"]) >= 1, row
    return rows


# Operations per element, as the programs count them.
OPERATIONS = {"7_gelu": 9, "8_softmax": 5, "9_bias_relu": 2, "10_add_mul_activation": 4}


def flops(row):
    """Operations of what a row measured, by the formula that its program computes."""
    n = int(row["n"])
    if row["program"] in OPERATIONS:
        cols = n if row["shape"] == "square" else int(row["shape"].split("x")[1])
        return OPERATIONS[row["program"]] * n * cols
    if row["shape"] == "talk":  # x[4 n^2, 128], W[128, 64]
        return 4 * (4 * n * n) * 128 * 64
    return (4 if row["program"] in GATING else 2) * n**3
