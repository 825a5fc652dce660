"""What the tests of 11_lora need besides what it declares (see tests/pages.py)."""

from pages import COPY_16, STORE_16, Mutant, launch_once

SMALL = dict(sizes=(33, 160))  # N odd, and rows that are copied 16 bytes at a time
BY_LIBRARY = "its sums are the library's"

MUTANTS = [
    Mutant("lora_lost_rank", "appended",
           "the last row of B is left out",
           [("stage.B, &right[k * o.N + block_col], o.N, K - k,",
             "stage.B, &right[k * o.N + block_col], o.N, K - k - more,")],
           runs=("33 --rank 64", "160 --rank 64", "160 --rank 8"), **SMALL),
    Mutant("lora_no_scale", "chain appended",
           "the update is not multiplied by s",
           [("library.thin_gemm(l.s)", "library.thin_gemm(1)"),
            ("__float2half(s * __half2float(v[i]))", "v[i]")], **SMALL),
    Mutant("lora_usual_scale", "chain appended",
           "s is 0.5, whatever it should be",
           [("library.thin_gemm(l.s)", "library.thin_gemm(0.5f)"),
            ("(l.s, v, v, M * N)", "(0.5f, v, v, M * N)")], **SMALL),
    Mutant("lora_stale_u", "appended",
           "u is computed by the first launch alone",
           [launch_once("(*thin_gemm)();")], timed=True, **SMALL),
    Mutant("lora_stale_out", "appended",
           "only the first launch computes out",
           [launch_once("kernel<<<blocks, kThreads, sizeof(Tiles)>>>")], timed=True, **SMALL),
    Mutant("lora_no_activation", "appended",
           "the activation is left out",
           [("for (float& v : sums[i][j].x) v = Activation::of(v);", "")],
           runs=("33", "33 --activation gelu", "33 --activation sigmoid")),
    Mutant("lora_no_edge", "appended",
           "what lies right of the matrix is read from the next row",
           [("inside ? from[row * pitch + col] :", "row < rows ? from[row * pitch + col] :")],
           sizes=(), cpu_runs=("33",), stops="past the end of"),
    Mutant("lora_library", "library_best",
           "the library overwrites x W with the update",
           [(".add = true", ".add = false")], **SMALL),
    Mutant("lora_library_no_bias", "library_best",
           "the library adds no bias",
           [("gemm({l.x, l.W, l.out, M, N, N, l.b})", "gemm({l.x, l.W, l.out, M, N, N})")], **SMALL),
    # Of each of the kinds, one in every kernel that can have it.
    Mutant("lora_tail_twice", "appended",
           "the last tile of x W is counted twice",
           [("auto load = [&](size_t t) {  // after",
             "auto load = [&](size_t at) {\n const size_t t = at < of_W ? at : at - 1;  // after"),
            ("        Stage& stage = tiles.stages[t % kStages];",
             "        Stage& stage = tiles.stages[at % kStages];"),
            ("t < of_W + of_B;", "t <= of_W + of_B;")],
           kind="tail", **SMALL),
    Mutant("lora_stale_stage", "appended",
           "the tiles that are multiplied are not those that were waited for",
           [("const Stage& stage = tiles.stages[t % kStages];",
             "const Stage& stage = tiles.stages[(t + kStages - 1) % kStages];")],
           kind="stale", sizes=(160,), cpu_sizes=(33, 160)),
    Mutant("lora_registers_as_they_were", "appended",
           "the sums begin as what their registers held",
           [("sums[i][j] = first;", "wmma::fill_fragment(sums[i][j], 1.0f);")],
           kind="accumulator", **SMALL),
    Mutant("lora_no_barrier", "appended",
           "threads wait for their own copies, and not for each other's",
           [("__syncthreads();                     // everyone's have", "// everyone's have")],
           race=True, kind="fence", sizes=(), cpu_runs=("33",)),
    Mutant("lora_bias_too_early", "appended",
           "the sums begin before the bias is there",
           [("__syncthreads();  // the bias is there", "")], race=True, kind="fence", **SMALL),
    Mutant("lora_no_wait", "appended",
           "tiles are read before their copies have arrived",
           [("__pipeline_wait_prior(kStages - 2);  // this thread's", "// this thread's"),
            # A copy that started two tiles ago has arrived anyway: let it start just now.
            ("        load(t + kStages - 1);", "        load(t);")],
           sizes=(160,), race=True, kind="fence"),
    Mutant("lora_short_grid", "chain appended",
           "the grids are rounded down",
           [("(N + kBlock - 1) / kBlock);", "N / kBlock);"),
            ("blocks = (M * N + 255) / 256;", "blocks = M * N / 256;")],
           sizes=(137,), kind="grid"),
    Mutant("lora_wrong_bias", "chain appended",
           "the bias is broadcast along columns; each warp takes the first one's",
           [("v[i % period]", "v[i / (size / period)]"),
            ("&tiles.bias[warp_col + j * kFragment]", "&tiles.bias[j * kFragment]")],
           sizes=(137, 160), kind="bias"),
]
# The record's kernels, which bonus_lora's mutants are about, would be most of what is compiled.
MUTANTS = [mutant._replace(edits=[
    *mutant.edits, ("lora_hopper::records<Activation>(l, session.gpu)", "{}")])
    for mutant in MUTANTS]
NOT_APPLICABLE = {
    "tail": {"chain": BY_LIBRARY}, "accumulator": {"chain": BY_LIBRARY},
    "stale": {"chain": "its kernels have no shared memory"},
    "fence": {"chain": "its kernels have no barrier and no wait"},
    "zeroing": {"chain": "has no atomic operation"},
}

FAST = {"appended": ("HMMA", COPY_16, STORE_16)}


def operations(M, N, r):
    return 2 * M * N * N + 4 * M * N * r


OPERATIONS = {"96": operations(96, 96, 16), "31 --rows 7 --rank 24": operations(7, 31, 24)}


def traffic(M, N, r):
    """By hand, in fp16: x W, x A and u B; then s v, t + v, t + b and the activation."""
    gemms = (2 * M * N + N * N) + (M * N + N * r + M * r) + (M * r + r * N + M * N)
    least = M * N + N * N + N * r + r * N + N + M * N
    return {"chain": (7, 2 * (gemms + 2 * M * N + 3 * M * N + 2 * M * N + N + 2 * M * N),
                      2 * (2 * M * N + M * r)),
            "library_best": (3, 2 * (gemms + M * N + N), 2 * M * r),
            "appended": (2, 2 * (least + M * N + 2 * M * r), 2 * M * r)}


TRAFFIC = {"64": traffic(64, 64, 16), "33 --rows 20 --rank 8": traffic(20, 33, 8)}
RUNS = (*(f"{size} --activation {activation} --once"
          for size in ("1", "3 --rank 8", "33 --rank 64", "100 --rows 1", "257 --rows 5 --rank 40",
                       "136 --rows 130 --rank 24")
          for activation in ("relu", "gelu", "sigmoid", "none")),)
ANY_ORDER = ("33 --rank 64", "200 --rows 130 --rank 40", "1 --rows 300")
REFUSED = ("--rank 12", "--rank 0", "--rank 72", "--rows 0", "--activation tanh", "--cols 4", "0")
