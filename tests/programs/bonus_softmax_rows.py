"""What the tests of bonus_softmax_rows need besides what it declares (see tests/pages.py)."""

from pages import COPY_16, FEWER_TILES, LOAD_16, PAST_THE_END, STORE_16, Mutant, launch_once

KEEPERS = "by_warp by_block by_cluster by_grid by_cluster_twice"  # of pieces, in registers
ALL = "by_tile " + KEEPERS

MUTANTS = [
    Mutant("softmax_edge_left_out", KEEPERS,
           "the sum lacks what lies before and after a row's pieces of 16 bytes",
           [("return kAligned ? own : merge(own, {float(edge), 1});", "return own;"),
            ("values[kNumbers] = share.has_edge ? float(x[share.edge_at]) : kNothing;",
             "values[kNumbers] = kNothing;")],
           sizes=(33,)),
    Mutant("softmax_edge_unwritten", ALL,
           "it is not written, nor what follows the matrix's last piece",
           [("if (share.has_edge)\n            out[share.edge_at] = T(power",
             "if (false)\n            out[share.edge_at] = T(power"),
            ("if (share.has_edge) out[share.edge_at] = T(values",
             "if (false) out[share.edge_at] = T(values"),
            ("if (last < here * cols) out[last] = tile[last];", "")],
           sizes=(33,)),
    Mutant("softmax_edge_of_every_block", "by_cluster by_grid by_cluster_twice",
           "each block that has a share of a row adds its edges",
           [("if (rank + 1 < shares) after = 0;", "")],
           sizes=(), runs=("--rows 1 --cols 20003",), cpu_runs=("--rows 1 --cols 20003",)),
    Mutant("softmax_one_block", "by_cluster by_grid by_cluster_twice",
           "a row's sum is that of its first block",
           [("k < blocks * warps;", "k < warps;"),
            ("lane < size() ? *cluster", "lane < 1 ? *cluster"),
            ("whole =\n                merge(whole,",
             "if (k == 0) whole =\n                merge(whole,")],
           sizes=(), runs=("--rows 1 --cols 20000",), cpu_runs=("--rows 1 --cols 20000",)),
    Mutant("softmax_fetched_past_the_end", "by_block",
           "the last blocks have rows fetched that there are not (a GPU does not mind)",
           [(" && later < gridDim.x", "")],
           sizes=(), cpu_runs=("--rows 120 --cols 16384 --kernel by_block",), stops=PAST_THE_END),
    Mutant("softmax_old_news", "by_grid",
           "a pair of two rows before passes for the row's own",
           [("next = used ^ Letterboxes::kSign;", "next = used;")],
           sizes=(), cpu_runs=("--rows 5 --cols 100000 --kernel by_grid",), race=True),
    Mutant("softmax_letterbox_as_it_was", "by_grid",
           "what two blocks' letterboxes held before passes for each other's pairs",
           [("DEMO_CHECK(cudaMemset(pairs->data(), 0, pairs->bytes()));",
             "DEMO_CHECK(cudaMemset(pairs->data(), 0, pairs->bytes()));\n"
             "    if (team > 1) DEMO_CHECK(cudaMemset(pairs->data() + 1, 255, 16));")],
           sizes=(), cpu_runs=("--rows 1 --cols 4096",), race=True, kind="zeroing"),
    Mutant("softmax_rows_stale", "by_warp",
           "only the first launch computes",
           [launch_once("kernel<<<(r.rows + together - 1) / together, kWarpThreads>>>")],
           timed=True),
    Mutant("softmax_rows_tail_twice", ALL,
           "the sum counts the last elements again for what lies beyond them",
           [("for (T& value : pieces[i].at) value = nothing;",
             "if (count > 0) pieces[i] = reinterpret_cast<const Piece<T>*>(from)[count - 1];\n"
             "            else for (T& value : pieces[i].at) value = nothing;"),
            ("is_own(i) ? float(row[i]) : kNothing;",
             "is_own(i) ? float(row[i]) : left > 0 ? float(row[left - 1]) : kNothing;")],
           sizes=(33,), kind="tail"),
    Mutant("softmax_rows_first_blocks_pairs",
           "by_tile by_block by_cluster by_grid by_cluster_twice",
           "the first block alone writes pairs; one more pair is merged than were sent; the tile "
           "lacks what follows the matrix's last piece",
           [("if (lane == 0) pairs[slot][warp] = own;",
             "if (lane == 0 && blockIdx.x == 0) pairs[slot][warp] = own;"),
            ("k < blocks * warps; k += 32", "k <= blocks * warps; k += 32"),
            ("if (last < here * cols) tile[last] = x[last];", "")],
           sizes=(33,), kind="stale"),
    Mutant("softmax_rows_registers_as_they_were", ALL,
           "the sums begin as what their registers held",
           [("float max = kNothing, sum = 0;", "float max = kNothing, sum = 1;"),
            ("float sum = 0;\n#pragma unroll", "float sum = 1;\n#pragma unroll")],
           sizes=(33,), kind="accumulator"),
    Mutant("softmax_rows_no_block_barrier", "by_block by_grid by_cluster_twice",
           "warps read the others' pairs before they are there",
           [("__syncthreads();  // every warp's pair is there", "")],
           sizes=(1028,), cpu_runs=("--rows 5 --cols 1028",), race=True, kind="fence"),
    Mutant("softmax_rows_waits_late", "by_tile by_cluster",
           "nobody waits for the copies to a tile; the pairs of other blocks are waited for late",
           [("ptx::cp_async_wait_group<0>();", ""),
            ("hopper::mbarrier_wait(&full, 0);\n    MaxSum whole", "MaxSum whole"),
            ("kept.store(merge_warp(whole), out, share);",
             "hopper::mbarrier_wait(&full, 0);\n    kept.store(merge_warp(whole), out, share);")],
           sizes=(), cpu_sizes=(33,), race=True, kind="fence"),
    Mutant("softmax_rows_short_grid", ALL,
           "the last row, or the last few, are left out",
           [("min(size_t(tile_rows), rows - first)", "min(size_t(tile_rows), rows - first - 1)"),
            ("<<<(r.rows + together - 1) / together,", "<<<r.rows / together,"),
            ("<<<r.rows, threads>>>", "<<<r.rows - 1, threads>>>"),
            ("launch(r.rows, blocks, threads, 0)", "launch(r.rows - 1, blocks, threads, 0)"),
            ("row < rows; row += teams", "row + 1 < rows; row += teams"),
            ("return {r.rows, 1, threads_for(pieces", "return {r.rows - 1, 1, threads_for(pieces")],
           sizes=(), runs=("--rows 33 --cols 36",), cpu_runs=("--rows 33 --cols 36",), kind="grid"),
]


def unused(mutant, runs):
    return FEWER_TILES


FAST = {"by_tile": (COPY_16, STORE_16),
        "by_warp": (LOAD_16, STORE_16),
        "by_block": (LOAD_16, STORE_16, r"UBLKPF\S*"),
        "by_cluster": (LOAD_16, STORE_16, r"UBLKPF\S*"),
        "by_grid": (LOAD_16, STORE_16, r"UBLKPF\S*"),
        "by_cluster_twice": (LOAD_16, STORE_16)}
ANY_ORDER = ("--rows 12 --cols 20000",)  # which clusters keep, several each
# Each way to treat a row.
SANITIZED = ("--rows 500 --cols 17", "--rows 5 --cols 8192", "--rows 5 --cols 33000",
             "--rows 5 --cols 33001", "--rows 5 --cols 300001", "--rows 30 --cols 9001")
