"""What the tests of bonus_gating_hopper need besides what it declares (see tests/pages.py)."""

from pages import Mutant, launch_once

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
]

ANY_ORDER = ("288",)  # several tiles for each block, on a few cores
FAST = {kernel: (r"HGMMA\S*", r"UTMALDG\S*", r"UTMASTG\S*")
        for kernel in ("fused_panels", "fused_hopper")}
