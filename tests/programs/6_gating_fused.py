"""What the tests of 6_gating_fused need besides what it declares (see tests/pages.py)."""

from pages import COPY_16, Mutant, STORE_16, launch_once

TALK = dict(sizes=(), talk_sizes=(16, 32, 256))

MUTANTS = [
    Mutant("fused_basic_dropped_k", "fused_basic",
           "the second product leaves out each tile's last k",
           [("v2 += tile_x[ty][k] * tile_W2[k][tx];",
             "if (k + 1 < kTile) v2 += tile_x[ty][k] * tile_W2[k][tx];")]),
    Mutant("fused_basic_swapped_weights", "fused_basic",
           "W1 and W2 change places",
           [("tile_W1[ty][tx] = W1[", "tile_W1[ty][tx] = W2["),
            ("tile_W2[ty][tx] = W2[", "tile_W2[ty][tx] = W1[")]),
    Mutant("fused_basic_no_bias", "fused_basic",
           "the first product is left without its bias",
           [("float v1 = b1[col]", "float v1 = 0")]),
    Mutant("fused_basic_no_first_barrier", "fused_basic",
           "threads compute with tiles that are not complete",
           [("__syncthreads();  // the tiles are complete", "")], race=True),
    Mutant("fused_basic_no_second_barrier", "fused_basic",
           "threads load over tiles that others still compute with",
           [("__syncthreads();  // nobody needs the tiles any more", "")], race=True),
    Mutant("fused_basic_stale", "fused_basic",
           "only the first launch computes",
           [launch_once("fused_basic<<<")], timed=True),
    Mutant("fused_wrong_factor", "fused_basic fused_wmma",
           "the sigmoid is taken of the other factor",
           [("return gating_unfused::logistic(v1) * v2;",
             "return gating_unfused::logistic(v2) * v1;")]),
    Mutant("fused_sums_swapped_weights", "fused_wmma",
           "both sums are of x W1",
           [("wmma::mma_sync(v2[i][j], a[i], w2,", "wmma::mma_sync(v2[i][j], a[i], w1,")]),
    Mutant("fused_sums_swapped_biases", "fused_wmma",
           "both sums begin as the first bias",
           [("begin(v2, j, b2)", "begin(v2, j, b1)")]),
    Mutant("fused_wmma_dropped_k", "fused_wmma",
           "the last 32 of k are left out",
           [("t * kBlockK < K; ++t", "(t + 1) * kBlockK < K; ++t")]),
    Mutant("fused_wmma_no_wait", "fused_wmma",
           "tiles are read before their copies have arrived",
           [("__pipeline_wait_prior(kStages - 2);  // this thread's", "// this thread's"),
            # A copy that started two tiles ago has arrived anyway: let it start just now.
            ("copy_stage(t + kStages - 1);", "copy_stage(t);")], race=True),
    Mutant("fused_wmma_no_barrier", "fused_wmma",
           "threads wait for their own copies, and not for each other's",
           [("__syncthreads();                     // everyone's have", "// everyone's have")],
           sizes=(160, 1024, 2048), race=True),
    Mutant("fused_wmma_unwritten_columns", "fused_wmma",
           "the grid is rounded down: what is no multiple of 64 columns has no blocks",
           [("(H + kCols - 1) / kCols", "H / kCols")], sizes=(160, 1056)),
    Mutant("fused_wmma_unwritten_rows", "fused_wmma",
           "the last 16 rows of a block are not stored",
           [("i * kFragment < rows; ++i)", "(i + 1) * kFragment < rows; ++i)")]),
    Mutant("fused_wmma_stale", "fused_wmma",
           "only the first launch computes",
           [launch_once("fused_wmma<<<")], timed=True),
    Mutant("fused_streamed_dropped_k", "fused_streamed",
           "the last 16 of k, one fragment, are left out",
           [("k < kTalkK; k += kFragment", "k < kTalkK - kFragment; k += kFragment")], **TALK),
    Mutant("fused_streamed_wrong_stage", "fused_streamed",
           "tiles are multiplied in the stage that is being filled",
           [("&stream.x[t % kStages][warp_row]", "&stream.x[(t + 2) % kStages][warp_row]")],
           **TALK),
    Mutant("fused_streamed_no_wait", "fused_streamed",
           "tiles are read before their copies have arrived",
           [("__pipeline_wait_prior(kStages - 2);\n", ""),
            ("copy_x(t + kStages - 1);", "copy_x(t);")], race=True, **TALK),
    Mutant("fused_streamed_no_barrier", "fused_streamed",
           "threads wait for their own copies, and not for each other's",
           [("__syncthreads();\n        copy_x", "copy_x")],
           race=True, sizes=(), talk_sizes=(16, 256, 1024)),
    Mutant("fused_streamed_unwritten_tile", "fused_streamed",
           "the last tile is not computed",
           [("row_of(t) < M; ++t", "row_of(t) + kRows < M; ++t")], **TALK),
    Mutant("fused_streamed_stale", "fused_streamed",
           "only the first launch computes",
           [launch_once("fused_streamed<<<")], timed=True, **TALK),
]

FAST = {"fused_wmma": ("HMMA", COPY_16, STORE_16), "fused_streamed": ("HMMA", COPY_16, STORE_16)}
OPERATIONS = {"64": 4 * 64**3, "--talk 16": 4 * (4 * 16**2) * 128 * 64}


def traffic(M, K, H):
    """Of six kernels, in fp16: two gemms, two additions of a bias, the sigmoid and the product."""
    gemm, add = M * K + K * H + M * H, 2 * M * H + H
    fused = 2 * (M * K + 2 * K * H + 2 * H + M * H)
    return {"six_kernels": (6, 2 * (2 * gemm + 2 * add + 2 * M * H + 3 * M * H), 2 * 2 * M * H),
            "fused_basic": (1, fused, 0), "fused_wmma": (1, fused, 0)}


TRAFFIC = {"64": traffic(64, 64, 64), "--talk 16": traffic(4 * 16**2, 128, 64)}
