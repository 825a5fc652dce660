"""What the tests of 7_gelu need besides what it declares (see tests/pages.py)."""

from pages import LOAD_16, PAST_THE_END, READ_ONLY, STORE_16, Mutant, launch_once

MUTANTS = [
    Mutant("gelu_missing_bounds_check", "fused",
           "the last block writes behind the matrix",
           [("if (i < size) out[i] = T(gelu_of(float(x[i])));", "out[i] = T(gelu_of(float(x[i])));")],
           sizes=(33,), stops=PAST_THE_END),
    Mutant("gelu_lost_tail", "fused_vectorized",
           "what is left behind the last vector is not written",
           [("if (rest < size) out[rest] = T(gelu_of(float(x[rest])));", "")], sizes=(33,)),
    Mutant("gelu_wrong_constant", "fused fused_vectorized",
           "0.0447 instead of 0.044715",
           [("0.044715f * x * x * x", "0.0447f * x * x * x")]),
    Mutant("gelu_coarse_tanh", "fused fused_vectorized",
           "the gate is rounded to fp16",
           [("* gate;", "* __half2float(__float2half(gate));")]),
    Mutant("gelu_clamped", "fused fused_vectorized",
           "x is clamped to [-6, 6]",
           [("const float a = 0.79788456f", "x = fminf(fmaxf(x, -6.0f), 6.0f);\n"
             "    const float a = 0.79788456f")]),
    Mutant("gelu_textbook_tanh", "fused fused_vectorized",
           "tanh is (e^2a - 1) / (e^2a + 1), which is NaN from x = 11 on",
           [("__fdividef(1.0f, 1.0f + __expf(-2.0f * a))",
             "0.5f + 0.5f * (__expf(2.0f * a) - 1) / (__expf(2.0f * a) + 1)")]),
    Mutant("gelu_missing_operation", "chain",
           "the chain adds no 1",
           [("(t2, 1, t1, size);", "(t2, 0, t1, size);")]),
    Mutant("gelu_stale", "fused_vectorized",
           "only the first launch computes",
           [launch_once("fused_vectorized<<<")], timed=True),
    Mutant("gelu_changed_input", "fused",
           "the input is set to 0, and the output is right for that",
           [("if (i < size) out[i] = T(gelu_of(float(x[i])));",
             "if (i < size) out[i] = const_cast<T*>(x)[i] = T(0);")], stops=READ_ONLY),
    Mutant("gelu_only_where_nan", "fused",
           "what holds a number already is not computed",
           [("if (i < size) out[i] = T(gelu_of(float(x[i])));",
             "if (i < size && float(out[i]) != float(out[i])) out[i] = T(gelu_of(float(x[i])));")],
           timed=True),
    Mutant("gelu_every_fourth_launch", "fused",
           "launches 3, 7, 11, ... lack the last block",
           [("fused<<<(size + kThreads - 1) / kThreads,",
             "static int launches;\n"
             "    fused<<<(size + kThreads - 1) / kThreads - (launches++ % 4 == 2),")],
           timed=True),
    Mutant("gelu_kept", "fused_vectorized",
           "the first launch's result is kept, and copied from then on",
           [("fused_vectorized<<<full_blocks + 1, kVectorThreads>>>(x, out, size);",
             "static T* kept;\n"
             "    auto copy = [&](T* to, T* from) {\n"
             "        cudaMemcpyAsync(to, from, size * sizeof(T), cudaMemcpyDeviceToDevice);\n"
             "    };\n"
             "    if (kept) return copy(out, kept);\n"
             "    fused_vectorized<<<full_blocks + 1, kVectorThreads>>>(x, out, size);\n"
             "    cudaMalloc(&kept, size * sizeof(T)), copy(kept, out);")], timed=True),
    Mutant("gelu_short_grid", "chain fused fused_vectorized",
           "the grid is rounded down, and what is left over has no block",
           [("blocks = (size + kThreads - 1) / kThreads;", "blocks = size / kThreads;"),
            ("fused<<<(size + kThreads - 1) / kThreads", "fused<<<size / kThreads"),
            ("<<<full_blocks + 1, ", "<<<full_blocks, ")], sizes=(33,), kind="grid"),
]

FAST = {"fused_vectorized": (LOAD_16, STORE_16)}
OPERATIONS = {"--rows 3 --cols 7": 9 * 3 * 7}


def traffic(R, C):
    """By hand, in fp32: of R x C elements."""
    least = 4 * 2 * R * C
    return {"chain": (9, 4 * 21 * R * C, 4 * R * C),
            "fused": (1, least, 0), "fused_vectorized": (1, least, 0)}


TRAFFIC = {"--rows 24 --cols 20": traffic(24, 20)}
