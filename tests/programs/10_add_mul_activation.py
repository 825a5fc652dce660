"""What the tests of 10_add_mul_activation need besides what it declares (see tests/pages.py)."""

from pages import LOAD_16, Mutant, STORE_16

MUTANTS = [
    Mutant("act_wrong_broadcast", "fused",
           "b is broadcast along columns",
           [("if (i < size) out[i] = T(Activation::of(float(x[i]) + m * float(y[i]) + float(b[i % cols])));",
             "if (i < size) out[i] = T(Activation::of(float(x[i]) + m * float(y[i]) + float(b[i / cols])));")],
           kind="bias"),
    Mutant("act_no_scale", "chain",
           "y is not multiplied by m",
           [("t[i] = T(m * float(y[i]));", "t[i] = y[i];")]),
    Mutant("act_usual_scale", "chain fused fused_vectorized",
           "m is 0.5, whatever it should be",
           [("kThreads>>>(m, y, t1", "kThreads>>>(0.5f, y, t1"),
            ("kThreads>>>(x, m, y, b, out", "kThreads>>>(x, 0.5f, y, b, out"),
            ("kVectorThreads>>>(x, m, y,", "kVectorThreads>>>(x, 0.5f, y,")]),
    Mutant("act_sigmoid_clamped", "chain fused fused_vectorized",
           "the sigmoid's argument is clamped to [-16, 16]",
           [("__expf(-v)", "__expf(-fminf(fmaxf(v, -16.0f), 16.0f))")],
           sizes=(), runs=("96 --activation sigmoid",), cpu_runs=("96 --activation sigmoid",)),
    Mutant("act_missing_activation", "fused_vectorized",
           "the activation is left out",
           [("xs.at[j] = T(Activation::of(", "xs.at[j] = T((")]),
    Mutant("act_lost_tail", "fused_vectorized",
           "what is left behind the last vector is not written",
           [("if (rest < size)", "if (rest + 1 < size)")],
           sizes=(33,)),
    Mutant("act_first_biases", "chain fused_vectorized",
           "b is broadcast along columns; every vector adds the first elements of b",
           [("float(t[i]) + float(b[i % cols])", "float(t[i]) + float(b[i / cols])"),
            ("size_t col = i * kSize % cols;", "size_t col = 0;")], sizes=(33,), kind="bias"),
    Mutant("act_short_grid", "chain fused fused_vectorized",
           "the grid is rounded down, and what is left over has no block",
           [("blocks = (size + kThreads - 1) / kThreads;", "blocks = size / kThreads;"),
            ("<<<full_blocks + 1, ", "<<<full_blocks, ")], sizes=(33,), kind="grid"),
]

FAST = {"fused_vectorized": (LOAD_16, STORE_16)}
OPERATIONS = {"--rows 3 --cols 7": 4 * 3 * 7, "8 --activation none": 3 * 8 * 8}


def traffic(R, C):
    """By hand, in fp32: of R x C elements."""
    least = 4 * (3 * R * C + C)
    return {"chain": (4, 4 * (9 * R * C + C), 4 * 2 * R * C),
            "fused": (1, least, 0), "fused_vectorized": (1, least, 0)}


TRAFFIC = {"--rows 24 --cols 20": traffic(24, 20)}
RUNS = tuple(f"{size} --activation {activation} --dtype {dtype} --once"
             for size in ("33", "--rows 9 --cols 1028") for dtype in ("fp32", "fp16")
             for activation in ("relu", "sigmoid", "gelu", "none"))
REFUSED = ("--activation tanh", "--activation", "--sweep 64", "--sweep --rows 4 --cols 4",
           "--sweep --kernel fused", "--in-place")
