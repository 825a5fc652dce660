"""What the tests of bonus_memory need besides what it declares (see tests/pages.py)."""

from pages import Mutant, accesses

SET, STRIDE = "16", "1 --show strides"  # command lines with one line: a set of 16 KiB; stride 1
READERS = "read read_shared strided"

MUTANTS = [
    Mutant("memory_short_walks", "chase chase_shared " + READERS,
           "the last loads are left out",
           [("follow(kLoads);", "follow(kLoads - 1);"),
            ("i < kLoads; ++i) at = ", "i < kLoads - 1; ++i) at = "),
            ("step < kReads;", "step < kReads - 1;"), ("int step = 0; step < steps;", "int step = 0; step < steps - 1;")],
           sizes=(), runs=(SET, STRIDE), cpu_runs=(SET, STRIDE), kind="grid"),
    Mutant("memory_register_as_it_was", READERS,
           "the sum begins as what its register held",
           [("uint32_t sum = 0;\n#pragma unroll 8", "uint32_t sum = 1;\n#pragma unroll 8"),
            ("uint32_t sum = 0;\n#pragma unroll 16", "uint32_t sum = 1;\n#pragma unroll 16")],
           sizes=(), runs=(SET, STRIDE), cpu_runs=(SET, STRIDE), kind="accumulator"),
    Mutant("memory_one_twice", READERS,
           "a number is added twice",
           [("    return sum;\n", "    return sum + x[at & (vectors - 1)].x;\n"),
            ("sums[thread] = sum;", "sums[thread] = sum + *first;")],
           sizes=(), runs=(SET, STRIDE), cpu_runs=(SET, STRIDE), kind="tail"),
    Mutant("memory_no_barrier", "read_shared",
           "shared memory is read while it is being filled",
           [("__syncthreads();  // the copy is complete", "")],
           sizes=(), runs=(SET,), cpu_runs=(SET,), race=True, kind="fence"),
    Mutant("memory_no_chain", "chase_shared",
           "the chain is followed while it is being made",
           [("__syncthreads();  // the chain is complete", "")],
           sizes=(), runs=(SET,), cpu_runs=(SET,), race=True, stops="in no buffer", kind="fence"),
    Mutant("memory_last_as_before", "chase_shared read_shared",
           "the last line leads back to the first; the last vector is that before it",
           [("next_line(i, lines) * kLineBytes",
             "(i + 1 < lines ? next_line(i, lines) : 0) * kLineBytes"),
            ("copy[i] = reinterpret_cast<const uint4*>(x)[i];",
             "copy[i] = reinterpret_cast<const uint4*>(x)[min(i, vectors - 2)];")],
           sizes=(), runs=(SET,), cpu_runs=(SET,), kind="stale"),
]

# It fills shared memory in steps of +=.
NOT_APPLICABLE = {kind: {"chase_shared": "it sums nothing"} for kind in ("tail", "accumulator")}

FAST = {"read": (r"LDG\.E\S*\.128",), "read_shared": (r"LDS\S*\.128",),
        "chase": (r"LDG\.E\.64",), "chase_shared": (r"LDS",)}


def strides(most):
    """Of 2^16 numbers every stride-th is loaded. A request has a sector for
    each 8 numbers, until each lane has its own."""
    found = {}
    for stride in (1, 2, 4, 8, 16, 32)[:most.bit_length()]:
        loads = 2**16 // stride
        found[f"strided<{stride}>: (4 x 1) blocks of (64 x 1) threads, one launch"] = {
            "global loads": accesses(loads, 4, sectors=loads // 32 * min(32, 4 * stride)),
            "global stores": accesses(256, 4, sectors=32)}
    return found


COUNTS = {"32 --show strides": strides(32)}
FACTS = ("fits",)
SCALED = 4 * 10**6
PRINTS = {"16": (r"\bchase_shared\b", r"\bN = 16 +L1 "), "4 --show strides": (r"N = 4 +16 ",),
          "8 --show offsets": (r"N = 1 +5 ", r"N = 8 +4 ")}
REFUSED = ("--show", "--show latency", "0")
