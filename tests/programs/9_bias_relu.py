"""What the tests of 9_bias_relu need besides what it declares (see tests/pages.py)."""

from pages import LOAD_16, Mutant, PAST_THE_END, STORE_16

MUTANTS = [
    Mutant("bias_wrong_broadcast", "fused",
           "b is broadcast along columns",
           [("if (i < size) out[i] = T(relu(float(x[i]) + float(b[i % cols])));",
             "if (i < size) out[i] = T(relu(float(x[i]) + float(b[i / cols])));")], kind="bias"),
    Mutant("bias_wrong_broadcast_in_chain", "chain",
           "b is broadcast along columns",
           [("if (i < size) out[i] = T(float(x[i]) + float(b[i % cols]));",
             "if (i < size) out[i] = T(float(x[i]) + float(b[i / cols]));")], kind="bias"),
    Mutant("bias_wrong_column", "fused_vectorized",
           "every thread adds the first columns' b",
           [("size_t col = i * kSize % cols;", "size_t col = 0;")], kind="bias"),
    Mutant("bias_no_wrap", "fused_vectorized",
           "a vector that goes on in the next row takes b's elements behind the last",
           [("if (++col == cols) col = 0;", "++col;")], sizes=(33, 1023), stops=PAST_THE_END),
    Mutant("bias_relu6", "chain fused fused_vectorized",
           "what is larger than 2 becomes 2",
           [("return v < 0 ? 0 : v;", "return v < 0 ? 0 : fminf(v, 2.0f);")]),
    Mutant("bias_leaky", "chain fused fused_vectorized",
           "what is negative is multiplied by 1e-8",
           [("return v < 0 ? 0 : v;", "return v < 0 ? 1e-8f * v : v;")]),
    Mutant("bias_missing_bounds_check", "fused",
           "the last block writes behind the matrix",
           [("if (i < size) out[i] = T(relu(float(x[i]) + float(b[i % cols])));",
             "out[i] = T(relu(float(x[i]) + float(b[i % cols])));")],
           sizes=(33,), stops=PAST_THE_END),
    Mutant("bias_lost_tail", "fused_vectorized",
           "what is left behind the last vector is not written",
           [("if (rest < size)", "if (rest + 1 < size)")],
           sizes=(33,)),
    Mutant("bias_tail_twice", "fused_vectorized",
           "the last vector's elements are treated again as if left over; in place b is added "
           "twice",
           [("rest = vectors * kSize + i;", "rest = (vectors - (vectors > 0)) * kSize + i;")],
           sizes=(), runs=("33 --in-place",), cpu_runs=("33 --in-place",), kind="tail"),
    Mutant("bias_short_grid", "chain fused fused_vectorized",
           "the grid is rounded down, and what is left over has no block",
           [("return (size + kThreads - 1) / kThreads;", "return size / kThreads;"),
            ("<<<full_blocks + 1, ", "<<<full_blocks, ")], sizes=(33,), kind="grid"),
]

FAST = {"fused_vectorized": (LOAD_16, STORE_16)}
OPERATIONS = {"--rows 3 --cols 7": 2 * 3 * 7}


def traffic(R, C):
    """By hand, in fp32: of R x C elements."""
    least = 4 * (2 * R * C + C)
    return {"chain": (2, 4 * (4 * R * C + C), 4 * R * C),
            "fused": (1, least, 0), "fused_vectorized": (1, least, 0)}


TRAFFIC = {"--rows 24 --cols 20": traffic(24, 20)}
TRAFFIC["--rows 24 --cols 20 --in-place"] = {
    kernel: (launches, moved, 0)
    for kernel, (launches, moved, kept) in traffic(24, 20).items()}
# Timed, too: b must not be added again and again.
RUNS = tuple(f"{size} --in-place --dtype {dtype}"
             for size in ("--rows 37 --cols 1028", "96") for dtype in ("fp32", "fp16"))
