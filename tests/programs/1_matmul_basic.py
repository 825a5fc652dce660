"""What the tests of 1_matmul_basic need besides what it declares (see tests/pages.py)."""

from pages import Mutant, accesses, launch_once

MUTANTS = [
    Mutant("basic_dropped_k", "matmul_basic",
           "the loop ends before the last k",
           [("k = 0; k < N; ++k", "k = 0; k < N - 1; ++k")]),
    Mutant("basic_swapped_A", "matmul_basic",
           "A is read transposed",
           [("A[row * N + k]", "A[k * N + row]")]),
    Mutant("basic_swapped_B", "matmul_basic",
           "B is read transposed",
           [("B[k * N + col]", "B[col * N + k]")]),
    Mutant("basic_fp16_accumulator", "matmul_basic",
           "the sum is rounded to fp16 at every step",
           [("sum += A[row * N + k] * B[k * N + col];",
             "sum = __half2float(__float2half(sum + A[row * N + k] * B[k * N + col]));")]),
    Mutant("basic_unwritten_rows", "matmul_basic",
           "the grid lacks its last row of blocks",
           [("grid(N / kBlock, N / kBlock)", "grid(N / kBlock, N / kBlock - 1)")], kind="grid"),
    Mutant("basic_stale", "matmul_basic",
           "only the first launch computes",
           [launch_once("matmul_basic<<<")], timed=True),
    Mutant("basic_every_fourth_launch", "matmul_basic",
           "in launches 3, 7, 11, ... the grid lacks its last row of blocks",
           [("matmul_basic<<<grid,",
             "static int launches; matmul_basic<<<dim3(grid.x, grid.y - (launches++ % 4 == 2)),")],
           timed=True),
    Mutant("basic_last_k_twice", "matmul_basic",
           "the last k is counted twice",
           [("size_t k = 0; k < N; ++k", "size_t i = 0, k = 0; i <= N; k = min(++i, N - 1)")],
           sizes=(96, 1024), kind="tail"),
    Mutant("basic_register_as_it_was", "matmul_basic",
           "the sum begins as what its register held",
           [("float sum = 0;", "float sum = 1;")], sizes=(96, 1024), kind="accumulator"),
]


def counts(n):
    """For each k a warp loads one element of A, in one sector, and 32 neighbors of B, in four."""
    return {f"matmul_basic: ({n // 32} x {n // 32}) blocks of (32 x 32) threads, one launch": {
        "global loads": accesses(2 * n**3, 4, sectors=n**3 // 32 * 5, distinct=n**3 // 32 * 33),
        "global stores": accesses(n**2, 4, sectors=n**2 // 32 * 4)}}


COUNTS = {str(n): counts(n) for n in (64, 128, 256)}
OPERATIONS = {"96": 2 * 96**3}
PRINTS = {"96": (r"grid: \(3 x 3\) blocks of \(32 x 32\) threads",
                 r"to the device (\(CPU\) )?[\d.]+ ms")}
