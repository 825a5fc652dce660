"""What the tests of bonus_gating_talk need besides what it declares (see tests/pages.py)."""

from pages import COPY_16, Mutant, launch_once

TALK = dict(sizes=(), talk_sizes=(16, 32, 256))
WEIGHTS_COPIED = (
    "        hopper::mbarrier_arrive_expect_tx(&memory.weights, sizeof memory.W);\n"
    "        hopper::tma_load(memory.W[0], W1, 0, 0, &memory.weights);\n"
    "        hopper::tma_load(memory.W[1], W2, 0, 0, &memory.weights);\n")

MUTANTS = [
    Mutant("fused_talk_mma_half_transposed", "fused_talk_mma",
           "neighboring threads exchange their answers in one of two rounds only",
           [("distance <= 2;", "distance <= 1;")], **TALK),
    Mutant("fused_talk_mma_dropped_k", "fused_talk_mma",
           "the last 16 of k, one fragment, are left out",
           [("ptx::mma_m16n8k16(sums[m]",
             "if (k + 1 < kK / 16) ptx::mma_m16n8k16(sums[m]")], **TALK),
    Mutant("fused_talk_mma_swapped_weights", "fused_talk_mma",
           "W1 and W2 change places",
           [("(memory.W[0], &W1[", "(memory.W[0], &W2["),
            ("(memory.W[1], &W2[", "(memory.W[1], &W1[")], **TALK),
    Mutant("fused_talk_mma_swapped_biases", "fused_talk_mma",
           "both products get the first bias",
           [("(&b2[c])", "(&b1[c])")], **TALK),
    Mutant("fused_talk_mma_wrong_chunk", "fused_talk_mma",
           "fragments of x are loaded from the chunk beside theirs",
           [("memory.x[reading][swizzled", "memory.x[reading][kChunk ^ swizzled")], **TALK),
    Mutant("fused_talk_mma_wrong_stage", "fused_talk_mma",
           "fragments of x are loaded from the stage that is being filled",
           [("memory.x[reading]", "memory.x[writing]")], **TALK, kind="stale"),
    Mutant("fused_talk_mma_no_wait", "fused_talk_mma",
           "tiles are read before their copies have arrived",
           [("cp_async_wait_group<kStages - 2>", "cp_async_wait_group<kStages - 1>")],
           race=True, **TALK, kind="fence"),
    Mutant("fused_talk_mma_no_barrier", "fused_talk_mma",
           "threads wait for their own copies, and not for each other's",
           [("__syncthreads();                          // everyone's has, and", "// everyone's has, and")],
           race=True, sizes=(), talk_sizes=(16, 256, 1024), kind="fence"),
    Mutant("fused_talk_mma_unwritten_tile", "fused_talk_mma",
           "the last tile is not computed",
           [("const size_t tiles = M / kRows;", "const size_t tiles = M / kRows - 1;")], **TALK,
           kind="grid"),
    Mutant("fused_talk_mma_stale", "fused_talk_mma",
           "only the first launch computes",
           [launch_once("fused_talk_mma<<<")], timed=True, **TALK),
    Mutant("fused_talk_hopper_swapped_weights", "fused_talk_tma fused_talk_hopper",
           "W1 and W2 change places",
           [("memory.W[0], W1", "memory.W[0], W2"), ("memory.W[1], W2", "memory.W[1], W1")],
           **TALK),
    Mutant("fused_talk_hopper_wrong_half", "fused_talk_tma fused_talk_hopper",
           "both products are with W1",
           [("sizeof memory.W[0]), k > 0", "0), k > 0")], **TALK),
    Mutant("fused_talk_hopper_swapped_biases", "fused_talk_tma fused_talk_hopper",
           "both products get the first bias",
           [("const half2*>(b2)[", "const half2*>(b1)[")], **TALK),
    Mutant("fused_talk_hopper_weights_not_awaited", "fused_talk_tma fused_talk_hopper",
           "the first tiles are multiplied by what is there of the weights",
           [("hopper::mbarrier_wait(&memory.weights, 0);", ""),
            # x has arrived, the copies start later, and those of a launch before are gone.
            (WEIGHTS_COPIED, "for (auto& row : memory.W[0])\n"
             "            for (half& weight : row) weight = 0;\n"
             "        hopper::fence_proxy_async();\n"),
            ("// The tiles that fill the ring first",
             "__nanosleep(20000);\n" + WEIGHTS_COPIED + "// The tiles that fill the ring first")],
           race=True, **TALK, kind="fence"),
    Mutant("fused_talk_hopper_freed_too_early", "fused_talk_tma fused_talk_hopper",
           "a stage is filled again before it is multiplied",
           [("if (lane == 0) hopper::mbarrier_arrive(&memory.empty[at.stage]);", ""),
            ("if (tile == tiles) break;",
             "if (tile == tiles) break;\n"
             "            __syncwarp();\n"
             "            if (lane == 0) hopper::mbarrier_arrive(&memory.empty[at.stage]);\n"
             "            __nanosleep(2000);")],  # a copy takes about 1000
           race=True, sizes=(), talk_sizes=(512, 1024), cpu_runs=("--talk 32",), kind="fence"),
    Mutant("fused_talk_hopper_last_tile_left_out", "fused_talk_tma fused_talk_hopper",
           "the last tile is not computed",
           [("tiles = int(M / kRows);", "tiles = int(M / kRows) - 1;")], **TALK, kind="grid"),
    Mutant("fused_talk_hopper_draws_not_cleared", "fused_talk_hopper",
           "a launch goes on where the one before ended, and leaves tiles out",
           [("atomicInc(&drawn, last_draw)", "atomicAdd(&drawn, 1)")],
           timed=True, sizes=(), talk_sizes=(256, 1024), cpu_runs=("--talk 32",), kind="zeroing"),
    Mutant("fused_talk_hopper_stale", "fused_talk_tma fused_talk_hopper",
           "only the first launch computes",
           [launch_once("kernel<<<blocks, kThreads")], timed=True, **TALK),
    Mutant("fused_talk_tail_twice", "fused_talk_mma fused_talk_tma fused_talk_hopper",
           "the last 16 of k are counted twice",
           [("ptx::mma_m16n8k16(sums[m]",
             "for (int twice = k + 1 == kK / 16; twice >= 0; --twice) ptx::mma_m16n8k16(sums[m]"),
            ("for (int k = 0; k < kK; k += 16)",
             "for (int i = 0, k = 0; i <= kK; i += 16, k = min(i, kK - 16))")],
           sizes=(), talk_sizes=(16, 256), kind="tail"),
    Mutant("fused_talk_hopper_wrong_stage", "fused_talk_tma fused_talk_hopper",
           "a warpgroup multiplies the stage that it had before",
           [("(&memory.x[at.stage][k / kPanel]",
             "(&memory.x[(at.stage + kWarpgroups) % kStages][k / kPanel]")],
           sizes=(), talk_sizes=(16, 256), kind="stale"),
    Mutant("fused_talk_registers_as_they_were", "fused_talk_mma fused_talk_tma fused_talk_hopper",
           "the sums begin as what their registers held",
           [("sums[m][j][e] = __low2float(bias[m][j]);", "sums[m][j][e] = 1;"),
            ("float sums[kH];", "float sums[kH]; for (float& sum : sums) sum = 1;"),
            ("sizeof memory.W[0]), k > 0", "sizeof memory.W[0]), true")],
           sizes=(), talk_sizes=(16, 256), kind="accumulator"),
    Mutant("fused_talk_first_biases", "fused_talk_mma fused_talk_tma fused_talk_hopper",
           "every warp, or every 8 columns, get the second biases of the first",
           [("(&b2[c])", "(&b2[c - col])"), ("(b2)[j * 4 + lane % 4]", "(b2)[lane % 4]")],
           sizes=(), talk_sizes=(16, 256), kind="bias"),
]
NOT_APPLICABLE = {"zeroing": {"fused_talk_tma": "its tiles are dealt out, and not drawn"}}

ANY_ORDER = ("--talk 32",)  # tiles enough for some to be drawn, on up to ten cores

FAST = {"fused_talk_mma": ("HMMA", "LDSM", COPY_16),
        "fused_talk_tma": (r"HGMMA\S*", r"UTMALDG\S*", r"UTMASTG\S*"),
        "fused_talk_hopper": (r"HGMMA\S*", r"UTMALDG\S*", r"UTMASTG\S*")}
