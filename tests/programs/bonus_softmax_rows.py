"""What the tests of bonus_softmax_rows need besides what it declares (see tests/pages.py)."""

from pages import launch_once, LOAD_16, Mutant, PAST_THE_END, SHARED_16, STORE_16

MUTANTS = [
    Mutant("softmax_lost_tail", "by_warp",
           "the last piece of a row is taken for -infinity",
           [("if (first + i * stride < count)", "if (first + i * stride + 1 < count)")],
           sizes=(), runs=("33 --kernel by_warp", "160 --kernel by_warp"),
           cpu_runs=("33 --kernel by_warp", "160 --kernel by_warp")),
    Mutant("softmax_row_kept_too_long", "by_cluster",
           "a cluster loads its first row again and again",
           [("share(row, cols, rank, blocks, 0);", "share(own_row, cols, rank, blocks, 0);")],
           sizes=(), runs=("--rows 1500 --cols 20000 --dtype fp16",),
           cpu_runs=("--rows 5 --cols 20000 --dtype fp16",)),
    Mutant("softmax_last_chunk_left_out", "by_cluster",
           "the sum lacks the last chunk of a block's share",
           [("part = merge(part, max_sum_of(own));",
             "if (p + kChunkPieces < share.pieces) part = merge(part, max_sum_of(own));")],
           sizes=(), runs=("--rows 9 --cols 20000", "--rows 3 --cols 131072"),
           cpu_runs=("--rows 3 --cols 20000",)),
    Mutant("softmax_one_block", "by_cluster",
           "a row's sum is that of the cluster's first block",
           [("k < blocks * kReducers;", "k < kReducers;")],
           sizes=(), runs=("--rows 9 --cols 20000", "--rows 3 --cols 131072"),
           cpu_runs=("--rows 3 --cols 20000",)),
    Mutant("softmax_slot_freed_too_early", "by_cluster",
           "the next chunk may overwrite one that is still to be read",
           [("Piece<T, kElements> own[kChunkPieces / (32 * kWriters)];",
             "Piece<T, kElements> own[kChunkPieces / (32 * kWriters)];\n"
             "__syncwarp();\n"
             "if (lane == 0) hopper::mbarrier_arrive(&pipeline.empty[i % kSlots]);\n"
             "__nanosleep(9000);"),
            ("if (lane == 0) hopper::mbarrier_arrive(&pipeline.empty[i % kSlots]);\n"
             "                store(", "store(")],
           sizes=(), runs=("--rows 600 --cols 131072", "--rows 1500 --cols 131072 --dtype fp16"),
           cpu_runs=("--rows 12 --cols 20000",), race=True),
    Mutant("softmax_edge_left_out", "by_warp by_block",
           "the sum lacks what lies before and behind a row's pieces of 16 bytes",
           [("    MaxSum own = max_sum_of(pieces);\n"
             "    if (!kAligned) own = merge(own, max_sum_of(edge));",
             "    MaxSum own = max_sum_of(pieces);")],
           sizes=(33,), runs=("--rows 9 --cols 1003 --dtype fp16",),
           cpu_runs=("--rows 9 --cols 1003 --dtype fp16",)),
    Mutant("softmax_edge_left_out_by_blocks", "by_block",
           "the same in rows that are too long for a warp",
           [("    MaxSum own = max_sum_of(pieces);\n"
             "    if (!kAligned) own = merge(own, max_sum_of(edge));",
             "    MaxSum own = max_sum_of(pieces);")],
           sizes=(1025,), runs=("--rows 9 --cols 4099 --dtype fp16",),
           cpu_runs=("--rows 9 --cols 4099 --dtype fp16",)),
    Mutant("softmax_edge_left_out_by_clusters", "by_cluster",
           "the same where clusters keep the row",
           [("            if (!kAligned) part = merge(part, max_sum_of(edge));\n"
             "            part = merge_warp(part);",
             "            part = merge_warp(part);")],
           sizes=(), runs=("--rows 9 --cols 33001",), cpu_runs=("--rows 9 --cols 33001",)),
    Mutant("softmax_edge_left_out_of_two_readings", "by_cluster_twice",
           "the same where the row is read twice",
           [("MaxSum own = max_sum_of(edge);", "MaxSum own{kNothing, 0};")],
           sizes=(), runs=("--rows 3 --cols 300001", "33"), cpu_runs=("--rows 9 --cols 16387", "33")),
    Mutant("softmax_edge_of_every_block", "by_cluster",
           "each block of a cluster adds the edges",
           [("at_edge = rank == 0 ? layout.edge_of(thread) : cols;",
             "at_edge = layout.edge_of(thread);")],
           sizes=(), runs=("--rows 9 --cols 33001",), cpu_runs=("--rows 9 --cols 33001",)),
    Mutant("softmax_edge_unwritten", "by_warp by_block",
           "what lies before and behind a row's pieces of 16 bytes is not written",
           [("    if (!kAligned) store(edge, whole, out + begin, at_edge, 1u, unsigned(cols));", "")],
           sizes=(33,), runs=("--rows 9 --cols 1003",)),
    Mutant("softmax_edge_shifted", "by_block",
           "the first element behind a row's pieces of 16 bytes is left out",
           [("return thread < head ? thread : count * kElements + thread;",
             "return thread < head ? thread : count * kElements + thread + 1;")],
           sizes=(), runs=("33 --kernel by_block", "1025 --kernel by_block"),
           cpu_runs=("33 --kernel by_block",)),
    Mutant("softmax_fetched_past_the_end", "by_block",
           "the last blocks have rows fetched that there are not (a GPU does not mind)",
           [(" && later < gridDim.x", "")], sizes=(), cpu_runs=("--rows 120 --cols 16384",),
           stops=PAST_THE_END),
    Mutant("softmax_rows_stale", "by_warp",
           "only the first launch computes",
           [launch_once("kernel<<<(r.rows + 7) / 8, 8 * 32>>>")], timed=True),
]

FAST = {"by_warp": (LOAD_16, STORE_16),
        "by_block": (LOAD_16, STORE_16, r"UBLKPF\S*"),
        "by_cluster_twice": (LOAD_16, STORE_16),
        "by_cluster": (r"UBLKCP\S*", SHARED_16, STORE_16)}
ANY_ORDER = ("--rows 12 --cols 20000",)  # which clusters keep, several each
# Each way to treat a row. (With more rows than clusters racecheck sees races in by_cluster: it
# does not know that __syncwarp() orders what 32 lanes read before what one of them tells.)
SANITIZED = ("--rows 5 --cols 8192", "--rows 5 --cols 33000", "--rows 5 --cols 33001",
             "--rows 5 --cols 300001", "--rows 30 --cols 9001")
