"""What the tests of bonus_dlrm need besides what it declares (see tests/pages.py)."""

from pages import LOAD_16, STORE_16, Mutant

SMALL = dict(sizes=(33,), cpu_sizes=(3,))
DOT = dict(sizes=(), runs=("33 --dot",), cpu_runs=("3 --dot",))
# Warps that have several samples:
AHEAD = dict(sizes=(), runs=("8200 --dot",), cpu_runs=("130 --dot --embedding 128",))
# Races that a GPU does not show:
SMALL_HERE = dict(sizes=(), cpu_sizes=(3,))
DOT_HERE = dict(sizes=(), cpu_runs=("3 --dot",))
BOTH = dict(sizes=(33,), runs=("33 --dot",), cpu_runs=("3", "3 --dot"))
FOLDED_ALONE = dict(sizes=(), runs=("160",), cpu_runs=("130 --kernel folded",))
IN_TF32 = dict(sizes=(), runs=("33 --dtype tf32",), cpu_runs=("3 --dtype tf32",))
DOT_IN_TF32 = dict(sizes=(), runs=("33 --dot --dtype tf32",), cpu_runs=("3 --dot --dtype tf32",))
BOTH_IN_TF32 = dict(sizes=(), runs=("33 --dtype tf32", "33 --dot --dtype tf32"),
                    cpu_runs=("3 --dtype tf32", "3 --dot --dtype tf32"))
OURS = "library_best folded"  # which share lookups and the folded weights
ALL = "folded fused_model"  # which share the layers
PRODUCTS = "library_best fused_model"  # which share the products

LARGEST = 33

MUTANTS = [
    Mutant("dlrm_hopper_id_off_by_one", f"{OURS} fused_model index_hash",
           "the row is id mod rows",
           [("id % demo::DlrmShape::kRows + 1;", "id % demo::DlrmShape::kRows;")], **BOTH),
    Mutant("dlrm_hopper_swapped_tables", OURS,
           "neighboring tables change places",
           [("v % kTables * demo::", "(v % kTables ^ 1) * demo::")], **SMALL),
    Mutant("dlrm_hopper_short_gather", OURS,
           "what is left over of the lookups has no block",
           [("(vectors + of_block - 1) / of_block, block", "vectors / of_block, block")],
           sizes=(160,), cpu_sizes=(40,)),
    Mutant("dlrm_hopper_half_a_fold", OURS,
           "W[j, i] is not added to W[i, j]",
           [("if (i < j) {", "if (i > j) {")], **SMALL),
    Mutant("dlrm_hopper_folded_twice", OURS,
           "weights of i > j are not zero",
           [("if (i <= j && j < width) {", "if (j < width) {")], **SMALL),
    Mutant("dlrm_hopper_no_diagonal", OURS,
           "the squares of z's numbers are left out",
           [("if (i <= j && j < width) {", "if (i < j && j < width) {")], **SMALL),
    Mutant("dlrm_hopper_wrong_order", OURS,
           "rows of W are packed with i and j in each other's places",
           [("step.i + r / kDepth<T>, j = step.j + r % kDepth<T>;",
             "step.i + r % 4, j = step.j + r / 4;")],
           **SMALL),
    Mutant("dlrm_hopper_not_zeroed", OURS,
           "what z holds behind its width is not zeroed, and zero times NaN is NaN",
           [("DEMO_CHECK(cudaMemset(z_.data(), 0, z_.bytes()));", "")],
           sizes=(), runs=("33 --embedding 4",), cpu_runs=("3",), kind="zeroing"),
    Mutant("dlrm_hopper_first_ids", OURS,
           "two lookups use the same id",
           [("modulus_hash(ids[v])", "modulus_hash(ids[v / 2])")], kind="bias", **SMALL),
    Mutant("dlrm_hopper_tail_twice", "folded",
           "the last 16 of a step's features are counted twice",
           [("for (int k = 0; k < 4; ++k) {", "for (int i = 0, k = 0; i <= 4; k = min(++i, 3)) {"),
            ("hopper::wgmma_wait_group<kInFlight>();", "hopper::wgmma_wait_group<0>();")],
           kind="tail", **SMALL),
    Mutant("dlrm_hopper_lost_step", "folded",
           "the last step of each part multiplies the numbers of the one before",
           [("if (s + 1 < last) {  // a step", "if (s + 2 < last) {  // a step")], **SMALL),
    Mutant("dlrm_hopper_first_panel", "folded",
           "the columns of z stay those that a part began with",
           [("if (step.i == 0) next.load_panel(rows, step);", "")], **SMALL),
    Mutant("dlrm_hopper_stage_before", "folded",
           "each step multiplies the weights of the one before",
           [("memory.W[at.stage].descriptor(k)",
             "memory.W[s > first ? previous : at.stage].descriptor(k)")], kind="stale",
           **SMALL),
    Mutant("dlrm_hopper_as_they_were", "folded",
           "the sums begin as what their registers held",
           [("uint32_t a[kInFlight + 1][4];",
             "for (float& sum : sums) sum = 1;\n    uint32_t a[kInFlight + 1][4];"),
            ("s > first || k > 0);", "true);")], kind="accumulator", **SMALL),
    Mutant("dlrm_hopper_waits_late", "folded",
           "weights are multiplied before they have arrived",
           [("hopper::mbarrier_wait(&memory.full[at.stage], at.parity);", ""),
            ("previous = at.stage, now = next;",
             "hopper::mbarrier_wait(&memory.full[at.stage], at.parity);\n"
             "        previous = at.stage, now = next;")], race=True, kind="fence", **SMALL),
    Mutant("dlrm_hopper_fragment_in_use", "folded",
           "a fragment is made in registers that a wgmma still reads",
           [("hopper::wgmma_wait_group<kInFlight>();",
             "hopper::wgmma_wait_group<kInFlight + 1>();")],
           race=True, kind="fence", stops="A's registers changed", **SMALL_HERE),
    Mutant("dlrm_hopper_released_early", "folded",
           "a stage is filled again while its last wgmma reads it",
           [("if (k == kInFlight - 1 && s > first) release(previous);",
             "if (k == 3) release(at.stage);"),
            ("hopper::wgmma_wait_group<0>();\n    release(previous);\n    parts +=",
             "hopper::wgmma_wait_group<0>();\n    parts +=")], race=True, kind="fence",
           sizes=(), cpu_runs=("1 --embedding 12 --kernel folded",)),
    Mutant("dlrm_hopper_swapped_rows", "folded",
           "the upper rows' numbers are multiplied by the lower rows' factors",
           [("factors[q % 2].at[k]", "factors[1 - q % 2].at[k]")], **SMALL),
    Mutant("dlrm_hopper_wrong_panel", "folded",
           "neighboring panels of W, which the blocks of a cluster share out, change places",
           [("block_col + p * kPanel);", "block_col + (p ^ 1) * kPanel);")],
           **FOLDED_ALONE),
    Mutant("dlrm_hopper_rows_rounded_down", "folded",
           "the last samples have no tile",
           [("row_tiles = (N + kTileM - 1) / kTileM,", "row_tiles = N / kTileM,")],
           kind="grid", **FOLDED_ALONE),
    Mutant("dlrm_hopper_lost_part", "folded",
           "the last part of each sum is not added",
           [("for (int p = 0; p < count; ++p) {", "for (int p = 0; p < count - 1; ++p) {")],
           **SMALL),
    Mutant("dlrm_hopper_wrong_bias", "folded",
           "every column gets the bias of the fourth after it",
           [("b[e * 4 % kHidden]", "b[(e * 4 + 4) % kHidden]")], kind="bias", **SMALL),
    Mutant("dlrm_hopper_no_relu", "folded",
           "what is negative stays so",
           [("fmaxf(sums[c], 0.0f)", "sums[c]")], **SMALL),
    # In TF32.
    Mutant("dlrm_tf32_swapped_packing", OURS,
           "features of W that are 4 apart, as are a fragment's two columns, change places",
           [("packed[(column + c) * features + f]", "packed[(column + c) * features + (f ^ 4)]")],
           **IN_TF32),
    Mutant("dlrm_tf32_next_numbers", "folded",
           "a fragment's second half is that of neighboring columns",
           [("column + q / 2 * kDepth<T> / 2]", "column + q / 2]")], **IN_TF32),
    Mutant("dlrm_tf32_same_weights", "folded",
           "all numbers of a step are multiplied by the weights of the first",
           [("&panels[0][0][kDepth<T> * k]", "&panels[0][0][0]")], **IN_TF32),
    Mutant("dlrm_tf32_as_bf16", "folded",
           "features have the 7 bits after the point that bfloat16 has",
           [("a[q] = reinterpret_cast<const uint32_t&>(product);",
             "a[q] = reinterpret_cast<const uint32_t&>(product) & 0xFFFF0000;")],
           sizes=(), runs=("33 --embedding 4 --dtype tf32",), cpu_runs=("3 --dtype tf32",)),
    Mutant("dlrm_tf32_swapped_samples", ALL,
           "what a layer leaves of neighboring samples changes places",
           [("(lane % 4 * 2 + i % 2, column", "(lane % 4 * 2 + 1 - i % 2, column")],
           **BOTH_IN_TF32),
    Mutant("dlrm_tf32_wrong_operand", PRODUCTS,
           "the lower vectors' numbers are multiplied in each other's places",
           [("low[i + 1], high[i], high[i + 1]};", "high[i], low[i + 1], high[i + 1]};")],
           **DOT_IN_TF32),
    # The layers within a block.
    Mutant("dlrm_layers_lost_group", ALL,
           "a group that is not full is left out",
           [("first < m.N; first += step", "first + kRows <= m.N; first += step")],
           sizes=(), runs=("33 --dot",), cpu_runs=("33 --dot",), kind="grid"),
    Mutant("dlrm_layers_tail_twice", ALL,
           "the last quarter of a panel is counted twice",
           [("for (int k = 0; k < 4; ++k)  // a descr",
             "for (int i = 0, k = 0; i <= 4; k = min(++i, 3))  // a descr")], kind="tail", **DOT),
    Mutant("dlrm_layers_as_they_were", ALL,
           "a sum begins as what its register held",
           [("float bias[2], sums[kRows / 2];",
             "float bias[2], sums[kRows / 2];\n        for (float& sum : sums) sum = 1;"),
            ("x + 2 * k, p > 0 || k > 0);", "x + 2 * k, true);")], kind="accumulator", **DOT),
    Mutant("dlrm_layers_no_barrier", ALL,
           "a layer reads what the one before has yet to leave",
           [("meet();  // the layer is complete", "hopper::fence_proxy_async();")],
           race=True, kind="fence", stops="without a fence_proxy_async()", **DOT),
    Mutant("dlrm_layers_no_fence", ALL,
           "wgmma reads what threads wrote, of which it need not know yet",
           [("hopper::fence_proxy_async();  // what this thread", "// what this thread")],
           race=True, kind="fence", stops="without a fence_proxy_async()", **DOT_HERE),
    Mutant("dlrm_layers_waits_late", ALL,
           "weights are multiplied before they have arrived",
           [("hopper::mbarrier_wait(&ring_.full[stage], at / WeightRing::kStages % 2);", ""),
            ("if (p > 0) release(previous);",
             "hopper::mbarrier_wait(&ring_.full[stage], at / WeightRing::kStages % 2);\n"
             "            if (p > 0) release(previous);")], race=True, kind="fence", **DOT),
    Mutant("dlrm_layers_released_early", ALL,
           "a tile is copied to where wgmma still reads another",
           [("if (p > 0) release(previous);", "release(stage);"),
            ("release(previous);\n#pragma unroll\n        for (int i = 0; i < kRows / 2; ++i) sums",
             "for (int i = 0; i < kRows / 2; ++i) sums")], race=True, kind="fence", **DOT_HERE),
    Mutant("dlrm_layers_stale", ALL,
           "what the bottom MLP's last layer leaves is not read, but what the second one left",
           [("apply(m.bottom[3], wide, narrow);", "apply(m.bottom[3], wide, wide + kRows * 256);")],
           kind="stale", **BOTH),
    Mutant("dlrm_layers_wrong_bias", ALL,
           "neighboring columns get each other's biases",
           [("float(layer.b[column + 8 * h])", "float(layer.b[(column ^ 1) + 8 * h])")],
           kind="bias", **DOT),
    Mutant("dlrm_layers_no_relu", ALL,
           "what is negative stays so",
           [("sums[i] = fmaxf(sums[i] + bias[i / 2 % 2], 0.0f);", "sums[i] += bias[i / 2 % 2];")],
           **DOT),
    Mutant("dlrm_layers_wrong_pack", ALL,
           "weights of 8 columns are packed in the next 8 columns' place",
           [("beside % width) * 64 + r;", "beside % width) * 64 + (r ^ 8);")], **DOT),
    Mutant("dlrm_layers_wrong_order", ALL,
           "tiles are not packed in the order in which they are used",
           [("beside % width) * 64", "beside / panels) * 64"),
            ("const int k = beside / width *", "const int k = beside % panels *")], **DOT),
    Mutant("dlrm_layers_short_k", ALL,
           "the last k of a layer's weights is left out",
           [("k + i < K && column", "k + i < K - 1 && column")], **DOT),
    Mutant("dlrm_layers_wrong_place", ALL,
           "8 samples' numbers change places with those of other columns of the next 8",
           [("(lane / 16 * 8 + lane % 8, column + lane / 8 % 2 * 8)",
             "(lane / 8 % 2 * 8 + lane % 8, column + lane / 16 * 8)")], **DOT),
    Mutant("dlrm_layers_lost_input", ALL,
           "the last of the 13 numbers is left out",
           [("k < 13 ? m.x", "k < 12 ? m.x")], **DOT),
    # --dot in one kernel.
    Mutant("dlrm_one_swapped_table", PRODUCTS,
           "neighboring tables change places",
           [("m.tables[((threadIdx.x % 32 - 1) * demo",
             "m.tables[((threadIdx.x % 32 - 1 ^ 1) * demo")], **DOT),
    Mutant("dlrm_one_first_ids", "fused_model",
           "a sample takes an earlier one's ids",
           [("const size_t id = n * kTables", "const size_t id = n / 2 * kTables")], **DOT),
    Mutant("dlrm_one_swapped_pairs", PRODUCTS,
           "the pairs' second vectors are in reverse order",
           [("*at(i * (i - 1) / 2 + j) = T(sums",
             "*at(i * (i - 1) / 2 + i - 1 - j) = T(sums")], **DOT),
    Mutant("dlrm_one_wrong_operand", PRODUCTS,
           "columns are of the next 8 vectors",
           [("mma<T>(sums[tile], a, low[j], high[j]);",
             "mma<T>(sums[tile], a, low[j ^ 1], high[j ^ 1]);")], **DOT),
    Mutant("dlrm_one_lost_numbers", "fused_model",
           "of every 16 numbers of a vector the last 4 are left out",
           [("if (c < E)\n", "if (c < E && lane % 4 < 3)\n")],
           sizes=(), runs=("33 --dot --embedding 16",), cpu_runs=("3 --dot --embedding 16",)),
    Mutant("dlrm_one_no_barrier", "fused_model",
           "the top MLP begins before all products are there",
           [("meet();  // the features are complete", "hopper::fence_proxy_async();")],
           race=True, kind="fence", stops="without a fence_proxy_async()", **DOT_HERE),
    Mutant("dlrm_one_stale", "fused_model",
           "the last sample of a group has what the layers before left for its products",
           [("for (int r = warp; r < kRows;", "for (int r = warp; r < kRows - 1;")], kind="stale",
           sizes=(), runs=("33 --dot",), cpu_runs=("16 --dot",)),
    Mutant("dlrm_products_no_sync", "library_best",
           "products are copied before they are there",
           [("__syncwarp();  // the products are", "// the products are")], race=True, **DOT_HERE),
    Mutant("dlrm_products_waits_late", "library_best",
           "vectors are multiplied before they have arrived",
           [("ptx::cp_async_wait_group<kStages - 1>();", "ptx::cp_async_wait_group<kStages>();")],
           race=True, **AHEAD),
    Mutant("dlrm_products_copied_early", "library_best",
           "the next sample's vectors are copied to where other lanes still read this one's",
           [("fetch(ahead, id, (stage + kStages - 1) % kStages);", "fetch(ahead, id, stage);")],
           race=True, **AHEAD),
    Mutant("dlrm_products_same_ids", "library_best",
           "a warp's third sample has the ids of its second",
           [("id = id_of(ahead);\n        ptx", "ptx")], **AHEAD),
    Mutant("dlrm_products_not_zeroed", "library_best",
           "what fills up the last 32 bytes of a vector is not zeroed",
           [("if (sizeof(T) * m.E % 32 > 0)", "if (false)")], kind="zeroing",
           sizes=(), runs=("33 --dot --embedding 4",), cpu_runs=("3 --dot",)),
    Mutant("dlrm_one_wrong_row", "index_hash",
           "an id's row is that of the next one",
           [("if (some[k].x == id) row = some[k].y;",
             "if (some[k].x == id) row = some[(k + 1) % count].y;")], **DOT),
]



OWN = {"library_best": "outer.library_best()", "folded": "outer.folded()"}
OWN_DOT = {"library_best": "dot.library_best()", "fused_model": "dot.fused_model(work)",
           "index_hash": "dot.index_hash(work)"}


def unused(mutant, runs):
    """Kernels that it does not break; chain and grouped are still there to be verified. And those
    for more than 16 x 132 samples, and for more than 128."""
    yield ("        if (m.shape.N <= 16 * 132) return with(std::integral_constant<int, 16>());\n"
           "        if (m.shape.N <= 32 * 132) return with(std::integral_constant<int, 32>());\n"
           "        with(std::integral_constant<int, kLargest>());\n",
           "        with(std::integral_constant<int, 16>());\n")
    if all(int(run.split()[0]) <= 128 for run in runs):
        yield "row_tiles > 1 ? multiply<2>(stream) : multiply<1>(stream);", "multiply<1>(stream);"
    for dot, own in (False, OWN), (True, OWN_DOT):
        used = [call for kernel, call in own.items() if kernel in mutant.kernels.split()
                and any(("--dot" in run) == dot for run in runs)]
        yield (f"run_all({', '.join(own.values())});",
               f"run_all({', '.join(used)});" if used else "run_all();")


FAST = {"folded_interaction": (r"HGMMA\S*", r"UTMALDG\S*"),
        "gather_pieces": (r"LDG\.E\S*\.(128|64)", r"STG\.E\S*\.(128|64)"),
        "half_outer": (LOAD_16, STORE_16),
        "bottom_layers": (r"HGMMA\S*", "UBLKCP"), "top_layers": (r"HGMMA\S*", "UBLKCP"),
        "fused_model": (r"HGMMA\S*", "HMMA", "UBLKCP"), "all_products": ("HMMA", "LDGSTS", "LDSM")}


def gemm(N, K, M, size):  # x, W, b and out, in numbers of `size` bytes
    return size * (N * K + K * M + M + N * M)


def traffic(N, E, size, wide):
    """By hand: launches, bytes moved, bytes kept; `wide` is the top MLP's first layer."""
    width, depth = 27 * E, 32 // size
    # `depth` columns at a time, with all numbers up to the last of them
    packed = sum(depth * min(j + depth, width) for j in range(0, width, depth))
    small = (13, 512), (512, 256), (256, 64), (64, E), (wide, 256), (256, 1)
    mlps = sum(gemm(N, K, M, size) for K, M in small) + 2 * size * N
    in_blocks = size * (sum(K * M + M for K, M in small) + 13 * N + N)
    lookup = 26 * N * (4 + 2 * size * E)
    z, hidden = size * N * -(-width // 16) * 16, size * N * wide
    steps = packed // (4 * depth)
    parts = 4 * max(1, min(132 // (wide // 256 * -(-N // 128)), steps // 8)) * N * wide
    return {"library_best": (4 + 2 + 3 + 1, mlps + gemm(N, packed, wide, size) + lookup
                             + size * N * (width + packed),
                             size * N * (512 + 256) + hidden + z + size * N * packed),
            # lookups, bottom MLP, product, sum, top MLP
            "folded": (5, lookup + in_blocks + size * N * (E + width) + size * packed * wide
                       + 2 * parts + size * wide + 2 * hidden, z + parts + hidden)}


def traffic_of_dot(N, E, size, wide):
    weights = ((13, 512), (512, 256), (256, 64), (64, E), (E + 351, wide), (wide, 256), (256, 1))
    least = (size * sum(K * M + M for K, M in weights) + size * 13 * N + 26 * N * (4 + size * E)
             + size * N + size * N * wide)  # the top MLP's first layer, to be verified
    pitch = -(-(E + 351) // 16) * 16
    mlps = sum(gemm(N, K, M, size) for K, M in weights if K != E + 351) + 2 * size * N
    return {"library_best": (4 + 1 + 3 + 1, mlps + gemm(N, pitch, wide, size)
                             + 26 * N * (4 + size * E) + size * N * pitch,
                             size * N * (512 + 256 + wide + pitch)),
            "fused_model": (1, least, 0)}


WIDE = {"cpu": 256, "gpu": 512}


def on_each(formula, *arguments):
    return {backend: formula(*arguments, wide) for backend, wide in WIDE.items()}


TRAFFIC = {"33 --embedding 4": on_each(traffic, 33, 4, 2),
           "130 --embedding 4": on_each(traffic, 130, 4, 2),
           "33 --embedding 4 --dot": on_each(traffic_of_dot, 33, 4, 2),
           "3 --embedding 4 --dtype tf32": on_each(traffic, 3, 4, 4),
           "3 --embedding 4 --dot --dtype tf32": on_each(traffic_of_dot, 3, 4, 4)}


def operations(N, E, F, interaction, wide):
    weights = 13 * 512 + 512 * 256 + 256 * 64 + 64 * E + F * wide + wide * 256 + 256
    return N * (2 * weights + interaction)


OPERATIONS = {"3 --embedding 8": on_each(operations, 3, 8, 216 * 216, 216 * 216),
              "3 --embedding 8 --dot": on_each(operations, 3, 8, 8 + 351, 2 * 351 * 8)}
ANY_ORDER = ("1 --embedding 8 --kernel folded", "3", "257 --kernel folded", "33 --dot",
             "3 --dot --embedding 36", "3 --dtype tf32", "17 --dot --dtype tf32")
RUNS = ("1 --embedding 8 --kernel folded --once", "5 --ids zipf --once",
        "129 --kernel folded --once", "100 --dot --embedding 20",
        "33 --dot --ids zipf --embedding 128 --once", "257 --dot --once",
        "130 --dtype tf32 --kernel folded --once",
        "5 --embedding 8 --dtype tf32 --kernel folded --once",
        "33 --dot --embedding 128 --dtype tf32 --once",
        "2200 --dot --kernel fused_model --once", "4300 --dot --kernel fused_model --once")
REFUSED = ("--embedding 6", "--embedding 0", "--embedding 132", "--ids all", "--ids")
