"""What the tests of 12_mlp need besides what it declares (see tests/pages.py)."""

from pages import COPY_16, Mutant


def at(*runs):
    return dict(sizes=(), runs=runs, cpu_runs=runs)


SMALL = ("33 --dim 32", "600")
LONG = ("20 --dim 128 --layers 8",)  # not all layers fit in shared memory: two slots
DEEP = ("64 --layers 64", "33 --dim 16 --layers 64")  # after 64 layers, too

MUTANTS = [
    Mutant("mlp_skipped_layer", "one_kernel",
           "the second layer is left out",
           [("for (int l = 0; l < L; ++l, ++step) {",
             "for (int l = 0; l < L; ++l, ++step) {\n            if (l == 1) continue;")],
           **at("600", *DEEP)),
    Mutant("mlp_last_24_layers", "one_kernel",
           "all layers but the last 24 are left out",
           [("for (int l = 0; l < L; ++l, ++step) {",
             "for (int l = 0; l < L; ++l, ++step) {\n            if (l + 24 < L) continue;")],
           **at(*DEEP)),
    Mutant("mlp_first_layers_get_nothing", "one_kernel",
           "the first 8 of 64 layers get nothing",
           [("h = h.next(", "if (L == 64 && l < 8) h = {};\n            h = h.next(")],
           **at(*DEEP)),
    Mutant("mlp_stale_activations", "one_kernel",
           "the third layer begins with the activations that the second one began with",
           [("h = h.next(layers[all ? l : step % 2]);",
             "if (l == 1) h.next(layers[all ? l : step % 2]);\n"
             "            else h = h.next(layers[all ? l : step % 2]);")], **at("33", *DEEP)),
    Mutant("mlp_no_gelu", "one_kernel", "the sums are stored as they are",
           [("(gelu_of(v[0]), gelu_of(v[1]))", "(v[0], v[1])")], **at("33", "600")),
    Mutant("mlp_wrong_weight", "one_kernel",
           "one weight of each layer is its neighbor",
           [("h = h.next(", "if (threadIdx.x == 0)\n"
             "                layers[all ? l : step % 2].W[3][5] = layers[all ? l : step % 2].W[3][6];\n"
             "            __syncthreads();\n            h = h.next(")],
           **at("33", "33 --dim 32 --layers 64")),
    Mutant("mlp_coarse_gelu", "chain one_kernel",
           "0.0375 instead of 0.035677",
           [("0.035677408f", "0.0375f")], **at("33", "600")),
    Mutant("mlp_last_row_unwritten", "one_kernel",
           "the last row is not stored",
           [("if (first + row < N)\n", "if (first + row + 1 < N)\n")], **at("33", "600")),
    Mutant("mlp_once", "chain library_best graph one_kernel",
           "only the first launch computes",
           [("session.run(work,",
             "for (demo::Contender& c : contenders)\n"
             "        if (c.setup)\n"
             "            c.setup = [setup = c.setup](demo::Contender& self) {\n"
             "                setup(self);\n"
             "                self.launch = [launch = self.launch, launches = 0]() mutable {\n"
             "                    if (launches++ == 0) launch();\n"
             "                };\n"
             "            };\n"
             "    session.run(work,")], timed=True, **at("33")),
    # Of each of these kinds, one in every kernel that can have it.
    Mutant("mlp_tail_twice", "one_kernel",
           "the last 16 of k are counted twice",
           [("for (int k = 0; k < D; k += 16) {",
             "for (int i = 0, k = 0; i <= D; i += 16, k = i < D ? i : D - 16) {")],
           **at(*SMALL), kind="tail"),
    Mutant("mlp_stale_weights", "one_kernel",
           "a slot is not filled again: where two are left, all layers are the first two",
           [("if (!all) copy(step + 1);", "if (!all && step == 0) copy(step + 1);")],
           **at(*LONG), kind="stale"),
    Mutant("mlp_registers_as_they_were", "one_kernel",
           "the sums begin as what their registers held",
           [("layer.b[j + column(2 * n) + e % 2]", "half(1.0f)")],
           **at(*SMALL), kind="accumulator"),
    Mutant("mlp_no_wait", "one_kernel",
           "weights are multiplied before their copies have arrived",
           [("__pipeline_wait_prior(0);  // this", "// this")],
           sizes=(), cpu_runs=(*SMALL, *LONG), race=True, kind="fence"),
    Mutant("mlp_no_barrier", "one_kernel",
           "a warp waits for its own copies alone, and may be a layer ahead",
           [("__syncthreads();           // everyone's", "// everyone's")],
           sizes=(), cpu_runs=(*SMALL, *LONG), race=True),
    Mutant("mlp_short_grid", "chain one_kernel",
           "the last tile has no block; gelu leaves out what its last block would compute",
           [("top < N; top", "top + kRows <= N; top"),
            ("gelu<<<(vectors + 255) / 256", "gelu<<<vectors / 256")],
           **at("33", "600"), kind="grid"),
    Mutant("mlp_wrong_bias", "one_kernel",
           "every layer adds the first one's biases",
           [("&W[l * D * D], &b[l * D]", "&W[l * D * D], &b[0]")],
           **at(*SMALL, *LONG), kind="bias"),
]
NOT_APPLICABLE = {
    "tail": {"chain": "the library sums"},
    "stale": {"chain": "gelu has no shared memory"},
    "accumulator": {"chain": "the library sums"},
    "fence": {"chain": "gelu has no barrier and no wait"},
}

FAST = {"one_kernel": ("HMMA", "MUFU.TANH", COPY_16)}
OPERATIONS = {"100 --dim 32 --layers 3": 2 * 100 * 32 * 32 * 3}


def traffic(N, D, L):
    """In fp16: of a gemm with its bias and a gelu per layer; and at least."""
    gemm, h = 2 * (2 * N * D + D * D + D), 2 * N * D
    return {"chain": (2 * L, L * (gemm + 2 * h), h), "library_best": (L, L * gemm, h),
            "graph": (L, L * gemm, h), "one_kernel": (1, 2 * h + 2 * L * (D * D + D), 0)}


TRAFFIC = {"64": traffic(64, 64, 4), "33 --dim 128 --layers 8": traffic(33, 128, 8)}
RUNS = ("1 --once", "3 --dim 16 --layers 64 --once", "33 --dim 48 --layers 3 --once",
        "257 --dim 128 --layers 8 --once", "100 --dim 256 --layers 2 --once")
ANY_ORDER = ("257 --dim 128 --layers 8", "300 --dim 32 --layers 2")
REFUSED = ("--dim 8", "--dim 40", "--dim 4112", "--layers 0", "--layers 65", "0")
