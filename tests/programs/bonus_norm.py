"""What the tests of bonus_norm need besides what it declares (see tests/pages.py)."""

from pages import LOAD_16, Mutant, STORE_16

ALL = "by_warp by_block by_cluster by_cluster_twice"
BLOCKS = "by_block by_cluster by_cluster_twice"

MUTANTS = [
    Mutant("norm_by_squares", ALL,
           "the variance is found as the mean of squares minus the squared mean, in fp32",
           [("const T center = T(mean);", "const T center = T(0);")],
           sizes=(), runs=("--rows 5 --cols 1000 --dtype fp32",),
           cpu_runs=("--rows 5 --cols 1000 --dtype fp32",)),
    Mutant("norm_sample_variance", ALL,
           "the squares are divided by one less than the columns",
           [("whole.squares / whole.count", "whole.squares / (whole.count - 1)")], sizes=(33,)),
    Mutant("norm_no_epsilon", ALL,
           "nothing is added to the variance: of one column it is 0",
           [(" + demo::kEpsilon);", ");")],
           sizes=(), runs=("--rows 3 --cols 1", "9 --op rmsnorm"),
           cpu_runs=("--rows 3 --cols 1", "9 --op rmsnorm")),
    Mutant("norm_edge_left_out", ALL,
           "the moments lack what lies before and after a row's pieces of 16 bytes",
           [("with_edge = with_edge && share.has_edge;", "with_edge = false;")], sizes=(33,)),
    Mutant("norm_one_block", "by_cluster by_cluster_twice",
           "a row's moments are those of its first block",
           [("(sent, senders, a.cols)", "(sent, warps, a.cols / blocks)"),
            ("lane < size() ? *cluster", "lane < 1 ? *cluster")],
           sizes=(), runs=("--rows 1 --cols 20000",), cpu_runs=("--rows 1 --cols 20000",)),
    # Of each of the kinds, one in every kernel that can have it.
    Mutant("norm_tail_counted", ALL,
           "the zeros beyond the last piece count as elements",
           [("if (has(p, i)) squares += of_piece;", "squares += of_piece;"),
            ("if (pieces_of_warp(p) < 32 * kPieces) {", "if (false) {")],
           sizes=(33,), kind="tail"),
    Mutant("norm_seen_from_elsewhere", ALL,
           "squares are summed as seen from the mean rounded to fp16, and left so",
           [("- count * off * off", "")], sizes=(160,)),
    Mutant("norm_half_of_the_trace", ALL,
           "of the squares' sums by the tensor cores every second one is left out",
           [("if (of_pair == 1) squares = low[1] + high[3];", "")],
           sizes=(), runs=("--rows 5 --cols 1000",), cpu_runs=("--rows 5 --cols 1000",)),
    Mutant("norm_stale_gamma", "by_warp",
           "the first block alone cuts gamma and beta out, for unaligned rows",
           [("if (!kAligned) {\n        for (unsigned int i = threadIdx.x;",
             "if (!kAligned && blockIdx.x == 0) {\n        for (unsigned int i = threadIdx.x;")],
           sizes=(33,), kind="stale"),
    Mutant("norm_gamma_not_awaited", "by_warp",
           "unaligned rows take gamma and beta before other warps have cut them out",
           [("__syncthreads();  // gamma and beta are there", "")],
           sizes=(), runs=("--rows 500 --cols 1025",), cpu_runs=("--rows 40 --cols 1025",),
           race=True, kind="fence"),
    Mutant("norm_stale_moments", BLOCKS,
           "the first block alone writes its moments; one warp more is merged than there are",
           [("if (lane == 0) all[warp] = of_warp;",
             "if (lane == 0 && blockIdx.x == 0) all[warp] = of_warp;"),
            ("(sent, senders, a.cols)", "(sent, senders + 1, a.cols)")],
           sizes=(33,), kind="stale"),
    Mutant("norm_registers_as_they_were", ALL,
           "the sum begins as what its register held",
           [("float sums[4] = {};", "float sums[4] = {1};"),
            ("float sum = last, values", "float sum = last + T(1), values")],
           sizes=(33,), kind="accumulator"),
    Mutant("norm_waits_late", BLOCKS,
           "warps merge the others' moments before they are there",
           [("__syncthreads();  // every warp's moments are there", ""),
            ("hopper::mbarrier_wait(&full[of_turn], turn / 2 % 2);\n        const Moments whole",
             "const Moments whole"),
            ("        row = next, next = __float",
             "        hopper::mbarrier_wait(&full[of_turn], turn / 2 % 2);\n"
             "        row = next, next = __float")],
           sizes=(), runs=("--rows 500 --cols 5000",), cpu_runs=("--rows 5 --cols 5000",),
           race=True, kind="fence"),
    Mutant("norm_short_grid", ALL,
           "the last row, or the last few, are left out",
           [("rounds = (a.rows + together - 1) / together;", "rounds = a.rows / together;"),
            ("<<<a.rows, threads>>>", "<<<a.rows - 1, threads>>>"),
            ("std::min(room(), a.rows)", "std::min(room(), --a.rows)"),
            ("ClusterLaunch(a.rows, blocks, kTwice", "ClusterLaunch(a.rows - 1, blocks, kTwice")],
           sizes=(), runs=("--rows 33 --cols 36",), cpu_runs=("--rows 33 --cols 36",), kind="grid"),
    Mutant("norm_counter_as_it_was", "by_cluster",
           "the counter that rows are drawn from does not begin as 0",
           [("cudaMemsetAsync(drawn->data(), 0,", "cudaMemsetAsync(drawn->data(), 1,")],
           sizes=(), runs=("--rows 3000 --cols 20000",), cpu_runs=("--rows 30 --cols 20000",),
           kind="zeroing"),
    Mutant("norm_every_block_draws", "by_cluster",
           "each block of a cluster draws a row, and only the first one's is taken",
           [("if (rank == 0) drawn_now", "drawn_now")],
           sizes=(), runs=("--rows 3000 --cols 20000",), cpu_runs=("--rows 30 --cols 20000",)),
    Mutant("norm_copied_over", "by_cluster",
           "a warp's next row is copied before all of its threads have taken the one before",
           [("__syncwarp();  // all lanes have taken what was in these places", "")],
           sizes=(), cpu_runs=("--rows 9 --cols 20000",), race=True,
           stops="waits at mbarrier_wait()"),
    Mutant("norm_line_of_another_row", "by_cluster",
           "what lies beyond a row's pieces counts, from a row that had a line more",
           [("if (pieces_of_warp() < 32 * kPieces) {", "if (false) {")],
           sizes=(), runs=("--rows 3000 --cols 20001",), cpu_runs=("--rows 9 --cols 20001",),
           kind="tail"),
    Mutant("norm_gamma_of_the_earliest", "by_cluster",
           "all rows take gamma and beta as those do whose pieces begin the earliest",
           [("const unsigned int behind = kept.behind();", "const unsigned int behind = 0;")],
           sizes=(), runs=("--rows 300 --cols 20001",), cpu_runs=("--rows 9 --cols 20001",)),
    Mutant("norm_whole_words", "by_cluster",
           "gamma and beta that begin in the middle of a word are taken from its beginning on",
           [("!kAligned && behind * sizeof(T) % 4 != 0", "false")],
           sizes=(), runs=("--rows 300 --cols 20001",), cpu_runs=("--rows 9 --cols 20001",)),
    Mutant("norm_beta_is_gamma", ALL,
           "gamma is added in place of beta",
           [("parameters<kAligned>(a.beta, at, shift(), a.cols, wanted)", "result.gamma"),
            ("piece_at(a.beta, column, a.cols)", "result.gamma")],
           sizes=(160,), kind="bias"),
]


def unused(mutant, runs):
    """RMSNorm, in most mutants."""
    if any("rmsnorm" in run for run in runs):
        return []
    return [("run_all<RmsNorm>(session, a, work, reference.check(sum, out));", "")]


FAST = {kernel: (LOAD_16, STORE_16) for kernel in ALL.split()}
FAST["by_cluster"] = ("UBLKCP", STORE_16)
ANY_ORDER = ("--rows 12 --cols 20000",)  # which clusters keep, several each
RUNS = ("--op rmsnorm --rows 5 --cols 1001",)
SANITIZED = ("--rows 5 --cols 9001", "--rows 5 --cols 1001 --op rmsnorm",
             "--rows 9 --cols 33000 --op rmsnorm")
