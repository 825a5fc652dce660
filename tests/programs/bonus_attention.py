"""What the tests of bonus_attention need besides what it declares (see tests/pages.py)."""

from pages import COPY_16, FEWER_TILES, STORE_16, Mutant, launch_once

RUNGS = "mma_fused mma_wide mma_staged"


def at(*runs):
    return dict(sizes=(), runs=runs, cpu_runs=runs)


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
]


def unused(mutant, runs):
    return FEWER_TILES


FAST = {kernel: ("HMMA", "LDSM", COPY_16, STORE_16) for kernel in RUNGS.split()}
OPERATIONS = {"96 --dim 64": {"cpu": 4 * 2 * 96**2 * 64, "gpu": 4 * 170 * 16 * 96**2 * 64}}
RUNS = ("96 --dim 64 --once", "160 --causal --once", "64 --heads 3 --once",
        "224 --dim 64 --heads 1 --causal --once")
ANY_ORDER = ("160 --causal",)
REFUSED = ("--dim 80", "--heads 0", "33")
