"""A program's page, tests/programs/NAME.py: what only that program's tests need to know.

What a program declares (--describe) stands on no page. A page may hold

    MUTANTS       bugs, each of which must be seen. Every kernel of the program's own is broken by
                  one of each of the KINDS; a kernel that several programs run, in one of them
    NOT_APPLICABLE  why a kernel cannot have such a bug, where neither its text nor its inputs
                  show it: {kind: {kernel: reason}}
    FAST          kernels that may spill no register, with patterns that some instruction of their
                  machine code must match: {"wmma_tiled": ("HMMA", COPY_16)}; "swizzled<true>": of
                  its instances those with a `true`
    TRAFFIC       what kernels must report of a run, by hand: {"64": {"chain": (launches, bytes
                  moved, bytes kept between the launches)}}
    COUNTS        what DEMO_COUNT=1 must count: {"64": {a table's title: {"barriers": accesses()}}}
    OPERATIONS    the floating-point operations of a run, by the formula: {"96": 2 * 96**3}; a set,
                  where the run holds several comparisons
    RUNS          runs that must be verified, beside those that every program gets
    PRINTS        patterns that a run must print: {"64": ("grid: ...",)}
    FACTS         columns of a sweep's table that are no kernels
    SCALED        bytes that samples are scaled to, where that is not the arrays' size
    REFUSED       command lines that must end with exit code 2
    ANY_ORDER     runs that must be verified in any order of the simulator's threads, beside those
                  that every program gets
    LARGEST       the largest N for the simulator, where it takes long to compute little
    SANITIZED     runs for compute-sanitizer, beside those that every program gets
    HARMLESS      mutants made by rule (generated_mutants.py) that may survive: {"rule: line": why}
    unused        a function of a mutant and its runs: edits that take out what it does not need

where a run is a command line's arguments. Where the simulator's problem is smaller, TRAFFIC and
OPERATIONS hold {"cpu": ..., "gpu": ...} for a run. tests/data/new_program/ shows how a program is
added.
"""

import functools
import importlib.util
import re
from pathlib import Path
from typing import Dict, NamedTuple, Sequence, Tuple, Union

from shared.exercises import with_edits

TESTS = Path(__file__).resolve().parent
SRC = TESTS.parent / "src"


@functools.lru_cache(maxsize=None)
def page(program):
    """The page of a program, as a module; an empty one where there is none."""
    path = TESTS / "programs" / f"{program}.py"
    spec = importlib.util.spec_from_file_location(f"page_of_{program}", path)
    module = importlib.util.module_from_spec(spec)
    if path.exists():
        spec.loader.exec_module(module)
    return module


def of_page(program, name, default=()):
    """What the program's page holds under this name."""
    return getattr(page(program), name, default)


# --- Bugs ---------------------------------------------------------------------------------------

# What the simulator says of accesses to what is behind a buffer, or an input.
PAST_THE_END, READ_ONLY = "past the end of", "which kernels may only read"

KINDS = {  # the usual mistakes
    "tail": "the end of a sum is counted twice, or what lies beyond it is counted",
    "stale": "shared memory still holds what a block, tile or step before left there",
    # (What a register holds is luck, and could be 0. These mutants put a 1 there.)
    "accumulator": "a sum does not begin as 0, but as what its register held",
    "fence": "a barrier, a fence or a wait is missing",
    "grid": "a grid, a cluster or a walk through tiles ends too early",
    "zeroing": "what is added to, or counted with, is not zeroed before",
    "bias": "an operand that is used for many elements is taken from a wrong place",
}


class Mutant(NamedTuple):
    """A bug: the program's text with each edit's old text, which occurs once, replaced."""

    name: str
    kernels: str  # those that it breaks, separated by spaces; the others must stay verified. (Of
    # two that are for different shapes each breaks in its own. With none it is no bug: the edits
    # lead where the program's own runs do not, and all must be verified.)
    reason: str  # what is wrong with them
    edits: Sequence[Tuple[str, str]]  # (old, new)
    sizes: Tuple[int, ...] = (160, 1024)  # N: each must be rejected ...
    talk_sizes: Tuple[int, ...] = ()  # ... and each S of the talk's shape ...
    cpu_sizes: Tuple[int, ...] = ()  # N on the simulator, where `sizes` would take too long
    runs: Tuple[str, ...] = ()  # ... and each of these whole command lines ...
    cpu_runs: Tuple[str, ...] = ()  # and on the simulator these
    race: bool = False  # ... or, where the bug is a matter of luck, one of them
    timed: bool = False  # shows only after several launches, so not with --once
    oldest_sm: int = 0  # on older GPUs the bug has no effect
    stops: str = ""  # part of what the simulator says where it ends the program instead; a GPU may
    kind: Union[str, Dict[str, str]] = ""  # of KINDS; {kernel: kind} where they differ

    def kind_of(self, kernel):
        """Its kind, as a bug of that kernel; empty where it is of none."""
        if kernel not in self.kernels.split():
            return ""
        return self.kind if isinstance(self.kind, str) else self.kind.get(kernel, "")


def launch_once(launch):
    """An edit that makes a launch happen the first time only: afterwards the output is stale."""
    return (launch, "static int launches; if (launches++ == 0) " + launch)


# Of matmul/matmul_hopper.cuh, which several programs are made of: the last wgmma of a stage twice;
# sums that begin as they were; stages that are multiplied before they are waited for (but they are,
# so that the barriers stay in step).
LAST_WGMMA_TWICE = ("for (int k = 0; k < kBlockK; k += 16)",
                    "for (int i = 0, k = 0; i <= kBlockK; i += 16, k = min(i, kBlockK - 16))")
SUMS_AS_THEY_WERE = ("hopper::wgmma_fence();\n#pragma unroll\n    for (int k = 0; k < kBlockK",
                     "if (!keep) for (float& sum : sums) sum = 1;\n    keep = true;\n"
                     "    hopper::wgmma_fence();\n#pragma unroll\n    for (int k = 0; k < kBlockK")
WAITS_LATE = (
    "hopper::mbarrier_wait(&ring.full[at.stage], at.parity);\n"
    "        multiply_stage<T, kTileN>(sums, ring.stages[at.stage], warpgroup, t > 0);",
    "multiply_stage<T, kTileN>(sums, ring.stages[at.stage], warpgroup, t > 0);\n"
    "        hopper::wgmma_wait_group<0>();\n"
    "        hopper::mbarrier_wait(&ring.full[at.stage], at.parity);")

# Of rows/softmax_rows.cuh, for unused(): by_tile is many kernels, each for a few numbers of
# columns. The mutants' runs need few of them.
FEWER_TILES = [
    ("std::make_integer_sequence<int, kMostPerThread>()", "std::make_integer_sequence<int, 1>()"),
    ("cols <= kTeam * 9    ? by_tile<T, kTeam, 9>\n"
     "           : cols <= kTeam * 11 ? by_tile<T, kTeam, 11>\n"
     "           : cols <= kTeam * 13 ? by_tile<T, kTeam, 13>\n"
     "           : cols <= kTeam * 15 ? by_tile<T, kTeam, 15>\n"
     "                                : by_tile<T, kTeam, 17>;", "by_tile<T, kTeam, 17>;")]


def kernel_headers(program):
    """The rooms' headers of kernels that a program includes, straight or through another: their
    names, each after those that it needs. (What verifies them stands in namespace demo alone.)"""
    found = []

    def visit(path):
        for name in re.findall(r'^#include "((?!demo/)\w+/\w+\.cuh)"', path.read_text("utf-8"),
                               re.M):
            spaces = re.findall(r"^namespace (\w+)", (SRC / name).read_text("utf-8"), re.M)
            if name not in found and {*spaces} != {"demo"}:
                visit(SRC / name)
                found.append(name)

    visit(SRC / f"{program}.cu")
    return found


def owner(header, programs):
    """The program that a header of kernels counts with: the one that its first lines say it
    belongs to; else, of those that include it, the one with the fewest headers."""
    including = [name for name in programs if header in kernel_headers(name)]
    first = re.match(r"(//.*\n)+", (SRC / header).read_text("utf-8"))[0].replace("\n//", "")
    said = re.search(r"[Bb]elongs? to (?:lesson \d+, )?(\w+)", first)
    if said and said[1] in including:
        return said[1]
    return min(including, key=lambda name: (len(kernel_headers(name)), name))


def source_of(program):
    """A program's text with its kernels' headers in place: what a mutant's edits change."""
    headers = kernel_headers(program)
    return "".join(in_place((SRC / name).read_text("utf-8"), headers)
                   for name in (*headers, f"{program}.cu"))


def in_place(text, headers):
    """A text to stand beside those of these headers, with as many lines as before. What others
    define in namespace demo is found there still."""
    lines = "|".join(["pragma once", *(f'include "{name}"' for name in headers)])
    text = re.sub(rf"^#({lines})$", "", text, flags=re.M)
    return text.replace("namespace demo {\n\n", "namespace demo {\nusing namespace ::demo;\n")


def edited(mutant, source):
    """The text with the mutant's edits."""
    return with_edits(mutant.name, mutant.edits, source)


# --- Bugs that a kernel cannot have --------------------------------------------------------------

# {kind: (what a kernel's text has that can have such a bug, why it cannot without)}
NEEDED = {
    "tail": (r"\+=|mma|ct::sum", "sums nothing"),
    "accumulator": (r"\+=|mma|ct::sum", "sums nothing"),
    "stale": (r"__shared__", "has no shared memory"),
    "fence": (r"__sync|barrier|wait", "has no barrier and no wait"),
    "zeroing": (r"atomic", "has no atomic operation"),
}


@functools.lru_cache(maxsize=None)
def definitions(program):
    """{name: text} of the types and of the GPU's functions in source_of(); those of one name
    together. Each begins at the left margin, and what follows it there is the next one."""
    found = {}
    code = re.sub(r"//.*", "", source_of(program))
    for text in re.split(r"(?<!void\n)^(?=[\w\[])", code, flags=re.MULTILINE):
        head = re.sub(r"\b(__launch_bounds__|HOPPER_CLUSTER|hint|alignas)\(", "", text)
        name = re.search(r"^(?:struct|class|union)\b[^{;]*?(\w+)\s*(?:[:{;]|final)|(\w+)\(", head)
        if name and (name[1] or re.search(r"__(device|(tile_)?global)__", text)):
            found[name[1] or name[2]] = found.get(name[1] or name[2], "") + text
    return found


def text_of(program, kernel):
    """The text of a kernel, with that of all that it uses of its program; of all the program's
    kernels, where none has this name: it is several of them."""
    known = definitions(program)
    kernels = {name for name, text in known.items() if re.search(r"__(tile_)?global__", text)}
    assert kernels, f"{program}: its kernels are not found"
    reached, next_ones = set(), {kernel} if kernel in known else kernels
    while next_ones:
        reached |= next_ones
        words = set().union(*(re.findall(r"\w+", known[name]) for name in next_ones))
        next_ones = words & known.keys() - reached
    return "".join(known[name] for name in sorted(reached))


def why_not(program, kernel, kind):
    """Why the kernel's text rules out bugs of a kind; empty where it does not."""
    needed, reason = NEEDED.get(kind, ("", ""))
    return "" if re.search(needed, text_of(program, kernel)) else reason


ANY_ACTIVATION = ("demo::with_activation(session, "
                  "[&](auto act) { run_with<decltype(act)>(session); });")


def with_what_it_uses(program, mutant, text):
    """The text without the data types and activations that the mutant is not tried with, and what
    its page knows of besides: each would be compiled."""
    runs = " ".join((*mutant.runs, *mutant.cpu_runs))
    tried = re.findall(r"--dtype (\w+)", runs)

    def types(match):
        first, *others = re.findall(r'\{"\w+", [^{}]+\}', match[1])
        kept = [first] + [entry for entry in others if entry.split('"')[1] in tried]
        return f".types = {{{', '.join(kept)}}}"

    if "--activation" not in runs:
        text = text.replace(ANY_ACTIVATION, "run_with<demo::Relu>(session);")
    text = re.sub(r"\.types = \{((?:\{[^{}]*\},?\s*)+)\}", types, text)
    sizes = map(str, (*mutant.sizes, *mutant.cpu_sizes))
    unused = of_page(program, "unused", lambda *_: ())
    edits = unused(mutant, (*sizes, *mutant.runs, *mutant.cpu_runs))
    return with_edits(f"{program}'s unused()", edits, text)


def mutants_of(program):
    """{name: text} of the program's mutants."""
    source = source_of(program)
    return {mutant.name: with_what_it_uses(program, mutant, edited(mutant, source))
            for mutant in of_page(program, "MUTANTS")}


def in_one(program):
    """A program's name among those of bundles.all_in_one()."""
    return "program_" + program


def sanitized(programs):
    """{target: programs} of those that the tests run under the host compiler's sanitizers: all in
    two, since most of the time would go to what they share."""
    return {f"cpu/sanitize/programs_{part}": sorted(programs)[part::2] for part in (0, 1)}


# --- Machine code: what instructions look like that move 16 bytes --------------------------------

LOAD_16, STORE_16 = r"LDG\.E\S*\.128", r"STG\.E\S*\.128"
COPY_16 = r"LDGSTS\S*\.128"  # asynchronous, from global memory to shared memory
SHARED_16 = r"LDS\S*\.128"  # a load from shared memory


# --- Counts -------------------------------------------------------------------------------------


def accesses(threads, bytes_each, sectors=0, conflicts=0, requests=None, distinct=None):
    """What a row of a table of counts holds, for whole warps; where lanes share addresses,
    `distinct` says how many of them all requests have."""
    return {"threads": threads, "requests": threads // 32 if requests is None else requests,
            "bytes": (threads if distinct is None else distinct) * bytes_each,
            "sectors": sectors, "conflicts": conflicts}


def boxes(count, all_bytes, sectors):
    """The same of copies that one thread each has started."""
    return {"threads": count, "requests": count, "bytes": all_bytes, "sectors": sectors,
            "conflicts": 0}
