"""What the tests of bonus_matmul_mma need besides what it declares (see tests/pages.py)."""

from pages import COPY_16, STORE_16, Mutant, launch_once

MUTANTS = [
    Mutant("mma_swizzled_dropped_k", "mma_swizzled",
           "the last tile of k is left out",
           [("t * kDepth < N; ++t", "(t + 1) * kDepth < N; ++t")]),
    Mutant("mma_swizzled_wrong_k", "mma_swizzled",
           "both halves of a fragment of A are the left one",
           [("k + lane / 16 * kChunk)]);", "k)]);")]),
    Mutant("mma_swizzled_swapped_B", "mma_swizzled",
           "every 8 x 8 matrix of B is read transposed",
           [("ptx::ldmatrix_x4_trans(\n", "ptx::ldmatrix_x4(\n")]),
    Mutant("mma_swizzled_wrong_stage", "mma_swizzled",
           "fragments are loaded from the stage that is being filled",
           [("T::Stage& stage = stages[reading];", "T::Stage& stage = stages[writing];")],
           kind="stale"),
    Mutant("mma_swizzled_no_wait", "mma_swizzled",
           "tiles are read before their copies have arrived",
           [("ptx::cp_async_wait_group<T::kStages - 2>();  // this thread's part", "// this thread's part"),
            # A copy that started two tiles ago has arrived anyway: let it start just now.
            ("copy(writing, t + T::kStages - 1);", "copy(reading, t);")],
           race=True, kind="fence"),
    Mutant("mma_swizzled_no_barrier", "mma_swizzled",
           "threads wait for their own copies, and not for each other's",
           [("__syncthreads();                             // everyone's has", "// everyone's has")],
           sizes=(160, 1024, 2048), race=True, kind="fence"),
    Mutant("mma_unwritten_columns_of_blocks", "mma_swizzled mma_pipelined",
           "the grid is rounded down: what is no multiple of the tile has no blocks",
           [("rectangle((N + T::kN - 1) / T::kN,", "rectangle(N / T::kN,")], sizes=(160, 2080),
           kind="grid"),
    Mutant("mma_fp16_accumulator",
           "mma_swizzled mma_pipelined mma_grouped mma_ptx mma_tma mma_alone",
           "sums are rounded to fp16 for every 16 of k",
           [("const int j = i % 2 ?", "for (float& sum : sums[i][n]) sum = __half2float(__float2half(sum));\n"
             "            const int j = i % 2 ?")]),
    Mutant("mma_stale", "mma_swizzled mma_pipelined mma_grouped",
           "only the first launch of all computes",
           [launch_once("kernel<<<grid")], timed=True),
    Mutant("mma_dropped_k", "mma_pipelined mma_grouped mma_ptx mma_tma",
           "the last tile of k is left out",
           [("t * kDepth < K; ++t", "(t + 1) * kDepth < K; ++t"),
            ("steps = (N + kDepth - 1) / kDepth", "steps = (N - 1) / kDepth")]),
    Mutant("mma_no_swizzle", "mma_swizzled mma_pipelined mma_grouped mma_ptx",
           "tiles are copied without the swizzle that loading expects",
           [("&to[swizzled<kColumns>(row + i, col)]", "&to[(row + i) * kColumns + col]")]),
    Mutant("mma_wrong_chunk", "mma_pipelined mma_grouped mma_ptx mma_tma",
           "fragments of A are loaded from the chunk beside theirs",
           [("a_at[k] = swizzled", "a_at[k] = kChunk ^ swizzled"),
            ("A_row[k] = swizzled", "A_row[k] = kChunk ^ swizzled")]),
    Mutant("mma_swapped_B", "mma_pipelined mma_grouped mma_ptx mma_tma",
           "every 8 x 8 matrix of B is read transposed",
           [("ptx::ldmatrix_x4_trans(b[k % 2][j], &stage.B[", "ptx::ldmatrix_x4(b[k % 2][j], &stage.B["),
            ("ptx::ldmatrix_x4_trans(b[k % 2][j], &B_panel[", "ptx::ldmatrix_x4(b[k % 2][j], &B_panel[")]),
    Mutant("mma_wrong_stage", "mma_pipelined mma_grouped mma_ptx mma_tma",
           "fragments are loaded from the stage that is being filled",
           [("load(stages[reading], (k + 1)", "load(stages[writing], (k + 1)"),
            ("load(ring.stages[at.stage], k + 1)",
             "load(ring.stages[(at.stage + 1) % T::kStages], k + 1)")],
           sizes=(96, 1024), kind="stale"),  # of as many tiles as stages each would be summed
    Mutant("mma_tma_no_wait", "mma_tma",
           "fragments are loaded before the stage's copies have arrived",
           [("                        hopper::mbarrier_wait(&ring.full[at.stage], at.parity);\n"
             "                        load(ring.stages[at.stage], 0);",
             "                        load(ring.stages[at.stage], 0);\n"
             "                        hopper::mbarrier_wait(&ring.full[at.stage], at.parity);")],
           sizes=(1024,), cpu_sizes=(224,), race=True, kind="fence"),  # more tiles than stages
    Mutant("mma_no_wait", "mma_pipelined mma_grouped mma_ptx",
           "tiles are read before their copies have arrived",
           [("                ptx::cp_async_wait_group<T::kStages - 2>();\n", ""),
            # A copy that started two tiles ago has arrived anyway: let it start just now.
            ("if (k == 0) {\n                copy(stages[writing], t + T::kStages - 1);",
             "if (k + 2 == kMmaSteps) {\n                copy(stages[(reading + 1) % T::kStages], t + 1);")],
           race=True, kind="fence"),
    Mutant("mma_no_barrier", "mma_pipelined mma_grouped mma_ptx",
           "threads wait for their own copies, and not for each other's",
           [("__syncthreads();  // it is complete", "// it is complete")],
           sizes=(160, 1024, 2048), race=True, kind="fence"),
    Mutant("mma_unwritten_tiles", "mma_grouped mma_ptx mma_tma",
           "the grid is rounded down: what is no multiple of the tile has no blocks",
           [("* ((N + kN - 1) / kN)", "* (N / kN)"),
            ("columns = (N + T::kN - 1) / T::kN;", "columns = N / T::kN;")],
           sizes=(288, 2080), cpu_sizes=(288,), kind="grid"),
    Mutant("mma_wrong_walk", "mma_grouped mma_ptx",
           "the walk leaves out the last row of blocks",
           [("rows - group * kGroup)", "rows - group * kGroup - 1)")], kind="grid"),
    Mutant("mma_unwritten_columns", "mma_swizzled mma_pipelined mma_grouped mma_ptx mma_tma",
           "the last 8 columns are not stored",
           [("if (row < N && col < N)  // N is a multiple of 8",
             "if (row < N && col + kChunk < N)  // N is a multiple of 8")]),
    Mutant("mma_ptx_stale", "mma_ptx mma_tma",
           "only the first launch computes",
           [launch_once("mma_ptx<T><<<"), launch_once("mma_tma<T><<<")], timed=True),
    Mutant("mma_alone_short", "mma_alone",
           "it multiplies one time less than it says",
           [("step < steps; ++step", "step + 1 < steps; ++step")]),
    Mutant("mma_tail_twice", "mma_swizzled mma_pipelined mma_grouped mma_ptx mma_tma",
           "the last tile of k begins early, and what it shares with the one before counts twice",
           [("(int stage, size_t t) {\n        const size_t k = t * kDepth;",
             "(int stage, size_t t) {\n        const size_t k = min(t * kDepth, N - kDepth);"),
            ("stage, size_t t) {\n        const size_t k = t * kDepth;\n"
             "        cp_async_tile<T::kM, kDepth, T::kThreads>(stage.A,",
             "stage, size_t t) {\n        const size_t k = min(t * kDepth, K - kDepth);\n"
             "        cp_async_tile<T::kM, kDepth, T::kThreads>(stage.A,"),
            ("tile.y * T::kN,\n                                          t * kDepth)",
             "tile.y * T::kN, min(t * kDepth, N - kDepth))")],
           sizes=(96, 1056), kind="tail"),
    Mutant("mma_registers_as_they_were", "mma_swizzled mma_pipelined mma_grouped mma_ptx mma_tma",
           "the sums begin as what their registers held",
           [("Sums sums = {};\n    for", "Sums sums = {{{1}}};\n    for"),
            ("Sums sums = {};\n    const", "Sums sums = {{{1}}};\n    const"),
            ("Sums sums = {};\n        hopper", "Sums sums = {{{1}}};\n        hopper")],
           sizes=(96, 1024), kind="accumulator"),
]

FAST = {kernel: ("HMMA", "LDSM", COPY_16, STORE_16)
        for kernel in ("mma_swizzled", "mma_pipelined", "mma_grouped", "mma_ptx")}
FAST["mma_tma"] = ("HMMA", "LDSM", r"UTMALDG\S*", "USETMAXREG", STORE_16)
FAST["mma_alone"] = ("HMMA",)

MULTIPLES = "all of these are multiples of 8"
HARMLESS = {
    "one_short: k + k_copied < K ? rows : 0);": MULTIPLES,
    "one_short: inside && k < K ? K - k : 0);": MULTIPLES,
    "one_short: for (size_t t = 0; t * kDepth < K; ++t) {": MULTIPLES,
    "one_short: if (row < N && col < N)  // N is a multiple of 8: all of them are inside or none":
        "of col: both are multiples of 8",
    "one_short: N - block_row, &B[copied_col], N, copied_col < N);": MULTIPLES,
    "one_short: N, k + k_copied < N ? N - block_row : 0);": MULTIPLES,
    "one_short: k < N && col_copied < N ? N - k : 0);": MULTIPLES,
    "one_short: for (size_t t = 0; t * kDepth < N; ++t) {": MULTIPLES,
    "no_barrier: __syncwarp();  // all that this warp needs of the stage is in registers":
        "the simulator's threads have met in ldmatrix; on a GPU the arrival orders one lane's loads",
    "no_barrier: __syncwarp();  // the patch is free again":
        "ldmatrix, for which a warp's threads meet, comes before the next tile's stores",
}
