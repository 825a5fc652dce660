"""What the tests of bonus_matmul_A_stationary need besides what it declares (see tests/pages.py)."""

from pages import Mutant, accesses, launch_once

MUTANTS = [
    Mutant("stationary_dropped_k", "matmul_A_stationary",
           "the last block leaves out its last k",
           [("k = 0; k < kTile; ++k", "k = 0; k < kTile - int(k0 + kTile == N); ++k")]),
    Mutant("stationary_no_first_barrier", "matmul_A_stationary",
           "threads compute with tiles that are not complete",
           [("__syncthreads();  // the tiles are complete", "")], race=True, kind="fence"),
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
           timed=True, kind="zeroing"),
    Mutant("stationary_last_k_twice", "matmul_A_stationary",
           "the last block counts its last k twice",
           [("int k = 0; k < kTile; ++k",
             "int i = 0, k = 0; i < kTile + int(k0 + kTile == N); k = min(++i, kTile - 1)")],
           sizes=(96, 1024), kind="tail"),
    Mutant("stationary_row_of_the_tile_before", "matmul_A_stationary",
           "the last row of B's tile is loaded once and then stays",
           [("tile_B[y][x] = B[", "if (col == 0 || y + 1 < kTile) tile_B[y][x] = B[")],
           sizes=(96, 1024), kind="stale"),
    Mutant("stationary_register_as_it_was", "matmul_A_stationary",
           "each partial sum begins as what its register held",
           [("float sum = 0;", "float sum = 1;")], sizes=(96, 1024), kind="accumulator"),
    Mutant("stationary_short_grid", "matmul_A_stationary",
           "the grid lacks its last column of blocks, and so the sums the last 32 of k",
           [("grid(N / kTile, N / kTile)", "grid(N / kTile - 1, N / kTile)")], sizes=(96, 1024),
           kind="grid"),
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
