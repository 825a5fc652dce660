"""A kernel's instructions, in SASS or in PTX: where each comes from, what kind it is, and which of
them make up the main loop."""

import collections
import functools
import operator
import re
from pathlib import Path
from typing import NamedTuple, Tuple

from shared.command_line import PROJECT


class Instruction(NamedTuple):
    address: str  # "0390"; empty in PTX
    guard: str  # "@!P0", or empty
    opcode: str  # "LDG.E.128"
    operands: str
    source: Tuple[Tuple[str, int], ...]  # files and lines: inlined code first, then who called it
    labels: Tuple[str, ...]  # that stand before it

    @property
    def text(self):
        return " ".join(filter(None, (self.guard, self.opcode, self.operands)))


# --- Kinds of instructions ----------------------------------------------------------------------

LOADS, STORES, COPIES = "global loads", "global stores", "async copies"
SHARED_LOADS, SHARED_STORES, ATOMICS = "shared loads", "shared stores", "atomics"
LOCAL, TENSORS, ARITHMETIC = "local memory", "tensor cores", "arithmetic"
SPECIAL, LANES, BARRIERS = "special functions", "between lanes", "barriers"
GROUPS = (LOADS, STORES, COPIES, SHARED_LOADS, SHARED_STORES, LOCAL, ATOMICS, TENSORS, ARITHMETIC,
          SPECIAL, LANES, BARRIERS)
COLORS = {LOADS: "36", SHARED_LOADS: "36", COPIES: "36", STORES: "33", SHARED_STORES: "33",
          ATOMICS: "33", LOCAL: "1;31", TENSORS: "1;35", BARRIERS: "34", "source": "1"}


def multiplies_and_adds(group, label):
    return group == ARITHMETIC and "fma" in label.lower()


def classify(instruction):
    """What an instruction counts as, (group, label), or None: an address, a branch, a move."""
    return (classify_sass if instruction.opcode[0].isupper() else classify_ptx)(instruction)


def classify_sass(instruction):
    base, *parts = instruction.opcode.split(".")
    width = next((part for part in parts if part in SASS_WIDTHS), "32")
    first = ".".join([base] + parts[:1])
    if base in SASS_ACCESSES:
        return SASS_ACCESSES[base], f"{base}.{width}"
    if base in ("LDSM", "STSM"):  # by the number of 8 x 8 matrices
        return SHARED_LOADS if base == "LDSM" else SHARED_STORES, f"{base}.x{(parts or '1')[-1]}"
    if re.match(r"ATOM|RED[G]?$", base):
        return ATOMICS, base
    if re.match(r"UTMA(LDG|STG|RED)|UBLK", base):
        return COPIES, instruction.opcode
    if base.endswith("MMA"):
        return TENSORS, instruction.opcode
    if re.fullmatch(r"[FDH](FMA|ADD|MUL)2?(32I)?", base):
        # Zero times zero, or zero added: that only sets or converts a register.
        zeros = r"\S+ -?RZ," if "ADD" in base else r"\S+ -?RZ, -?RZ,"
        return None if re.match(zeros, instruction.operands) else (ARITHMETIC, base)
    if base == "MUFU":
        return SPECIAL, first
    if base in ("SHFL", "VOTE", "VOTEU", "REDUX", "CREDUX", "MATCH"):
        return LANES, base
    if re.match(r"BAR$|SYNCS|DEPBAR|LDGDEPBAR|WARPSYNC|WARPGROUP|MEMBAR|FENCE|UCGABAR|UTMACMDFLUSH",
                base):
        return BARRIERS, first if base in ("BAR", "SYNCS", "WARPGROUP") else base
    return None


SASS_WIDTHS = ("U8", "S8", "U16", "S16", "64", "128", "256")  # bits; 32 is not written
SASS_ACCESSES = {"LDG": LOADS, "LD": LOADS, "STG": STORES, "ST": STORES, "LDGSTS": COPIES,
                 "LDS": SHARED_LOADS, "STS": SHARED_STORES, "STAS": SHARED_STORES, "LDL": LOCAL,
                 "STL": LOCAL}


def classify_ptx(instruction):
    base, *parts = instruction.opcode.split(".")
    kind = parts[-1] if parts else ""
    space = next((p.split("::")[0] for p in parts if re.match(r"(global|shared|local|param)", p)),
                 "generic")
    if base in ("ld", "ldu", "st") or base == "wmma" and parts[0] in ("load", "store"):
        if space == "param":
            return None
        stores = "st" in (base, parts[0][:2])
        group = {"local": LOCAL, "shared": SHARED_STORES if stores else SHARED_LOADS}.get(
            space, STORES if stores else LOADS)
        if base == "wmma":
            return group, f"wmma.{parts[0]}.{space}"
        vector = next((part for part in parts if re.fullmatch(r"v\d", part)), "")
        size = int(re.sub(r"\D", "", kind) or 0) * int(vector[1:] or 1) // 8
        label = ".".join(filter(None, (base, space, vector, kind)))
        return group, f"{label} ({size} bytes)"
    if base in ("ldmatrix", "stmatrix"):
        many = next((part for part in parts if re.fullmatch(r"x\d", part)), "")
        return SHARED_LOADS if base == "ldmatrix" else SHARED_STORES, f"{base}.{many}"
    if instruction.opcode.startswith("cp.async"):
        if re.search(r"commit|wait|mbarrier\.arrive", instruction.opcode):
            return BARRIERS, "cp.async." + next(p for p in parts[1:] if p != "bulk").split("::")[0]
        if parts[1] == "bulk":
            return COPIES, ".".join(part for part in [base] + parts if re.fullmatch(
                r"cp|async|bulk|tensor|\dd|multicast::cluster|reduce", part))
        return COPIES, f"cp.async ({instruction.operands.split(',')[2].strip()} bytes)"
    if base in ("atom", "red", "multimem"):
        return ATOMICS, f"{base}.{space}"
    if base in ("mma", "wmma") or base == "wgmma" and parts[0] == "mma_async":
        return TENSORS, ".".join(part for part in [base] + parts
                                 if re.fullmatch(r"\w*mma(_async)?|m\d+n\d+k\d+", part))
    if base in ("fma", "mul", "add", "sub") and re.match(r"b?f(16|32|64)", kind):
        return ARITHMETIC, f"{base}.{kind}"
    if base in ("div", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "tanh", "sin", "cos") and "f" in kind:
        return SPECIAL, f"{base}.{kind}"
    if base in ("shfl", "vote", "redux", "match"):
        return LANES, base
    if base in ("bar", "barrier", "mbarrier", "fence", "membar", "wgmma"):
        return BARRIERS, ".".join([base] + parts[:1]).split("::")[0]
    return None


def counts(code):
    """How many instructions of each kind: {(group, label): number}."""
    return collections.Counter(kind for kind in map(classify, code) if kind)


# --- Loops ------------------------------------------------------------------------------------


def successors(code):
    """For every instruction the indices of those that may run next: the one after it, and all
    that it names (BSSY names where its threads meet again). None where a jump's target is computed.
    """
    place = {label: i for i, instruction in enumerate(code) for label in instruction.labels}
    result = []
    for i, instruction in enumerate(code):
        name = instruction.opcode.split(".")[0].upper()
        words = re.findall(r"[.$\w]+", instruction.operands)
        targets = [place[word] for word in words if word in place]
        if name in ("BRX", "BRXU", "JMX", "JMXU") and not targets:
            return None
        # A branch may have its condition among its operands: BRA.U UP0, `(.L_x_1).
        always = not instruction.guard and (name in ("EXIT", "RET") or name == "BRA" and
                                            len(words) == 1)
        result.append(targets + ([] if always or i + 1 == len(code) else [i + 1]))
    return result


def loops(code):
    """The loops of a kernel, each the set of its instructions' indices. A loop is what lies between
    a jump back to its head and that head, where nothing gets in but through the head."""
    follow = successors(code)
    if not follow:
        return []
    before = [[] for _ in code]
    for at, ahead in enumerate(follow):
        for i in ahead:
            before[i].append(at)

    # Bit i of dominators[at]: every way to instruction `at` leads through instruction i. All bits
    # are set, as in -1, of what is never reached.
    dominators, changed = [1] + [-1] * (len(code) - 1), True
    while changed:
        changed = False
        for at in range(1, len(code)):
            new = functools.reduce(operator.and_, (dominators[i] for i in before[at]), -1) | 1 << at
            changed |= dominators[at] != new
            dominators[at] = new

    bodies = collections.defaultdict(set)  # by head
    for at, ahead in enumerate(follow):
        for head in ahead:
            if dominators[at] != -1 and dominators[at] >> head & 1:
                bodies[head].add(head)
                reached = [at]
                while reached:
                    one = reached.pop()
                    if one not in bodies[head] and dominators[one] != -1:
                        bodies[head].add(one)
                        reached += before[one]
    return list(bodies.values())


def main_loop(code):
    """The innermost loop with most of the work, as a set of indices: of tensor cores if there is
    such work in any loop, else multiply-adds, else accesses to global memory. Empty without one."""
    found = loops(code)
    for is_work in (lambda group, _: group == TENSORS, multiplies_and_adds,
                    lambda group, _: group in (LOADS, STORES, COPIES)):
        work = [sum(is_work(*(classify(code[i]) or ("", ""))) for i in loop) for loop in found]
        working = [(amount, loop) for amount, loop in zip(work, found) if amount]
        innermost = [(amount, loop) for amount, loop in working
                     if not any(other < loop for _, other in working)]
        if innermost:
            return max(innermost, key=lambda pair: pair[0])[1]
    return set()


# --- Where they come from ---------------------------------------------------------------------


def is_below(folder, path):
    return path.startswith(f"{folder}/")


def is_own(path):
    """Whether a file is the project's own source. A toolkit in .venv is below PROJECT too."""
    return is_below(PROJECT / "src", path) or is_below(PROJECT / "include", path)


def places_of(instruction):
    """Where an instruction comes from: the innermost line in src/, or of all; and the project's
    line inside that, where there is one."""
    ours = [place for place in instruction.source if is_own(place[0])]
    of_programs = [place for place in ours if is_below(PROJECT / "src", place[0])]
    outer = (of_programs or ours or list(instruction.source))[:1]
    return outer + [place for place in ours[:1] if place not in outer]


@functools.lru_cache(maxsize=None)
def source_lines(path):
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
