"""What the tests of 6_gating_fused need besides what it declares (see tests/pages.py)."""

from pages import COPY_16, STORE_16, Mutant, launch_once

BOTH = dict(sizes=(160, 1024), talk_sizes=(16, 256))

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
           [("__syncthreads();  // the tiles are complete", "")], race=True, kind="fence"),
    Mutant("fused_basic_no_second_barrier", "fused_basic",
           "threads load over tiles that others still compute with",
           [("__syncthreads();  // nobody needs the tiles any more", "")], race=True,
           kind="fence"),
    Mutant("fused_basic_stale", "fused_basic",
           "only the first launch computes",
           [launch_once("fused_basic<<<")], timed=True),
    Mutant("fused_clamped", "fused_basic fused_wmma",
           "the sigmoid's argument is clamped to [-8, 8]",
           [("return gating_unfused::logistic(v1) * v2;",
             "return gating_unfused::logistic(fminf(fmaxf(v1, -8.0f), 8.0f)) * v2;")], **BOTH),
    Mutant("fused_textbook_sigmoid", "fused_basic fused_wmma",
           "the sigmoid is e^v / (1 + e^v), which is no number beyond 88",
           [("return gating_unfused::logistic(v1) * v2;",
             "return __expf(v1) / (1 + __expf(v1)) * v2;")], **BOTH),
    Mutant("fused_one_row", "fused_basic",
           "a single row of 4096 is wrong",
           [("out[row * H + col] = gate(v1, v2);",
             "out[row * H + col] = gate(v1, row == 100 ? 2 * v2 : v2);")], sizes=(), talk_sizes=(32,)),
    Mutant("fused_wrong_factor", "fused_basic fused_wmma",
           "the sigmoid is taken of the other factor",
           [("return gating_unfused::logistic(v1) * v2;",
             "return gating_unfused::logistic(v2) * v1;")]),
    Mutant("fused_sums_swapped_weights", "fused_wmma",
           "both sums are of x W1",
           [("wmma::mma_sync(v2[i][j], a[i], w2,", "wmma::mma_sync(v2[i][j], a[i], w1,")]),
    Mutant("fused_sums_swapped_biases", "fused_wmma",
           "both sums begin as the first bias",
           [("second = equal_rows(&b2[", "second = equal_rows(&b1[")]),
    Mutant("fused_wmma_dropped_k", "fused_wmma",
           "the last 32 of k are left out",
           [("t * kBlockK < K; ++t", "(t + 1) * kBlockK < K; ++t")]),
    Mutant("fused_wmma_no_wait", "fused_wmma",
           "tiles are read before their copies have arrived",
           [("__pipeline_wait_prior(kStages - 2);  // this thread's", "// this thread's"),
            # A copy that started two tiles ago has arrived anyway: let it start just now.
            ("copy_stage(t + kStages - 1);", "copy_stage(t);")], race=True, kind="fence"),
    Mutant("fused_wmma_no_barrier", "fused_wmma",
           "threads wait for their own copies, and not for each other's",
           [("__syncthreads();                     // everyone's have", "// everyone's have")],
           sizes=(160, 1024, 2048), race=True, kind="fence"),
    Mutant("fused_wmma_unwritten_columns", "fused_wmma",
           "the grid is rounded down: what is no multiple of 64 columns has no blocks",
           [("(H + kCols - 1) / kCols", "H / kCols")], sizes=(160, 1056), kind="grid"),
    Mutant("fused_wmma_unwritten_rows", "fused_wmma",
           "the last 16 rows of a block are not stored",
           [("i * kFragment < rows; ++i)", "(i + 1) * kFragment < rows; ++i)")]),
    Mutant("fused_wmma_stale", "fused_wmma",
           "only the first launch computes",
           [launch_once("fused_wmma<<<")], timed=True),
    # Each of these is two bugs, one for each shape: most of the time goes into compiling.
    Mutant("fused_tile_dropped", "fused_tile fused_talk_tile",
           "the last tile is left out: along k, and of x",
           [("ct::irange(0, tile::count(K, 64))", "ct::irange(0, tile::count(K, 64) - 1)"),
            ("int(M / kRows), int(", "int(M / kRows) - 1, int(")], **BOTH),
    Mutant("fused_tile_swapped_weights", "fused_tile fused_talk_tile",
           "both products are of W1",
           [("tile::matrix<64, kCols>(W2, K, H)", "tile::matrix<64, kCols>(W1, K, H)"),
            ("tile::matrix<K, H>(W2, K, H)", "tile::matrix<K, H>(W1, K, H)")], **BOTH),
    Mutant("fused_tile_no_bias", "fused_tile fused_talk_tile",
           "one of the products is left without its bias",
           [("tile::logistic(v1 + tile::row<kCols>(b1, H, n))", "tile::logistic(v1)"),
            ("ct::mma(a, w2, zero) + bias2", "ct::mma(a, w2, zero)")], **BOTH),
    Mutant("fused_tile_wrong_start", "fused_tile fused_talk_tile",
           "every tile of columns gets the first one's bias; the second sum begins as the first",
           [("(v2 + tile::row<kCols>(b2, H, n))", "(v2 + tile::row<kCols>(b2, H, 0))"),
            ("ct::mma(a, w2, zero) + bias2", "ct::mma(a, w2, v1) + bias2")], **BOTH),
    Mutant("fused_tile_wrong_factor", "fused_tile fused_talk_tile",
           "the sigmoid is taken of the other factor",
           [("tile::logistic(v1 + tile::row<kCols>(b1", "tile::logistic(v2 + tile::row<kCols>(b2"),
            ("gate * (v2 + tile::row<kCols>(b2", "gate * (v1 + tile::row<kCols>(b1"),
            ("tile::logistic(v1) * v2", "tile::logistic(v2) * v1")], **BOTH),
    Mutant("fused_tile_unwritten", "fused_basic fused_tile fused_talk_tile",
           "the grid ends early, and the last columns have no blocks; of --talk S a block of "
           "fused_talk_tile computes its first tile alone",
           [("blocks(M / kTile, H / kTile)", "blocks(M / kTile, H / kTile - 1)"),
            ("rows * tile::count(o.H, 128)", "rows * int(o.H / 128)"),
            ("rows * tile::count(o.H, 64)", "rows * int(o.H / 64)"),
            ("int(M / kRows), int(ct::num_blocks().x)", "int(M / kRows), int(M / kRows)")],
           sizes=(160, 1056), runs=("--talk 256",), cpu_runs=("--talk 16",), kind="grid"),
    Mutant("fused_tile_stale", "fused_tile fused_talk_tile",
           "only the first launch computes",
           [launch_once("kernel<<<blocks>>>")], timed=True, **BOTH),
    Mutant("fused_tile_swapped_place", "fused_tile",
           "row and column of W1's tiles change places (a GPU may read anything)",
           [("(W1, K, H).load_masked(k, n)", "(W1, K, H).load_masked(n, k)")],
           sizes=(), cpu_sizes=(160,), stops="lies outside of the tensor"),
    Mutant("fused_tile_unmasked_store", "fused_tile",
           "the edge is stored as if there were whole tiles (a GPU writes over what lies there)",
           [(".store_masked(result, m, n)", ".store(result, m, n)")],
           sizes=(), cpu_sizes=(160,), stops="reaches over the edge of the tensor"),
    # Of each of these kinds, one in every kernel that can have it.
    Mutant("fused_tail_twice", "fused_basic fused_wmma fused_tile",
           "the last tiles along k are counted twice",
           [("size_t t = 0; t < K; t += kTile",
             "size_t i = 0, t = 0; i <= K; i += kTile, t = min(i, K - kTile)"),
            ("k = t * kBlockK, corner", "k = min(t * kBlockK, K - kBlockK), corner"),
            ("t * kBlockK < K; ++t", "t * kBlockK <= K; ++t"),
            ("(int k : ct::irange(0, tile::count(K, 64))) {",
             "(int i : ct::irange(0, tile::count(K, 64) + 1)) {\n"
             "        const int k = i < tile::count(K, 64) ? i : i - 1;")],
           sizes=(96, 1024), kind="tail"),
    Mutant("fused_stale", "fused_basic fused_wmma",
           "the last row of W2's tile is loaded once and then stays; the tiles that are multiplied "
           "are not those that were waited for",
           [("tile_W2[ty][tx] = W2[", "if (t == 0 || ty + 1 < kTile) tile_W2[ty][tx] = W2["),
            ("const size_t s = t % kStages;\n", "const size_t s = (t + kStages - 1) % kStages;\n")],
           sizes=(96, 1024), kind="stale"),
    Mutant("fused_registers_as_they_were", "fused_basic fused_wmma fused_tile fused_talk_tile",
           "the sums begin as what their registers held",
           [("float v1 = b1[col], v2 = b2[col];", "float v1 = 1, v2 = 1;"),
            ("v1[i][j] = first, v2[i][j] = second;",
             "wmma::fill_fragment(v1[i][j], 1.0f), wmma::fill_fragment(v2[i][j], 1.0f);"),
            ("ct::zeros<ct::tile<float, ct::shape<kRows, kCols>>>(), v2",
             "ct::full<ct::tile<float, ct::shape<kRows, kCols>>>(1.0f), v2"),
            ("ct::zeros<ct::tile<float, ct::shape<kRows, H>>>()",
             "ct::full<ct::tile<float, ct::shape<kRows, H>>>(1.0f)")],
           sizes=(96, 1024), talk_sizes=(16, 256), kind="accumulator"),
    Mutant("fused_wrong_biases", "fused_basic fused_wmma fused_tile fused_talk_tile",
           "every tile of columns gets the first one's biases, every fragment too; of --talk S, "
           "which has one tile, the first product's",
           [("v2 = b2[col];", "v2 = b2[tx];"),
            ("equal_rows(&b2[j * kFragment]", "equal_rows(&b2[0]"),
            ("tile::row<kCols>(b2, H, n)", "tile::row<kCols>(b2, H, 0)"),
            ("bias2 = tile::row<H>(b2, H, 0)", "bias2 = tile::row<H>(b1, H, 0)")],
           sizes=(160, 1024), talk_sizes=(16, 256), kind="bias"),
]


def unused(mutant, runs):
    """The records: other programs' mutants."""
    return [("demo::Contender portable = gating_mma::contender(g, gpu);\n"
             "    portable.only = \"square\";  // of the talk's shape fused_talk_mma is faster\n"
             "    return {demo::record(\"bonus_gating_hopper\", gating_hopper::contender(g, gpu)),\n"
             "            demo::record(\"bonus_gating_talk\", talk_hopper::contender(g, gpu)),\n"
             "            demo::record(\"bonus_gating_mma\", portable),\n"
             "            demo::record(\"bonus_gating_talk\", talk_mma::contender(g, gpu))};",
             "return {};")]


NOT_APPLICABLE = {
    "tail": {"fused_talk_tile": "one tile holds all of k"},
}

FAST = {"fused_wmma": ("HMMA", COPY_16, STORE_16), "fused_tile": ("HGMMA",),
        "fused_talk_tile": ("HGMMA",)}
OPERATIONS = {"64": 4 * 64**3, "--talk 16": 4 * (4 * 16**2) * 128 * 64}


def traffic(M, K, H):
    """Of six kernels, in fp16: two gemms, two additions of a bias, the sigmoid and the product."""
    gemm, add = M * K + K * H + M * H, 2 * M * H + H
    fused = 2 * (M * K + 2 * K * H + 2 * H + M * H)
    return {"six_kernels": (6, 2 * (2 * gemm + 2 * add + 2 * M * H + 3 * M * H), 2 * 2 * M * H),
            "fused_basic": (1, fused, 0), "fused_wmma": (1, fused, 0)}


TRAFFIC = {"64": traffic(64, 64, 64), "--talk 16": traffic(4 * 16**2, 128, 64)}
