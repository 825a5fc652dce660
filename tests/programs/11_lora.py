"""What the tests of 11_lora need besides what it declares (see tests/pages.py)."""

from pages import COPY_16, STORE_16, Mutant, launch_once

SMALL = dict(sizes=(40, 168))  # less than a tile of 128, and more
BY_LIBRARY = "its sums are the library's"

MUTANTS = [
    Mutant("lora_lost_rank", "appended appended_tile",
           "the last row of B is left out",
           [("&right[k * o.N + block_col], o.N, K - k,",
             "&right[k * o.N + block_col], o.N, K - k - (right == o.B),"),
            ("tile::matrix<64, kCols>(B, r, N)", "tile::matrix<64, kCols>(B, r - 1, N)")],
           runs=("40 --rank 64", "168 --rank 8"), **SMALL),
    Mutant("lora_no_scale", "chain appended appended_tile",
           "the update is not multiplied by s",
           [("library.thin_gemm(l.s)", "library.thin_gemm(1)"),
            ("__float2half(s * __half2float(v[i]))", "v[i]")], **SMALL),
    Mutant("lora_usual_scale", "chain appended appended_tile",
           "s is 0.5, whatever it should be",
           [("library.thin_gemm(l.s)", "library.thin_gemm(0.5f)"),
            ("(l.s, v, v, M * N)", "(0.5f, v, v, M * N)")], **SMALL),
    Mutant("lora_stale_u", "appended appended_tile",
           "u is computed by the first launch alone",
           [("(*compute_u)();\n            appended<",
             "static bool done; if (!done) (*compute_u)();\n            done = true; appended<"),
            ("(*compute_u)();\n            rest",
             "static bool done; if (!done) (*compute_u)();\n            done = true; rest")],
           timed=True, **SMALL),
    Mutant("lora_stale_out", "appended appended_tile",
           "only the first launch computes out",
           [launch_once("appended<Activation><<<"), launch_once("rest();")], timed=True, **SMALL),
    Mutant("lora_no_activation", "appended appended_tile",
           "the activation is left out",
           [("Activation::of(mine[i] + float(o.b[col + i]))", "mine[i] + float(o.b[col + i])"),
            ("activate_tile<Activation>(sum + tile::row<kCols>(b, N, n))",
             "sum + tile::row<kCols>(b, N, n)")],
           runs=("40", "40 --activation gelu", "40 --activation sigmoid")),
    Mutant("lora_no_edge", "appended",
           "what lies below the matrix is read as if it were there",
           [("K, o.M - block_row, K - k);", "K, kBlock, K - k);")],
           sizes=(), cpu_runs=("40",), stops="past the end of"),
    Mutant("lora_library", "library_best",
           "the library overwrites x W with the update",
           [(".add = true", ".add = false")], **SMALL),
    Mutant("lora_library_no_bias", "library_best",
           "the library adds no bias",
           [("gemm({l.x, l.W, l.out, M, N, N, l.b})", "gemm({l.x, l.W, l.out, M, N, N})")], **SMALL),
    # Of each of the kinds, one in every kernel that can have it.
    Mutant("lora_tail_twice", "appended appended_tile",
           "the last tile of u B is counted twice",
           [("else if (t < of_W + of_B)", "else if (t <= of_W + of_B)"),
            ("(t - of_W) * kBlockK);", "min(t - of_W, of_B - 1) * kBlockK);"),
            ("t < of_W + of_B; ++t)", "t <= of_W + of_B; ++t)"),
            ("    const auto act = activate_tile",
             "    sum = ct::mma(tile::matrix<kBlock, 64>(u, M, r).load_masked(m, 0),\n"
             "                  tile::matrix<64, kCols>(B, r, N).load_masked(0, n), sum);\n"
             "    const auto act = activate_tile")],
           kind="tail", **SMALL),
    Mutant("lora_stale_stage", "appended",
           "the tiles that are multiplied are not those that were waited for",
           [("const Stage& stage = tiles.stages[t % kStages];",
             "const Stage& stage = tiles.stages[(t + kStages - 1) % kStages];")],
           kind="stale", **SMALL),
    Mutant("lora_registers_as_they_were", "appended appended_tile",
           "the sums begin as what their registers held",
           [("wmma::fill_fragment(sum, 0.0f);", "wmma::fill_fragment(sum, 1.0f);"),
            ("ct::zeros<ct::tile<float, ct::shape<kBlock, kCols>>>()",
             "ct::full<ct::tile<float, ct::shape<kBlock, kCols>>>(1.0f)")],
           kind="accumulator", **SMALL),
    Mutant("lora_no_barrier", "appended",
           "threads wait for their own copies, and not for each other's",
           [("__syncthreads();                     // everyone's have", "// everyone's have")],
           race=True, kind="fence", sizes=(), cpu_runs=("40",)),
    Mutant("lora_no_wait", "appended",
           "tiles are read before their copies have arrived",
           [("__pipeline_wait_prior(kStages - 2);  // this thread's", "// this thread's"),
            # A copy that started two tiles ago has arrived anyway: let it start just now.
            ("        load(t + kStages - 1);", "        load(t);")],
           sizes=(168,), race=True, kind="fence"),
    Mutant("lora_short_grid", "chain appended appended_tile",
           "the grids are rounded down",
           [("(N + kBlock - 1) / kBlock);", "N / kBlock);"),
            ("tile::count(o.N, columns);", "int(o.N / columns);"),
            ("blocks = (M * N + 255) / 256;", "blocks = M * N / 256;")],
           sizes=(264,), kind="grid"),
    Mutant("lora_wrong_bias", "chain appended appended_tile",
           "the bias is broadcast along columns; of every 8 columns it is the first one's; every "
           "tile of columns gets the first one's",
           [("v[i % period]", "v[i / (size / period)]"),
            ("float(o.b[col + i])", "float(o.b[col])"),
            ("tile::row<kCols>(b, N, n)", "tile::row<kCols>(b, N, 0)")],
           sizes=(264,), kind="bias"),
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

FAST = {"appended": ("HMMA", COPY_16, STORE_16), "appended_tile": ("HGMMA",)}


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
            **{kernel: (2, 2 * (least + M * N + 2 * M * r), 2 * M * r)
               for kernel in ("appended", "appended_tile")}}


TRAFFIC = {"64": traffic(64, 64, 16), "40 --rows 20 --rank 8": traffic(20, 40, 8)}
RUNS = (*(f"{size} --activation {activation} --once"
          for size in ("1", "8 --rank 8", "33 --rank 64", "104 --rows 1", "264 --rows 5 --rank 40",
                       "136 --rows 130 --rank 24")
          for activation in ("relu", "gelu", "sigmoid", "none")),)
ANY_ORDER = ("40 --rank 64", "200 --rows 130 --rank 40", "8 --rows 300")
REFUSED = ("--rank 12", "--rank 0", "--rank 72", "--rows 0", "--activation tanh", "--cols 4", "0")
