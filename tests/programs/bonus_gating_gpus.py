"""What the tests of bonus_gating_gpus need besides what it declares (see tests/pages.py)."""

from pages import LAST_WGMMA_TWICE, SUMS_AS_THEY_WERE, WAITS_LATE, Mutant, page

OURS = "one_gpu fused chunked overlapped row_split"

# The gates' kernel comes in eight shapes of tiles; one is enough, and is sooner compiled.
ONE_SHAPE = (page("bonus_gating_hopper").SHAPES,
             "    (void)gpu, (void)one_launch;\n    return prepare_shape<0, 4>(g);\n")


def of_gates(name, reason, edits, kind, **others):
    """A bug of the gates' kernel, which all but the library's contender run."""
    return Mutant(name, OURS, reason, [*edits, ONE_SHAPE], sizes=(160,), cpu_sizes=(96,),
                  kind=kind, **others)


def of_split(name, kernels, reason, edits, **others):
    """A bug of how the work is split, which two GPUs are needed to see."""
    return Mutant(name, kernels, reason, [*edits, ONE_SHAPE], sizes=(),
                  cpu_runs=("96 --hidden 160 --gpus 3",), **others)


MUTANTS = [
    of_gates("gpus_tail_twice", "the last 16 of a stage's 64 k, one wgmma, are counted twice",
             [LAST_WGMMA_TWICE], "tail"),
    of_gates("gpus_step_before", "each step multiplies the stage of the one before",
             [("(sums, ring.stages[at.stage], warpgroup, t > 0)",
               "(sums, ring.stages[t > 0 ? previous : at.stage], warpgroup, t > 0)")], "stale"),
    of_gates("gpus_registers_as_they_were", "the sums begin as what their registers held",
             [SUMS_AS_THEY_WERE], "accumulator"),
    of_gates("gpus_no_full_wait", "stages are multiplied before their copies have arrived",
             [WAITS_LATE], "fence", race=True),
    of_gates("gpus_rows_rounded_down", "clusters walk whole tiles of rows alone",
             [("(N + kCluster * kTileM - 1) / (kCluster * kTileM);", "N / (kCluster * kTileM);")],
             "grid"),
    of_gates("gpus_first_biases", "every tile gets the first one's biases",
             [("&from[col]", "&from[col - first]")], "bias"),
    of_split("gpus_first_rows_of_W3", "library_best fused chunked overlapped row_split",
             "every GPU multiplies by the first one's rows of W3, or has the first one's rows of x",
             [("&l.W3.data()[columns.first * N]", "&l.W3.data()[0]"),
              ("{&l.x.data()[rows.first * N]", "{&l.x.data()[0]")]),
    of_split("gpus_last_not_added", "chunked overlapped",
             "the last chunk is not added up; of what a GPU left the first half is, twice",
             [("all_reduce(Share::of(N, c, chunks));",
               "if (chunks == 1 || c + 1 < chunks) all_reduce(Share::of(N, c, chunks));"),
              ("row + t * kBlockK", "row")]),
    of_split("gpus_not_everywhere", "overlapped",
             "a tile's sum is stored on the first GPU alone",
             [("Destination{peers.out, peers.gpus}", "Destination{peers.out, 1}")]),
    of_split("gpus_cut_once", "library_best fused chunked overlapped",
             "the parts of the weights stay those of the data before",
             [(".renew = [this] { gpus_.each([&](int i) { ranks_[i]->cut(); }); }",
               ".renew = [] {}")], timed=True),
]
NOT_APPLICABLE = {"zeroing": {kernel: "it divides no tile that the tests of bonus_gating_hopper "
                                      "do not divide, too"
                              for kernel in OURS.split() if kernel != "overlapped"}}
OPERATIONS = {"32 --hidden 128": 6 * 32 * 32 * 128}
RUNS = ("32 --hidden 128 --once", "96 --hidden 160 --once", "160 --hidden 1056 --once")
ANY_ORDER = ("96 --hidden 160",)
REFUSED = ("--gpus 0", "--gpus 17", "--hidden 96", "--hidden 144", "--patience 0", "--meet")
