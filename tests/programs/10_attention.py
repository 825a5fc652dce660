"""What the tests of 10_attention need besides what it declares (see tests/pages.py)."""

from pages import COPY_16, FEWER_TILES, STORE_16, Mutant, launch_once

BASIC, TILE, UNFUSED = "fused_basic", "fused_tile", "chain library_best"
BOTH = f"{BASIC} {TILE}"


def at(*runs):
    return dict(sizes=(), runs=runs, cpu_runs=runs)


SOME = ("160", "288 --dim 64")  # more than one tile of keys, and one that is not full

MUTANTS = [
    Mutant("attention_o_not_rescaled", BOTH,
           "o keeps sums that belong to an earlier, smaller maximum",
           [("multiply_rows(o, weigh(scores, int(keys - first), scale, pair), patch)",
             "weigh(scores, int(keys - first), scale, pair)"),
            ("(v, tile_shape), o * factor)", "(v, tile_shape), o)")], **at(*SOME)),
    Mutant("attention_sum_not_rescaled", BOTH,
           "the sum keeps terms that belong to an earlier, smaller maximum",
           [("pair.sum * factor + sum", "pair.sum + sum"),
            ("sum * factor + ct::sum", "sum + ct::sum")], **at(*SOME)),
    Mutant("attention_maximum_from_0", BOTH,
           "maxima begin as 0: the weights of a row of negative scores are 0 in fp16",
           [("MaxSum pair{kNothing, 0};", "MaxSum pair{0, 0};"),
            ("ct::full<Column>(-INFINITY)", "ct::full<Column>(0.0f)")], **at("64", *SOME)),
    Mutant("attention_no_maximum", BOTH,
           "the maximum is not subtracted",
           [("const float weight = power(own[i], max);", "const float weight = power(own[i], 0);"),
            ("ct::exp(scores - max, ", "ct::exp(scores, ")], **at("64", *SOME)),
    Mutant("attention_maximum_of_a_lane", BASIC,
           "two lanes that share a row have a maximum each",
           [("max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));", "")], **at(*SOME)),
    Mutant("attention_sum_of_a_lane", BASIC,
           "of two lanes that share a row each has its own sum",
           [("sum += __shfl_xor_sync(~0u, sum, 1);", "sum *= 2;")], **at(*SOME)),
    Mutant("attention_mask_off_by_one", f"{UNFUSED} {BOTH}",
           "row i attends to row i + 1, too",
           [("blockIdx.x % N + 1 + threadIdx.x", "blockIdx.x % N + 2 + threadIdx.x"),
            ("min(row + 1, N)", "min(row + 2, N)"),
            ("(causal ? 1 : n)", "(causal ? 2 : n)")], **at("160 --causal")),
    Mutant("attention_own_key_masked", BOTH,
           "row i does not attend to row i, unless that is 0",
           [("min(row + 1, N)", "max(row, size_t(1))"), ("ct::min(rows + (causal ? 1 : n), n)",
                                                         "ct::max(rows + (causal ? 0 : n), 1)")],
           **at("64 --causal")),
    Mutant("attention_causal_ends_early", BOTH,
           "a block leaves out its last 64 or 128 keys, the diagonal",
           [("min(block_row + kTile, N)", "max(block_row, size_t(kTile))"),
            ("row + kTileRows < n ? row + kTileRows : n", "row + kTileRows < n ? row : n")],
           **at("288 --causal --dim 64")),
    Mutant("attention_tile_left_out", BOTH,
           "the last tile of K and V is left out",
           [("first < end; first += kTile", "first + kTile < end; first += kTile"),
            ("tile::count(end, kTileKeys)", "tile::count(end, kTileKeys) - 1")], **at(*SOME)),
    Mutant("attention_no_scale", BOTH,
           "scores are not divided by sqrt(D)",
           [("key] * scale :", "key] :"), ("= scale * ct::mma", "= ct::mma")], **at("64", *SOME)),
    Mutant("attention_sums_in_fp16", BOTH,
           "o is rounded to fp16 after each tile",
           [("part.x[e] *= factors.x[e];",
             "part.x[e] = __half2float(__float2half(part.x[e] * factors.x[e]));"),
            ("o * factor);", "ct::element_cast<float>(ct::element_cast<half>(o * factor)));")],
           **at("1024 --dim 64")),
    Mutant("attention_wrong_key", BASIC,
           "weights are stored beside their own places",
           [("weights[2 * i + odd]", "weights[2 * i + 1 - odd]")], **at("64")),
    Mutant("attention_first_launch_alone", BOTH,
           "only the first launch computes",
           [launch_once("kernel<<<blocks, kThreads, shared>>>"), launch_once("kernel<<<blocks>>>")],
           timed=True, **at("64")),
    # Of each of these kinds, one in every kernel that can have it.
    Mutant("attention_tail_counts", BOTH,
           "what lies beyond the last key counts as a key with the score 0",
           [("int(keys - first)", "causal ? int(keys - first) : kTile"),
            ("(causal ? row : n)) {", "(causal ? row : 2 * n)) {")], **at(*SOME), kind="tail"),
    Mutant("attention_stale_tile", BASIC,
           "the first tile of V stays",
           [("copy_tile<kTile, D>(tiles.V", "if (first == 0) copy_tile<kTile, D>(tiles.V")],
           **at(*SOME), kind="stale"),
    Mutant("attention_registers_as_they_were", BOTH,
           "scores begin as what their registers held",
           [("wmma::fill_fragment(s, 0.0f);", "wmma::fill_fragment(s, float(j));"),
            ("k_T, ct::zeros<Scores>())",
             "k_T, ct::zeros<Scores>() + 0.1f * ct::element_cast<float>("
             "ct::iota<ct::tile<int, ct::shape<1, kTileKeys>>>()))")], **at("64", *SOME), kind="accumulator"),
    Mutant("attention_no_wait", BASIC,
           "tiles are multiplied before their copies have arrived",
           [("__pipeline_wait_prior(0);", "")], sizes=(), cpu_runs=SOME, race=True, kind="fence"),
    Mutant("attention_no_barrier", BASIC,
           "a warp waits for its own copies alone",
           [("__syncthreads();           // the tiles are complete", "")],
           sizes=(), cpu_runs=SOME, race=True),
    Mutant("attention_no_second_barrier", BASIC,
           "tiles are copied over those that are still read",
           [("__syncthreads();  // nobody needs the tiles any more", "")],
           sizes=(), cpu_runs=SOME, race=True),
    Mutant("attention_short_grid", f"chain {BOTH}",
           "half of the scores are not scaled; a head's last rows have no block",
           [("(rows * N + 255) / 256", "rows * N / 512"), ("((a.shape.N + kTile - 1) / kTile)",
                                                           "(a.shape.N / kTile)"),
            ("tile::count(a.shape.N, kTileRows)", "(a.shape.N / kTileRows)")],
           **at("160"), kind="grid"),
    Mutant("attention_first_heads_values", f"{UNFUSED} {BOTH}",
           "every head takes the first one's V; in separate launches the first one's scores, too",
           [("(long long)(n * k), &zero", "0, &zero"), ("&V[start + first * D]", "&V[first * D]"),
            ("(V, heads, N, D).load_masked(head, t, 0)", "(V, heads, N, D).load_masked(0, t, 0)")],
           **at("64", "160 --causal"), kind="bias"),
]


def unused(mutant, runs):
    """And the record: bonus_attention's mutants."""
    return [*FEWER_TILES,
            ("basic, tile}, records(a, session.gpu));", "basic, tile});"),
            ("a.shape.D == 64 ? records<64>(a, gpu) : records<128>(a, gpu);",
             "std::vector<demo::Contender>{};")]


FAST = {"fused_basic": ("HMMA", COPY_16, STORE_16), "fused_tile": ("HGMMA",)}
OPERATIONS = {"96 --dim 64": {"cpu": 4 * 2 * 96**2 * 64, "gpu": 4 * 170 * 16 * 96**2 * 64},
              "64 --causal": {"cpu": 2 * 2 * 64**2 * 128, "gpu": 2 * 256 * 16 * 64**2 * 128}}


def traffic(heads, N, D, mask=0):
    """In fp16: scores written, scaled (2), maximum (1), subtracted (2), e^t (2), summed (1),
    divided (2), read; or written, softmax (2), read. A mask writes half of them."""
    scores, rows, least = 2 * heads * N * N, heads * N, 4 * 2 * heads * N * D
    masked = mask * scores // 2
    return {"chain": (8 + mask, least + 12 * scores + masked + 4 * 4 * rows, scores + 8 * rows),
            "library_best": (3 + mask, least + 4 * scores + masked, scores),
            "fused_basic": (1, least, 0), "fused_tile": (1, least, 0)}


TRAFFIC = {"96 --dim 64": {"cpu": traffic(2, 96, 64), "gpu": traffic(170 * 16, 96, 64)},
           "64 --causal": {"cpu": traffic(2, 64, 128, 1), "gpu": traffic(256 * 16, 64, 128, 1)}}
RUNS = ("96 --dim 64 --once", "160 --causal --once", "64 --heads 3 --once",
        "224 --dim 64 --heads 1 --causal --once")
ANY_ORDER = ("160 --causal",)
REFUSED = ("--dim 80", "--dim 32", "--heads 0", "33", "0", "--causal 1")
