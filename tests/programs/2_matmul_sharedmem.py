"""What the tests of 2_matmul_sharedmem need besides what it declares (see tests/pages.py)."""

from pages import Mutant, accesses, launch_once

MUTANTS = [
    Mutant("sharedmem_dropped_k", "matmul_sharedmem",
           "the last tile's last k is left out",
           [("k = 0; k < kTile; ++k", "k = 0; k < kTile - int(t + kTile == N); ++k")]),
    Mutant("sharedmem_swapped_B", "matmul_sharedmem",
           "the tile of B is read transposed",
           [("tile_B[k][x]", "tile_B[x][k]")]),
    Mutant("sharedmem_swapped_C", "matmul_sharedmem",
           "C is written transposed",
           [("C[row * N + col]", "C[col * N + row]")]),
    Mutant("sharedmem_20_bits", "matmul_sharedmem",
           "results are rounded to 20 bits",
           [("= sum;", "= __uint_as_float(__float_as_uint(sum) + 8 & ~15u);")]),
    Mutant("sharedmem_tiny_numbers_are_0", "matmul_sharedmem",
           "numbers of A below 1e-4 are taken as 0",
           [("= A[row * N + (t + x)];",
             "= fabsf(A[row * N + (t + x)]) < 1e-4f ? 0 : A[row * N + (t + x)];")]),
    Mutant("sharedmem_zeros_skipped", "matmul_sharedmem",
           "a row of A's tile that begins with 0 is left out, as if all of it were 0",
           [("for (int k = 0; k < kTile; ++k)",
             "if (tile_A[y][0] != 0) for (int k = 0; k < kTile; ++k)")]),
    Mutant("sharedmem_no_first_barrier", "matmul_sharedmem",
           "threads compute with tiles that are not complete",
           [("__syncthreads();  // the tiles are complete", "")], race=True, kind="fence"),
    Mutant("sharedmem_no_second_barrier", "matmul_sharedmem",
           "threads load over tiles that others still compute with",
           [("__syncthreads();  // nobody needs the tiles any more", "")], race=True,
           kind="fence"),
    Mutant("sharedmem_unwritten_tile", "matmul_sharedmem",
           "the block in the lower left corner does not store",
           [("C[row * N + col] = sum;",
             "if (blockIdx.x > 0 || blockIdx.y + 1 < gridDim.y) C[row * N + col] = sum;")]),
    Mutant("sharedmem_stale", "matmul_sharedmem",
           "only the first launch computes",
           [launch_once("matmul_sharedmem<<<")], timed=True),
    Mutant("sharedmem_last_tile_twice", "matmul_sharedmem",
           "the last tiles are counted twice",
           [("size_t t = 0; t < N; t += kTile",
             "size_t i = 0, t = 0; i <= N; i += kTile, t = min(i, N - kTile)")],
           sizes=(96, 1024), kind="tail"),
    Mutant("sharedmem_row_of_the_tile_before", "matmul_sharedmem",
           "the last row of B's tile is loaded once and then stays",
           [("tile_B[y][x] = B[", "if (t == 0 || y + 1 < kTile) tile_B[y][x] = B[")],
           sizes=(96, 1024), kind="stale"),
    Mutant("sharedmem_register_as_it_was", "matmul_sharedmem",
           "the sum begins as what its register held",
           [("float sum = 0;", "float sum = 1;")], sizes=(96, 1024), kind="accumulator"),
    Mutant("sharedmem_short_grid", "matmul_sharedmem",
           "the grid lacks its last row of blocks",
           [("grid(N / kTile, N / kTile)", "grid(N / kTile, N / kTile - 1)")], sizes=(96, 1024),
           kind="grid"),
]


def counts(n):
    """N / 32 tiles, of which each thread loads one element of each matrix, stores it, and reads 32
    of both."""
    tiles = n // 32
    return {f"matmul_sharedmem: ({tiles} x {tiles}) blocks of (32 x 32) threads, one launch": {
        "global loads": accesses(2 * n**2 * tiles, 4, sectors=2 * n**2 * tiles // 8),
        "global stores": accesses(n**2, 4, sectors=n**2 // 8),
        "shared loads": accesses(2 * n**3, 4, distinct=n**3 // 32 * 33),
        "shared stores": accesses(2 * n**2 * tiles, 4),
        "barriers": accesses(2 * n**2 * tiles, 0)}}


COUNTS = {str(n): counts(n) for n in (64, 128, 256)}
