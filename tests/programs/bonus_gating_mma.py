"""What the tests of bonus_gating_mma need besides what it declares (see tests/pages.py)."""

from pages import COPY_16, Mutant, STORE_16, launch_once

MUTANTS = [
    # Its main loop is mma_ptx's: what can be wrong there is tried in bonus_matmul_mma.
    Mutant("fused_mma_dropped_k", "fused_mma",
           "the last 32 of k are left out",
           [("(shared), K, &x", "(shared), K - 32, &x")]),
    Mutant("fused_mma_swapped_weights", "fused_mma",
           "W1 and W2 change places",
           [("? W1 : W2)", "? W2 : W1)")]),
    Mutant("fused_mma_wrong_half", "fused_mma",
           "the right half of a stage's weights begins half a tile too far to the right",
           [("block_col + c % (T::kN / 2)", "block_col + c")]),
    Mutant("fused_mma_swapped_biases", "fused_mma",
           "both products get the first bias",
           [("float(b2[c])", "float(b1[c])")]),
    Mutant("fused_mma_no_bias", "fused_mma",
           "the first product is left without its bias",
           [("bias1 = c < H ? float(b1[c]) : 0", "bias1 = 0")]),
    Mutant("fused_mma_wrong_factor", "fused_mma",
           "the sigmoid is taken of the other factor",
           [("gate(v1[0], v2[0])", "gate(v2[0], v1[0])")]),
    Mutant("fused_mma_unwritten_columns", "fused_mma",
           "the last 32 columns are not stored",
           [("if (r < M && c < H)", "if (r < M && c + 32 < H)")]),
    Mutant("fused_mma_stale", "fused_mma",
           "only the first launch computes",
           [launch_once("fused_mma<T><<<")], timed=True),
    Mutant("fused_mma_half_transposed", "fused_mma",
           "neighboring threads exchange their answers in one of two rounds only",
           [("distance <= 2;", "distance <= 1;")]),
]

FAST = {"fused_mma": ("HMMA", "LDSM", COPY_16, STORE_16)}
