"""What the tests of bonus_matmul_A_stationary need besides what it declares (see tests/pages.py)."""

from pages import Mutant, accesses, launch_once

MUTANTS = [
    Mutant("stationary_dropped_k", "matmul_A_stationary",
           "the last block leaves out its last k",
           [("k = 0; k < kTile; ++k", "k = 0; k < kTile - int(k0 + kTile == N); ++k")]),
    Mutant("stationary_no_first_barrier", "matmul_A_stationary",
           "threads compute with tiles that are not complete",
           [("__syncthreads();  // the tiles are complete", "")], race=True),
    Mutant("stationary_not_atomic", "matmul_A_stationary",
           "blocks overwrite each other's partial sums",
           [("atomicAdd(&C[(row + y) * N + (col + x)], sum);",
             "C[(row + y) * N + (col + x)] += sum;")],
           sizes=(1024, 2048), cpu_sizes=(256, 512), race=True),
    Mutant("stationary_missing_tile", "matmul_A_stationary",
           "one tile of A is left out",
           [("atomicAdd(", "if (blockIdx.x != 1 || blockIdx.y != 2) atomicAdd(")]),
    Mutant("stationary_not_zeroed", "matmul_A_stationary",
           "C is not zeroed, so each launch adds to what the one before left",
           [launch_once("DEMO_CHECK(cudaMemsetAsync(C, 0,")],
           timed=True),
]


def counts(n):
    """A is loaded once; of B and of the sums each block takes all its columns."""
    tiles, once, many = n // 32, n**2, n**2 * (n // 32)
    return {
        f"matmul_A_stationary: ({tiles} x {tiles}) blocks of (32 x 32) threads, one launch": {
            "global loads": accesses(once + many, 4, sectors=(once + many) // 8),
            "global atomics": accesses(many, 4, sectors=many // 8),
            "shared loads": accesses(2 * n**3, 4, distinct=n**3 // 32 * 33),
            "shared stores": accesses(once + many, 4),
            "barriers": accesses(2 * many, 0)}}


COUNTS = {"64": counts(64)}
ORDER_OF_SUMS_VARIES = True  # the blocks' order decides it
