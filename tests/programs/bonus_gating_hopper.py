"""What the tests of bonus_gating_hopper need besides what it declares (see tests/pages.py)."""

from pages import LAST_WGMMA_TWICE, Mutant, SUMS_AS_THEY_WERE, WAITS_LATE, launch_once

MUTANTS = [
    Mutant("fused_hopper_swapped_weights", "fused_panels fused_hopper",
           "the left half of a stage's weights is of W2, the right half of W1",
           [("p < kPanels ? W1 : W2;", "p < kPanels ? W2 : W1;")]),
    Mutant("fused_hopper_wrong_half", "fused_panels fused_hopper",
           "the right half of a stage's weights begins half a tile too far to the right",
           [("p % kPanels * kPanel", "p * kPanel")]),
    Mutant("fused_hopper_no_bias", "fused_panels fused_hopper",
           "the second product is left without its bias",
           [("sums[kGates + i] + b2.x", "sums[kGates + i]")]),
    Mutant("fused_hopper_swapped_biases", "fused_panels fused_hopper",
           "both products get the first bias",
           [("const half2*>(&b2[col])", "const half2*>(&b1[col])")]),
    Mutant("fused_hopper_last_tile_left_out", "fused_panels fused_hopper",
           "the last tile of each block is not stored",
           [("outgoing.store_all(panels, out);", "")], cpu_sizes=(96,)),
    Mutant("fused_hopper_wrong_step", "fused_panels fused_hopper",
           "the last step takes the first 64 columns of x",
           [("x, part.row, k, full", "x, part.row, k + kBlockK < N ? k : 0, full")]),
    Mutant("fused_hopper_stale", "fused_panels fused_hopper",
           "only the first launch computes",
           [launch_once("kernel<<<kCluster * clusters, kThreads")], timed=True),
    Mutant("fused_hopper_tail_twice", "fused_panels fused_hopper",
           "the last 16 of a stage's 64 k, one wgmma, are counted twice",
           [LAST_WGMMA_TWICE], sizes=(96, 1024), kind="tail"),
    Mutant("fused_hopper_step_before", "fused_panels fused_hopper",
           "each step multiplies the stage of the one before",
           [("(sums, ring.stages[at.stage], warpgroup, t > 0)",
             "(sums, ring.stages[t > 0 ? previous : at.stage], warpgroup, t > 0)")],
           sizes=(96, 1024), kind="stale"),
    Mutant("fused_hopper_registers_as_they_were", "fused_panels fused_hopper",
           "the sums begin as what their registers held",
           [SUMS_AS_THEY_WERE], sizes=(96, 1024), kind="accumulator"),
    Mutant("fused_hopper_no_full_wait", "fused_panels fused_hopper",
           "stages are multiplied before their copies have arrived",
           [WAITS_LATE], sizes=(96, 1024), race=True, kind="fence"),
    Mutant("fused_hopper_rows_rounded_down", "fused_panels fused_hopper",
           "clusters walk whole tiles of rows alone",
           [("(N + kCluster * kTileM - 1) / (kCluster * kTileM);", "N / (kCluster * kTileM);")],
           sizes=(96, 1056), kind="grid"),
    Mutant("fused_hopper_first_biases", "fused_panels fused_hopper",
           "every tile gets the first one's second biases",
           [("(&b2[col])", "(&b2[col - part.col])")], sizes=(160, 1024), kind="bias"),
]

ANY_ORDER = ("288",)  # several tiles for each block, on a few cores
FAST = {kernel: (r"HGMMA\S*", r"UTMALDG\S*", r"UTMASTG\S*")
        for kernel in ("fused_panels", "fused_hopper")}
