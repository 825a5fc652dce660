"""What the tests of 5_gating_unfused need besides what it declares (see tests/pages.py)."""

from pages import LOAD_16, STORE_16, Mutant, launch_once

ALWAYS_PACKED = ("packed = demo::quick_time(packed_gemm) < demo::quick_time(two_gemms);",
                 "packed = true;")
NEVER_PACKED = (ALWAYS_PACKED[0], "packed = false;")

MUTANTS = [
    Mutant("unfused_dropped_k", "six_kernels library_best",
           "every gemm finds zeros for the last 8 of k",
           [("const demo::LtProduct<half> product{g.x, W, out,", """half* rest;
        const size_t row = matrices * H * sizeof(half);
        DEMO_CHECK(cudaMalloc(&rest, K * row));
        DEMO_CHECK(cudaMemset(rest, 0, K * row));
        DEMO_CHECK(cudaMemcpy(rest, W, (K - 8) * row, cudaMemcpyDeviceToDevice));
        const demo::LtProduct<half> product{g.x, rest, out,""")]),
    Mutant("unfused_no_bias", "six_kernels",
           "the sigmoid is taken of the product without its bias",
           [("sigmoid<<<grid, block>>>(t2,", "sigmoid<<<grid, block>>>(t1,")]),
    Mutant("unfused_swapped_biases", "six_kernels",
           "the first product gets the second bias",
           [("(t1, g.b1, t2", "(t1, g.b2, t2")]),
    Mutant("unfused_no_product", "six_kernels",
           "the last kernel is never launched, so that its right factor is the result",
           [("multiply<<<grid, block>>>(t1, out, out, M, H);", "")]),
    Mutant("unfused_wrong_factor", "library_best",
           "the sigmoid is taken of the other factor",
           [("load(&v1[row * pitch + col]), w = load(&v2[row * pitch + col])",
             "load(&v2[row * pitch + col]), w = load(&v1[row * pitch + col])")]),
    Mutant("unfused_swapped_packing", "library_best",
           "the weights are packed in the wrong order",
           [("(W_.data(), g.W1, g.W2,", "(W_.data(), g.W2, g.W1,"), ALWAYS_PACKED]),
    Mutant("unfused_two_gemms_no_bias", "library_best",
           "the first gemm adds no bias",
           [("gemm_of(g.W1, g.b1, t)", "gemm_of(g.W1, nullptr, t)"), NEVER_PACKED]),
    Mutant("unfused_unwritten_columns", "six_kernels library_best",
           "the grid is rounded down: what is no multiple of 64 columns has no blocks",
           [("(H + kColumns - 1) / kColumns", "H / kColumns")], sizes=(160, 1056), kind="grid"),
    Mutant("unfused_stale", "six_kernels",
           "only the first launch of the last kernel computes",
           [launch_once("multiply<<<grid, block>>>(t1, out, out")], timed=True),
    Mutant("unfused_first_biases", "six_kernels",
           "every block adds the biases of the first 64 columns",
           [("bias = load(&b[col])", "bias = load(&b[threadIdx.x * 8])")], sizes=(96, 1024),
           kind="bias"),
]

FAST = {kernel: (LOAD_16, STORE_16)
        for kernel in ("add_bias", "sigmoid", "multiply", "sigmoid_multiply")}
