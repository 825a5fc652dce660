#!/usr/bin/env python3
"""Compares our programs with PyTorch and Triton doing the same work, on one GPU, in alternation.

Each comparison begins with one run of our program with all its kernels, which picks our best one,
and with a check of everything of theirs against an fp64 reference: what is wrong is not timed. Then
rounds follow: our program, each of theirs, and where memory is the limit a copy. All are timed as
our programs time themselves: 200 ms of warm-up, then the cache is overwritten before every single
launch, at least 30 of them and 0.5 s; the median is the round's figure. The table shows the median
over the rounds, and how many times as fast ours is as the best of theirs, with the rounds' range.

  eager        the formula as it is written, one PyTorch operation after the other
  library      PyTorch's best calls: F.gelu, softmax, addmm and what works in place, torch.matmul
  compile      torch.compile of eager, for these very shapes
  compile lib  the same of library, where that is one call
  packed       torch.compile of gating with both weight matrices in one
  triton       a kernel written in Triton, autotuned
  copy         of as many bytes as the operation must move, for comparison

Exit status: 0 all was compared; 1 a wrong result; 2 usage; 3 something is missing or failed;
77 PyTorch, Triton or the GPU is missing.
"""

import argparse
import contextlib
import csv
import datetime
import fnmatch
import functools
import importlib.util
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple, Tuple

import command_line
import table
from command_line import FAILED, OK, PROJECT, SKIPPED, USAGE, WRONG

STEP_LIMIT_S = 180  # of a program's run, and of compiling or timing one of theirs
PROTOCOL = 1  # of measuring: changes when figures are no longer comparable with earlier ones

peers = None  # the module framework_peers: load_peers() imports it


class Failure(Exception):
    """Why there is no figure: one line, and the exit status that it calls for."""

    def __init__(self, reason, status=FAILED):
        super().__init__(" ".join(str(reason).split())[:200] or "it gave no reason")
        self.status = status


# --- What is compared ---


class Operation(NamedTuple):
    name: str
    program: str  # ours
    kind: str  # of its size: "rows" (a matrix R x C), "square" (N) or "talk" (S)
    dtypes: Tuple[str, ...]
    sizes: tuple  # the default ones: (R, C), N or S
    not_ours: Tuple[str, ...]  # its kernels that are the library's, a copy, or the unfused chain
    options: Tuple[str, ...] = ()  # of the program; {dtype} stands for the dtype


DTYPE, COPY = ("--dtype", "{dtype}"), ("chain*", "copy*", "*memcpy*")
LARGE, MATMUL_SIZES = ((16384, 16384),), (4096, 8192)
SOFTMAX = LARGE + ((4096, 131072), (262144, 1000), (8192, 50257))
GATING = ("six_kernels", "library_best", "cublas*")

DTYPES = ("fp32", "tf32", "fp16", "bf16")
OPERATIONS = [
    Operation("gelu", "7_gelu", "rows", ("fp32", "fp16"), LARGE, COPY, DTYPE),
    Operation("softmax", "8_softmax", "rows", ("fp32", "fp16"), SOFTMAX, COPY, DTYPE),
    Operation("bias_relu", "9_bias_relu", "rows", ("fp32", "fp16"), LARGE, COPY, DTYPE),
    Operation("add_mul_relu", "10_add_mul_activation", "rows", ("fp32", "fp16"), LARGE, COPY,
              DTYPE + ("--activation", "relu")),
    Operation("gating", "6_gating_fused", "square", ("fp16",), (1024, 2048, 4096, 8192, 16384),
              GATING),
    Operation("gating_talk", "6_gating_fused", "talk", ("fp16",), (128, 256, 512, 1024, 2048),
              GATING + COPY),
    Operation("matmul_hopper", "bonus_matmul_hopper", "square", ("fp16", "bf16"),
              (2048, 4096, 8192, 16384), ("cublas*",), DTYPE),
    Operation("matmul_tensorcore", "3_matmul_tensorcore", "square", ("fp16",), MATMUL_SIZES,
              ("cublas*",)),
    Operation("matmul_register_tiled", "bonus_matmul_register_tiled", "square", ("fp32",),
              MATMUL_SIZES, ("cublas*",)),
    # The control: the library on both sides, so that a ratio far from 1 is this script's error.
    Operation("matmul_cublas", "4_matmul_cublas", "square", ("fp32", "tf32", "fp16"), MATMUL_SIZES,
              ()),
]


class Case(NamedTuple):
    """One row of the table."""

    operation: Operation
    size: object  # (R, C), N or S
    dtype: str

    @property
    def memory_bound(self):
        return self.operation.kind != "square"

    @property
    def dimensions(self):
        """(M, K, H) of a product: x[M, K] W[K, H]."""
        talk = self.operation.kind == "talk"
        return (4 * self.size**2, 128, 64) if talk else (self.size,) * 3

    @property
    def n(self):
        return self.size[0] if self.operation.kind == "rows" else self.size

    @property
    def shape(self):
        """As in our programs' CSV."""
        return "%dx%d" % self.size if self.operation.kind == "rows" else self.operation.kind

    @property
    def gating(self):
        return self.operation.name.startswith("gating")

    def flops(self):
        """Counted from the formula, for products alone."""
        if self.operation.kind == "rows":
            return None
        M, K, H = self.dimensions
        return (4 if self.gating else 2) * M * K * H

    def least_bytes(self):
        """Inputs read once and the output written once, where that is what takes the time."""
        if not self.memory_bound:
            return None
        if self.operation.kind == "talk":
            M, K, H = self.dimensions
            return 2 * (M * K + 2 * K * H + 2 * H + M * H)
        rows, columns = self.size
        matrices = 3 if self.operation.name == "add_mul_relu" else 2
        bias = columns if self.operation.name in ("add_mul_relu", "bias_relu") else 0
        return (4 if self.dtype == "fp32" else 2) * (matrices * rows * columns + bias)

    def arguments(self):
        """Our program's command line."""
        if self.operation.kind == "rows":
            size = ["--rows", self.size[0], "--cols", self.size[1]]
        else:
            size = ["--talk", self.size] if self.operation.kind == "talk" else [self.size]
        options = [option.format(dtype=self.dtype) for option in self.operation.options]
        return [str(argument) for argument in size] + options

    def __str__(self):
        name = {"rows": self.shape, "square": f"N={self.n}", "talk": f"S={self.n}"}
        return f"{self.operation.name} {name[self.operation.kind]} {self.dtype}"


# --- Ours ---


def run_program(case, folder, kernel=None):
    """The rows of the CSV that our program prints. Raises Failure unless all are verified."""
    program = folder / case.operation.program
    if not program.is_file():
        raise Failure(f"{program.name} is not built")
    command = [str(program)] + case.arguments() + ["--csv"]
    if kernel:
        command += ["--kernel", kernel]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=STEP_LIMIT_S,
                              stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise Failure(f"{program.name} took more than {STEP_LIMIT_S} s")
    except OSError as error:
        raise Failure(f"{program.name}: {error.strerror}")
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"{program.name} gave no reason"]
        raise Failure(f"exit status {done.returncode}: {said[-1]}", done.returncode)
    rows = list(csv.DictReader(done.stdout.splitlines()))
    if any(name not in row for row in rows for name in table.REQUIRED):
        raise Failure(f"{program.name} prints something else than its CSV")
    return rows


def best_of_ours(case, rows):
    """(kernel, milliseconds) of the fastest verified kernel that is our own. Raises Failure."""

    def is_ours(row):
        foreign = any(fnmatch.fnmatch(row["kernel"], name) for name in case.operation.not_ours)
        return row["dtype"] == case.dtype and not foreign

    own = [row for row in rows if is_ours(row) and row["verified"] == "yes" and row["median_ms"]]
    if not own:
        raise Failure(f"{case.operation.program} shows no {case.dtype} kernel of our own")
    best = min(own, key=lambda row: float(row["median_ms"]))
    return best["kernel"], float(best["median_ms"])


# --- Theirs ---


def load_peers():
    """Imports PyTorch and Triton, and finds a GPU. Raises Failure where one is missing."""
    global peers
    for module, name in (("torch", "PyTorch"), ("triton", "Triton")):
        if importlib.util.find_spec(module) is None:
            raise Failure(f"{name} is not installed here: nothing to compare with", SKIPPED)
    try:
        peers = importlib.import_module("framework_peers")
    except (ImportError, OSError) as error:
        raise Failure(f"PyTorch or Triton cannot be loaded here: {error}", SKIPPED)
    if not peers.torch.cuda.is_available():
        raise Failure("PyTorch finds no NVIDIA GPU here", SKIPPED)


class TimeIsUp(BaseException):  # no Exception, which a compiler may catch
    pass


@contextlib.contextmanager
def step(seconds=STEP_LIMIT_S):
    """Turns whatever goes wrong inside, also taking too long, into Failure."""

    def give_up(*_):
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except Failure:
        raise
    except TimeIsUp:
        raise Failure(f"not done after {seconds} s")
    except peers.Wrong as error:
        raise Failure(error, WRONG)
    except Exception as error:
        raise Failure(f"{type(error).__name__}: {error}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- One case ---


class Entry:
    """What came of one contender."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.ms = []  # of each round; empty once it failed
        self.reason, self.status = "", OK

    def attempt(self, work, *arguments):
        """Returns what `work` returns, or None if it failed, now or earlier."""
        if self.status != OK:
            return None
        try:
            with step():
                return work(*arguments)
        except Failure as failure:
            # The exception itself would keep alive what its frames hold: gigabytes of the GPU's.
            self.reason, self.status, self.ms = str(failure), failure.status, []
            return None

    def time(self, work, *arguments):
        """Adds a round's time, which `work` returns."""
        ms = self.attempt(work, *arguments)
        if ms is not None:
            self.ms.append(ms)

    @property
    def median_ms(self):
        return statistics.median(self.ms) if self.ms else None


def compare(case, folder, rounds, max_autotune=False):
    """The entries of all contenders, by the name of their column; "ours" is the first."""
    ours = Entry("")
    best = ours.attempt(lambda: best_of_ours(case, run_program(case, folder)))
    ours.kernel = best[0] if best else ""

    theirs = peers.peers_of(case, max_autotune)
    entries = {"ours": ours, **{name: Entry(name) for name in theirs}}
    for name, peer in theirs.items():
        entries[name].attempt(peers.verify, case, peer)
        peers.free()
    if case.memory_bound:
        entries["copy"] = Entry("copy")

    for _ in range(rounds):
        ours.time(lambda: best_of_ours(case, run_program(case, folder, ours.kernel))[1])
        for name, peer in theirs.items():
            entries[name].time(peers.measure_peer, case, peer)
            peers.free()
        if case.memory_bound:
            entries["copy"].time(peers.measure_copy, case)
            peers.free()
    return entries


def rival(entries):
    """The name of the best of theirs, or None."""
    timed = [name for name, entry in entries.items() if name not in ("ours", "copy") and entry.ms]
    return min(timed, key=lambda name: entries[name].median_ms) if timed else None


def ratios(entries):
    """In each round, how many times as fast ours was as the best of theirs; empty if unknown."""
    best = rival(entries)
    return [b / a for a, b in zip(entries["ours"].ms, entries[best].ms)] if best else []


# --- Results ---

COLUMNS = list(table.REQUIRED) + (
    "operation contender low_ms high_ms rounds pct_of_copy against ratio ratio_low ratio_high "
    "reason").split()
CONTENDERS = "ours,eager,library,compile,compile lib,packed,autotuned,triton,copy".split(",")
TEXT_COLUMNS = 5  # of the table: the first


def csv_rows(case, entries, gpu="", sm=""):
    """A row for each contender; "" for what there is not."""
    copy = entries["copy"].median_ms if "copy" in entries else None
    for name, entry in entries.items():
        row = dict.fromkeys(COLUMNS, "")
        row.update(operation=case.operation.name, program=case.operation.program, contender=name,
                   kernel=entry.kernel, gpu=gpu, sm=sm, dtype=case.dtype, shape=case.shape,
                   n=case.n, verified="yes" if entry.ms else "no")
        if not entry.ms:
            state = "wrong" if entry.status == WRONG else "missing" if name == "ours" else "failed"
            row["reason"] = f"{state}: {entry.reason}"
        else:
            ms, low, high = entry.median_ms, min(entry.ms), max(entry.ms)
            row.update(median_ms=f"{ms:.6f}", low_ms=f"{low:.6f}", high_ms=f"{high:.6f}",
                       rounds=len(entry.ms), spread_pct=f"{100 * (high - low) / ms:.2f}")
            if case.flops():
                row["tflops"] = f"{case.flops() / ms / 1e9:.6g}"
            if case.least_bytes():
                row["gb_per_s"] = f"{case.least_bytes() / ms / 1e6:.6g}"
            if copy:
                row["pct_of_copy"] = f"{100 * copy / ms:.1f}"
        if name == "ours" and ratios(entries):
            each = ratios(entries)
            figures = statistics.median(each), min(each), max(each)
            row.update(zip(("ratio", "ratio_low", "ratio_high"), (f"{x:.4f}" for x in figures)),
                       against=rival(entries))
        yield row


def cells_of(rows):
    """(head, lines) of the table, from rows of the CSV: text, or as table.read() gives them."""
    lines = {}
    for row in rows:
        key = tuple(str(row[name]) for name in ("operation", "shape", "n", "dtype"))
        lines.setdefault(key, {})[row["contender"]] = row
    names = [name for name in CONTENDERS if any(name in line for line in lines.values())]
    head = ["operation", "shape", "dtype", "our kernel", "unit"] + names
    head += ["ours / theirs", "rounds", "best of theirs"]
    body = []
    for (operation, shape, n, dtype), line in lines.items():
        ours = line["ours"]
        memory_bound = "copy" in line
        size = {"square": f"N={n}", "talk": f"S={n}"}.get(shape, shape)
        cells = [operation, size, dtype, ours["kernel"] or "-"]
        cells.append("GB/s" if memory_bound else "TFLOP/s")
        cells += [_figure(line.get(name), memory_bound) for name in names]
        if ours["ratio"]:
            low, high = float(ours["ratio_low"]), float(ours["ratio_high"])
            cells += [f"{float(ours['ratio']):.2f}x", f"{low:.2f}-{high:.2f}", ours["against"]]
        else:
            cells += ["-"] * 3
        body.append(cells)
    return head, body


def _figure(row, memory_bound):
    if not row:
        return "-"
    if row["verified"] != "yes":
        return row["reason"].partition(":")[0]
    text = table.number(float(row["gb_per_s" if memory_bound else "tflops"]))
    return text + (f" {float(row['pct_of_copy']):.0f}%" if row["pct_of_copy"] else "")


def show(rows):
    head, body = cells_of(rows)
    return table.layout(head, body, left=TEXT_COLUMNS)


def read_results(path):
    """table.Results of a file that --csv wrote. Raises table.TableError."""
    results = table.read(path)
    try:
        cells_of(results.rows)
    except (KeyError, ValueError, TypeError):
        raise table.TableError(f"{path}: not written by compare_frameworks.py --csv")
    return results


def markdown(path):
    """Such a file as a section of the README. Raises table.TableError."""
    results = read_results(path)
    versions = ", ".join(f"{name} {results.about.get(name.lower(), 'unknown')}"
                         for name in ("Driver", "Toolkit", "PyTorch", "Triton"))
    lines = [f"### {results.gpu}, PyTorch and Triton", "",
             f"{versions}, measured on {results.about.get('date', 'an unknown day')} with version "
             f"{results.about.get('suite', 'unknown')} of the suite."]
    for title, squares in (("What memory limits, GB/s of the least traffic, % of a copy", False),
                           ("Square products, TFLOP/s", True)):
        rows = [row for row in results.rows if (row["shape"] == "square") == squares]
        if rows:
            lines += ["", f"{title}:", "", table.markdown(*cells_of(rows), left=TEXT_COLUMNS)]
    return "\n".join(lines)


def environment(gpu):
    """The lines that a file of results begins with."""

    def output(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True, cwd=PROJECT,
                                  timeout=30).stdout.splitlines()[0]
        except (OSError, IndexError, subprocess.TimeoutExpired):
            return "unknown"

    toolkit = PROJECT / "build/toolkit.txt"
    return {
        "GPU": gpu,
        "driver": output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "toolkit": toolkit.read_text().strip() if toolkit.is_file() else "unknown",
        "pytorch": peers.torch.__version__,
        "triton": peers.triton.__version__,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "suite": output("git", "describe", "--always", "--dirty"),
        "protocol": PROTOCOL,
    }


def rows_to_keep(path, comments, cases):
    """What `path` holds of other cases, if they were measured with the same GPU and software."""
    try:
        results = read_results(path)
    except table.TableError:
        return []  # nothing there yet, or nothing of ours
    names = ("GPU", "driver", "toolkit", "pytorch", "triton", "protocol")
    if any(results.about.get(name) != str(comments[name]) for name in names):
        return []
    again = {(case.operation.name, case.shape, case.n, case.dtype) for case in cases}
    return [row for row in results.rows
            if (row["operation"], row["shape"], row["n"], row["dtype"]) not in again]


def write_csv(path, comments, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"# {name}: {value}\n" for name, value in comments.items())
        # What was read back may have columns of the programs' own beside ours.
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


# --- Command line ---


say = functools.partial(command_line.say, "compare_frameworks.py")


def shapes(text):
    if not all(re.fullmatch("[1-9][0-9]{0,8}x[1-9][0-9]{0,8}", part) for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of shapes such as 4096x1000")
    return [tuple(int(number) for number in part.split("x")) for part in text.split(",")]


def chosen(names):
    def parse(text):
        for part in text.split(","):
            if part not in names:
                raise argparse.ArgumentTypeError(f"'{part}' is none of {', '.join(names)}")
        return text.split(",")

    return parse


def count(text):
    if not re.fullmatch("[1-9][0-9]?", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 to 99")
    return int(text)


def parse_arguments(arguments):
    parser = command_line.Parser(prog="compare_frameworks.py", description=__doc__,
                                 allow_abbrev=False,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    names = [operation.name for operation in OPERATIONS]
    add("--operations", metavar="NAME,...", type=chosen(names), default=names,
        help="what to compare; all without it: " + ", ".join(names))
    add("--shapes", metavar="RxC,...", type=shapes, help="for gelu to add_mul_relu")
    add("--sizes", metavar="N,...", type=command_line.sizes(32),
        help="for square gating and the matmuls")
    add("--talk", metavar="S,...", type=command_line.sizes(16), help="for gating_talk")
    add("--dtype", metavar="NAME,...", type=chosen(list(DTYPES)), default=list(DTYPES),
        help="leaves out the others: " + ", ".join(DTYPES))
    add("--rounds", metavar="COUNT", type=count, default=3, help="3 without it")
    add("--max-autotune", action="store_true",
        help="a column more, autotuned: torch.compile in its max-autotune mode (slow to compile)")
    add("--programs", metavar="FOLDER", type=Path, default=PROJECT, help="where our programs lie")
    add("--csv", metavar="FILE", type=Path,
        help="also writes the figures there, as they come, beside what it has of other operations "
        "and sizes; the README shows results/frameworks/*.csv (scripts/update_readme.py)")
    add("--table", metavar="FILE", type=Path, help="prints such a file again, and measures nothing")
    options = parser.parse_args(arguments)
    sizes = {"rows": options.shapes, "square": options.sizes, "talk": options.talk}
    options.cases = [Case(operation, size, dtype) for operation in OPERATIONS
                     if operation.name in options.operations
                     for size in sizes[operation.kind] or operation.sizes
                     for dtype in operation.dtypes if dtype in options.dtype]
    if not options.cases:
        parser.error("no operation of these has that dtype")
    return options


def main(arguments):
    options = parse_arguments(arguments)
    try:
        if options.table:
            print(show(read_results(options.table).rows))
            return OK
        load_peers()
    except table.TableError as error:
        return say(error, USAGE)
    except Failure as failure:
        return say(failure, failure.status)

    gpu = peers.torch.cuda.get_device_name(0)
    sm = "%d%d" % peers.torch.cuda.get_device_capability(0)
    rows, statuses, comments = [], set(), environment(gpu)
    if options.csv:
        kept = rows_to_keep(options.csv, comments, options.cases)
        try:
            write_csv(options.csv, comments, kept)
        except OSError as error:
            return command_line.name_file("compare_frameworks.py", error)
    print(f"{gpu}: " + ", ".join(f"{name} {value}" for name, value in comments.items()
                                 if name in ("driver", "pytorch", "triton")))
    for i, case in enumerate(options.cases, 1):
        print(f"[{i}/{len(options.cases)}] {case} ... ", end="", flush=True)
        start = time.perf_counter()
        entries = compare(case, options.programs.resolve(), options.rounds, options.max_autotune)
        rows += csv_rows(case, entries, gpu, sm)
        each = ratios(entries)
        print(f"{statistics.median(each):.2f}x {rival(entries)}" if each else "no ratio",
              f"({time.perf_counter() - start:.0f} s)", flush=True)
        for name, entry in entries.items():
            statuses.add(entry.status)
            if entry.reason:
                say(f"{case}: {name}: {entry.reason}")
        if options.csv:
            write_csv(options.csv, comments, kept + rows)
    print()
    print(show(rows))
    return WRONG if WRONG in statuses else FAILED if statuses - {OK, SKIPPED} else OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
