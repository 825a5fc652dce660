"""What the tests of bonus_dlrm need besides what it declares (see tests/pages.py)."""

from pages import LOAD_16, STORE_16, Mutant

# Kernels alone: chain and grouped take as long again.
OUTER = dict(sizes=(33,), cpu_sizes=(3,))
FOLDED = dict(sizes=(33,), cpu_runs=("3 --kernel folded",))
CLUSTERS = dict(sizes=(), runs=("160",), cpu_runs=("130 --kernel folded",))
DOT = dict(sizes=(), runs=("33 --dot",), cpu_runs=("3 --dot --kernel fused_model",))
LOOKUPS = dict(sizes=(), runs=("33 --lookups",), cpu_runs=("3 --lookups",))
# Warps that have several samples:
AHEAD = dict(sizes=(), runs=("8200 --lookups --embedding 128",),
             cpu_runs=("130 --lookups --embedding 128",))
IN_TF32 = dict(sizes=(), runs=("33 --dtype tf32",), cpu_runs=("3 --dtype tf32",))
DOT_IN_TF32 = dict(sizes=(), runs=("33 --dot --dtype tf32",),
                   cpu_runs=("3 --dot --dtype tf32 --kernel fused_model",))
LOOKUPS_IN_TF32 = dict(sizes=(), runs=("33 --lookups --dtype tf32",),
                       cpu_runs=("3 --lookups --dtype tf32",))
OURS = "library_best folded"  # which share lookups and the folded weights

LARGEST = 5

MUTANTS = [
    Mutant("dlrm_hopper_first_ids", "folded",
           "two lookups use the same id",
           [("modulus_hash(ids[v])", "modulus_hash(ids[v / 2])")], kind="bias", **FOLDED),
    Mutant("dlrm_hopper_half_a_fold", OURS,
           "W[j, i] is not added to W[i, j]",
           [("if (i < j) {", "if (i > j) {")], **OUTER),
    Mutant("dlrm_hopper_not_zeroed", "folded",
           "what z holds behind its width is not zeroed, and zero times NaN is NaN",
           [("DEMO_CHECK(cudaMemset(z_.data(), 0, z_.bytes()));", "")],
           sizes=(), runs=("33 --embedding 4",), cpu_runs=("3 --kernel folded",), kind="zeroing"),
    Mutant("dlrm_hopper_tail_twice", "folded",
           "the last 16 of a step's features are counted twice",
           [("for (int k = 0; k < 4; ++k) {", "for (int i = 0, k = 0; i <= 4; k = min(++i, 3)) {"),
            ("hopper::wgmma_wait_group<kInFlight>();", "hopper::wgmma_wait_group<0>();")],
           kind="tail", **FOLDED),
    Mutant("dlrm_hopper_stage_before", "folded",
           "each step multiplies the weights of the one before",
           [("memory.W[at.stage].descriptor(k)",
             "memory.W[s > first ? previous : at.stage].descriptor(k)")], kind="stale",
           **FOLDED),
    Mutant("dlrm_hopper_as_they_were", "folded",
           "the sums begin as what their registers held",
           [("uint32_t a[kInFlight + 1][4];",
             "for (float& sum : sums) sum = 1;\n    uint32_t a[kInFlight + 1][4];"),
            ("s > first || k > 0);", "true);")], kind="accumulator", **FOLDED),
    Mutant("dlrm_hopper_waits_late", "folded",
           "weights are multiplied before they have arrived",
           [("hopper::mbarrier_wait(&memory.full[at.stage], at.parity);", ""),
            ("previous = at.stage, now = next;",
             "hopper::mbarrier_wait(&memory.full[at.stage], at.parity);\n"
             "        previous = at.stage, now = next;")], race=True, kind="fence", **FOLDED),
    Mutant("dlrm_hopper_fragment_in_use", "folded",
           "a fragment is made in registers that a wgmma still reads",
           [("hopper::wgmma_wait_group<kInFlight>();",
             "hopper::wgmma_wait_group<kInFlight + 1>();")],
           race=True, kind="fence", stops="A's registers changed",
           sizes=(), cpu_runs=("3 --kernel folded",)),
    Mutant("dlrm_hopper_wrong_panel", "folded",
           "neighboring panels of W, which the blocks of a cluster share out, change places",
           [("block_col + p * kPanel);", "block_col + (p ^ 1) * kPanel);")],
           **CLUSTERS),
    Mutant("dlrm_hopper_rows_rounded_down", "folded",
           "the last samples have no tile",
           [("N <= kTileM ? 1", "N <= 2 * kTileM ? 1")],
           kind="grid", **CLUSTERS),
    Mutant("dlrm_hopper_wrong_bias", "folded",
           "every column gets the bias of the fourth after it",
           [("b[e * 4 % kHidden]", "b[(e * 4 + 4) % kHidden]")], kind="bias", **FOLDED),
    # In TF32.
    Mutant("dlrm_tf32_swapped_packing", OURS,
           "features of W that are 4 apart, as are a fragment's two columns, change places",
           [("packed[(column + c) * features + f]", "packed[(column + c) * features + (f ^ 4)]")],
           **IN_TF32),
    Mutant("dlrm_tf32_as_bf16", "folded",
           "features have the 7 bits after the point that bfloat16 has",
           [("a[q] = reinterpret_cast<const uint32_t&>(product);",
             "a[q] = reinterpret_cast<const uint32_t&>(product) & 0xFFFF0000;")],
           sizes=(), runs=("33 --embedding 4 --dtype tf32",),
           cpu_runs=("3 --dtype tf32 --kernel folded",)),
    Mutant("dlrm_tf32_swapped_samples", "fused_model",
           "what a layer leaves of neighboring samples changes places",
           [("(lane % 4 * 2 + i % 2, column", "(lane % 4 * 2 + 1 - i % 2, column")],
           **DOT_IN_TF32),
    Mutant("dlrm_tf32_wrong_operand", "all_products",
           "the lower vectors' numbers are multiplied in each other's places",
           [("low[i + 1], high[i], high[i + 1]};", "high[i], low[i + 1], high[i + 1]};")],
           **LOOKUPS_IN_TF32),
    # The layers within a block.
    Mutant("dlrm_layers_lost_group", "fused_model",
           "a group that is not full is left out",
           [("first < m.N; first += step", "first + kRows <= m.N; first += step")],
           sizes=(), runs=("33 --dot",), cpu_runs=("17 --dot --kernel fused_model",), kind="grid"),
    Mutant("dlrm_layers_no_fence", "fused_model",
           "wgmma reads what threads wrote, of which it need not know yet",
           [("hopper::fence_proxy_async();  // what this thread", "// what this thread")],
           race=True, kind="fence", stops="without a fence_proxy_async()",
           sizes=(), cpu_runs=DOT["cpu_runs"]),
    Mutant("dlrm_layers_released_early", "fused_model",
           "a tile is copied to where wgmma still reads another",
           [("if (p > 0) release(previous);", "release(stage);"),
            ("release(previous);\n#pragma unroll\n        for (int i = 0; i < kRows / 2; ++i) sums",
             "for (int i = 0; i < kRows / 2; ++i) sums")], race=True, kind="fence", sizes=(),
           cpu_runs=DOT["cpu_runs"]),
    Mutant("dlrm_layers_wrong_pack", "fused_model",
           "weights of 8 columns are packed in the next 8 columns' place",
           [("beside % width) * 64 + r;", "beside % width) * 64 + (r ^ 8);")], **DOT),
    Mutant("dlrm_layers_wrong_place", "fused_model",
           "8 samples' numbers change places with those of other columns of the next 8",
           [("(lane / 16 * 8 + lane % 8, column + lane / 8 % 2 * 8)",
             "(lane / 8 % 2 * 8 + lane % 8, column + lane / 16 * 8)")], **DOT),
    # --dot in one kernel.
    Mutant("dlrm_one_lost_numbers", "fused_model",
           "of every 32 numbers of a vector the last 8 are left out",
           [("if (c < E)\n", "if (c < E && lane % 4 < 3)\n")],
           sizes=(), runs=("33 --dot --embedding 32",),
           cpu_runs=("3 --dot --embedding 32 --kernel fused_model",)),
    Mutant("dlrm_one_no_barrier", "fused_model",
           "the top MLP begins before all products are there",
           [("meet();  // the features are complete", "hopper::fence_proxy_async();")],
           race=True, kind="fence", stops="without a fence_proxy_async()", sizes=(),
           cpu_runs=DOT["cpu_runs"]),
    Mutant("dlrm_one_stale", "fused_model",
           "the last sample of a group has what the layers before left for its products",
           [("for (int r = warp; r < kRows;", "for (int r = warp; r < kRows - 1;")], kind="stale",
           sizes=(), runs=("33 --dot",), cpu_runs=("16 --dot --kernel fused_model",)),
    # Lookups and products, which fused_model shares.
    Mutant("dlrm_hopper_id_off_by_one", "all_products",
           "the row is id mod rows",
           [("id % demo::DlrmShape::kRows + 1;", "id % demo::DlrmShape::kRows;")], **LOOKUPS),
    Mutant("dlrm_one_swapped_table", "all_products",
           "neighboring tables change places",
           [("m.tables[((threadIdx.x % 32 - 1) * demo",
             "m.tables[((threadIdx.x % 32 - 1 ^ 1) * demo")], **LOOKUPS),
    Mutant("dlrm_one_swapped_pairs", "all_products",
           "the pairs' second vectors are in reverse order",
           [("*at(i * (i - 1) / 2 + j) = T(sums",
             "*at(i * (i - 1) / 2 + i - 1 - j) = T(sums")], **LOOKUPS),
    Mutant("dlrm_products_no_sync", "all_products",
           "products are copied before they are there",
           [("__syncwarp();  // the products are", "// the products are")], race=True, sizes=(),
           cpu_runs=LOOKUPS["cpu_runs"]),
    Mutant("dlrm_products_waits_late", "all_products",
           "vectors are multiplied before they have arrived",
           [("ptx::cp_async_wait_group<1>();", "ptx::cp_async_wait_group<2>();")],
           race=True, **AHEAD),
    Mutant("dlrm_products_copied_early", "all_products",
           "the next sample's vectors are copied to where other lanes still read this one's",
           [("fetch(next, id, stage ^ 1);", "fetch(next, id, stage);")],
           race=True, **AHEAD),
    Mutant("dlrm_products_same_ids", "all_products",
           "a warp's third sample has the ids of its second",
           [("id = id_of(next + gridDim.x);\n        ptx", "ptx")], **AHEAD),
    Mutant("dlrm_products_not_zeroed", "all_products",
           "what fills up the last 32 bytes of a vector is not zeroed",
           [("if (sizeof(T) * m.E % 32 > 0)", "if (false)")], kind="zeroing",
           sizes=(), cpu_runs=LOOKUPS["cpu_runs"]),
]

OWN = {"library_best": "outer.library_best()", "folded": "outer.folded()"}
OWN_DOT = {"library_best": "dot.library_best()", "fused_model": "dot.fused_model(work)"}


def unused(mutant, runs):
    """Kernels that it does not break; chain and grouped are still there to be verified. And those
    for more than 16 x 132 samples, and for more than 128. Text behind a return is a template of its
    own, which nobody calls."""
    lookups = ('if (session.options.flag("--lookups")) '
               "return run_lookups<T>(session, {shape.N, shape.E, true});\n")
    alone = [run for run in runs if "--lookups" not in run]
    if not alone:
        yield lookups, (lookups[lookups.index("return"):] + "}\ntemplate <class T>\n"
                        "void unused(demo::Session& session, const demo::DlrmShape& shape) {\n")
    elif alone == list(runs):
        yield "    " + lookups, ""
    yield ("        if (m.shape.N <= 16 * 132) return with(std::integral_constant<int, 16>());\n"
           "        if (m.shape.N <= 32 * 132) return with(std::integral_constant<int, 32>());\n"
           "        with(std::integral_constant<int, kLargest>());\n",
           "        with(std::integral_constant<int, 16>());\n")
    if all(int(run.split()[0]) <= 128 for run in alone):
        yield "row_tiles > 1 ? multiply<2>(stream) : multiply<1>(stream);", "multiply<1>(stream);"
    for dot, own in (False, OWN), (True, OWN_DOT):
        used = [call for kernel, call in own.items() if kernel in mutant.kernels.split()
                and any(("--dot" in run) == dot for run in alone)]
        yield (f"run_all({', '.join(own.values())});",
               f"run_all({', '.join(used)});" if used else "run_all();")


FAST = {"folded_interaction": (r"HGMMA\S*", r"UTMALDG\S*"),
        "gather_pieces": (r"LDG\.E\S*\.(128|64)", r"STG\.E\S*\.(128|64)"),
        "half_outer": (LOAD_16, STORE_16),
        "bottom_layers": (r"HGMMA\S*", "UBLKCP"), "top_layers": (r"HGMMA\S*", "UBLKCP"),
        "fused_model": (r"HGMMA\S*", "HMMA", "UBLKCP"),
        "all_products": ("HMMA", r"(LDGSTS|LDG?\.E\S*\.64)", "LDSM")}


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
           "33 --embedding 4 --dot": on_each(traffic_of_dot, 33, 4, 2),
           "3 --embedding 4 --dtype tf32": on_each(traffic, 3, 4, 4),
           "3 --embedding 4 --dot --dtype tf32": on_each(traffic_of_dot, 3, 4, 4)}


def operations(N, E, F, interaction, wide):
    weights = 13 * 512 + 512 * 256 + 256 * 64 + 64 * E + F * wide + wide * 256 + 256
    return N * (2 * weights + interaction)


OPERATIONS = {"3 --embedding 8": on_each(operations, 3, 8, 216 * 216, 216 * 216),
              "3 --embedding 8 --dot": on_each(operations, 3, 8, 8 + 351, 2 * 351 * 8)}
ANY_ORDER = ("129 --kernel folded", "3 --dtype tf32 --kernel folded", "17 --dot --dtype tf32",
             "3 --dot --embedding 36", "300 --lookups --embedding 20",
             "130 --lookups --embedding 128 --dtype tf32")
RUNS = ("1 --embedding 8 --kernel folded --once", "5 --ids zipf --dot --once",
        "33 --dot --embedding 128 --kernel fused_model --once",
        "65 --dot --embedding 20 --kernel fused_model --once",
        "33 --dot --embedding 128 --dtype tf32 --kernel fused_model --once",
        "2200 --dot --kernel fused_model --once", "4300 --dot --kernel fused_model --once",
        "5 --lookups --ids zipf", "1001 --lookups --embedding 12 --once",
        "1001 --lookups --embedding 36 --dtype tf32 --once")
REFUSED = ("--embedding 6", "--embedding 0", "--embedding 132", "--ids all", "--ids")
