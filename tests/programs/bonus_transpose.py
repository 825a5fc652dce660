"""What the tests of bonus_transpose need besides what it declares (see tests/pages.py)."""

from pages import LOAD_16, SHARED_16, STORE_16, Mutant, accesses, launch_once

MUTANTS = [
    Mutant("transpose_short_grid", "naive tiled padded swizzled",
           "the last row of tiles is not launched",
           [("(R + size - 1) / size * ", "R / size * ")], sizes=(100, 1000), kind="grid"),
    Mutant("transpose_no_barrier", "tiled padded swizzled",
           "threads take from the tile what others have yet to put there",
           [("__syncthreads();  // the tile is complete", ""),
            ("__syncthreads();  // the tile of out is complete", "")], race=True, kind="fence"),
    Mutant("transpose_lost_row", "tiled padded swizzled",
           "the tile's last row is never filled",
           [("tile[i][lane] = x", "if (i + 1 < kTile) tile[i][lane] = x"),
            ("tile[V * left + j][swizzled", "if (top + 1 < kVectors) tile[V * left + j][swizzled")],
           sizes=(128, 1024), kind="stale"),
    Mutant("transpose_shifted", "naive swizzled",
           "a number is taken from the next row; what is left beside whole vectors is not moved",
           [("out[col * R + row] = x[row * C + col];",
             "out[col * R + row] = x[(row + 1) % R * C + col];"),
            ("if (row + j < R && col < C) to[j] = values.at[j];", ";")], sizes=(33, 1025)),
    Mutant("transpose_stale", "naive tiled padded swizzled",
           "only the first launch does anything",
           [launch_once("kernel<<<tiles(tile), block>>>(x, out, R, C);")], timed=True, sizes=(33,)),
]

# Bounds of loops are stepped to by +=.
NOT_APPLICABLE = {kind: dict.fromkeys(("naive", "tiled", "padded"), "it sums nothing")
                  for kind in ("tail", "accumulator")}

FAST = {"swizzled<true>": (LOAD_16, STORE_16, SHARED_16)}


def counts(n):
    """Of n x n numbers: a row is four sectors of a request, a column is 32. A column of the tile is
    in one bank, so 31 of a request's 32 lanes wait; with padding, and swizzled, none does."""
    blocks = (n // 32)**2

    def title(name, blocks, block, more=""):
        return f"{name}<float{more}>: ({blocks} x 1) blocks of ({block}) threads, one launch"

    by_row, by_column = accesses(n * n, 4, sectors=n * n // 8), accesses(n * n, 4, sectors=n * n)
    shared, crowded = accesses(n * n, 4), accesses(n * n, 4, conflicts=n * n // 32 * 31)
    barriers = accesses(n * n // 4, 0)
    vectors = accesses(n * n // 4, 16, sectors=n * n // 8)
    return {
        title("naive", blocks, "32 x 8"): {"global loads": by_row, "global stores": by_column},
        title("tiled", blocks, "32 x 8"): {
            "global loads": by_row, "global stores": by_row, "shared loads": crowded,
            "shared stores": shared, "barriers": barriers},
        title("padded", blocks, "32 x 8"): {
            "global loads": by_row, "global stores": by_row, "shared loads": shared,
            "shared stores": shared, "barriers": barriers},
        title("swizzled", blocks // 4, "256 x 1", ", true"): {
            "global loads": vectors, "global stores": vectors,
            "shared loads": accesses(n * n // 4, 16), "shared stores": accesses(n * n // 4, 16),
            "barriers": accesses(n * n // 16, 0)}}


COUNTS = {str(n): counts(n) for n in (64, 128)}
