"""What the tests of bonus_tile need besides what it declares (see tests/pages.py)."""

from pages import Mutant, launch_once

# Rows that softmax_tiles takes in nine tiles; of fp32, since their maxima hardly differ.
LONG = ("--rows 3 --cols 9001 --dtype fp32",)
EVERY = "matmul_tile softmax_tile gelu_tile bias_relu_tile"

MUTANTS = [  # each breaks several kernels: most of the time goes into compiling
    Mutant("tiles_stale", EVERY,
           "only the first launch computes",
           [launch_once("matmul_tile<<<blocks>>>"), launch_once("kernel<<<rows>>>"),
            launch_once("gelu<<<"), launch_once("add<<<")],
           timed=True),
    Mutant("tiles_left_out", EVERY,
           "what is left out: the last tile along k, the maximum, the cube, ReLU",
           [("ct::irange(0, tile::count(N, 64))", "ct::irange(0, tile::count(N, 64) - 1)"),
            ("ct::exp(v - ct::reduce_max<1>(v), ", "ct::exp(v, "),
            (" + 0.044715f * v * v * v)", ")"),
            ("ct::select(v < 0.0f, ct::zeros<decltype(v)>(), v)", "v")], sizes=(160, 1056)),
    Mutant("tiles_at_the_edge", "matmul_tile softmax_tile",
           "the grid is rounded down, and the last rows have no blocks; beyond a row's end there "
           "are zeros, which the sum counts",
           [("tile::count(N, kRows) * tile::count(N, kCols)",
             "int(N / kRows) * tile::count(N, kCols)"),
            ("from.load_masked(tile::kMinusInfinity, row, 0)", "from.load_masked(row, 0)")],
           sizes=(160, 1056), kind={"matmul_tile": "grid", "softmax_tile": "tail"}),
    Mutant("tiles_of_another", "matmul_tile softmax_tile",
           "every tile of C is computed of A's first rows; rows are cut to a tile that is too short",
           [("(A, N, N).load_masked(m, k)", "(A, N, N).load_masked(0, k)"),
            ("softmax_tile<1024, T>", "softmax_tile<128, T>")]),
    Mutant("tiles_of_long_rows", "softmax_tile gelu_tile bias_relu_tile",
           "the sum keeps terms that belong to an earlier, smaller maximum; what is left after the "
           "last whole tile has no block; every tile of a row gets b's first elements",
           [("sum * ct::exp(before - max, approx)", "sum"),
            ("tile::count(size, kTile)>>>", "size / kTile>>>"),
            ("(b, 1, cols).load_masked(0, t)", "(b, 1, cols).load_masked(0, 0)")],
           sizes=(), runs=LONG, cpu_runs=LONG,
           kind={"gelu_tile": "grid", "bias_relu_tile": "bias"}),
    Mutant("softmax_tiles_zeros_beyond", "softmax_tile",
           "beyond a row's end there are zeros, which the sum counts",
           [("from.load_masked(tile::kMinusInfinity, row, t)", "from.load_masked(row, t)")],
           sizes=(33,), runs=LONG, cpu_runs=LONG, kind="tail"),
    Mutant("softmax_tiles_unwritten", "softmax_tile",
           "the row's last tile is not written",
           [("tiles)) {\n        const auto v = ct::element_cast<float>(from.load_masked(row",
             "tiles - 1)) {\n        const auto v = ct::element_cast<float>(from.load_masked(row")],
           sizes=(33,), runs=LONG, cpu_runs=LONG),
    Mutant("tiles_unmasked", "matmul_tile bias_relu_tile",
           "the edge is stored as if there were whole tiles (a GPU writes over what lies there)",
           [(".store_masked(ct::element_cast<half>(sum), m, n)",
             ".store(ct::element_cast<half>(sum), m, n)"),
            (".store_masked(relu, row, t)", ".store(relu, row, t)")],
           sizes=(), cpu_sizes=(160, 33), stops="reaches over the edge of the tensor"),
    Mutant("tiles_not_aligned", "gelu_tile",
           "the compiler is told that a matrix ends at a multiple of 16 bytes, wherever it does",
           [("size * sizeof(T) % 16 ? gelu_tile<false, T> : gelu_tile<true, T>",
             "gelu_tile<true, T>")],
           sizes=(), cpu_sizes=(33,), stops="is no multiple of 8"),
    Mutant("tiles_too_many_and_too_few", "matmul_tile softmax_tile bias_relu_tile",
           "the last tiles along k are counted twice; a row's maximum and sum begin as what was "
           "there; the last row has no block",
           [("(int k : ct::irange(0, tile::count(N, 64)))",
             "(int i : ct::irange(0, tile::count(N, 64) + 1))"),
            (".load_masked(m, k)", ".load_masked(m, i - i / tile::count(N, 64))"),
            (".load_masked(k, n)", ".load_masked(i - i / tile::count(N, 64), n)"),
            ("const bool fits = ", "const bool fits = false && "),
            ("ct::shape<1, 1>>>(-INFINITY)", "ct::shape<1, 1>>>(0.0f)"),
            ("ct::zeros<decltype(max)>()", "ct::full<decltype(max)>(1.0f)"),
            ("add<<<rows * ", "add<<<(rows - 1) * ")], sizes=(96, 1056),
           kind={"matmul_tile": "tail", "softmax_tile": "accumulator", "bias_relu_tile": "grid"}),
    Mutant("tiles_as_they_were", "matmul_tile softmax_tile",
           "the sums begin as what was there; the last row has no block",
           [("ct::zeros<ct::tile<float, ct::shape<kRows, kCols>>>()",
             "ct::full<ct::tile<float, ct::shape<kRows, kCols>>>(1.0f)"),
            ("kernel<<<rows>>>", "kernel<<<rows - 1>>>")], sizes=(96, 1056),
           kind={"matmul_tile": "accumulator", "softmax_tile": "grid"}),
]

# Rows of one element, of less and of more than a tile, and too long for one: softmax then reads
# them twice, as it does where rows do not begin at multiples of 16 bytes.
EDGES = ((1, 1), (3, 7), (5, 1000), (5, 1028), (7, 16384), (7, 16385), (3, 70001))
RUNS = tuple(f"--rows {rows} --cols {cols} --dtype {dtype}"
             for rows, cols in EDGES for dtype in ("fp16", "fp32"))
ANY_ORDER = ("--rows 3 --cols 16385 --dtype fp16",)
SANITIZED = ("--rows 5 --cols 1028", "--rows 7 --cols 16384", "--rows 7 --cols 16385")
# Of softmax, GELU, bias and ReLU: 5, 9 and 2 for each element.
OPERATIONS = {"--rows 3 --cols 7": {5 * 3 * 7, 9 * 3 * 7, 2 * 3 * 7}}
