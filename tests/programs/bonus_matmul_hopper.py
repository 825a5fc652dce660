"""What the tests of bonus_matmul_hopper need besides what it declares (see tests/pages.py)."""

import pages
from pages import LAST_WGMMA_TWICE, SUMS_AS_THEY_WERE, WAITS_LATE, Mutant, accesses, launch_once

EVERY = ("wgmma tma warp_specialized persistent overlapped multicast stream_k eights_and_twos "
         "matmul_hopper")

# The record comes in 25 kinds of tiles; one is enough for a mutant, and is sooner compiled.
SHAPES = "    return prepare_nth(o, shape, std::make_index_sequence<std::size(kShapes)>());\n"
# So that tiles are divided that have but few steps, too.
AT_NO_COST = (("kExchange = 18;", "kExchange = 0;"), ("kOutOfStep = 4;", "kOutOfStep = 0;"))
# 128 x 256 in clusters of two; 112 x 128 by ping-pong; 128 x 192 and 64 x 64 alone; patches.
LARGE, PINGPONG, SINGLE, SINGLE_64, PATCHES = 0, 6, 17, 23, 24


def mutant(name, kernels, reason, edits, shape=LARGE, **others):
    """A bug of this program, with the record in one shape: its number in kShapes."""
    one = (SHAPES, f"    (void)shape;\n    return prepare<{shape}>(o);\n")
    return Mutant(name, kernels, reason, [*edits, one], **others)


MUTANTS = [
    mutant("hopper_dropped_k", EVERY,
           "the last 16 of a stage's 64 k, one wgmma, are left out",
           [("k = 0; k < kBlockK; k += 16", "k = 0; k < kBlockK - 16; k += 16")]),
    mutant("hopper_wrong_panels", EVERY,
           "the descriptor of B says that its panels lie closer together than they do",
           [("&stage.B[0][k][0], sizeof stage.B[0])", "&stage.B[0][k][0], sizeof stage.B[0] / 2)")],
           sizes=(2080,), cpu_sizes=(160,)),
    mutant("hopper_wgmma_not_swizzled", "wgmma",
           "rows are copied as they are, and wgmma reads them as if swizzled",
           [("to[row][(chunk ^ row % 8) * 8]", "to[row][chunk * 8]")]),
    mutant("hopper_no_full_wait", "tma",
           "stages are multiplied before their copies have arrived",
           [("""        hopper::mbarrier_wait(&ring.full[at.stage], at.parity);
        multiply_stage<T, kBlockN>(sums, ring.stages[at.stage], warpgroup, t > 0);
        hopper::wgmma_wait_group<1>();""",
             """        multiply_stage<T, kBlockN>(sums, ring.stages[at.stage], warpgroup, t > 0);
        hopper::wgmma_wait_group<1>();""")], race=True, stops="has left the kernel", kind="fence"),
    mutant("hopper_edges_left_out", "wgmma tma warp_specialized persistent",
           "the last 32 columns are not stored",
           [("if (r < N && c < N)", "if (r < N && c + 32 < N)")]),
    mutant("hopper_persistent_first_tile_only", "persistent",
           "a block stores no second tile",
           [("\n            store_sums(", "\n            if (i < int(gridDim.x)) store_sums(")],
           sizes=(2080, 4096), cpu_sizes=(288,)),
    mutant("hopper_persistent_stale", "persistent",
           "only the first launch computes",
           [launch_once("persistent<T><<<")], timed=True),
    mutant("hopper_overlapped_wrong_row", "overlapped",
           "two warps store to the same rows",
           [("outgoing.take(sums, tile.x * kBlockM + threadIdx.x / 32 * 16,",
             "outgoing.take(sums, tile.x * kBlockM + threadIdx.x / 64 * 16,")]),
    mutant("hopper_overlapped_stale", "overlapped",
           "only the first launch computes",
           [launch_once("overlapped<T><<<")], timed=True),
    mutant("hopper_multicast_wrong_panel", "multicast stream_k eights_and_twos matmul_hopper",
           "a cluster's blocks copy each other's panels to the places of their own",
           [("hopper::tma_load_multicast(stage.B[p], B, k, col + p * stage.kColumns,",
             "hopper::tma_load_multicast(stage.B[p], B, k, col + (p ^ 1) * stage.kColumns,")],
           sizes=(2080, 4096), cpu_sizes=(288,)),
    mutant("hopper_cluster_swapped_tiles", "multicast",
           "a cluster's blocks store each other's tiles",
           [("rank * kBlockM, col = tile.y * kBlockN;\n            float sums",
             "(1 - rank) * kBlockM, col = tile.y * kBlockN;\n            float sums")]),
    mutant("hopper_cluster_first_tile_only", "multicast",
           "a cluster stores no second tile",
           [("outgoing.take(sums, row +", "if (i < clusters) outgoing.take(sums, row +")],
           sizes=(2080, 4096), cpu_sizes=(288,)),
    mutant("hopper_cluster_stale", "multicast",
           "only the first launch computes",
           [launch_once("multicast<T><<<")], timed=True),
    mutant("hopper_backward_dropped_k", "stream_k eights_and_twos matmul_hopper",
           "a tile that is walked backward begins with the last step but one",
           [("part.backward ? part.last - 1 - t", "part.backward ? part.last - 2 - t")]),
    mutant("hopper_last_panel_left_out",
           "overlapped multicast stream_k eights_and_twos matmul_hopper",
           "the last 64 columns of each tile are not stored",
           [("pending = p + 1 < kPanels;", "pending = p + 2 < kPanels;")], sizes=(2080, 4096),
           cpu_sizes=(544,)),
    mutant("hopper_last_tile_left_out",
           "overlapped multicast stream_k eights_and_twos matmul_hopper",
           "the last tile of each block is not stored",
           [("if (pending) {", "if (pending && row < 0) {")]),
    mutant("hopper_wrong_height", "matmul_hopper",
           "tiles of 64 rows are stored as far apart as those of 128",
           [("row, col + warpgroup * kPanel, warpgroup);",
             "row * 2, col + warpgroup * kPanel, warpgroup);")],
           shape=SINGLE_64, sizes=(160, 1024), cpu_sizes=(96,)),
    mutant("hopper_single_same_columns", "matmul_hopper",
           "each warpgroup of a block with one tile multiplies the first 64 columns",
           [("sums, ring, at, N, warpgroup, [] {});", "sums, ring, at, N, 0, [] {});")],
           shape=SINGLE),
    mutant("hopper_pingpong_same_columns", "matmul_hopper",
           "by ping-pong, a warpgroup multiplies its tile's first 64 columns twice",
           [("ring.stages[at.stage], first + i, k > 0);", "ring.stages[at.stage], first, k > 0);")],
           shape=PINGPONG),
    mutant("hopper_single_no_full_wait", "matmul_hopper",
           "stages are multiplied before their copies have arrived, in a block with one tile",
           [("        hopper::mbarrier_wait(&ring.full[at.stage], at.parity);\n        if (k + k",
             "        if (k + k")],
           shape=SINGLE, sizes=(), cpu_sizes=(96,), race=True, stops="has left the kernel",
           kind="fence"),
    mutant("hopper_single_strip_overwritten", "matmul_hopper",
           "a strip is written again while TMA still reads it, in a block with one tile",
           [("if (first) hopper::cp_async_bulk_wait_group_read<kLeaving>();", "")],
           shape=SINGLE, sizes=(2048, 4096), cpu_sizes=(288,), race=True, kind="fence"),
    mutant("hopper_last_rows_short", "matmul_hopper",
           "of the last tile's rows 16 are not copied",
           [("{ return int((N - 1) % tile_rows) + 1; }",
             "{ return int((N - 1) % tile_rows) + 1 - 16; }")],
           shape=PINGPONG, sizes=(), cpu_sizes=(96,), stops="for ever"),
    mutant("hopper_half_step_left_out", "matmul_hopper",
           "the last step of which A has but half, 32 columns, is not multiplied",
           [("if (k < depth) step(std::integral_constant<int, kHalf>());", "")],
           shape=SINGLE, sizes=(96, 1056), cpu_sizes=(96,), kind="tail"),
    mutant("hopper_panel_not_copied", "matmul_hopper",
           "of a tile's panels the last one that lies in C is not copied",
           [("(N - col + kPanel - 1) / kPanel", "(N - col) / kPanel")],
           shape=SINGLE, sizes=(96, 1056), cpu_sizes=(96,)),
    mutant("hopper_not_ready", "matmul_hopper",
           "a block's consumers do not wait until the barriers are initialized",
           [("hopper::barrier_sync(kReady, blockDim.x);\n        if constexpr",
             "if constexpr")],
           shape=SINGLE, sizes=(), cpu_sizes=(96,), race=True, stops="mbarrier", kind="fence"),
    mutant("hopper_edge_below_left_out", "matmul_hopper",
           "of the tiles beyond whole patches those below them are left out",
           [("const int i = blockIdx.x, beside", "const int i = blockIdx.x % 8 + 9, beside")],
           shape=PATCHES, sizes=(12320,), cpu_sizes=(544,), kind="grid"),
    mutant("hopper_edges_left_out_of_patches", "matmul_hopper",
           "the tiles beyond whole patches are not launched",
           [("if (launch_edges) launch_edges(launches.side_stream());", "")],
           shape=PATCHES, sizes=(12320,), cpu_sizes=(544,)),
    mutant("hopper_out_of_turn", "matmul_hopper",
           "no warpgroup waits for its turn",
           [("hopper::mbarrier_wait(&memory.turn[warpgroup], parity), parity ^= 1;", "")],
           shape=PINGPONG, sizes=(), cpu_sizes=(416,), race=True, stops="mbarrier"),
    mutant("hopper_pingpong_one_warpgroup", "matmul_hopper",
           "only one warpgroup stores its tiles",
           [("finish(sums, part, warpgroup);", "if (warpgroup == 0) finish(sums, part, warpgroup);")],
           shape=PINGPONG, sizes=(4096,), cpu_sizes=(544,)),
    mutant("hopper_walk_out_of_rows",
           "persistent overlapped multicast stream_k eights_and_twos matmul_hopper",
           "the last group of rows is walked as though it were a whole one",
           [("if (first + group <= rows) return", "return")], sizes=(2080,), cpu_sizes=(544,),
           kind="grid"),
    mutant("hopper_panel_overwritten", "overlapped multicast stream_k eights_and_twos matmul_hopper",
           "a panel is written again while TMA still reads it",
           [("if (lane == 0) hopper::cp_async_bulk_wait_group_read<kOutPanels - 1>();", ""),
            ("out[next]", "out[0]")],  # of one tile; at the end nothing comes between
           sizes=(2048, 4096), cpu_sizes=(288,), race=True, kind="fence"),
    mutant("hopper_too_few_rounds", "stream_k matmul_hopper",
           "a cluster takes no second tile",
           [("i < tiles; i += clusters", "i < clusters; i += clusters")], sizes=(4096,),
           cpu_sizes=(288,)),
    mutant("hopper_sums_not_passed_on", "stream_k matmul_hopper",
           "a divided tile is stored with its first block's share of the sums alone",
           [("exchange.add(sums, c * schedule.kBlocks + rank);", ""),
            *AT_NO_COST],
           sizes=(2080,), cpu_sizes=(544,)),
    mutant("hopper_divides", "",
           "tiles are divided, as without a GPU only at sizes that take long",
           [*AT_NO_COST], sizes=(2080,), cpu_sizes=(544,)),
    mutant("hopper_eights_same_columns", "eights_and_twos",
           "blocks beside each other compute the same tiles",
           [("at.y + place / kHeight * kTileN", "at.y")],
           sizes=(288, 1024), cpu_sizes=(288,)),
    mutant("hopper_eights_stale", "eights_and_twos",
           "only the first launch computes",
           [launch_once("start_eights(launch_eights_)")], timed=True),
    mutant("hopper_twos_left_out", "eights_and_twos",
           "the second launch is left out",
           [("start_twos(launch_twos_);", "")],
           sizes=(9120,), cpu_sizes=(544,)),
    mutant("hopper_stale", "stream_k matmul_hopper",
           "only the first launch computes",
           [launch_once("launch(kernel, A, B, C, int(o.N), division.divided")], timed=True),
    # Of each of these kinds, one in every kernel that lacks one above.
    mutant("hopper_tail_twice", EVERY,
           "the last 16 of a stage's 64 k, one wgmma, are counted twice",
           [LAST_WGMMA_TWICE], sizes=(96, 1024), kind="tail"),
    mutant("hopper_step_before", EVERY,
           "each step multiplies the stage of the one before; wgmma's tile of A stays the first",
           [("(sums, ring.stages[at.stage], warpgroup, t > 0);\n        meanwhile",
             "(sums, ring.stages[t > 0 ? previous : at.stage], warpgroup, t > 0);\n"
             "        meanwhile"),
            ("(sums, ring.stages[at.stage], warpgroup, t > 0);\n        hopper",
             "(sums, ring.stages[t > 0 ? (t - 1) % kStages : 0], warpgroup, t > 0);\n"
             "        hopper"),
            ("        copy_panel<kBlockM>(stage.A,",
             "        if (k == 0) copy_panel<kBlockM>(stage.A,")],
           sizes=(96, 1024), kind="stale"),
    mutant("hopper_registers_as_they_were", EVERY,
           "the sums begin as what their registers held",
           [SUMS_AS_THEY_WERE], sizes=(96, 1024), kind="accumulator"),
    mutant("hopper_no_stage_wait", EVERY.replace(" tma", ""),
           "stages are multiplied before they are complete",
           [WAITS_LATE, ("__syncthreads();              // the stage is complete", "")],
           sizes=(), cpu_sizes=(96,), race=True, kind="fence"),
    mutant("hopper_short_grid", "wgmma tma warp_specialized",
           "the grid is rounded down: what is no multiple of the tile has no blocks",
           [("(N + kBlockM - 1) / kBlockM);\n}", "N / kBlockM);\n}")], sizes=(160, 1056),
           kind="grid"),
    mutant("hopper_sums_added_up", "stream_k matmul_hopper",
           "a block adds its sums to those that a launch before left for another block",
           [("to[i * kThreads] = {mine[4 * i], mine[4 * i + 1], mine[4 * i + 2], "
             "mine[4 * i + 3]};",
             "to[i * kThreads].x += mine[4 * i], to[i * kThreads].y += mine[4 * i + 1],\n"
             "            to[i * kThreads].z += mine[4 * i + 2], "
             "to[i * kThreads].w += mine[4 * i + 3];"),
            *AT_NO_COST,
            # The other kernels would take most of the time.
            ("contenders.push_back(cublas)",
             "contenders.erase(contenders.begin(), contenders.end() - 3);\n"
             "    contenders.push_back(cublas)")],
           sizes=(2080,), cpu_sizes=(544,), kind="zeroing"),
]

NOT_APPLICABLE = {"zeroing": {"eights_and_twos": "divides no tiles, so its blocks pass no sums on"}}

TRAFFIC = {"96": {"stream_k": (1, 0, 0), "eights_and_twos": (2, 0, 0)}}  # of a product no bytes

ANY_ORDER = ("288",)  # several tiles for each block, on up to four cores
HARMLESS = {
    "no_barrier: __syncwarp();  // the panel may be overwritten":
        "stmatrix comes next, for which a warp's threads meet",
    "no_barrier: __syncwarp();":
        "one is in front of tma_store: on a GPU each thread must have passed its fence, while one of "
        "the simulator's is for all; two are in Exchange, which these sizes do not reach",
    "one_short: if (r < N && c < N)": "c is even, like N",
    "one_short: for (size_t k = 0; k < N; k += kBlockK) {": "both are multiples of 32",
    "one_short: for (size_t p = 0; p < kBlockN / kPanel && col + p * kPanel < N; ++p)":
        "both are multiples of 32",
}

FAST = {
    "wgmma": ("HGMMA",),
    "tma": ("HGMMA", r"UTMALDG\S*"),
    "warp_specialized": ("HGMMA", r"UTMALDG\S*", "USETMAXREG"),
    "persistent": ("HGMMA", r"UTMALDG\S*"),
    "overlapped": ("HGMMA", r"UTMALDG\S*", r"UTMASTG\S*", "STSM"),
    "multicast": ("HGMMA", r"UTMALDG\S*MULTICAST", r"UTMASTG\S*"),
    "stream_k": ("HGMMA", r"UTMALDG\S*MULTICAST", r"UTMASTG\S*"),
    "eights_and_twos": ("HGMMA", r"UTMALDG\S*MULTICAST", r"UTMASTG\S*"),
    "matmul_hopper": ("HGMMA", r"UTMALDG\S*", r"UTMASTG\S*"),
}


def counts(n, kernel, cluster=1):
    """Tiles of 128 x 256, in steps of 64. A box of A has 128 rows, those of B 64 rows in panels of
    64 columns, 128 bytes a row; a cluster's blocks need the same B, each copies half of it. Boxes
    count for what of them lies within the matrix, and a warp stores 16 rows of a panel at a time.
    A warp's part of a wgmma is 16 x 256 x 16."""
    rows, columns, steps = (-(-n // extent) for extent in (128, 256, 64))
    panels = -(-columns * 256 // 64)
    blocks = rows * columns
    loads = blocks * steps + rows // cluster * panels * steps
    loaded = 2 * n * n * (columns + rows // cluster)
    return {f"{kernel}<__half>: ({blocks} x 1) blocks of (384 x 1) threads, one launch": {
        "bulk loads": pages.boxes(loads, loaded, sectors=loaded // 32),
        "bulk stores": pages.boxes(blocks * 8 * 4, 2 * n * n, sectors=2 * n * n // 32),
        "shared stores": accesses(blocks * 128 * 256 // 8, 16),
        "wgmma": accesses(blocks * steps * 4 * 8 * 32, 0),
        **({"barriers": accesses(blocks * 384, 0)} if cluster == 1 else {})}}


COUNTS = {"256 --kernel overlapped": counts(256, "overlapped"),
          "160 --kernel overlapped": counts(160, "overlapped"),
          "256 --kernel multicast": counts(256, "multicast", cluster=2)}
