"""What the tests of 9_bias_activation need besides what it declares (see tests/pages.py)."""

from pages import LOAD_16, PAST_THE_END, STORE_16, Mutant

ALL = "chain fused fused_vectorized"


def runs(*every):
    return dict(runs=every, cpu_runs=every)


MUTANTS = [
    Mutant("bias_wrong_broadcast", "fused",
           "b is broadcast along columns",
           [("kHasY ? y[i] : T(), b[i % cols]", "kHasY ? y[i] : T(), b[i / cols]")],
           **runs("160 --op add_mul"), kind="bias"),
    Mutant("bias_wrong_broadcast_in_chain", "chain",
           "b is broadcast along columns",
           [("float(t[i]) + float(b[i % cols])", "float(t[i]) + float(b[i / cols])")],
           **runs("33 --op add_mul"), kind="bias"),
    Mutant("bias_wrong_column", "fused_vectorized",
           "every thread adds the first columns' b",
           [("size_t col = i * Vector<T>::kSize % cols;", "size_t col = 0 * i;")],
           **runs("33 --op add_mul"), kind="bias"),
    Mutant("bias_no_wrap", "fused_vectorized",
           "a vector that goes on in the next row takes b's elements behind the last",
           [("if (++col == cols) col = 0;", "++col;")], sizes=(33, 1023), stops=PAST_THE_END),
    Mutant("bias_relu6", ALL,
           "what is larger than 2 becomes 2",
           [("return v < 0 ? 0 : v;", "return v < 0 ? 0 : fminf(v, 2.0f);")]),
    Mutant("bias_leaky", ALL,
           "what is negative is multiplied by 1e-8",
           [("return v < 0 ? 0 : v;", "return v < 0 ? 1e-8f * v : v;")]),
    Mutant("bias_missing_bounds_check", "fused",
           "the last block writes behind the matrix",
           [("if (i < size) out[i] = result<", "out[i] = result<")],
           sizes=(33,), stops=PAST_THE_END),
    Mutant("bias_lost_tail", "fused_vectorized",
           "what is left behind the last vector is not written",
           [("if (rest < size)", "if (rest + 1 < size)")],
           sizes=(33,), **runs("33 --op add_mul")),
    Mutant("bias_short_grid", ALL,
           "the grid is rounded down, and what is left over has no block",
           [("blocks = (size + kThreads - 1) / kThreads;", "blocks = size / kThreads;"),
            ("<<<full_blocks + 1, ", "<<<full_blocks, ")],
           sizes=(33,), **runs("33 --op add_mul"), kind="grid"),
    Mutant("act_no_scale", "chain",
           "y is not multiplied by m",
           [("t[i] = T(m * float(y[i]));", "t[i] = y[i];")],
           sizes=(), **runs("160 --op add_mul")),
    Mutant("act_usual_scale", ALL,
           "m is 0.5, whatever it should be",
           [("kThreads>>>(m, y, t1", "kThreads>>>(0.5f, y, t1"),
            ("kThreads>>>(x, m, y, b, out", "kThreads>>>(x, 0.5f, y, b, out"),
            ("kVectorThreads>>>(x, m, y,", "kVectorThreads>>>(x, 0.5f, y,")],
           sizes=(), **runs("160 --op add_mul")),
    Mutant("act_sigmoid_clamped", ALL,
           "the sigmoid's argument is clamped to [-16, 16]",
           [("__expf(-v)", "__expf(-fminf(fmaxf(v, -16.0f), 16.0f))")],
           sizes=(), **runs("96 --op add_mul --activation sigmoid")),
    Mutant("act_missing_activation", "fused_vectorized",
           "the activation is left out",
           [("xs.at[j] = result<Activation, ", "xs.at[j] = result<None, ")],
           **runs("160 --op add_mul", "96 --op add_mul --activation gelu")),
]

FAST = {"fused_vectorized": (LOAD_16, STORE_16)}
OPERATIONS = {"--rows 3 --cols 7": 2 * 3 * 7, "--rows 3 --cols 7 --op add_mul": 4 * 3 * 7,
              "8 --op add_mul --activation none": 3 * 8 * 8}


def traffic(R, C, chain, temporaries, least):
    """By hand, in fp32: of matrices with R x C elements, and of one row."""
    def moved(matrices):
        return 4 * (matrices * R * C + C)

    launches = chain // 2  # but m y and the sum with x: 5 in two launches
    return {"chain": (launches, moved(chain), 4 * temporaries * R * C),
            "fused": (1, moved(least), 0), "fused_vectorized": (1, moved(least), 0)}


TRAFFIC = {"--rows 24 --cols 20": traffic(24, 20, 4, 1, 2),
           "--rows 24 --cols 20 --op add_mul": traffic(24, 20, 9, 2, 3)}
RUNS = (*(f"{size} --dtype {dtype}" for size in ("--rows 37 --cols 1028", "33")
          for dtype in ("fp32", "fp16")),
        *(f"{size} --op add_mul --activation {activation} --dtype {dtype} --once"
          for size in ("33", "--rows 9 --cols 1028") for dtype in ("fp32", "fp16")
          for activation in ("relu", "sigmoid", "gelu", "none")))
REFUSED = ("--op mul", "--op", "--activation gelu", "--op bias_relu --activation relu",
           "--op add_mul --activation tanh", "--op add_mul --activation", "--sweep 64",
           "--sweep --rows 4 --cols 4", "--sweep --kernel fused", "--in-place")
