"""What the tests of 8_softmax need besides what it declares (see tests/pages.py)."""

from pages import FEWER_TILES, Mutant, launch_once

MUTANTS = [
    Mutant("softmax_no_max", "fused online softmax_rows",
           "the maximum is not subtracted",
           [("return max == kNothing ? 0 : max;", "return 0;")], sizes=(33, 1028)),
    Mutant("softmax_first_number", "chain fused",
           "a row's first number stands for its maximum",
           [("max[row] = whole.max;", "max[row] = float(x[row * cols]);"),
            ("max = merge_block({max, 0}, 0).max;  // barrier 1",
             "merge_block({max, 0}, 0), max = float(again[0]);")], sizes=(33, 160)),
    Mutant("softmax_constants", "chain fused online softmax_rows",
           "101 or -99 stands for a maximum, whichever has its sign",
           [("return max == kNothing ? 0 : max;", "return max > 0 ? 101 : -99;")], sizes=(160, 1028)),
    Mutant("softmax_lanes_maximum", "fused",
           "a lane's own maximum stands for the row's",
           [("max = merge_block({max, 0}, 0).max;  // barrier 1", "merge_block({max, 0}, 0);")],
           sizes=(160, 1028)),
    Mutant("softmax_maximum_of_a_part", "chain fused",
           "the first 256 columns' maximum stands for the row's",
           [("own = fmaxf(own, float(x[row * cols + col]));",
             "if (col < 256) own = fmaxf(own, float(x[row * cols + col]));"),
            ("max = fmaxf(max, float(value));\n        }\n",
             "if (col < 256) max = fmaxf(max, float(value));\n        }\n")],
           sizes=(1028,), cpu_runs=("--rows 100 --cols 1028",)),
    Mutant("softmax_maximum_of_the_first_step", "online",
           "the maximum of a thread's first step stands for that of all",
           [("for (T value : values) max = fmaxf(max, float(value));",
             "if (col == begin) for (T value : values) max = fmaxf(max, float(value));")],
           sizes=(8192,), cpu_runs=("--rows 40 --cols 8192",)),
    Mutant("softmax_far_terms_left_out", "fused online softmax_rows",
           "e^t is taken as 0 below -8",
           [("return ptx::ex2_approx((x - max) * kLog2E);",
             "return x - max < -8 ? 0 : ptx::ex2_approx((x - max) * kLog2E);"),
            ("out[row * cols + col] = T(__expf(float(again[col]) - shift(max)) / sum);",
             "out[row * cols + col] = T(float(again[col]) < max - 8 ? 0 :"
             " __expf(float(again[col]) - shift(max)) / sum);")], sizes=(33, 160)),
    Mutant("softmax_20_bits", "fused online",
           "results are rounded to 20 bits",
           [("= T(__expf(float(again[col]) - shift(max)) / sum);",
             "= T(__uint_as_float(__float_as_uint(__expf(float(again[col]) - shift(max)) / sum) + 8"
             " & ~15u));"),
            ("T(power(float(values[i]), max) * factor);",
             "T(__uint_as_float(__float_as_uint(power(float(values[i]), max) * factor) + 8 & ~15u));"
             )], sizes=(160,)),
    Mutant("softmax_one_warp", "chain fused online softmax_rows",
           "a block's result is its first warp's",
           [("lane < blockDim.x / 32 ? pairs[slot][lane]", "lane < 1 ? pairs[slot][lane]")],
           sizes=(1028,), cpu_runs=("--rows 5 --cols 1028",)),
    Mutant("softmax_sum_of_sums", "online softmax_rows",
           "a warp's sums are added without bringing them to one maximum",
           [("float sum = own.sum * power(own.max, shift(max));",
             "float sum = own.sum;")], sizes=(1028,), cpu_runs=("--rows 5 --cols 1028",)),
    Mutant("softmax_no_block_barrier", "chain fused online softmax_rows",
           "warps read the others' pairs before they are there",
           [("__syncthreads();  // every warp's pair is there", "")], sizes=(1028,), race=True,
           cpu_runs=("--rows 5 --cols 1028",), kind="fence"),
    Mutant("softmax_online_no_rescaling", "online",
           "a thread's sum keeps terms that belong to an earlier, smaller maximum",
           [("own.sum *= power(own.max, shift(max));", "")],
           sizes=(8192,), runs=("--rows 9 --cols 20001 --dtype fp16",),
           cpu_runs=("--rows 5 --cols 8192",)),
    Mutant("softmax_lazy_rescaling", "online",
           "a sum is not rescaled where its maximum grows by less than 0.01",
           [("own.sum *= power(own.max, shift(max));",
             "own.sum *= max - own.max < 0.01f ? 1 : power(own.max, shift(max));")],
           sizes=(8192,), cpu_runs=("--rows 40 --cols 8192",)),
    Mutant("softmax_online_lost_tail", "online",
           "the last element of a row is taken for -infinity",
           [("32 * i < left ? from[col + 32 * i]", "32 * i + 1 < left ? from[col + 32 * i]")],
           sizes=(33, 160)),
    Mutant("softmax_online_own_sum", "online",
           "each thread divides by the sum of its own elements",
           [("factor = 1 / whole.sum;", "factor = 1 / own.sum;")], sizes=(33, 160)),
    Mutant("softmax_online_unwritten", "online",
           "the last 32 elements of a row are not written",
           [("if (32 * i < left)\n                    out[",
             "if (32 * i + 32 < left)\n                    out[")], sizes=(33, 160)),
    Mutant("softmax_stale", "fused online",
           "only the first launch computes",
           [launch_once("kernel<<<row_blocks, threads, kept>>>")], timed=True),
    Mutant("softmax_wrong_choice", "softmax_rows",
           "rows are cut to the pieces that the chosen kernel keeps",
           [("pieces <= 128 ?", "pieces <= 256 ?")],
           sizes=(), runs=("--rows 5 --cols 1000", "1024"), cpu_runs=("--rows 5 --cols 1000",)),
    Mutant("softmax_tail_twice", "chain fused online softmax_rows",
           "the sum counts the last elements again for what lies beyond them",
           [("for (size_t col = threadIdx.x; col < cols; col += blockDim.x)\n"
             "            own += float(e[row * cols + col]);",
             "for (size_t col = threadIdx.x; col <= cols; col += blockDim.x)\n"
             "            own += float(e[row * cols + min(col, cols - 1)]);"),
            ("for (size_t col = threadIdx.x; col < cols; col += blockDim.x)\n"
             "            sum += __expf(float(again[col]) - shift(max));",
             "for (size_t col = threadIdx.x; col <= cols; col += blockDim.x)\n"
             "            sum += __expf(float(again[min(col, cols - 1)]) - shift(max));"),
            ("from[col + 32 * i] : T(kNothing)", "from[col + 32 * i] : from[cols - 1]"),
            ("for (T& value : pieces[i].at) value = nothing;",
             "if (count > 0) pieces[i] = reinterpret_cast<const Piece<T>*>(from)[count - 1];\n"
             "            else for (T& value : pieces[i].at) value = nothing;"),
            ("is_own(i) ? float(row[i]) : kNothing;",
             "is_own(i) ? float(row[i]) : left > 0 ? float(row[left - 1]) : kNothing;")],
           sizes=(33,), kind="tail"),
    Mutant("softmax_first_blocks_pairs", "chain fused online softmax_rows",
           "the first block alone writes pairs to shared memory",
           [("if (lane == 0) pairs[slot][warp] = own;",
             "if (lane == 0 && blockIdx.x == 0) pairs[slot][warp] = own;")],
           sizes=(1028,), cpu_runs=("--rows 5 --cols 1028",), kind="stale"),
    Mutant("softmax_registers_as_they_were", "chain fused online softmax_rows",
           "the sums begin as what their registers held, and a maximum too",
           [("float own = 0;", "float own = 1;"),
            ("float sum = 0;\n        for", "float sum = 1;\n        for"),
            ("MaxSum own{kNothing, 0};\n        for", "MaxSum own{0, 1};\n        for"),
            ("float max = kNothing, sum = 0;", "float max = kNothing, sum = 1;")],
           sizes=(33,), kind="accumulator"),
    Mutant("softmax_short_grid", "chain fused online softmax_rows",
           "what is left over after whole blocks has none; the last row has none",
           [("blocks = (size + kChainThreads - 1) / kChainThreads;",
             "blocks = size / kChainThreads;"),
            ("row < rows; row += gridDim.x) {\n        const T* const from",
             "row + 1 < rows; row += gridDim.x) {\n        const T* const from"),
            ("row < rows; row += gridDim.x, slot ^= 1",
             "row + 1 < rows; row += gridDim.x, slot ^= 1"),
            ("min(size_t(tile_rows), rows - first)",
             "min(size_t(tile_rows), rows - first - 1)")], sizes=(33,), kind="grid"),
    Mutant("softmax_wrong_row", "chain",
           "the maximum and the sum are those of a row above",
           [("max[i / cols]", "max[i / cols / 3]"), ("sum[i / cols]", "sum[i / cols / 3]")],
           sizes=(33,), kind="bias"),
]

ANY_ORDER = ("--rows 12 --cols 20000",)  # where clusters keep the rows of softmax_rows


def unused(mutant, runs):
    return FEWER_TILES


NOT_APPLICABLE = {"zeroing": dict.fromkeys(
    ("chain", "softmax_rows"),
    "letterboxes alone are zeroed, those of by_grid, which bonus_softmax_rows breaks")}
FAST = {"online": ()}
OPERATIONS = {"--rows 3 --cols 7": 5 * 3 * 7}
SANITIZED = ("--rows 5 --cols 8192", "--rows 5 --cols 33000", "--rows 5 --cols 33001",
             "--rows 5 --cols 300001", "--rows 700 --cols 9001")  # each way to treat a row


def traffic(R, C):
    """By hand, in fp32: of R x C elements."""
    least = 4 * 2 * R * C
    return {"chain": (5, 4 * (8 * R * C + 4 * R), 4 * (R * C + 2 * R)),
            "fused": (1, least, 0), "online": (1, least, 0)}


TRAFFIC = {"--rows 24 --cols 20": traffic(24, 20)}
