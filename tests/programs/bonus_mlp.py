"""What the tests of bonus_mlp need besides what it declares (see tests/pages.py)."""

from pages import Mutant, launch_once


def at(*runs):
    return dict(sizes=(), runs=runs, cpu_runs=runs)


SMALL = ("33", "100 --dim 128 --layers 3")
STEPS = ("70 --dim 128", "70 --dim 256 --layers 2")  # several steps a layer
STREAMS = ("70 --dim 128 --layers 5", "70 --dim 256 --layers 2")  # not all of W fits in a block
DEEP = ("33 --dim 32 --layers 64",)
WARPGROUP, CLUSTER = "by_warpgroup", "by_cluster"

MUTANTS = [
    Mutant("mlp_hopper_last_24_layers", WARPGROUP,
           "all layers between the first and the last 24 leave h as it was",
           [("#pragma unroll\n            for (int j = 0; j < D / 8; ++j) {",
             "for (int j = l > 0 && l + 24 < layers.count ? D : 0; j < D / 8; ++j) {")],
           **at(*DEEP)),
    Mutant("mlp_hopper_stale_activation", WARPGROUP,
           "the third layer leaves 16 columns of h as they were",
           [("#pragma unroll\n            for (int j = 0; j < D / 8; ++j) {",
             "#pragma unroll\n            for (int j = 0; j < D / 8; ++j) {\n"
             "                if (l == 2 && j < 2) continue;")], **at(*SMALL, *DEEP)),
    Mutant("mlp_hopper_wrong_weight", WARPGROUP,
           "in the third stage, one weight is its neighbor",
           [("hopper::mbarrier_wait(&full[stage], parity);\n",
             "hopper::mbarrier_wait(&full[stage], parity);\n"
             "            if (stage == 2) stages[2].W[0][3][5] = stages[2].W[0][3][6];\n"
             "            hopper::fence_proxy_async();\n")], **at("33")),
    Mutant("mlp_hopper_no_store", WARPGROUP,
           "the last warp of each warpgroup stores nothing",
           [("store_rows<D>(h, memory.out[warp], out, tile * kRows);",
             "if (warp % 4 < 3) store_rows<D>(h, memory.out[warp], out, tile * kRows);")],
           **at("300", "120 --dim 256 --layers 2")),
    Mutant("mlp_hopper_tile_lost", WARPGROUP,
           "the next tile of x arrives while this one is still multiplied",
           [("            if (l == 0) {\n",
             "            if (l == 0) {\n"
             "                hopper::barrier_sync_warpgroup(warpgroup);\n"
             "                if (leader && tile + kTiles * per_round < tiles)\n"
             "                    load_tile(tile + kTiles * per_round, x_stage);\n"),
            ("if (leader && later < tiles) load_tile(later, x_stage);", "")],
           sizes=(), runs=("40000 --dim 128",), cpu_runs=("1100 --dim 128",), race=True,
           kind="fence"),
    Mutant("mlp_hopper_panel_overwritten", WARPGROUP,
           "a panel is written again while TMA still reads it",
           [("        if (lane == 0) hopper::cp_async_bulk_wait_group_read<0>();\n"
             "        __syncwarp();", "        __syncwarp();")],
           sizes=(), runs=("40000 --dim 256",), cpu_runs=("100 --dim 128",), race=True),
    Mutant("mlp_hopper_not_visible", WARPGROUP,
           "TMA stores what it saw before the warp wrote",
           [("hopper::fence_proxy_async();  // makes", "// makes")],
           sizes=(), cpu_runs=SMALL, stops="without a fence_proxy_async()"),
    Mutant("mlp_hopper_streams_unawaited", WARPGROUP,
           "from the second tile on nobody waits for W, though it comes by",
           [("weights.waits = weights.streams;", "weights.waits = false;")],
           sizes=(), cpu_runs=("1100 --dim 128 --layers 5",), race=True, stops="for ever"),
    Mutant("mlp_hopper_stage_overwritten", WARPGROUP,
           "W's next step overwrites one that some warps still need",
           [("hopper::mbarrier_wait(&memory.empty[stage], parity);", "")],
           sizes=(), cpu_runs=STREAMS, race=True, stops="for ever"),
    Mutant("mlp_hopper_same_panel", WARPGROUP,
           "all warps copy W's first panel",
           [("W, row, panel * kPanel", "W, row, 0 * panel")], **at(*STEPS)),
    Mutant("mlp_hopper_weights_run_on", WARPGROUP,
           "for the second tile W is read on behind its last layer",
           [("if (++next == layers.count * kSteps) next = 0;", "++next;")],
           sizes=(), runs=("70000 --dim 192",), cpu_runs=("1100 --dim 192",)),
    Mutant("mlp_hopper_only_once", WARPGROUP,
           "only the first launch computes",
           [launch_once("kernel<<<blocks, kThreads,")], timed=True, **at("33")),
    Mutant("mlp_hopper_no_gelu", "by_warpgroup by_cluster",
           "the sums are stored as they are",
           [("return s + s * t;", "return 2 * s + 0 * t;")], **at(*SMALL)),
    Mutant("mlp_hopper_tail_twice", WARPGROUP,
           "the last 16 of a step are counted twice",
           [("for (int k = 0; k < kPanel; k += 16)",
             "for (int i = 0, k = 0; i <= kPanel; i += 16, k = min(i, kPanel - 16))")],
           **at(*SMALL), kind="tail"),
    Mutant("mlp_hopper_step_before", WARPGROUP,
           "each step multiplies the W of the one before",
           [("matrix_descriptor(stages[stage].W,", "matrix_descriptor(stages[step > 0 ? used : stage].W,")],
           **at(*STEPS), kind="stale"),
    Mutant("mlp_hopper_sums_as_they_were", WARPGROUP,
           "the sums begin as what their registers held",
           [("            hopper::wgmma_fence();\n",
             "            if (step == 0) for (float& sum : sums) sum = 1;\n"
             "            hopper::wgmma_fence();\n"), ("step + k > 0);", "true);")],
           **at(*SMALL), kind="accumulator"),
    Mutant("mlp_hopper_no_full_wait", WARPGROUP,
           "W is multiplied before it has arrived",
           [("if (waits) hopper::mbarrier_wait(&full[stage], parity);\n", "\n"),
            ("            hopper::wgmma_commit_group();\n",
             "            hopper::wgmma_commit_group();\n"
             "            hopper::wgmma_wait_group<0>();\n"
             "            hopper::mbarrier_wait(&full[stage], parity);\n")],
           sizes=(), cpu_runs=SMALL, race=True, kind="fence"),
    Mutant("mlp_hopper_short_walk", WARPGROUP,
           "the last tiles are not computed",
           [("size_t tiles = (N + kRows - 1) / kRows;", "size_t tiles = N / kRows;")],
           **at("300", "129 --dim 128"), kind="grid"),
    Mutant("mlp_hopper_first_biases", WARPGROUP,
           "every layer adds the first one's biases",
           [("&half_biases[l * D + j * 8", "&half_biases[j * 8")], **at(*SMALL), kind="bias"),

    Mutant("mlp_cluster_skipped_layer", CLUSTER,
           "the third layer sends h as it was",
           [("const uint32_t upper =",
             "if (l == 2) for (int e = 0; e < 4; ++e)\n"
             "            v[e] = memory.h[0][lane / 4 + e / 2 * 8][column + e % 2];\n"
             "        const uint32_t upper =")], **at(*SMALL, *DEEP)),
    Mutant("mlp_cluster_first_layers_get_nothing", CLUSTER,
           "the first 8 of 64 layers get nothing",
           [("ptx::mma_m16n8k16(sums[k / 32",
             "if (L == 64 && l < 8) h[0] = h[1] = h[2] = h[3] = 0;\n"
             "                ptx::mma_m16n8k16(sums[k / 32")], **at(*DEEP)),
    Mutant("mlp_cluster_wrong_weight", CLUSTER,
           "in each block, one weight of the third layer is its neighbor",
           [("float sums[4][4] = {};",
             "if (l == 2) stages[stage][3][5] = stages[stage][3][6];\n"
             "        __syncwarp();\n        float sums[4][4] = {};")], **at("33")),
    Mutant("mlp_cluster_only_once", CLUSTER,
           "only the first launch computes",
           [launch_once("kernel<<<blocks, kClusterThreads,")], timed=True, **at("33")),
    Mutant("mlp_cluster_swapped_pairs", CLUSTER,
           "odd lanes send their own numbers first",
           [("odd ? uint2{other, lower}", "odd ? uint2{lower, other}")], **at(*SMALL)),
    Mutant("mlp_cluster_tail_twice", CLUSTER,
           "the last 32 of k are counted twice",
           [("for (int k = 0; k < D; k += 32) {",
             "for (int i = 0, k = 0; i <= D; i += 32, k = min(i, D - 32)) {")],
           **at("33", "100 --dim 128 --layers 3"), kind="tail"),
    Mutant("mlp_cluster_stale_activation", CLUSTER,
           "the fourth layer multiplies what the third one did",
           [("&memory.h[l % 2][lane % 16]", "&memory.h[l == 3 ? 0 : l % 2][lane % 16]")],
           **at("33", "100 --dim 128", *DEEP), kind="stale"),
    Mutant("mlp_cluster_sums_as_they_were", CLUSTER,
           "sums begin as what their registers held",
           [("float sums[4][4] = {};", "float sums[4][4] = {{1, 1, 1, 1}};")],
           **at(*SMALL), kind="accumulator"),
    Mutant("mlp_cluster_no_wait_for_h", CLUSTER,
           "only one thread waits until all parts of h have come",
           [("hopper::mbarrier_wait(&memory.complete[l % 2], (l - 1) / 2 % 2);",
             "if (threadIdx.x == 0)\n"
             "                hopper::mbarrier_wait(&memory.complete[l % 2], (l - 1) / 2 % 2);")],
           sizes=(), cpu_runs=SMALL[1:], race=True, kind="fence"),
    Mutant("mlp_cluster_no_wait_for_W", CLUSTER,
           "W is multiplied before it has arrived",
           [("hopper::mbarrier_wait(&memory.full[stage], parity);", ""),
            ("        float v[4];\n",
             "        hopper::mbarrier_wait(&memory.full[stage], parity);\n        float v[4];\n")],
           sizes=(), cpu_runs=SMALL, race=True, kind="fence"),
    Mutant("mlp_cluster_short_grid", CLUSTER,
           "the last rows have no cluster",
           [("(N + kClusterRows - 1) / kClusterRows * (D / kPanel);\n    return [=, x",
             "std::max<size_t>(1, N / kClusterRows) * (D / kPanel);\n    return [=, x")],
           **at("33", "100 --dim 128 --layers 3"), kind="grid"),
    Mutant("mlp_cluster_first_biases", CLUSTER,
           "every layer adds the first one's biases",
           [("(&b[l * width + column])", "(&b[column])")], **at(*SMALL), kind="bias"),
]

FAST = {"by_warpgroup": (r"HGMMA\S*", r"UTMALDG\S*", r"UTMASTG\S*", r"MUFU\.TANH"),
        "by_cluster": ("HMMA", r"UTMALDG\S*", r"MUFU\.TANH")}
OPERATIONS = {"100 --dim 32 --layers 3": 2 * 100 * 32 * 32 * 3}


def traffic(N, D, L):
    """In fp16: of a gemm with its bias and a gelu per layer; and at least."""
    gemm, h = 2 * (2 * N * D + D * D + D), 2 * N * D
    least = 2 * h + 2 * L * (D * D + D)
    return {"chain": (2 * L, L * (gemm + 2 * h), h), "library_best": (L, L * gemm, h),
            "graph": (L, L * gemm, h), "by_warpgroup": (1, least, 0), "by_cluster": (1, least, 0)}


TRAFFIC = {"64": traffic(64, 64, 4), "33 --dim 128 --layers 8": traffic(33, 128, 8)}
RUNS = ("1 --once", "3 --dim 16 --layers 64 --once", "65 --dim 48 --layers 3 --once",
        "257 --dim 128 --layers 8 --once", "129 --dim 112 --layers 1 --once",
        "100 --dim 256 --layers 2 --once", "70 --dim 192 --layers 5 --once",
        "17 --dim 512 --layers 5 --once", "20 --dim 528 --layers 2 --once",
        "20 --dim 256 --layers 64 --once")
ANY_ORDER = ("257 --dim 128 --layers 8", "300 --dim 256 --layers 2", "1100 --dim 32 --layers 2",
             "33 --layers 64", "40 --dim 512 --layers 5")
REFUSED = ("--dim 8", "--dim 40", "--dim 4112", "--layers 0", "--layers 65", "0")
