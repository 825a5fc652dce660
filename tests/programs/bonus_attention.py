"""What the tests of bonus_attention need besides what it declares (see tests/pages.py)."""

from pages import COPY_16, FEWER_TILES, STORE_16, Mutant, launch_once

RUNGS = "mma_fused mma_wide mma_staged"
AHEAD = "wgmma_ahead wgmma_persistent"
TURNS = f"wgmma_turns {AHEAD}"
WGMMA = f"wgmma_fused wgmma_producer {TURNS}"


def at(*runs):
    return dict(sizes=(), runs=runs, cpu_runs=runs)


def on_the_simulator(*runs):
    """Where a GPU could wait for ever, or be lucky."""
    return dict(sizes=(), cpu_runs=runs)


def each(kernels):
    """Runs of one kernel each, where a bug ends the program."""
    return on_the_simulator(*(f"160 --kernel {kernel}" for kernel in kernels.split()))


def ring(which, functions):
    """An edit that gives the ring of K or V other functions."""
    other = "KV".replace(which, "")
    return ("Ring<D, kKeys, kStages> K, V;",
            f"Ring<D, kKeys, kStages> {other};\n"
            "    struct Other : Ring<D, kKeys, kStages> {\n"
            "        using Base = Ring<D, kKeys, kStages>;\n"
            f"        {functions}\n    }} {which};")


# A ring's tiles, waited for when they are given back; and given back when they have come. (A warp's
# last lane may still wait when its first one gives back, but for __syncwarp().)
LATE = """__device__ auto& wait(Position<kStages> at) { return this->tiles[at.stage]; }
        __device__ void release(Position<kStages> at) {
            Base::wait(at), __syncwarp(), Base::release(at);
        }"""
EARLY = """__device__ auto& wait(Position<kStages> at) {
            return Base::wait(at), __syncwarp(), Base::release(at), this->tiles[at.stage];
        }
        __device__ void release(Position<kStages>) {}"""

SOME = ("160", "96 --dim 64")  # more than one tile of keys, and one that is not full

MUTANTS = [
    Mutant("rungs_o_not_rescaled", RUNGS,
           "o keeps sums that belong to an earlier, smaller maximum",
           [("if (D == 64 || __any_sync(~0u, rescale != 1))", "if (false)")], **at(*SOME)),
    Mutant("rungs_rescaled_together", RUNGS,
           "o is rescaled only where all rows of a warp have a new maximum",
           [("__any_sync(~0u, rescale != 1)", "__all_sync(~0u, rescale != 1)")], **at("160")),
    Mutant("rungs_sum_not_rescaled", RUNGS,
           "the sum keeps terms that belong to an earlier, smaller maximum",
           [(", sum[i][r] *= rescale;", ";")], **at(*SOME)),
    Mutant("rungs_maximum_from_0", RUNGS,
           "maxima begin as 0: the weights of a row of negative scores are 0 in fp16",
           [("of_16_rows[1] = kNothing", "of_16_rows[1] = 0")], **at("64", *SOME)),
    Mutant("rungs_maximum_of_two_lanes", RUNGS,
           "two of four lanes exchange a row's maximum",
           [("for (int lanes = 1; lanes <= 2; lanes *= 2)\n                    most",
             "for (int lanes = 1; lanes <= 1; lanes *= 2)\n                    most")],
           **at(*SOME)),
    Mutant("rungs_sum_of_two_lanes", RUNGS,
           "two of four lanes add up a row's sum",
           [("for (int lanes = 1; lanes <= 2; lanes *= 2)\n                    total",
             "for (int lanes = 1; lanes <= 1; lanes *= 2)\n                    total")],
           **at(*SOME)),
    Mutant("rungs_mask_off_by_one", RUNGS,
           "row i attends to row i + 1, too",
           [("min(row + r + 1, end)", "min(row + r + 2, end)")], **at("160 --causal")),
    Mutant("rungs_mask_of_other_rows", RUNGS,
           "the lower 8 of 16 rows are masked as the upper ones",
           [("i * 16 + e / 2 * 8 + lane / 4;", "i * 16 + lane / 4;")], **at("160 --causal")),
    Mutant("rungs_tile_left_out", RUNGS,
           "the last tile of K and V is left out",
           [("key < end; key += kKeys", "key + kKeys < end; key += kKeys")], **at(*SOME)),
    Mutant("rungs_sums_in_fp16", RUNGS,
           "o is rounded to fp16 after each product",
           [("ptx::mma_m16n8k16(o[i][d / 8 + 1], weights[i], v[2], v[3]);",
             "ptx::mma_m16n8k16(o[i][d / 8 + 1], weights[i], v[2], v[3]);\n"
             "                    for (int e = 0; e < 8; ++e) {\n"
             "                        float& sum = o[i][d / 8 + e / 4][e % 4];\n"
             "                        sum = __half2float(__float2half(sum));\n"
             "                    }")], **at("1024 --dim 64")),
    Mutant("rungs_swapped_fragments", RUNGS,
           "the halves of V's fragments change places",
           [("weights[i], v[0], v[1])", "weights[i], v[1], v[0])")], **at("64")),
    Mutant("rungs_swapped_weights", RUNGS,
           "a left operand's quarters are not where they belong",
           [("[k / 8 + r / 2][r % 2 * 2]", "[k / 8 + r % 2][r / 2 * 2]")], **at("64")),
    Mutant("rungs_unwritten_rows", RUNGS,
           "the last row of a head is not stored",
           [("if (size_t(row) < rows)", "if (size_t(row) + 1 < rows)")], **at("96")),
    Mutant("rungs_first_launch_alone", RUNGS,
           "only the first launch computes",
           [launch_once("kernel<<<blocks, kThreads, bytes>>>")], timed=True, **at("64")),
    # Of each of these kinds, one in every kernel that can have it.
    Mutant("rungs_tail_counts", RUNGS,
           "what lies beyond the last key counts as a key with the score 0",
           [("else if (key + kKeys > N)", "else if (false)")], **at(*SOME), kind="tail"),
    Mutant("rungs_stale_tile", RUNGS,
           "tiles are multiplied that were there before",
           [("const size_t stage = key / kKeys % kStages;\n        if",
             "const size_t stage = (key / kKeys + 1) % kStages;\n        if"),
            ("if (kStages == 1) copy_tiles(key);", "if (kStages == 1) copy_tiles(0);")],
           **at(*SOME), kind="stale"),
    Mutant("rungs_registers_as_they_were", RUNGS,
           "scores begin as what their registers held",
           [("for (float& score : s[i][n]) score = 0;", "for (float& score : s[i][n]) score = n;")],
           **at("64", *SOME), kind="accumulator"),
    Mutant("rungs_no_wait", RUNGS,
           "tiles are multiplied before their copies have arrived",
           [("if (kStages == 1) copy_tiles(key);\n        ptx::cp_async_wait_group<0>();",
             "if (kStages == 1) copy_tiles(key);")],
           sizes=(), cpu_runs=SOME, race=True, kind="fence"),
    Mutant("rungs_no_barrier", RUNGS,
           "a warp waits for its own copies alone",
           [("__syncthreads();  // they are", "// they are")],
           sizes=(), cpu_runs=SOME, race=True),
    Mutant("rungs_short_grid", RUNGS,
           "a head's last rows have no block",
           [("(a.shape.N + kRows - 1) / kRows *", "std::max<size_t>(1, a.shape.N / kRows) *")],
           **at("160"), kind="grid"),
    Mutant("rungs_first_heads_values", RUNGS,
           "every head takes the first one's V",
           [("&V[from]", "&V[from - start]")], **at("64"), kind="bias"),

    Mutant("wgmma_o_not_rescaled", WGMMA,
           "o keeps sums that belong to an earlier, smaller maximum",
           [("if (D == 64 || __any_sync(~0u, rescale[0] != 1 || rescale[1] != 1))",
             "if (false)")], **at("160", "160 --dim 64")),
    Mutant("wgmma_rescaled_together", WGMMA,
           "o is rescaled only where all rows of a warp have a new maximum",
           [("__any_sync(~0u, rescale[0] != 1 || rescale[1] != 1)",
             "__all_sync(~0u, rescale[0] != 1 && rescale[1] != 1)")], **at("160")),
    Mutant("wgmma_sum_not_rescaled", WGMMA,
           "the sum keeps terms that belong to an earlier, smaller maximum",
           [(", sum[r] *= rescale[r];", ";")], **at("160")),
    Mutant("wgmma_maximum_from_0", WGMMA,
           "maxima begin as 0: the weights of a row of negative scores are 0 in fp16",
           [("{kNothing, kNothing}", "{}")], **at("64", "160")),
    Mutant("wgmma_maximum_of_two_lanes", WGMMA,
           "two of four lanes exchange a row's maximum",
           [("lanes <= 2; lanes *= 2)\n                new_max",
             "lanes <= 1; lanes *= 2)\n                new_max")], **at("160")),
    Mutant("wgmma_mask_off_by_one", WGMMA,
           "row i attends to row i + 1, too",
           [("min(row + 8 * r + 1, N)", "min(row + 8 * r + 2, N)")], **at("160 --causal")),
    Mutant("wgmma_mask_of_other_rows", WGMMA,
           "the lower 8 of 16 rows are masked as the upper ones",
           [("min(row + 8 * r + 1, N)", "min(row + 1, N)")], **at("160 --causal")),
    Mutant("wgmma_tile_left_out", WGMMA,
           "the last tile of K and V is left out, unless it is full",
           [("tiles = (end + kKeys - 1) / kKeys;", "tiles = std::max<size_t>(1, end / kKeys);")],
           **at("160")),
    Mutant("wgmma_swapped_weights", WGMMA,
           "a left operand's quarters are not where they belong",
           [("rounded[i / 4][i % 4] =", "rounded[i / 4][i / 2 % 2 + i % 2 * 2] =")], **at("64")),
    *(Mutant(f"wgmma_{which}_released_early", WGMMA,
             f"a tile of {which} is overwritten while it is still multiplied",
             [ring(which, EARLY)], **on_the_simulator("288"), race=True) for which in "KV"),
    Mutant("wgmma_Q_released_early", "wgmma_persistent",
           "a block's next rows of Q arrive after the first tile of keys",
           [("if (t + 1 == task.tiles) memory.Q", "if (t == 0) memory.Q")],
           **on_the_simulator("160 --heads 5"), race=True),
    Mutant("wgmma_wrong_parity", WGMMA,
           "the producer waits for a stage that nobody has used yet",
           [("(&empty[at.stage], at.parity ^ 1);\n        hopper::mbarrier_arrive_expect_tx",
             "(&empty[at.stage], at.parity);\n        hopper::mbarrier_arrive_expect_tx")],
           **each(WGMMA), stops="for ever"),
    Mutant("wgmma_no_first_turn", TURNS,
           "nobody gives the first consumer its first turn",
           [("if (consumer == kConsumers<D> - 1) give();", "")],
           **each(TURNS), stops="for ever"),
    Mutant("wgmma_weights_overwritten", AHEAD,
           "weights are rounded while the product of the ones before still reads them",
           [("        hopper::wgmma_wait_group<0>();\n"
             "        memory.V.release(v_at), v_at.advance();\n        rows.rescale_and_round();",
             "        rows.rescale_and_round();\n        hopper::wgmma_wait_group<0>();\n"
             "        memory.V.release(v_at), v_at.advance();")],
           **on_the_simulator("160"), race=True, stops="registers changed"),
    Mutant("wgmma_not_visible", WGMMA,
           "TMA stores what it saw before the warp wrote",
           [("hopper::fence_proxy_async();  // makes what this thread wrote visible to TMA\n"
             "        __syncwarp();\n        if (lane == 0) {  // whose",
             "__syncwarp();\n        if (lane == 0) {  // whose")],
           **each(WGMMA), stops="without a fence_proxy_async()"),
    Mutant("wgmma_panel_overwritten", "wgmma_persistent",
           "a panel of O is written again while TMA still reads it",
           [("wait_until_read();\n        __syncwarp();", "__syncwarp();")],
           **on_the_simulator("160 --heads 5"), race=True),
    Mutant("wgmma_stores_unawaited", WGMMA,
           "a block leaves, and its shared memory with it, while TMA still reads that",
           [("void wait_until_read() {\n    if (threadIdx.x % 32 == 0)",
             "void wait_until_read() {\n    if (false)")],
           **each(WGMMA), stops="may still read its shared memory"),
    Mutant("wgmma_first_round_alone", "wgmma_persistent",
           "no block is dealt a second task",
           [("dealt.resize(dealt.size() + blocks);",
             "dealt.resize(blocks), dealt.resize(2 * blocks);")], **at("160 --heads 5")),
    Mutant("wgmma_tail_counts", WGMMA,
           "what lies beyond the last key counts as a key with the score 0",
           [("min(row + 8 * r + 1, N) : N;", "min(row + 8 * r + 1, N) : N + kKeys;")],
           **at("160"), kind="tail"),
    Mutant("wgmma_stale_tile", WGMMA,
           "from the third on tiles are those that were there before",
           [("hopper::mbarrier_arrive_expect_tx(&full[at.stage], sizeof tiles[0]);",
             "if (kCount > 1 && row >= kCount * kTileRows)\n"
             "            return hopper::mbarrier_arrive(&full[at.stage]);\n"
             "        hopper::mbarrier_arrive_expect_tx(&full[at.stage], sizeof tiles[0]);")],
           **at("288"), kind="stale"),
    Mutant("wgmma_registers_as_they_were", WGMMA,
           "scores begin as what their registers held",
           [("const int first = threadIdx.x / kWarpgroup * 64;  // of the block's rows\n",
             "const int first = threadIdx.x / kWarpgroup * 64;\n"
             "#pragma unroll\n"
             "        for (int i = 0; i < kKeys / 2; ++i) s[i] = i;\n"),
            ("&K[d / kPanel][0][d % kPanel]), d > 0);", "&K[d / kPanel][0][d % kPanel]), true);")],
           **at("64", "160"), kind="accumulator"),
    *(Mutant(name, kernels, "tiles are multiplied before they have arrived", [ring(which, LATE)],
             **on_the_simulator(f"{N} --kernel {kernels.replace(' ', ',')}"), race=True,
             kind="fence")
      for name, which, kernels, N in (
          ("wgmma_K_too_soon", "K", WGMMA, 288),
          ("wgmma_V_too_soon", "V", "wgmma_fused wgmma_producer", 288),
          ("wgmma_V_too_soon_in_turns", "V", TURNS, 416))),
    Mutant("wgmma_short_grid", WGMMA,
           "nobody is dealt a head's last rows",
           [(f"{start} = (N + kBlockRows<D> - 1) /", f"{start} = N /")
            for start in ("size_t i", "size_t all")],
           **at("160"), kind="grid"),
    Mutant("wgmma_first_head", WGMMA,
           "every head takes the first one's Q, K and V",
           [("map, row, &full[at.stage], head);", "map, row, &full[at.stage], 0);")],
           **at("64"), kind="bias"),
]


def unused(mutant, runs):
    """And the other rungs, and those for a D that no run has."""
    rungs = (("for (const demo::Contender& rung : attention_hopper::rungs<D>(a, session.gpu))\n"
              "        all.push_back(rung);", "") if RUNGS in mutant.kernels else
             ("all = attention_mma::rungs<D>(a, session.gpu);", "all;"))
    dims = {64 if "--dim 64" in run else 128 for run in runs}
    choice = "a.shape.D == 64 ? contenders<64>(session, a) : contenders<128>(session, a);"
    kept = choice if len(dims) > 1 else f"contenders<{min(dims)}>(session, a);"
    return [*FEWER_TILES, rungs, (choice, kept)]


FAST = {kernel: ("HMMA", "LDSM", COPY_16, STORE_16) for kernel in RUNGS.split()}
FAST.update({kernel: (r"HGMMA\S*", r"UTMALDG\S*", r"UTMASTG\S*", r"MUFU\.EX2")
             for kernel in WGMMA.split()})
OPERATIONS = {"96 --dim 64": {"cpu": 4 * 2 * 96**2 * 64, "gpu": 4 * 170 * 16 * 96**2 * 64}}
RUNS = ("96 --dim 64 --once", "160 --causal --once", "64 --heads 3 --once",
        "224 --dim 64 --heads 1 --causal --once")
# Several tasks for a block of four multiprocessors, and rings that are used more than once
ANY_ORDER = ("288 --heads 3 --causal", "416 --dim 64 --heads 3")
REFUSED = ("--dim 80", "--heads 0", "33")
HARMLESS = {
    "no_barrier: __syncwarp();  // `out` may be overwritten":
        "stmatrix comes next, for which a warp's threads meet",
    "no_barrier: __syncwarp();":
        "one comes before tma_store_panels: on a GPU each thread must have passed its fence, while "
        "one of the simulator's is for all; one comes after it, where lanes only meet again; two "
        "are in matmul_hopper.cuh, in what is not used here",
    "one_short: if (row < N) rows.store(&shared.Q[own * D], &O[start + row * D], N - row);":
        "both are multiples of 16",
}
