"""A program's page, tests/programs/NAME.py: what only that program's tests need to know.

What a program declares (--describe) stands on no page. A page may hold

    MUTANTS       bugs, each of which must be seen. Every kernel of the program's own is broken by
                  one; a kernel that several programs run, in one of them
    FAST          kernels that may spill no register, with patterns that some instruction of their
                  machine code must match: {"wmma_tiled": ("HMMA", COPY_16)}
    TRAFFIC       what kernels must report of a run, by hand: {"64": {"chain": (launches, bytes
                  moved, bytes kept between the launches)}}
    COUNTS        what DEMO_COUNT=1 must count: {"64": {a table's title: {"barriers": accesses()}}}
    OPERATIONS    the floating-point operations of a run, by the formula: {"96": 2 * 96**3}; a set,
                  where the run holds several comparisons
    RUNS          runs that must be verified, beside those that every program gets
    PRINTS        patterns that a run must print: {"64": ("grid: ...",)}
    REFUSED       command lines that must end with exit code 2
    ANY_ORDER     runs that must be verified in any order of the simulator's threads, beside those
                  that every program gets
    SANITIZED     runs for compute-sanitizer, beside those that every program gets
    HARMLESS      mutants made by rule (generated_mutants.py) that may survive: {"rule: line": why}
    ORDER_OF_SUMS_VARIES  True where two runs on the same data may round otherwise

where a run is a command line's arguments. tests/data/new_program/ shows how a program is added.
"""

import functools
import importlib.util
import re
from pathlib import Path
from typing import NamedTuple, Sequence, Tuple

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

PAST_THE_END = "past the end of buffer"  # what the simulator says of such an access


class Mutant(NamedTuple):
    """A bug: the program's text with each edit's old text, which occurs once, replaced."""

    name: str
    kernels: str  # those that it breaks, separated by spaces; the others must stay verified. (Of
    # two that are for different shapes each breaks in its own.)
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
    stops: str = ""  # part of what the simulator says where it ends the program instead


def launch_once(launch):
    """An edit that makes a launch happen the first time only: afterwards the output is stale."""
    return (launch, "static int launches; if (launches++ == 0) " + launch)


def kernel_headers(program):
    """The headers of src/kernels that a program includes, straight or through another: their
    names, each after those that it needs."""
    found = []

    def visit(path):
        for name in re.findall(r'^#include "(kernels/\w+\.cuh)"', path.read_text("utf-8"), re.M):
            if name not in found:
                visit(SRC / name)
                found.append(name)

    visit(SRC / f"{program}.cu")
    return found


def owner(header, programs):
    """The program that a header of src/kernels counts with: of those that include it the one with
    the fewest headers, since it is about this one."""
    return min((name for name in programs if header in kernel_headers(name)),
               key=lambda name: (len(kernel_headers(name)), name))


def source_of(program):
    """A program's text with its kernels' headers in place: what a mutant's edits change."""
    texts = [(SRC / name).read_text("utf-8") for name in kernel_headers(program)]
    texts.append((SRC / f"{program}.cu").read_text("utf-8"))
    return re.sub(r'^#(include "kernels/.*|pragma once)\n', "", "".join(texts), flags=re.M)


def edited(mutant, source):
    """The text with the mutant's edits. One that does not fit, or fits twice, is a ValueError."""
    for old, new in mutant.edits:
        if source.count(old) != 1:
            raise ValueError(f"{mutant.name}: {old!r} occurs {source.count(old)} times, not once")
        source = source.replace(old, new)
    return source


INCLUDE = re.compile(r"^#include .*\n", re.MULTILINE)


def mutants_of(program):
    """{name: text} of the program's mutants."""
    source = source_of(program)
    return {mutant.name: edited(mutant, source) for mutant in of_page(program, "MUTANTS")}


def all_in_one(texts):
    """One program of {name: text of a program}, each in a namespace: its first argument is a name,
    and chooses. What all include is compiled once, which is most of the time."""
    includes, parts, choices = [], [], []
    for name, text in texts.items():
        includes += INCLUDE.findall(text)
        body = INCLUDE.sub("\n", text)  # lines keep their numbers
        parts.append(f"namespace {name} {{\n{body}}}  // namespace {name}\n")
        choices.append(f'    if (name == "{name}") return {name}::main(argc - 1, argv + 1);\n')
    return "".join([*dict.fromkeys(includes), *parts, "int main(int argc, char** argv) {\n",
                    '    const std::string name = argc > 1 ? argv[1] : "";\n', *choices,
                    "    return demo::kUsage;\n}\n"])


def in_one(program):
    """A program's name among those of all_in_one()."""
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
