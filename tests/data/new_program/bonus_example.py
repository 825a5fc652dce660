"""bonus_example: relu(a x + y)."""

from pages import Mutant, launch_once

MUTANTS = [
    Mutant("example_lost_y", "chain", "y is not added",
           [("sums[i] = kA * float(x[i]) + float(y[i])", "sums[i] = kA * float(x[i])")],
           sizes=(33, 160)),
    Mutant("example_lost_tail", "chain fused", "the last block is not launched",
           [("blocks = (size + kThreads - 1) / kThreads;", "blocks = size / kThreads;")],
           sizes=(33,), kind="grid"),
    Mutant("example_stale", "fused", "only its first launch does anything",
           [launch_once("fused<T><<<blocks, kThreads>>>(x, y, out, size);")], timed=True,
           sizes=(33,)),
]

# Of 24 x 20 numbers, 1920 bytes: launches, bytes moved, bytes kept in between.
TRAFFIC = {"--rows 24 --cols 20": {"chain": (2, 5 * 1920, 1920), "fused": (1, 3 * 1920, 0)}}
