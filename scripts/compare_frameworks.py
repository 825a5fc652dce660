#!/usr/bin/env python3
"""Compares our programs with PyTorch and Triton doing the same work on the same data, on one GPU.

The comparison runs in rounds. In a round each contender has one turn: our program, each of theirs,
our kernel in CUDA Tile C++, and where memory is the limit a copy; every second round runs in
reverse order. In its turn a contender runs alone, timed as our programs time themselves: 0.5 s of
rest, in which the GPU cools (ours starts as a new process instead), 0.2 s of warm-up, then at least
0.5 s and 30 launches, with the cache overwritten before each. The median is the round's figure. The
table shows the median over the rounds, and how many times as fast ours is as the best of theirs,
with the rounds' range.

All of theirs is first checked against an fp64 reference: what is wrong is not timed. The first
round tries each of our kernels, and keeps the best. What is over 10% slower than the best of theirs
in the first round has that round's figure alone (but ours and the copy).

docs/measuring.md says what each contender is.

Exit status: 0 all was compared; 1 a wrong result; 2 usage; 3 something is missing or failed;
77 PyTorch, Triton or the GPU is missing.
"""

import argparse
import contextlib
import csv
import datetime
import functools
import importlib.util
import io
import math
import re
import signal
import statistics
import subprocess
import time
from pathlib import Path
from typing import NamedTuple, Tuple

from frameworks import load_page
from shared import command_line, measurements, programs, table
from shared.command_line import FAILED, OK, PROJECT, SKIPPED, USAGE, WRONG

PAGES = PROJECT / "scripts/frameworks"  # a file for each program that is compared
DTYPES = ("fp32", "tf32", "fp16", "bf16")
OWN, LIBRARY, YARDSTICK = ("ours", "record"), ("library",), "yardstick"  # roles of kernels
OURS, TILE, COPY = "ours", "tile", "copy"  # columns
STEP_LIMIT_S = 180  # of a program's run, and of compiling or timing one of theirs
HOPELESS = 1.1  # times as slow as the best of theirs: not timed after the first round
SOFTWARE = "Driver", "Toolkit", "PyTorch", "Triton"  # a case is measured with one version of each
PROTOCOL = 3  # of measuring: changes when figures are no longer comparable with earlier ones

theirs = None  # the module frameworks.case, which needs PyTorch: load_frameworks() imports it


class Failure(command_line.Stop):
    """Why there is no figure."""

    def __init__(self, reason, status=FAILED):
        super().__init__(" ".join(str(reason).split())[:200] or "it gave no reason", status)


# --- What is compared ---


class Case(NamedTuple):
    """One row of the table."""

    page: object  # the module of this program in scripts/frameworks
    program: Path
    kind: str  # of size: of KINDS
    size: Tuple[str, ...]  # arguments of the program
    arguments: Tuple[str, ...]  # all of them: size, options, data type
    problem: dict  # what it computes then, by its --describe
    roles: Tuple[str, ...]  # of the kernels that count as ours
    kernels: Tuple[str, ...]  # those

    @property
    def key(self):
        problem = self.problem
        return self.program.name, problem["shape"], str(problem["n"]), problem["dtype"]

    def __str__(self):
        program, _, _, dtype = self.key
        return f"{program} {table.size(self.problem)} {dtype}"


KINDS = {  # of sizes, by the name that a page gives them: our program's arguments
    "SIZES": lambda size: [size],
    "TALK": lambda size: ["--talk", size],
    "SHAPES": lambda size: ["--rows", size[0], "--cols", size[1]],
    "RUNS": lambda run: run.split(),
}


def compared_programs():
    """The programs whose page has sizes to compare, in the talk's order."""
    def has_sizes(page):
        return page.is_file() and re.search(f"^({'|'.join(KINDS)}) = ", page.read_text(), re.M)

    return [name for name in programs.listed() if has_sizes(PAGES / f"{name}.py")]


def cases_of(name, folder, sizes, dtypes):
    """The cases of one program. `sizes` has what the user chose, by kind; without any, the page
    says what to compare. Raises Stop."""
    program = folder / name
    with step():
        page = load_page(name, PAGES)
    about = programs.describe(program)
    cases = []
    for kind, arguments_of in KINDS.items():
        wanted = getattr(page, kind, ())
        if wanted and any(sizes.values()):
            wanted = sizes.get(kind) or ()
        for dtype in [dtype for dtype in about["dtypes"] if dtype in dtypes]:
            for size in wanted:
                size_arguments = [str(argument) for argument in arguments_of(size)]
                options = [*getattr(page, "OPTIONS", ()), *dtype_arguments(about, dtype)]
                cases.append(case_of(page, program, kind, size_arguments, options, dtype))
    return cases


def dtype_arguments(about, dtype):
    return ["--dtype", dtype] if programs.takes(about, "--dtype") else []


def tile_kernels(page):
    """(name of a program, names of its kernels in CUDA Tile C++ that a page has for comparison)."""
    program, *kernels = getattr(page, "TILE", (None,))
    return program, kernels


def case_of(page, program, kind, size, options, dtype):
    about = programs.describe(program, *size, *options)
    try:
        problem = next(p for p in about["problems"] if p["dtype"] == dtype)
        here = [c for c in about["contenders"]
                if c["kernel"] in problem["contenders"] and dtype in c["dtypes"]]
        # A program of library calls alone is compared by them.
        roles = OWN if any(c["role"] in OWN for c in here) else LIBRARY
        kernels = tuple(dict.fromkeys(c["kernel"] for c in here if c["role"] in roles
                                      and c["kernel"] not in tile_kernels(page)[1]))
    except (KeyError, TypeError, StopIteration):
        raise Failure(f"{program.name} describes no {dtype} problem of {' '.join(size + options)}")
    return Case(page, program, kind, tuple(size), tuple(size + options), problem, roles, kernels)


# --- Ours ---


def run_program(program, arguments, kernel):
    """The rows of the CSV that our program prints, with this kernel alone. Raises Failure unless
    all are verified."""
    name = program.name
    command = [str(program), *arguments, "--csv", "--kernel", kernel]
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=STEP_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise Failure(f"{name} took more than {STEP_LIMIT_S} s")
    except OSError as error:
        raise Failure(f"{name}: {error.strerror}")
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"{name} gave no reason"]
        raise Failure(f"exit status {done.returncode}: {said[-1]}", done.returncode)
    rows = list(csv.DictReader(done.stdout.splitlines()))
    if any(row.get(column) is None for row in rows for column in measurements.REQUIRED):
        raise Failure(f"{name} prints something else than its CSV")
    return rows


def fastest(program, arguments, dtype, roles, kernels):
    """(kernel, milliseconds) of the fastest of these, each of which runs alone. Raises Failure."""
    rows, failure = [], Failure(f"{program.name} has no {dtype} kernel of our own")
    for kernel in kernels:
        try:
            rows += run_program(program, arguments, kernel)
        except Failure as error:
            if error.status != SKIPPED:
                raise
            failure = error  # this GPU cannot run that kernel; it may run another one
    own = [row for row in rows
           if row["role"] in roles and row["dtype"] == dtype
           and row["verified"] == "yes" and row["median_ms"]]
    if not own:
        raise failure
    best = min(own, key=lambda row: float(row["median_ms"]))
    return best["kernel"], float(best["median_ms"])


def find_tile(case):
    """(program, arguments, kernel) in CUDA Tile C++ for a case, or None. Raises Stop."""
    name, kernels = tile_kernels(case.page)
    dtype = case.problem["dtype"]
    # RUNS have options of this program's.
    if not name or (case.kind == "RUNS" and name != case.program.name):
        return None
    program = case.program.with_name(name)
    about = programs.describe(program)
    if not any(c["kernel"] in kernels and dtype in c["dtypes"] for c in about["contenders"]):
        return None
    arguments = [*case.size, *dtype_arguments(about, dtype)]
    for problem in programs.describe(program, *arguments)["problems"]:
        for kernel in kernels:
            if kernel in problem["contenders"] and problem["dtype"] == dtype:
                if any(array not in data_of(problem) for array in data_of(case.problem)):
                    raise Failure(f"{kernel} of {name} computes with other data")
                return program, arguments, kernel
    return None


def data_of(problem):
    """What a problem computes with. A program of several kernels may name it otherwise, and have
    more of it."""
    return [(array["dtype"], array["shape"], array["fill"]) for array in problem["inputs"]]


# --- Theirs ---


def load_frameworks():
    """Imports PyTorch and Triton, and returns (name, compute capability) of the GPU. Raises Failure
    where one is missing."""
    global theirs
    for module, name in (("torch", "PyTorch"), ("triton", "Triton")):
        if importlib.util.find_spec(module) is None:
            raise Failure(f"{name} is not installed here: nothing to compare with", SKIPPED)
    try:
        theirs = importlib.import_module("frameworks.case")
    except Exception as error:  # whatever a broken installation raises
        raise Failure(f"PyTorch or Triton cannot be loaded here: {error}", SKIPPED)
    gpu = theirs.gpu()
    if not gpu:
        raise Failure("PyTorch finds no NVIDIA GPU here", SKIPPED)
    return gpu


class TimeIsUp(BaseException):  # not an Exception: a compiler may catch these
    pass


@contextlib.contextmanager
def step(seconds=STEP_LIMIT_S):
    """Turns everything that goes wrong inside, also taking too long, into Failure."""

    def give_up(*_):
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except command_line.Stop as stop:
        raise Failure(stop, stop.status)
    except TimeIsUp:
        raise Failure(f"not done after {seconds} s")
    except theirs.Wrong as error:
        raise Failure(error, WRONG)
    except Exception as error:
        raise Failure(f"{type(error).__name__}: {error}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- One case ---


class Entry:
    """What came of one contender."""

    def __init__(self, kernel, rival=False):
        self.kernel = kernel
        self.rival = rival  # it can be the best of theirs
        self.ms = []  # of each round; empty once it failed
        self.hopeless = False  # too slow to be timed again
        self.reason, self.status = "", OK

    def attempt(self, work, *arguments):
        """Returns what `work` returns, or None if it failed, now or earlier."""
        if self.status != OK:
            return None
        try:
            with step():
                return work(*arguments)
        except Failure as failure:
            # Keep the text alone: the exception's frames would keep gigabytes of the GPU's memory.
            self.reason, self.status, self.ms = str(failure), failure.status, []
            return None

    def time(self, work, *arguments):
        """Adds a round's time, which `work` returns."""
        if not self.hopeless:
            ms = self.attempt(work, *arguments)
            if ms is not None:
                self.ms.append(ms)

    @property
    def median_ms(self):
        return statistics.median(self.ms) if self.ms else None


def compare(case, rounds):
    """The entries of all contenders, by the name of their column; ours, the best of its kernels, is
    the first."""
    ours = Entry("")
    entries = {OURS: ours}
    peers = ours.attempt(theirs.PeersOfCase, case.page, case.problem)
    if peers is None:
        return entries
    for name in peers.peers:
        entries[name] = Entry(name, peers.is_rival(name))
        entries[name].attempt(peers.verify, name)
    tile = Entry(TILE)
    found = tile.attempt(find_tile, case)
    if found or tile.reason:
        entries[TILE] = tile

    def our_turn():
        theirs.free()
        ours.kernel, ms = fastest(case.program, case.arguments, case.problem["dtype"], case.roles,
                                  [ours.kernel] if ours.kernel else case.kernels)
        return ms

    def tile_turn():
        theirs.free()
        program, arguments, kernel = found
        tile.kernel, ms = fastest(program, arguments, case.problem["dtype"], OWN, [kernel])
        return ms

    turns = {OURS: our_turn, TILE: tile_turn}
    for i in range(rounds):
        for name in reversed(list(entries)) if i % 2 else entries:
            entries[name].time(turns.get(name) or functools.partial(peers.measure, name))
        if i == 0:
            best = min((e.ms[0] for e in entries.values() if e.rival and e.ms), default=math.inf)
            for name, entry in entries.items():
                entry.hopeless = (name not in (OURS, COPY) and bool(entry.ms)
                                  and entry.ms[0] > HOPELESS * best)
    return entries


def rival(entries):
    """The name of the best of theirs, or None. One that was timed in all rounds comes first."""
    timed = [name for name, entry in entries.items() if entry.rival and entry.ms]
    most = max((len(entries[name].ms) for name in timed), default=0)
    timed = [name for name in timed if len(entries[name].ms) == most]
    return min(timed, key=lambda name: entries[name].median_ms) if timed else None


def ratios(entries):
    """In each round, how many times as fast ours was as the best of theirs; empty if unknown."""
    best = rival(entries)
    return [b / a for a, b in zip(entries[OURS].ms, entries[best].ms)] if best else []


# --- Results ---

COLUMNS = list(measurements.REQUIRED) + (
    "operation contender low_ms high_ms rounds pct_of_copy against ratio ratio_low ratio_high "
    "reason suite software").split()
TEXT_COLUMNS = 5  # of the table: the first


def csv_rows(case, entries, gpu="", sm="", suite="", software=""):
    """A row for each contender; "" for what is unknown."""
    program, shape, n, dtype = case.key
    copy = entries[COPY].median_ms if COPY in entries else None
    for name, entry in entries.items():
        if name == TILE and entry.status == SKIPPED:  # this GPU, or this build, has no CUDA Tile
            continue
        row = dict.fromkeys(COLUMNS, "")
        row.update(operation=program, program=program, contender=name, kernel=entry.kernel,
                   role=OURS if name == OURS else YARDSTICK, gpu=gpu, sm=sm, dtype=dtype,
                   shape=shape, n=n, verified="yes" if entry.ms else "no", suite=suite,
                   software=software)
        if not entry.ms:
            state = "wrong" if entry.status == WRONG else "missing" if name == OURS else "failed"
            row["reason"] = f"{state}: {entry.reason}"
        else:
            ms, low, high = entry.median_ms, min(entry.ms), max(entry.ms)
            row.update(median_ms=f"{ms:.6f}", low_ms=f"{low:.6f}", high_ms=f"{high:.6f}",
                       rounds=len(entry.ms), spread_pct=f"{100 * (high - low) / ms:.2f}")
            if name != COPY:  # which computes nothing
                row["tflops"] = f"{case.problem['flops'] / ms / 1e9:.6g}"
            if case.problem["memory_bound"]:
                row["gb_per_s"] = f"{case.problem['least_bytes'] / ms / 1e6:.6g}"
            if copy:
                row["pct_of_copy"] = f"{100 * copy / ms:.1f}"
        if name == OURS and ratios(entries):
            each = ratios(entries)
            figures = statistics.median(each), min(each), max(each)
            row.update(zip(("ratio", "ratio_low", "ratio_high"), (f"{x:.4f}" for x in figures)),
                       against=rival(entries))
        yield row


def order_of(key):
    """Sorts cases: programs as in the talk, then types, kinds of shapes and sizes."""
    operation, shape, n, dtype = key
    names, kinds = compared_programs(), ("square", "talk", shape)
    place = names.index(operation) if operation in names else len(names)
    return place, operation, DTYPES.index(dtype), kinds.index(shape), int(n), shape


def by_case(rows):
    """{key of the case: its rows}, in the order of the rows."""
    cases = {}
    for row in rows:
        key = tuple(str(row[name]) for name in ("operation", "shape", "n", "dtype"))
        cases.setdefault(key, []).append(row)
    return cases


def is_memory_bound(rows):
    """Whether the rows of a case are compared by GB/s."""
    return any(row["contender"] == COPY or row["gb_per_s"] not in ("", None) for row in rows)


def cells_of(rows):
    """(head, lines) of the table, from rows of the CSV: text, or as read() gives them."""
    # The columns stand in the order of the case that has the most. The copy comes last.
    groups = sorted(by_case(rows).values(), key=len, reverse=True)
    names = list(dict.fromkeys(row["contender"] for group in groups for row in group))
    names.sort(key=lambda name: name == COPY)
    head = ["operation", "shape", "dtype", "our kernel", "unit", *names,
            "ours / theirs", "rounds", "best of theirs"]
    body = []
    for (operation, _, _, dtype), group in by_case(rows).items():
        line = {row["contender"]: row for row in group}
        ours, memory_bound = line[OURS], is_memory_bound(group)
        cells = [operation, table.size(ours), dtype, ours["kernel"] or "-",
                 "GB/s" if memory_bound else "TFLOP/s"]
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
    return table.layout(*cells_of(rows), left=TEXT_COLUMNS)


def read_results(path):
    """measurements.Results of a file that --csv wrote. Raises measurements.TableError."""
    results = measurements.read(path)
    try:
        cells_of(results.rows)
    except (KeyError, ValueError, TypeError):
        raise measurements.TableError(f"{path}: not written by compare_frameworks.py --csv")
    return results


def markdown(path):
    """Such a file as a section of results/README.md. Raises measurements.TableError."""
    results = read_results(path)
    versions = "; ".join(dict.fromkeys(row["software"] for row in results.rows))
    suites = ", ".join(dict.fromkeys(row.get("suite") or "unknown" for row in results.rows))
    lines = [f"### {results.gpu}, PyTorch and Triton", "",
             f"{versions}, measured on {results.about.get('date', 'an unknown day')} with version "
             f"{suites} of the suite."]
    groups = by_case(results.rows).values()
    titles = {True: "What memory limits, GB/s of the least traffic, % of a copy",
              False: "What arithmetic limits, TFLOP/s"}
    for memory_bound, title in titles.items():
        rows = [row for group in groups if is_memory_bound(group) == memory_bound for row in group]
        if rows:
            lines += ["", f"{title}:", "", table.markdown(*cells_of(rows), left=TEXT_COLUMNS)]
    return "\n".join(lines)


def software_of(about):
    return ", ".join(f"{name} {about.get(name.lower(), 'unknown')}" for name in SOFTWARE)


def environment(gpu):
    """The lines that a file of results begins with."""
    toolkit = PROJECT / "build/toolkit.txt"
    return {
        "GPU": gpu,
        "driver": command_line.driver_version(),
        "toolkit": toolkit.read_text().strip() if toolkit.is_file() else "unknown",
        **theirs.versions(),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "suite": command_line.suite_version(),
        "protocol": PROTOCOL,
    }


def earlier_results(path, comments):
    """{key of the case: rows} of what `path` holds, if it was measured in the same way with the
    same GPU. The software may have been another: figures are compared within a case alone."""
    try:
        results = read_results(path)
    except measurements.TableError:
        return {}  # nothing is there yet, or nothing of ours
    if any(results.about.get(name) != str(comments[name]) for name in ("GPU", "protocol")):
        return {}
    return by_case(results.rows)


def is_done(rows, comments, rounds):
    """Whether these rows of a case are what measuring it would give again."""
    [ours] = [row for row in rows if row["contender"] == OURS]
    return (ours["verified"] == "yes" and int(ours["rounds"]) >= rounds
            and all(row.get("suite") == comments["suite"]
                    and row["software"] == software_of(comments) for row in rows))


def write_csv(path, comments, rows):
    text = io.StringIO()
    text.writelines(f"# {name}: {value}\n" for name, value in comments.items())
    # What was read back may have columns of the programs' own beside ours.
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    command_line.write_text(path, text.getvalue())


# --- Command line ---


say = functools.partial(command_line.say, "compare_frameworks.py")


def shapes(text):
    if not all(re.fullmatch("[1-9][0-9]{0,8}x[1-9][0-9]{0,8}", part) for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of shapes such as 4096x1000")
    return [tuple(int(number) for number in part.split("x")) for part in text.split(",")]


def some_of(names):
    """A parser of a list of these; numbers stand for programs."""

    def find(part):
        name = programs.named(part, names)
        if not name:
            raise argparse.ArgumentTypeError(f"'{part}' is none of {', '.join(names)}")
        return name

    return lambda text: [find(part) for part in text.split(",")]


def parse_arguments(arguments):
    parser = command_line.Parser(prog="compare_frameworks.py", description=__doc__,
                                 allow_abbrev=False,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    names = compared_programs()
    add("--operations", metavar="NAME,...", type=some_of(names), default=names,
        help="programs, or their numbers; all without it: " + ", ".join(names))
    add("--sizes", metavar="N,...", type=command_line.sizes(32), help="square matrices")
    add("--talk", metavar="S,...", type=command_line.sizes(16), help="the talk's shape")
    add("--shapes", metavar="RxC,...", type=shapes,
        help="rows x columns; once --sizes, --talk or --shapes is given, nothing else is compared")
    add("--dtype", metavar="NAME,...", type=some_of(DTYPES), default=list(DTYPES),
        help="leaves out the others: " + ", ".join(DTYPES))
    add("--rounds", metavar="COUNT", type=command_line.number(1, 99), default=3,
        help="3 without it")
    add("--programs", metavar="FOLDER", type=Path, default=PROJECT,
        help="where our programs are built")
    add("--csv", metavar="FILE", type=Path,
        help="also writes the figures there, case by case, beside what it has of other cases. A "
        "case that it has of this version of the suite, measured with the same software, is not "
        "measured again, so that an interrupted run can be continued. results/README.md shows "
        "results/frameworks/*.csv (scripts/update_docs.py)")
    add("--fresh", action="store_true", help="measures again what FILE has")
    add("--table", metavar="FILE", type=Path, help="prints such a file again, and measures nothing")
    return parser.parse_args(arguments)


@command_line.reporting("compare_frameworks.py")
def main(arguments):
    options = parse_arguments(arguments)
    if options.table:
        print(show(read_results(options.table).rows))
        return OK
    gpu, sm = load_frameworks()

    cases, statuses = [], set()
    sizes = dict(zip(KINDS, (options.sizes, options.talk, options.shapes)))
    for name in options.operations:
        try:
            cases += cases_of(name, options.programs.resolve(), sizes, options.dtype)
        except command_line.Stop as stop:
            statuses.add(stop.status)
            say(f"{name}: {stop}")
    if not cases:
        return FAILED if statuses else say("nothing to compare has that size and dtype", USAGE)

    comments = environment(gpu)
    results = earlier_results(options.csv, comments) if options.csv else {}

    def save():
        keys = sorted(results, key=order_of)
        write_csv(options.csv, comments, [row for key in keys for row in results[key]])

    if options.csv:
        save()

    print(f"{gpu}: " + ", ".join(f"{name} {value}" for name, value in comments.items()
                                 if name in ("driver", "pytorch", "triton")))
    said = set()
    for i, case in enumerate(cases, 1):
        print(f"[{i}/{len(cases)}] {case} ... ", end="", flush=True)
        start = time.perf_counter()
        if not options.fresh and case.key in results and is_done(results[case.key], comments,
                                                                 options.rounds):
            print("measured before", flush=True)
        else:
            entries = compare(case, options.rounds)
            theirs.free()
            rows = list(csv_rows(case, entries, gpu, sm, comments["suite"], software_of(comments)))
            results[case.key] = rows
            ours = rows[0]
            print(f"{float(ours['ratio']):.2f}x {ours['against']}" if ours["ratio"] else "no ratio",
                  f"({time.perf_counter() - start:.0f} s)", flush=True)
            for name, entry in entries.items():
                statuses.add(entry.status)
                if entry.reason and (name, entry.reason) not in said:
                    say(f"{case}: {name}: {entry.reason}")
                if name == TILE:  # what keeps one case from using CUDA Tile keeps all from it
                    said.add((name, entry.reason))
            if options.csv:
                save()
            if not theirs.is_alive():
                statuses.add(FAILED)
                say(f"{case}: after an error on the GPU PyTorch can use it no more: start again, "
                    "with the same --csv, for the rest")
                break
    print()
    print(show([row for case in cases for row in results.get(case.key, ())]))
    return WRONG if WRONG in statuses else FAILED if statuses - {OK, SKIPPED} else OK


if __name__ == "__main__":
    command_line.run(main)
