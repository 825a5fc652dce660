"""What the tests of bonus_gating_hopper need besides what it declares (see tests/pages.py)."""

from pages import LAST_WGMMA_TWICE, SUMS_AS_THEY_WERE, WAITS_LATE, Mutant, launch_once

EVERY = "fused_panels fused_turns fused_hopper"

# So that tiles are divided that have but few steps, too.
DIVIDED = [("kExchange = 18;", "kExchange = 0;"), ("kOutOfStep = 4;", "kOutOfStep = 0;"),
           ("kLeast = 4;", "kLeast = 1;")]

# The record comes in 13 shapes of tiles; one is enough for a mutant, and is sooner compiled.
SHAPES = """    static constexpr Prepare* kPrepare[] = {
        prepare_shape<0, 4>,  prepare_single<1, 4>, prepare_single<2, 4>, prepare_single<3, 5>,
        prepare_single<4, 6>, prepare_pingpong<5>,  prepare_pingpong<6>,  prepare_pingpong<7>,
        prepare_pingpong<8>,  prepare_pingpong<9>,  prepare_pingpong<10>, prepare_pingpong<11>,
        prepare_patches};
    const size_t shapes = std::size(kShapes) - (one_launch ? 1 : 0);
    return kPrepare[fastest_shape(kShapes, product(g), machine_of(gpu), shapes)](g);
"""


def mutant(name, kernels, reason, edits, shape="0, 4", kind_of_block="shape", **others):
    """A bug of this program, with the record in one shape: its number, and stages."""
    arguments = f"<{shape}>" if shape else ""
    one = (SHAPES, f"    (void)gpu, (void)one_launch;\n"
                   f"    return prepare_{kind_of_block}{arguments}(g);\n")
    return Mutant(name, kernels, reason, [*edits, one], **others)


MUTANTS = [
    mutant("fused_hopper_swapped_weights", EVERY,
           "the left half of a stage's weights is of W2, the right half of W1",
           [("p < kPanels ? W1 : W2;", "p < kPanels ? W2 : W1;")]),
    mutant("fused_hopper_wrong_half", EVERY,
           "the right half of a stage's weights begins half a tile too far to the right",
           [("p % kPanels * Shared::kColumns", "p * Shared::kColumns")]),
    mutant("fused_hopper_no_bias", EVERY,
           "the second product is left without its bias",
           [("sums[kGates + i] + b2.x", "sums[kGates + i]")]),
    mutant("fused_hopper_swapped_biases", EVERY,
           "both products get the first bias",
           [("load_biases(bias2, b2", "load_biases(bias2, b1")]),
    mutant("fused_hopper_last_tile_left_out", EVERY,
           "the last tile of each block is not stored",
           [("outgoing.store_all(panel, out);", "")], cpu_sizes=(96,)),
    mutant("fused_hopper_wrong_step", EVERY,
           "the last step takes the first 64 columns of x",
           [("x, rank, part.row, k);",
             "x, rank, part.row, k / kBlockK + 1 < schedule.steps ? k : 0);")]),
    mutant("fused_hopper_stale", EVERY,
           "only the first launch computes",
           [launch_once("kernel<<<kCluster * clusters, kThreads")], timed=True),
    mutant("fused_hopper_tail_twice", EVERY,
           "the last 16 of a stage's 64 k, one wgmma, are counted twice",
           [LAST_WGMMA_TWICE], sizes=(96, 1024), kind="tail"),
    mutant("fused_hopper_step_before", EVERY,
           "each step multiplies the stage of the one before",
           [("(sums, ring.stages[at.stage], warpgroup, t > 0)",
             "(sums, ring.stages[t > 0 ? previous : at.stage], warpgroup, t > 0)")],
           sizes=(96, 1024), kind="stale"),
    mutant("fused_hopper_registers_as_they_were", EVERY,
           "the sums begin as what their registers held",
           [SUMS_AS_THEY_WERE], sizes=(96, 1024), kind="accumulator"),
    mutant("fused_hopper_no_full_wait", EVERY,
           "stages are multiplied before their copies have arrived",
           [WAITS_LATE], sizes=(96, 1024), race=True, kind="fence"),
    mutant("fused_hopper_rows_rounded_down", EVERY,
           "clusters walk whole tiles of rows alone",
           [("(N + kCluster * kTileM - 1) / (kCluster * kTileM);", "N / (kCluster * kTileM);")],
           sizes=(96, 1056), kind="grid"),
    mutant("fused_hopper_first_biases", EVERY,
           "every tile gets the first one's biases",
           [("&from[col]", "&from[col - first]")], sizes=(160, 1024), kind="bias"),
    mutant("fused_hopper_one_weight", "fused_hopper",
           "a block with one tile multiplies by W1 twice",
           [("stage.B[kPanels + p], W2,", "stage.B[kPanels + p], W1,")], shape="4, 6",
           kind_of_block="single", sizes=(96, 1024)),
    mutant("fused_hopper_first_step_again", "fused_hopper",
           "a block with one tile copies the first step of x for every step",
           [("x, row, t * kBlockK, full", "x, row, 0, full")], shape="1, 4",
           kind_of_block="single", sizes=(288, 1024), cpu_sizes=(288,)),
    mutant("fused_hopper_eights_same_columns", "fused_hopper",
           "in clusters of eight, blocks beside each other compute the same tiles",
           [("at.y + place / kHeight * kTileN", "at.y")], shape="",
           kind_of_block="patches", sizes=(288, 1024), cpu_sizes=(288,)),
    mutant("fused_hopper_rest_elsewhere", "fused_hopper",
           "the patches that are computed in small tiles are the first ones, not the last",
           [("patches.end + i / kInPatch", "i / kInPatch")], shape="", kind_of_block="patches",
           sizes=(), cpu_sizes=(288,)),
    mutant("fused_hopper_pingpong_swapped_biases", "fused_hopper",
           "by ping-pong, a thread's two columns get each other's biases",
           [("sums[0][j] + bias1[j / 2 % 2]", "sums[0][j] + bias1[1 - j / 2 % 2]")], shape="10",
           kind_of_block="pingpong", sizes=(96, 1024), kind="bias"),
    mutant("fused_hopper_pingpong_one_weight", "fused_hopper",
           "by ping-pong, both panels are of W1",
           [("stage.B[1], W2,", "stage.B[1], W1,")], shape="10", kind_of_block="pingpong",
           sizes=(96, 1024)),
    mutant("fused_hopper_parts_dropped", "fused_hopper",
           "a divided tile lacks what other blocks have of it",
           [("if (!join_parts(sums, schedule, part, rank, exchange)) return;\n"
             "                load_both", "if (part.first > 0) return;\n"
             "                load_both"),
            *DIVIDED], sizes=(2560,), cpu_sizes=(128,)),
    mutant("fused_hopper_sums_added_up", "fused_hopper",
           "a block adds its sums to those that a launch before left for another block",
           [("to[i * kThreads] = {mine[4 * i], mine[4 * i + 1], mine[4 * i + 2], "
             "mine[4 * i + 3]};",
             "to[i * kThreads].x += mine[4 * i], to[i * kThreads].y += mine[4 * i + 1],\n"
             "            to[i * kThreads].z += mine[4 * i + 2], "
             "to[i * kThreads].w += mine[4 * i + 3];"), *DIVIDED],
           sizes=(2560,), cpu_sizes=(128,), kind="zeroing"),
]

NOT_APPLICABLE = {"zeroing": {"fused_panels": "it divides no tile",
                              "fused_turns": "it divides no tile"}}
ANY_ORDER = ("288",)  # several tiles for each block, on a few cores
FAST = {kernel: (r"HGMMA\S*", r"UTMALDG\S*", r"UTMASTG\S*")
        for kernel in EVERY.split()}
