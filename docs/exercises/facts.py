"""What scripts/exercise.sh knows of the exercises beside docs/exercises.md: hints, what tells a
right answer beside the outcome that the page shows, and wrong answers that people give."""

from typing import NamedTuple, Optional, Sequence, Tuple


class Count(NamedTuple):
    """What the first run with DEMO_COUNT=1 must count, of its first kernel."""

    row: str  # as the table calls it: "global loads"
    column: str  # threads, requests, bytes, sectors, sectors a request, conflicts
    before: float  # as the program comes
    solved: float


class Slip(NamedTuple):
    """A wrong answer that people give."""

    said: str  # what to say of it
    when: Sequence[str] = ()  # it is told by these: patterns of lines that the runs printed, or
    #                           after "not " did not print
    edits: Sequence[Tuple[str, str]] = ()  # (old, new): what makes it of the starting point
    of_solution: bool = False  # ... or of the solution
    value: Optional[float] = None  # where a number is asked for: it is told by that


class Facts(NamedTuple):
    hints: Sequence[str]
    slips: Sequence[Slip]
    answer: Optional[float] = None  # the number that is asked for ...
    within: float = 0  # ... and how far from it an answer may be
    gpu: bool = False  # no answer without a GPU
    counts: Sequence[Count] = ()
    says: Sequence[str] = ()  # patterns of what the runs must print, in place of the page's line
    runs: Sequence[str] = ()  # more runs, and what must come of each: "cpu/NAME 32 --once: WRONG"


STATIONARY, TENSORCORE = "cpu/bonus_matmul_A_stationary", "cpu/3_matmul_tensorcore"
CUBLAS, UNFUSED = "cpu/4_matmul_cublas", "cpu/5_gating_unfused"
BASIC, SHAREDMEM = "cpu/1_matmul_basic", "cpu/2_matmul_sharedmem"
GATING, GELU, SOFTMAX = "cpu/6_gating_fused", "cpu/7_gelu", "cpu/8_softmax"
BIAS, DLRM, TILE = "cpu/9_bias_activation", "cpu/13_dlrm", "cpu/bonus_tile"
ATTENTION = "cpu/10_attention"
SILU = "--op add_mul --activation silu"
LOAD_X = "        tile_x[ty][tx] = x[row * K + (t + tx)];\n"
LOAD_W1 = "        tile_W1[ty][tx] = W1[(t + ty) * H + col];\n"
LOAD_W2 = "        tile_W2[ty][tx] = W2[(t + ty) * H + col];\n"
SUM_V2 = "        for (int k = 0; k < kTile; ++k) v2 +="
GATE = "__fdividef(1.0f, 1.0f + __expf(-2.0f * a))"
FUSED_LINE = "if (i < size) out[i] = T(gelu_of(float(x[i])));"
FUSED_BLOCKS = "(size + kThreads - 1) / kThreads, kThreads>>>"
HALF_BLOCKS = "(size + 2 * kThreads - 1) / (2 * kThreads)"
EXP = "__expf(float(again[col]) - shift(max))"
FUSED_THREADS = "by_row(fused<T>, kThreads)"
BY_ROW = "<<<shape.rows, kThreads>>>"
CHOOSE_SILU = '    if (activation == "silu") return run_with<Silu, true, T>(session);\n'
CLOCK = "return gpu.boost_ghz * 1e6;"
COMPLETE = "        __syncthreads();  // the tiles are complete\n"
NOBODY = "        __syncthreads();  // nobody needs the tiles any more\n"
VOTE = "__any_sync(~0u, factor != 1)"
FIRST_PRODUCT = "j < {}; j += 16) {{\n            Accumulator s;"
SECOND_PRODUCT = "j < {}; j += 16) {{\n            FragmentA weights;"

FACTS = {
    0: Facts(
        hints=["The kernel goes below matmul_sharedmem, and a row for it into the list at the end "
               "of run(): README shows both.",
               "A thread has kRows rows, so a block needs kTile / kRows threads along y, and "
               "thread y begins at row y * kRows of the block's tile.",
               "The launch: mine<<<grid, dim3(kTile, kTile / kRows)>>>(A, B, C, N)."],
        says=["mine verified"],
        runs=[f"{SHAREDMEM} 96 --once: verified"],
        slips=[Slip("All elements of C are written, and wrong: does each sum have all N products, "
                    "from k = 0 to N - 1?",
                    when=["mine: ... elements wrong", "not never written"],
                    edits=[("k < N; ++k) {", "k + 1 < N; ++k) {")], of_solution=True),
               Slip("mine leaves elements of C unwritten: does each thread write kRows rows, and "
                    "do the threads of a block cover 32 of them?",
                    when=["mine: ... never written"],
                    edits=[("C[(row + i) * N + col] = sums[i]", "C[row * N + col] = sums[i]")],
                    of_solution=True),
               Slip("Some thread reads past A or B. Where a thread has eight rows, the block needs "
                    "an eighth of the threads along y; where it has eight columns, along x.",
                    when=["past the end of"], of_solution=True,
                    edits=[("dim3(kTile, kTile / kRows)", "block")]),
               Slip("A block has at most 1024 threads. These are more: there is no launch.",
                    when=["cudaErrorInvalidConfiguration"], of_solution=True,
                    edits=[("dim3(kTile, kTile / kRows)", "dim3(kTile, kTile * kRows)")]),
               Slip("There is no row `mine` in the list that run() gives to session.run().",
                    when=["--kernel takes one of"], edits=[("kTile = 32;", "kTile = 16;")])]),
    1: Facts(
        answer=37,
        hints=["A block has 32 x 32 threads, and x counts columns.",
               "Block (1,0) is the second one along x: its first column is 32."],
        slips=[Slip("5 is the thread's place in its block. Block (1,0) begins at column 32.",
                    value=5),
               Slip("2 is the row: y counts rows.", value=2),
               Slip("Only one block stands before this one, and it has 32 columns, not 64.",
                    value=69)]),
    2: Facts(
        hints=["The kernel's first two lines say which element is the thread's own.",
               "threadIdx.x and threadIdx.y change places. blockIdx stays where it is."],
        counts=[Count("global loads", "sectors a request", 2.5, 16.5)],
        runs=[f"{BASIC} 96 --once: verified"],
        slips=[Slip("You take both row and col from threadIdx.x: only the elements on the blocks' "
                    "diagonals are computed. The column must come from threadIdx.y.",
                    when=[f"{BASIC} 128: WRONG", "global loads ... 18.00"],
                    edits=[("kBlock + threadIdx.y", "kBlock + threadIdx.x")]),
               Slip("You take both row and col from threadIdx.y: only the elements on the blocks' "
                    "diagonals are computed. The row must come from threadIdx.x.",
                    when=[f"{BASIC} 128: WRONG", "global loads ... 1.00"],
                    edits=[("kBlock + threadIdx.x", "kBlock + threadIdx.y")]),
               Slip("Your warps still read 32 neighbors of B: their threads differ in threadIdx.x, "
                    "and that is still the column. Swapping blockIdx only gives the blocks other "
                    "work.",
                    when=[f"{BASIC} 128: verified", "global loads ... 2.50"],
                    edits=[("size_t(blockIdx.y)", "size_t(blockIdx.z + blockIdx.x)"),
                           ("size_t(blockIdx.x)", "size_t(blockIdx.y)")])]),
    3: Facts(
        hints=["A thread's sum is its own. One line gives it to everybody else.",
               "Put // in front of C[row * N + col] = sum; and leave run() as it is."],
        says=["4096 elements never written (or NaN)", "matmul_basic: (2 x 2) blocks"],
        runs=[f"DEMO_COUNT=1 {BASIC} 64: WRONG"],
        slips=[Slip("You have commented out the loop: each thread still stores its sum, which is "
                    "0. The store is the line below.",
                    when=["column 0: 0 instead of"],
                    edits=[("    for (size_t k = 0;", "    // for (size_t k = 0;")]),
               Slip("You have commented out the launch: no kernel ran. Leave run() as it is, and "
                    "comment out the kernel's last line.",
                    when=["nothing to count: no kernel"],
                    edits=[("matmul_basic<<<grid, block>>>(A, B, C, N);", "")])]),
    4: Facts(
        hints=["The kernel has one loop. Its condition says where it ends.",
               "k < N ends after k = N - 1. Let k become N, too."],
        says=["read of address ..., 0 bytes past the end of B"],
        runs=[f"{BASIC} 64 --once: An error"],
        slips=[Slip("Your loop still ends with k = N - 1: k <= N - 1 says the same as k < N.",
                    when=[f"{BASIC} 32: verified"], edits=[("k < N;", "k <= N - 1;")]),
               Slip("Your loop takes fewer steps than before, so that each sum lacks products. It "
                    "must take one more.",
                    when=[f"{BASIC} 32: WRONG"], edits=[("k < N;", "k < N - 1;")]),
               Slip("You read row N of A: you have changed an index. Leave the indices as they "
                    "are, and let the loop go further.",
                    when=["past the end of A"], edits=[("A[row * N", "A[(row + 1) * N")])]),
    5: Facts(
        hints=["A constant above the kernel says how large a block is.",
               "kBlock becomes 64, and nothing else changes. A block then has 64 x 64 threads."],
        says=["launch of matmul_basic: cudaErrorInvalidConfiguration"],
        runs=[f"DEMO_COUNT=1 {BASIC} 128: An error"],
        slips=[Slip("You have made the blocks smaller: 16 x 16 are 256 threads, which every GPU "
                    "launches. Make them larger.",
                    when=["blocks of (16 x 16) threads"], edits=[("kBlock = 32", "kBlock = 16")]),
               Slip("You have made the grid smaller and left the blocks at 32 x 32 threads, so "
                    "three quarters of C are never written. Change kBlock: the grid follows it.",
                    when=[f"{BASIC} 64: WRONG", "(2 x 2) blocks of (32 x 32) threads, one launch"],
                    edits=[("grid(N / kBlock, N / kBlock)", "grid(N / 64, N / 64)")]),
               Slip("You launch 64 x 16 threads, which are 1024 and allowed, but a block must "
                    "compute 64 x 64 elements: most are never written. Leave the line of `block` "
                    "as it was.",
                    when=["blocks of (64 x 16) threads, one launch"],
                    edits=[("kBlock = 32", "kBlock = 64"),
                           ("block(kBlock, kBlock)", "block(kBlock, 16)")])]),
    6: Facts(
        hints=["There are two calls of __syncthreads(), and each has a comment.",
               "The first barrier is the one after the loads: \"the tiles are complete\"."],
        runs=[f"{SHAREDMEM} 32 --once: WRONG", f"DEMO_COUNT=1 {SHAREDMEM} 64: WRONG"],
        counts=[Count("barriers", "threads", 16_384, 8_192),
                Count("shared loads", "threads", 524_288, 524_288),
                Count("shared stores", "threads", 16_384, 16_384)],
        slips=[Slip("Both barriers are still there: you have deleted another line.",
                    when=["WRONG", "barriers 16,384"],
                    edits=[("        tile_B[y][x] = B[(t + y) * N + col];\n", "")]),
               Slip("You have deleted both barriers. Put the second one back: which of the two "
                    "failures you see is told only where one of them is missing.",
                    when=[f"{SHAREDMEM} 32 --once: WRONG", "not barriers"],
                    edits=[(COMPLETE, ""), (NOBODY, "")]),
               Slip("You have deleted the second barrier: with a single step (N = 32) nothing is "
                    "loaded over the tiles, and the result is right. This exercise is about the "
                    "barrier after the loads.",
                    when=[f"{SHAREDMEM} 32 --once: verified", f"{SHAREDMEM} 64 --once: WRONG"],
                    edits=[(NOBODY, "")])]),
    7: Facts(
        hints=["Look at the end of a step: what would the next one do to the tiles?",
               "The second barrier stands after the loop over k: \"nobody needs the tiles any "
               "more\". The first one must be in its place."],
        counts=[Count("barriers", "threads", 16_384, 8_192),
                Count("shared loads", "threads", 524_288, 524_288)],
        runs=[f"{SHAREDMEM} 32 --once: verified", f"{SHAREDMEM} 64 --once: WRONG",
              f"DEMO_SCHEDULE=random:7 {SHAREDMEM} 96 --once: WRONG",
              f"DEMO_COUNT=1 {SHAREDMEM} 64: WRONG"],
        slips=[Slip("Both barriers are still there: you have deleted another line.",
                    when=[f"{SHAREDMEM} 64 --once: WRONG", "barriers 16,384"],
                    edits=[("sum += tile_A[y][k] * tile_B[k][x];", "sum = 0;")]),
               Slip("Both barriers are gone: the result is wrong for N = 32, too. Put the first "
                    "one back, after the loads.",
                    when=[f"{SHAREDMEM} 32 --once: WRONG", "not barriers"],
                    edits=[(COMPLETE, ""), (NOBODY, "")]),
               Slip("You have deleted the first barrier, the one after the loads: N = 32 is wrong, "
                    "although it has no next step. This exercise is about the barrier at the end "
                    "of a step.",
                    when=[f"{SHAREDMEM} 32 --once: WRONG"], edits=[(COMPLETE, "")]),
               Slip("You still have a barrier between a step's sums and the next step's loads: no "
                    "order of the threads gives a wrong result. At the top of the loop it does the "
                    "same as at its end.",
                    when=[f"{SHAREDMEM} 64 --once: verified",
                          f"DEMO_SCHEDULE=random:7 {SHAREDMEM} 96 --once: verified"],
                    edits=[(NOBODY, ""),
                           ("        tile_A[y][x] =", "        __syncthreads();\n"
                            "        tile_A[y][x] =")])]),
    8: Facts(
        hints=["The first barrier gets a condition, which only half of the block's threads meet.",
               "The line begins with if (y < 16) and goes on with __syncthreads(), as before."],
        says=["__syncthreads() ... for thread (0,16,0), which waits at __syncthreads()",
              "not which has left the kernel"],
        runs=[f"{SHAREDMEM} 64 --once: An error"],
        slips=[Slip("You ask for x, not y. It is an error, too, but it divides every warp: with y, "
                    "whole warps wait at one barrier and whole warps at the other.",
                    when=["for thread (16,0,0)"],
                    edits=[("__syncthreads();  // the", "if (x < 16) __syncthreads();  // the")]),
               Slip("You have put the second barrier in a branch: half of the threads leave the "
                    "kernel while the others wait. This exercise is about the first barrier.",
                    when=["for thread (0,16,0), which has left the kernel"],
                    edits=[("__syncthreads();  // nobody",
                            "if (y < 16) __syncthreads();  // nobody")]),
               Slip("All your threads still reach the same barriers. The condition must hold for "
                    "some threads of a block, and not for others: y is 0 to 31.",
                    when=[f"{SHAREDMEM} 32: verified"],
                    edits=[("__syncthreads();  // the", "if (y < 32) __syncthreads();  // the")])]),
    9: Facts(
        hints=["One constant says how large a tile is, and with it how large a block.",
               "kTile stands above the kernel."],
        counts=[Count("global loads", "threads", 131_072, 262_144)],
        runs=[f"{SHAREDMEM} 96 --once: verified"],
        slips=[Slip("Your tiles are 8 x 8: each element is loaded N / 8 times.",
                    when=["global loads 524,288"], edits=[("kTile = 32", "kTile = 8")]),
               Slip("You have made the tiles larger: a block has as many threads as a tile has "
                    "elements, and more than 1024 are not launched.",
                    when=["launch of matmul_sharedmem: cudaErrorInvalidConfiguration"],
                    edits=[("kTile = 32", "kTile = 64")]),
               Slip("You have made the block 16 x 16 and left the tiles at 32 x 32: three quarters "
                    "of each tile are never loaded. Change kTile: the block follows it.",
                    when=[f"{SHAREDMEM} 128: WRONG", "(4 x 4) blocks of (16 x 16) threads"],
                    edits=[("block(kTile, kTile)", "block(16, 16)")])]),
    10: Facts(
        hints=["Two lines use tile_B: one stores an element, the other reads one. Both change.",
               "Shared memory's bank of tile_B[i][j] is (32 i + j) % 32, which is j. Which j do "
               "the 32 threads of a warp read?",
               "tile_B[x][y] = ... stores and tile_B[x][k] reads: all 32 threads read bank k. "
               "Check this before you add the padding, which takes the conflicts away."],
        counts=[Count("shared loads", "conflicts", 0, 2_031_616)],
        runs=[f"{SHAREDMEM} 96 --once: verified"],
        slips=[Slip("You store the tile of B transposed and read it as before: you multiply by "
                    "other elements. Read tile_B[x][k].",
                    when=[f"{SHAREDMEM} 128: WRONG", "shared stores ... 63,488"],
                    edits=[("tile_B[y][x] = B", "tile_B[x][y] = B")]),
               Slip("You read the tile of B transposed and store it as before: you multiply by "
                    "other elements. Store to tile_B[x][y].",
                    when=[f"{SHAREDMEM} 128: WRONG", "shared loads ... 2,031,616"],
                    edits=[("tile_B[k][x]", "tile_B[x][k]")]),
               Slip("You have transposed the tile of A. A warp's threads all read the same element "
                    "of it, so only the stores conflict. Transpose B's.",
                    when=[f"{SHAREDMEM} 128: verified", "shared stores ... 63,488"],
                    edits=[("tile_A[y][x] = A", "tile_A[x][y] = A"),
                           ("tile_A[y][k]", "tile_A[k][y]")]),
               Slip("Your loads do not conflict. If you have added the padding, it works, and that "
                    "was the second step. The check is of the first: take the + 1 away, check, "
                    "and put it back.",
                    when=[f"{SHAREDMEM} 128: verified", "shared loads 4,194,304 131,072 ... 0"],
                    edits=[("tile_B[kTile][kTile]", "tile_B[kTile][kTile + 1]")],
                    of_solution=True)]),
    11: Facts(
        hints=["Half as many threads have the same work: wherever a thread loads or stores one "
               "element, it now does so for two.",
               "There are six places: two loads of each tile, two sums, two stores to C. Row y of "
               "the block's 32 goes with row y + 16.",
               "In the loop over k: const float b = tile_B[k][x]; then sum += tile_A[y][k] * b, "
               "and the second sum += tile_A[y + 16][k] * b."],
        counts=[Count("shared loads", "threads", 4_194_304, 3_145_728)],
        runs=[f"{SHAREDMEM} 96 --once: verified",
              f"DEMO_SCHEDULE=reverse {SHAREDMEM} 64 --once: verified"],
        slips=[Slip("You read all numbers of tile_B for one sum, and again for the other. Compute "
                    "both sums in one loop: a number that was just read is still in a register.",
                    when=[f"{SHAREDMEM} 128: verified", "blocks of (32 x 16) threads",
                          "shared loads 4,194,304"],
                    edits=[("            other += tile_A[y + kHalf][k] * b;\n        }\n",
                            "        }\n        for (int k = 0; k < kTile; ++k) "
                            "other += tile_A[y + kHalf][k] * tile_B[k][x];\n")],
                    of_solution=True),
               Slip("Your threads reach past the end of a matrix or a tile. Is the block 32 x 16 "
                    "in run()? With 32 x 32 threads, y + 16 is too much.",
                    when=[f"{SHAREDMEM} 128: an error"],
                    edits=[("block(kTile, kHalf)", "block(kTile, kTile)")], of_solution=True),
               Slip("Half of a tile is not loaded: each thread must now load two elements of A "
                    "and two of B.",
                    when=["16384 elements never written (or NaN)"],
                    edits=[("        tile_B[y + kHalf][x] = B[(t + y + kHalf) * N + col];\n", "")],
                    of_solution=True),
               Slip("Half of C is never written: each thread has two sums to store.",
                    when=["8192 elements never written (or NaN)"],
                    edits=[("    C[(row + kHalf) * N + col] = other;\n", "")],
                    of_solution=True)]),
    12: Facts(
        hints=["A block has one tile of A now, and visits all of B's that go with it. Which tiles "
               "of A does a tile of B go with?",
               "Tile (k0, col) of B is multiplied by all tiles of A in columns k0 to k0 + 31. So "
               "col is fixed and the loop is over row.",
               "tile_B is loaded before the loop, tile_A in it. k0 and col come from blockIdx; the "
               "indices of A, B and C stay as they are."],
        says=["matmul_B_stationary verified", "matmul_B_stationary: (4 x 4) blocks",
              "global loads 81,920", "global atomics 65,536"],
        runs=[f"DEMO_COUNT=1 {STATIONARY} 128: verified",
              f"DEMO_SCHEDULE=reverse {STATIONARY} 96 --once: verified"],
        slips=[Slip("You have swapped A and B, and left their indices as they were. Products still "
                    "need A's column to be B's row: A keeps (row, k0) and B keeps (k0, col). What "
                    "stays, and so the loop, changes.",
                    when=["column 0: 2.7855"],
                    edits=[("tile_A[y][x] = A[(row + y)", "tile_B[y][x] = B[(row + y)"),
                           ("tile_B[y][x] = B[(k0 + y)", "tile_A[y][x] = A[(k0 + y)")]),
               Slip("You load both tiles in every step, so that nothing stays. Load the tile of B "
                    "once, before the loop.",
                    when=["global loads 131,072"],
                    edits=[("    tile_B[y][x] = B[(k0 + y) * N + (col + x)];  // it stays\n", ""),
                           ("        tile_A[y][x] =", "        tile_B[y][x] = B[(k0 + y) * N + "
                            "(col + x)];\n        tile_A[y][x] =")], of_solution=True),
               Slip("You store the sums: each block overwrites what others have computed. They are "
                    "parts, to be added with atomicAdd, as before.",
                    when=[f"{STATIONARY} 128: WRONG", "global stores 65,536"],
                    edits=[("atomicAdd(&C[(row + y) * N + (col + x)], sum);",
                            "C[(row + y) * N + (col + x)] = sum;")], of_solution=True),
               Slip("Your kernel still goes by the name of matmul_A_stationary: give it the new "
                    "one at its definition, at its launch, and in .kernel.",
                    when=["matmul_A_stationary verified"],
                    edits=[('.kernel = "matmul_B_', '.kernel = "matmul_A_')],
                    of_solution=True)]),
    13: Facts(
        hints=["The constant stands in front of the tiles, below a comment about banks.",
               "kPad becomes 0. kPatchPitch belongs to something else."],
        counts=[Count("shared loads", "conflicts", 1_536, 6_656)],
        runs=[f"{TENSORCORE} 160 --once --kernel wmma_tiled: verified"],
        slips=[Slip("You have taken away both paddings, the tiles' and the patches'. Give "
                    "kPatchPitch its 20 back.",
                    when=["shared loads ... 8,704"],
                    edits=[("kPatchPitch = 20", "kPatchPitch = 16")], of_solution=True),
               Slip("You have changed kPatchPitch, the padding of the patches through which "
                    "results are stored. The tiles' is kPad.",
                    when=["shared loads ... 3,584"],
                    edits=[("kPatchPitch = 20", "kPatchPitch = 16")]),
               Slip("Your padding is no multiple of 8 halfs: rows begin where a copy of 16 bytes "
                    "must not. Set kPad to 0.",
                    when=["it copies 4, 8 or 16 bytes between multiples of that"],
                    edits=[("kPad = 8", "kPad = 4")])]),
    14: Facts(
        hints=["wmma_tiled's template argument is the number of stages; run() chooses it.",
               "wmma_tiled<2>, and 2 * sizeof(Stage) bytes of shared memory."],
        runs=[f"{TENSORCORE} 160 --once --kernel wmma_tiled: verified",
              f"DEMO_SCHEDULE=reverse {TENSORCORE} 160 --once --kernel wmma_tiled: verified"],
        slips=[Slip("You have made the shared memory smaller, but launch a kernel of four stages, "
                    "which writes past the end. The template's argument must be 2 as well.",
                    when=["dynamic shared memory of 37888 bytes"],
                    edits=[("wmma_tiled<2>", "wmma_tiled<4>")], of_solution=True),
               Slip("You launch two stages with shared memory for one: the kernel writes past the "
                    "end. It must be 2 * sizeof(Stage).",
                    when=["dynamic shared memory of 18944 bytes"],
                    edits=[("2 * sizeof", "sizeof")], of_solution=True),
               Slip("You still launch wmma_tiled<4>. The other choice is for GPUs with less shared "
                    "memory; the simulator has enough.",
                    when=["wmma_tiled<4>: (1 x 1) blocks"],
                    edits=[("wmma_tiled<3>", "wmma_tiled<2>"),
                           ("(four ? 4 : 3)", "(four ? 4 : 2)")])]),
    15: Facts(
        hints=["run() has a line for each type, and each asks for a way to compute.",
               "The first line's last argument becomes the second line's: "
               "CUBLAS_COMPUTE_32F_FAST_TF32. All else stays."],
        says=["cublas_fp32: ... row 0, column 0: 5.2706... instead of 5.2705"],
        runs=[f"{CUBLAS} 160 --once --kernel cublas_tf32: verified",
              f"{CUBLAS} 160 --once --kernel cublas_fp16: verified"],
        slips=[Slip("Your first line is still exact enough for fp32. Either it does not ask for "
                    "TF32, or you have also taken over `.then`: it rounds the inputs first, so "
                    "that TF32 loses nothing.",
                    when=["cublas_fp32 verified"],
                    edits=[('"fp32", CUBLAS_COMPUTE_32F);',
                            '"fp32", CUBLAS_COMPUTE_32F_FAST_TF32,\n'
                            '                   {.then = demo::Then::kRoundToTf32});')]),
               Slip("You ask for sums in fp16, which fp32 matrices cannot have: cuBLAS returns an "
                    "error. Take what the second line takes.",
                    when=["cublas_fp32: ... column 0: 0 instead of"],
                    edits=[('"fp32", CUBLAS_COMPUTE_32F);', '"fp32", CUBLAS_COMPUTE_16F);')])]),
    16: Facts(
        hints=["cublasGemmEx gets two matrices, each with its type and n, before C.",
               "A and B change places in the call. All else stays."],
        says=["cublas_fp32: ... row 0, column 0: 9.9759... instead of -2.9186",
              "cublas_fp16: 4095 of 4096"],
        slips=[Slip("You hand A over twice: cuBLAS computes A A.",
                    when=["cublas_fp32: ... column 0: 5.1531"], edits=[("&alpha, B", "&alpha, A")]),
               Slip("You hand B over twice: cuBLAS computes B B.",
                    when=["cublas_fp32: ... column 0: 0.5143"],
                    edits=[("                            A, type", "                            "
                            "B, type")]),
               Slip("You also ask cuBLAS to transpose (CUBLAS_OP_T): it then computes A B, and "
                    "stores it column by column. Here neither is transposed.",
                    when=["cublas_fp32: ... row 0, column 1: 4.2396"],
                    edits=[("CUBLAS_OP_N, CUBLAS_OP_N", "CUBLAS_OP_T, CUBLAS_OP_T")],
                    of_solution=True)]),
    17: Facts(
        hints=["Two kernels follow the first gemm: one stores its sums, and the next one reads "
               "them again. Which numbers does a thread handle in both?",
               "Take add_bias, and apply the sigmoid to each sum before store(). Launch it from t1 "
               "to t1: the second gemm overwrites t2.",
               "Between the two, M * H numbers were written and read again: moved_bytes loses "
               "2 * M * H numbers. The bias is still read."],
        says=["5 launches; ... 104.2 KiB moved"],
        runs=[f"{UNFUSED} 96 --once: verified", f"{UNFUSED} 160 --once: verified"],
        slips=[Slip("Your new kernel leaves its result in t2, where the second gemm puts x W2 "
                    "before it is used. Let it write to t1.",
                    when=["six_kernels: ... column 0: 0.1807"],
                    edits=[("(t1, g.b1, t1, M, H)", "(t1, g.b1, t2, M, H)")], of_solution=True),
               Slip("Your new kernel takes the sigmoid without b1: add the bias to each number "
                    "first.",
                    when=["six_kernels: ... column 0: -0.0993"],
                    edits=[(" + __half2float(bias.v[i])));", "));")], of_solution=True),
               Slip("Your program still says six launches, and as many bytes as before. Correct "
                    "`launches` and `moved_bytes`, below what is launched.",
                    when=["six_kernels verified", "6 launches; ... 120.2 KiB moved"],
                    edits=[(".launches = 5", ".launches = 6"),
                           ("2 * add + 3 * M * H", "2 * add + 2 * M * H + 3 * M * H")],
                    of_solution=True),
               Slip("You have corrected `launches`, and not `moved_bytes`: the sum was written by "
                    "one kernel and read by the next.",
                    when=["six_kernels verified", "5 launches; ... 120.2 KiB moved"],
                    edits=[("2 * add + 3 * M * H", "2 * add + 2 * M * H + 3 * M * H")],
                    of_solution=True),
               Slip("You have taken one matrix off `moved_bytes`: it was written by one kernel, "
                    "and read by the next.",
                    when=["six_kernels verified", "5 launches; ... 112.2 KiB moved"],
                    edits=[("2 * add + 3 * M * H", "2 * add + M * H + 3 * M * H")],
                    of_solution=True),
               Slip("You have taken an `add` off `moved_bytes`, and with it b1, which your kernel "
                    "still reads. It is the sigmoid's 2 * M * H that goes.",
                    when=["six_kernels verified", "5 launches; ... 104.1 KiB moved"],
                    edits=[("2 * add + 3 * M * H", "add + 2 * M * H + 3 * M * H")],
                    of_solution=True)]),
    18: Facts(
        answer=5, within=0.05,
        hints=["Take one row of x. Write down for each of the six kernels what it reads and what "
               "it writes.",
               "A gemm reads the row's 128 numbers and writes 64. An elementwise kernel reads 64 "
               "and writes 64, and the last one reads two such rows.",
               "Six kernels: 960 numbers. One kernel reads 128 and writes 64."],
        slips=[Slip("You have let the one kernel read x twice. It needs both products at once, so "
                    "it reads x once.", value=3),
               Slip("You have let the last kernel read one row. It multiplies two.", value=4.67),
               Slip("You have counted launches. Count the numbers that each of them moves.",
                    value=6)]),
    19: Facts(
        hints=["Which line of the loop serves both products, and which serves one alone?",
               "Copy the loop. The first one has no use for tile_W2, and the second one has none "
               "for tile_W1. Both need their two barriers."],
        counts=[Count("global loads", "threads", 32_768, 40_960)],
        runs=[f"DEMO_SCHEDULE=reverse {GATING} 96 --kernel fused_basic --once: verified"],
        slips=[Slip("Each of your loops loads all three tiles, six in all. The first loop needs no "
                    "tile of W2, and the second one none of W1.",
                    when=["global loads 57,344"], of_solution=True,
                    edits=[(f"{LOAD_W1}{COMPLETE}", f"{LOAD_W1}{LOAD_W2}{COMPLETE}"),
                           (f"{LOAD_W2}{COMPLETE}{SUM_V2}",
                            f"{LOAD_W1}{LOAD_W2}{COMPLETE}{SUM_V2}")]),
               Slip("Your second loop does not load x, so it multiplies every tile of W2 by the "
                    "last tile of x, which the first loop has left behind.",
                    when=["fused_basic WRONG", "global loads 32,768"], of_solution=True,
                    edits=[(f"{LOAD_X}{LOAD_W2}", LOAD_W2)])]),
    20: Facts(
        answer=10.5,
        hints=["Each kernel writes one matrix. How many does it read?",
               "A product or a sum of two matrices reads two, all others one.",
               "The chain moves 21 matrices. One kernel reads x and writes out."],
        slips=[Slip("You have counted launches. Each of them reads one or two matrices and writes "
                    "one.", value=9),
               Slip("You have counted 21 against 1. The one kernel also reads x.", value=21),
               Slip("You have let the first kernel read two matrices. It multiplies x by itself.",
                    value=11)]),
    21: Facts(
        hints=["Only gelu_of() changes. Which of its lines compute the factor `gate`?",
               "gate is 0.5 (1 + erf(x / sqrt(2))), and 1 / sqrt(2) is 0.70710678f."],
        says=["chain verified", "fused WRONG", "fused_vectorized WRONG",
              "fused: ... at row 0, column 0: -0.11033... instead of"],
        slips=[Slip("You have changed the chain, too. Leave it as it was: it shows that the check "
                    "still takes the formula with tanh.",
                    when=["chain WRONG"], of_solution=True,
                    edits=[("return tanhf(a);", "return erff(a);")]),
               Slip("You take erf of tanh's argument. The definition has erf(x / sqrt(2)), with "
                    "nothing in it but x.",
                    when=["fused: ... at row 0, column 0: -0.0571... instead of"],
                    edits=[(GATE, "0.5f * (1.0f + erff(a))")]),
               Slip("You take erf(x). Divide x by sqrt(2) first, or multiply it by 0.70710678f.",
                    when=["fused: ... at row 0, column 0: -0.0315... instead of"],
                    edits=[(GATE, "0.5f * (1.0f + erff(x))")])]),
    22: Facts(
        hints=["Take one step at a time: the formula in gelu_of(), the operations of chain(), the "
               "value and the tolerance in a copy of ExpectGelu (src/rows/expect_gelu.cuh) that "
               "run() checks with, and the two constants.",
               "Five operations: multiply by 1 / sqrt(2), erf, add 1, multiply by x, multiply by "
               "0.5. Count two matrices for each that has a number, and three for the other.",
               "Where each operation rounds, erf's argument a is off by |a| u, and u is "
               "format.roundoff. That changes the result by up to 1.13 |a| u |x| / 2."],
        says=["5 launches; ... 2.8 MiB moved", "not with_number<Tanh"],
        runs=[f"{GELU} 64 --dtype fp16 --once: verified",
              f"DEMO_COUNT=1 {GELU} --rows 3 --cols 7 --kernel chain: verified"],
        slips=[Slip("Your chain still has a kernel for tanh, whatever kOperations says.",
                    when=["with_number<Tanh"],
                    edits=[("kOperations = 9", "kOperations = 5"),
                           ("kChainTraffic = 21", "kChainTraffic = 11")]),
               Slip("All three kernels are WRONG: the reference still has the formula with "
                    "tanh.",
                    when=["chain WRONG", "fused WRONG", "fused_vectorized WRONG"], of_solution=True,
                    edits=[("(1 + erf(a))",
                            "(1 + tanh(0.79788456 * (v + 0.044715 * v * v * v)))")]),
               Slip("kChainTraffic is not right yet: four operations read a matrix and write one, "
                    "and the one with x reads two.",
                    when=["chain verified", "5 launches; ... MiB moved"], of_solution=True,
                    edits=[("kChainTraffic = 11", "kChainTraffic = 21")])]),
    23: Facts(
        hints=["Look for each place that calls gelu_of(): there are three in the fused kernels. Do "
               "not forget the elements that no vector takes.",
               "In the chain the addition is with_matrix<Add, T> with x. Of ten kernels that "
               "alternate, the last writes to `out` if the first writes to `temporary`.",
               "demo::ExactGelu::at(v) has GELU's value and error. demo::expect_stored(value, "
               "error, format) makes what is expected of the sum, which may be off by 2^-24 |x| "
               "more. The chain rounds at the size of x, too."],
        runs=[f"{GELU} --rows 3 --cols 7 --once: verified",
              f"{GELU} 64 --dtype fp16 --once: verified"],
        slips=[Slip("All three are WRONG: the reference does not add x yet.",
                    when=["chain WRONG", "fused WRONG", "fused_vectorized WRONG",
                          "fused: ... instead of -0.1105..."], of_solution=True,
                    edits=[("expect_stored(v + gelu,", "expect_stored(gelu,")]),
               Slip("`out` holds GELU without x. Either your chain has no tenth kernel, or that "
                    "writes to `temporary`: ten kernels must begin there to end in `out`.",
                    when=["fused verified", "chain: ... at row 0, column 0: -0.1105... instead of"],
                    of_solution=True,
                    edits=[("t1 = temporary, *const t2 = out;",
                            "t1 = out, *const t2 = temporary;")]),
               Slip("The last line of fused_vectorized has no residual. It computes what is left "
                    "over after whole vectors, so 256 x 256 elements are right, and 3 x 7 are not.",
                    when=[f"{GELU} 256 --once --verbose: verified",
                          f"{GELU} --rows 3 --cols 7 --once: WRONG"], of_solution=True,
                    edits=[("out[rest] = T(with_residual(", "out[rest] = T(gelu_of(")]),
               Slip("In fp16 some are WRONG by a rounding: the tolerance does not allow for the "
                    "addition. Where GELU is nearly 0 and x is not, the sum is rounded at the size "
                    "of x.",
                    when=[f"{GELU} 256 --once --verbose: verified",
                          f"{GELU} 64 --dtype fp16 --once: WRONG"], of_solution=True,
                    edits=[("demo::expect_stored(v + gelu, error + 0x1p-24 * fabs(v), format);",
                            "demo::expect_stored(gelu, error, format);\n"
                            "        expected.value += v;")]),
               Slip("kChainTraffic is not right yet: the addition reads two matrices and writes "
                    "one.", when=["chain verified", "10 launches; ... MiB moved"], of_solution=True,
                    edits=[("kChainTraffic = 24", "kChainTraffic = 21")])]),
    24: Facts(
        hints=["A thread's index i stays what it is: it is no longer an element, but a pair.",
               "Every size must work: with an odd number of elements, the last pair has one.",
               "(size + 2 * kThreads - 1) / (2 * kThreads) blocks are enough."],
        counts=[Count("global loads", "sectors", 8_192, 16_384),
                Count("global loads", "sectors a request", 4.0, 8.0)],
        says=["not fused: (256 x 1) blocks of (256 x 1)"],
        runs=[f"{GELU} --rows 1 --cols 513 --once: verified"],
        slips=[Slip("Your last pair has no second element where their number is odd: test each of "
                    "the two against size.",
                    when=["--cols 513 --once: an error"], of_solution=True,
                    edits=[("i < min(first + 2, size)", "i < first + 2 && first < size")]),
               Slip("With 513 elements the last one is never written. It is the first of a pair, "
                    "and needs a thread: round the number of pairs up, too.",
                    when=["--cols 513 --once: WRONG"], of_solution=True,
                    edits=[(HALF_BLOCKS,
                            "(size / 2 + kThreads - 1) / kThreads")]),
               Slip("Your threads load both elements in one access. That takes 8 sectors for a "
                    "request, but half as many requests, and asks for no sector twice. Load one "
                    "after the other.",
                    when=["global loads 32,768 1,024 262,144 8,192 8.00"],
                    edits=[(FUSED_LINE,
                            "struct alignas(2 * sizeof(T)) Two { T at[2]; };\n"
                            "    if (2 * i + 1 < size) {\n"
                            "        Two two = reinterpret_cast<const Two*>(x)[i];\n"
                            "        for (T& value : two.at) value = T(gelu_of(float(value)));\n"
                            "        reinterpret_cast<Two*>(out)[i] = two;\n"
                            "    } else if (2 * i < size) {\n"
                            "        out[2 * i] = T(gelu_of(float(x[2 * i])));\n"
                            "    }"),
                           (FUSED_BLOCKS, f"{HALF_BLOCKS}, kThreads>>>")]),
               Slip("Half of your threads have nothing to do: each takes two elements, so launch "
                    "half as many.",
                    when=["fused: (256 x 1) blocks of (256 x 1)", "16,384 8.00"],
                    of_solution=True,
                    edits=[(HALF_BLOCKS,
                            "(size + kThreads - 1) / kThreads")]),
               Slip("Your thread's two elements are far apart, so the 32 of a request still are "
                    "neighbors. Let thread i take 2 i and 2 i + 1.",
                    when=["fused: (128 x 1) blocks of (256 x 1)", "8,192 4.00"],
                    edits=[(FUSED_LINE,
                            "for (size_t e = i; e < size; e += size_t(gridDim.x) * blockDim.x)\n"
                            "        out[e] = T(gelu_of(float(x[e])));"),
                           (FUSED_BLOCKS, f"{HALF_BLOCKS}, kThreads>>>")])]),
    25: Facts(
        answer=8,
        hints=["A matrix has 1024 x 1024 numbers.", "A number in fp32 has 4 bytes."],
        slips=[Slip("That is one matrix: x and out are two.", value=4),
               Slip("You have counted 2 bytes a number, which is fp16. Without --dtype it is fp32.",
                    value=2)]),
    26: Facts(
        hints=["Look for what is subtracted inside of __expf().",
               "It stands once where the sum is made, and once where the results are written."],
        runs=[f"{SOFTMAX} 64 --once --kernel online: verified"],
        slips=[Slip("No element is NaN: you have left the maximum out of the sum alone. Leave it "
                    "out of the last line of `fused`, too.",
                    when=["fused: ... at row 0, column 0: 0 instead of"],
                    edits=[(f"sum += {EXP};", "sum += __expf(float(again[col]));")]),
               Slip("You have left the maximum out of the results alone. Leave it out of the sum, "
                    "too.", when=["fused: ... at row 0, column 0: inf instead of"],
                    edits=[(f"T({EXP} / sum)", "T(__expf(float(again[col])) / sum)")])]),
    27: Facts(
        hints=["A thread goes through the loop once for every 4096 numbers of a row.",
               "It is the line with the comment \"rescaled once, not for every number\"."],
        says=["online WRONG", "online: ... at row 0, column 0: 7.793...e-05 instead of"],
        runs=[f"{SOFTMAX} 64 --once --kernel online: verified"],
        slips=[Slip("Short rows are wrong, too. You have deleted another line than the one that "
                    "rescales: that one does nothing in a thread's first step.",
                    when=[f"{SOFTMAX} 64 --once --kernel online: WRONG"],
                    edits=[("            own.max = max;\n", "")])]),
    28: Facts(
        hints=["In run(), by_row() takes the number of threads. How does `online` choose its own?",
               "(cols + 31) / 32 * 32 are a row's columns in whole warps. std::min() limits that."],
        counts=[Count("barriers", "threads", 32_768, 4_096)],
        says=["fused...: (5 x 1) blocks of (128 x 1)", "fused...: (2 x 1) blocks of (256 x 1)"],
        runs=[f"DEMO_COUNT=1 {SOFTMAX} --rows 5 --cols 100 --kernel fused: verified",
              f"DEMO_COUNT=1 {SOFTMAX} --rows 2 --cols 1100 --kernel fused: verified"],
        slips=[Slip("Your blocks have 32 threads whatever the row: 100 columns should get 128. "
                    "Work it out from cols.",
                    when=["fused...: (5 x 1) blocks of (32 x 1)"],
                    edits=[(FUSED_THREADS, "by_row(fused<T>, 32)")]),
               Slip("You launch as many threads as there are columns, however many: 1100 are more "
                    "than a block can have. No row needs more than 256.",
                    when=["--cols 1100 --kernel fused: an error"],
                    edits=[(FUSED_THREADS, "by_row(fused<T>, (cols + 31) / 32 * 32)")]),
               Slip("You launch 100 threads for 100 columns. Round up to whole warps: in the last "
                    "one, merge_warp() asks all 32 lanes for their sums.",
                    when=["fused...: (5 x 1) blocks of (100 x 1)"],
                    edits=[(FUSED_THREADS, "by_row(fused<T>, std::min<size_t>(cols, kThreads))")]),
               Slip("You round down to whole warps: 100 columns get 96 threads, and less than 32 "
                    "get none. Add 31 before you divide.",
                    when=["fused...: (5 x 1) blocks of (96 x 1)"],
                    edits=[(FUSED_THREADS,
                            "by_row(fused<T>, std::min<size_t>(cols / 32 * 32, kThreads))")])]),
    29: Facts(
        hints=["A block's row is blockIdx.x. What are then a thread's first column and the next?",
               "The thread's columns are threadIdx.x, threadIdx.x + blockDim.x and so on, up to "
               "cols. Its elements begin at blockIdx.x * cols.",
               "Launch shape.rows blocks of kThreads threads."],
        says=["fused...: (64 x 1) blocks of"],
        runs=[f"{BIAS} --rows 5 --cols 100 --once: verified",
              f"{BIAS} --rows 3 --cols 2000 --once: verified",
              f"{BIAS} --rows 70 --cols 9 --op add_mul --dtype fp16 --once: verified"],
        slips=[Slip("Rows of 2000 columns are wrong: each of your threads takes one column. Let it "
                    "walk on by blockDim.x until the row ends.",
                    when=["--cols 2000 --once: WRONG", "--cols 100 --once: verified"],
                    of_solution=True,
                    edits=[("for (size_t col = threadIdx.x; col < cols; col += blockDim.x) {\n"
                            "        const size_t i = blockIdx.x",
                            "if (const size_t col = threadIdx.x; col < cols) {\n"
                            "        const size_t i = blockIdx.x")]),
               Slip("You still launch a block for every 256 elements, so most rows have none. "
                    "Launch as many blocks as there are rows.",
                    when=["fused WRONG", "fused...: (16 x 1) blocks of"], of_solution=True,
                    edits=[(BY_ROW, "<<<blocks, kThreads>>>")]),
               Slip("You launch a thread for each column, and a block has at most 1024. Take 256, "
                    "and let them walk along the row.",
                    when=["--cols 2000 --once: an error"], of_solution=True,
                    edits=[(BY_ROW, "<<<shape.rows, cols>>>")]),
               Slip("Your rows are on grid.y, which ends at 65,535. The run with a GPU has a "
                    "million rows: put them on grid.x.",
                    when=["fused...: (1 x 64) blocks of"], of_solution=True,
                    edits=[("blockIdx.x * cols + col;  // in", "blockIdx.y * cols + col;  // in"),
                           (BY_ROW, "<<<dim3(1, shape.rows), kThreads>>>")])]),
    30: Facts(
        hints=["`Gelu` shows what an activation must have: a function `of`, and what is exact, in "
               "double, for the reference.",
               "SiLU has no exact type yet. Give yours an at(v): demo::ExactSigmoid::at(v) has the "
               "sigmoid's value and error, and both are to be multiplied.",
               "At -infinity the sigmoid is 0. Multiply it by a finite number, as `Gelu` does."],
        says=["fused verified", "fused_vectorized verified", "not fused...<Relu, true, float>"],
        runs=[f"DEMO_COUNT=1 {BIAS} 64 {SILU} --kernel fused: verified",
              f"{BIAS} --rows 5 --cols 9 {SILU} --dtype fp16 --once: verified",
              f"{BIAS} 64 --op add_mul --activation gelu --once: verified"],
        slips=[Slip("`silu` runs ReLU: run() has no line for it, and its last line takes what is "
                    "left.", when=["fused...<Relu, true, float>"], of_solution=True,
                    edits=[(CHOOSE_SILU, "")]),
               Slip("--activation does not know `silu`: add it to the choices in main().",
                    when=[f"{BIAS} 64 {SILU} --once: exit status 2"], of_solution=True,
                    edits=[('"silu", ', "")]),
               Slip("All are WRONG, the chain too: `of` and what is exact disagree. Does at(v) "
                    "return v times the sigmoid, and |v| times its error?",
                    when=["chain WRONG", "fused WRONG"], of_solution=True,
                    edits=[("return {v * gate, fabs(v) * error};", "return {gate, error};")])]),
    31: Facts(
        answer=683, within=1,
        hints=["A matmul does 2 N^3 operations, on three matrices of N^2 numbers.",
               "A number has 4 bytes: 2 N^3 / (12 N^2)."],
        slips=[Slip("That is per number. A number in fp32 has 4 bytes.", value=2731),
               Slip("You have counted a multiply-add as one operation. It is two.", value=341),
               Slip("You have left out C, which is written, too.", value=1024)]),
    32: Facts(
        answer=1.7, within=0.5,
        hints=["Without a GPU: chapter 7 has one kernel's time, and what the second adds.",
               "Divide the chain's time for 4 x 4 by that of one launch."],
        slips=[Slip("That is the largest matrix, where traffic takes the time.", value=3.3),
               Slip("The chain has two launches, but each is a part of its time only: divide the "
                    "measured times.", value=2.5)]),
    33: Facts(
        hints=["Two kernels are needed: index_hash in place of `hash`, and one for `renew` that "
               "fills each table's array of ids and rows.",
               "index_hash is like a tile of lesson 2: load 256 ids, wait, compare, wait. A thread "
               "without a sample must still load, and reach every barrier.",
               "A table's ids may be those of samples 0, 1, 2, ..., N - 1, 0, ... Launch "
               "dim3(blocks(N), kTables): blockIdx.y is the table."],
        says=["44 launches; ... 4.6 MiB moved", "44 launches; ... 4.9 MiB moved"],
        runs=[f"{DLRM} 257 --dot --kernel chain --once --verbose: verified",
              f"DEMO_SCHEDULE=reverse {DLRM} 33 --dot --kernel chain --once: verified"],
        slips=[Slip("You count the tables' ids once. Every block reads them again, and 257 samples "
                    "take two blocks for each table.",
                    when=["44 launches; ... 4.7 MiB moved"], of_solution=True,
                    edits=[("blocks(N) * known_.bytes()", "known_.bytes()")])]),
    34: Facts(
        hints=["It is the load of softmax_tile, not that of softmax_tiles.",
               "load_masked() without a first argument fills with zeros: load_masked(row, 0)."],
        says=["softmax_tile WRONG", "gelu_tile verified", "bias_relu_tile verified",
              "softmax_tile: ... first at row 1, column 0: 0 instead of"],
        runs=[f"{TILE} --rows 4 --cols 1024 --once: verified",
              f"{TILE} --rows 2 --cols 20000 --dtype fp32 --once: verified"],
        slips=[Slip("You have changed softmax_tiles, which takes rows that are too long for one "
                    "tile. 1000 columns are softmax_tile's.",
                    when=["--cols 1000 --once: verified", "--cols 20000 ... --once: WRONG"],
                    edits=[("from.load_masked(tile::kMinusInfinity, row, t)",
                            "from.load_masked(row, t)")])]),
    35: Facts(
        answer=2.8, within=1.3, gpu=True,
        hints=["Measure before and after the change: it is the time of fused_tile that counts.",
               "Divide the second time by the first."],
        slips=[Slip("Then nothing has changed: is the program built anew, and __restrict__ gone "
                    "from In and from Out?", value=1)]),
    36: Facts(
        answer=28.6, within=1,
        hints=["host_clock times the launch and the wait, too: how long is a sample then?",
               "A sample takes 6 us + 15 us. A speed is work over time."],
        slips=[Slip("You have divided by what launch and wait take. The kernel's own time is in "
                    "the sample, too.", value=40),
               Slip("That is what is lost. What is left?", value=71.4)]),
    37: Facts(
        hints=["cycles_per_ms() is in `struct Waves`. How many cycles of 1 GHz are in a ms?",
               "1 GHz are 10^9 cycles in a second, so 10^6 in a ms."],
        slips=[Slip("Your clock is too fast by a factor of 1000: 1e9 are the cycles of a second, "
                    "and 1e6 those of a ms.",
                    when=["N = 1 ... 0.003504"], edits=[(CLOCK, "return 1e9;")]),
               Slip("You return GHz. A ms has a million times as many cycles.",
                    when=["N = 1 ... 4068"], edits=[(CLOCK, "return 1;")])]),
    38: Facts(
        answer=5,
        hints=["A sector has 32 bytes, which is 8 numbers. 32 numbers fill 4 sectors.",
               "They begin 16 bytes after a sector's first byte: where does the last one end?"],
        slips=[Slip("Four suffice only where the first number begins a sector. For N = 4 it begins "
                    "in the middle of one.", value=4),
               Slip("Only the first and the last sector are not full: half of one and half of "
                    "another make four, not eight.", value=8)]),
    39: Facts(
        hints=["Where do both the store and the load ask for a place?",
               "swizzled_place() can return v as it is. Its parameter `row` then needs no name."],
        counts=[Count("shared stores", "conflicts", 0, 3_584)],
        runs=["cpu/bonus_transpose 33 --once: verified",
              "cpu/bonus_transpose 64 --dtype fp16 --once: verified"],
        slips=[Slip("Stores and loads no longer agree on the place: you have changed one of the "
                    "two alone. Change what swizzled_place() returns.",
                    when=["swizzled WRONG"],
                    edits=[("[swizzled_place<T>(V * left + j, top)]", "[top]")])]),
    40: Facts(
        hints=["One line of `launch` in contender() says where a chunk begins, and how long it is.",
               "Both change: begin = size / chunks * c, and count = size / chunks."],
        says=["pageable ... verified", "pinned ... verified", "overlapped ... WRONG",
              "overlapped: 1 elements never written"],
        runs=["cpu/bonus_async 64 --show copies --once: verified"],
        slips=[Slip("Everything is still copied. The last chunk ends where the matrix does: let "
                    "count be size / chunks, too.",
                    when=["cpu/bonus_async 33 --show copies: verified"],
                    edits=[("begin = size * c / chunks", "begin = size / chunks * c")])]),
    41: Facts(
        answer=128,
        hints=["A block has 1024 threads. What does an SM of this card have room for?",
               "1536 threads: one block fits. The card has 128 SMs."],
        slips=[Slip("A second block of 1024 threads does not fit where there is room for 1536.",
                    value=256),
               Slip("That is how many fit by shared memory. Threads are the tighter limit, and it "
                    "is the whole card that is asked for.", value=11),
               Slip("That is one SM. The card has 128.", value=1)]),
    42: Facts(
        answer=8,
        hints=["An SM has 65,536 registers. A warp has 32 threads.",
               "A warp gets registers in steps of 256: 32 x 255 become 8,192."],
        slips=[Slip("65,536 / 255 is 257: that is threads. A warp has 32.", value=257)]),
    43: Facts(
        hints=["The kernel's last line computes and stores. Let it stand twice, with another "
               "condition each.",
               "i / 16 % 2 is 0 for the first 16 lanes of a warp and 1 for the others.",
               "The first: if (i < size && i / 16 % 2 == 0). The second has 1."],
        counts=[Count("global loads", "requests", 2_048, 4_096),
                Count("global loads", "sectors", 8_192, 8_192)],
        runs=["cpu/7_gelu 96 --once --kernel fused: verified"],
        slips=[Slip("No warp has to go both ways: with i / 32 all its lanes take the same branch.",
                    when=["global loads 65,536 2,048"],
                    edits=[(FUSED_LINE, FUSED_LINE.replace("size", "size && i / 32 % 2 == 0")
                            + "\n    " + FUSED_LINE.replace("size", "size && i / 32 % 2 == 1"))]),
               Slip("Neighbors go different ways (i % 2), so both halves of a warp ask for the "
                    "same four sectors. Divide by 16 first.",
                    when=["global loads 65,536 4,096 262,144 16,384"],
                    edits=[(FUSED_LINE, FUSED_LINE.replace("size", "size && i % 2 == 0") + "\n    "
                            + FUSED_LINE.replace("size", "size && i % 2 == 1"))])]),
    44: Facts(
        hints=["The condition stands below row and col, before the loop.",
               "if (row == N - 1) return;"],
        says=["waits at __syncthreads() ... which has left the kernel"],
        slips=[Slip("Nobody leaves before the barriers: your condition stands below the loop, "
                    "where only the store is left out.",
                    when=["never written"],
                    edits=[("    C[row * N + col] = sum;",
                            "    if (row == N - 1) return;\n    C[row * N + col] = sum;")])]),
    45: Facts(
        answer=320, within=3,
        hints=["Cycles are time times clock: milliseconds times 1000 times MHz.",
               "26.46 ms at 1365 MHz, over 0.0575 ms at 1965 MHz."],
        slips=[Slip("That is the time. The larger one also had a lower clock.", value=460),
               Slip("That is the work. Cycles are time times clock.", value=512),
               Slip("You have divided by the clock. Cycles are time times clock.", value=662.7)]),
    46: Facts(
        answer=6.7, within=0.4,
        hints=["15 x 16384^2 numbers of 2 bytes are 8.05 GB. How long does a copy's speed take?",
               "1.9 ms of traffic and 26.4 ms of products: what part of the sum is the traffic?"],
        slips=[Slip("That is how many GB are moved. Divide them by the copy's speed.", value=8.05),
               Slip("That is milliseconds. What part of the whole time is it?", value=1.9)]),
    47: Facts(
        answer=30,
        hints=["Add the 30 samples up, and divide by 30.", "29 x 1.00 + 10 = 39."],
        slips=[Slip("You have spread all 10 ms over the samples. 1 ms of them belongs there.",
                    value=33.3),
               Slip("1.3 times as long: by how many percent longer is that?", value=1.3),
               Slip("That is the bad sample. How long is the mean of all 30?", value=10),
               Slip("That is the median, which one bad sample does not move.", value=0)]),
    48: Facts(
        hints=["weigh() returns the factor. What is it for a row whose maximum has not grown?",
               "It is e^0, exactly 1. Ask all lanes of the warp whether any of them has another: "
               "__any_sync(~0u, factor != 1).",
               "Keep what weigh() returns as `factor`. Then call multiply_rows(o, factor, patch), "
               "or do not, and leave the __syncwarp() below for both cases."],
        counts=[Count("shared stores", "threads", 1_867_776, 1_830_144)],
        runs=[f"{ATTENTION} 128 --once --kernel fused_basic: verified",
              f"{ATTENTION} 160 --causal --once --kernel fused_basic: verified"],
        slips=[Slip("o is never multiplied: that was the first half. Rows whose maximum grows "
                    "after their first tile are wrong. Multiply for them.",
                    when=["fused_basic WRONG", "shared stores 1,605,632"],
                    edits=[(f"        if ({VOTE}) multiply_rows(o, factor, patch);\n", "")],
                    of_solution=True),
               Slip("You multiply only where all 16 rows have a new maximum. One is enough: the "
                    "others have the factor 1.",
                    when=["fused_basic WRONG", "shared stores 1,622,016"],
                    edits=[("__any_sync", "__all_sync")], of_solution=True),
               Slip("Some lanes of a warp go into multiply_rows(), and others do not: there they "
                    "wait for each other. The whole warp must take the same way.",
                    when=["waits at __syncwarp() ... for thread"],
                    edits=[(VOTE, "factor != 1")], of_solution=True)]),
    49: Facts(
        hints=["A warp has 16 rows of the block's 64. In the last tile warp 0 attends to the keys "
               "0 to 15, warp 1 to the keys 0 to 31.",
               "A lane's row attends to the next keys - first keys, of which the tile has kTile at "
               "most. Say so above the first loop.",
               "Both loops end at min(keys - first, size_t(kTile)). weigh() gives the keys beyond "
               "the weight 0 already."],
        counts=[Count("shared loads", "threads", 312_576, 286_464)],
        runs=[f"{ATTENTION} 96 --once --kernel fused_basic: verified",
              f"{ATTENTION} 160 --causal --once --kernel fused_basic: verified"],
        slips=[Slip("You leave keys out of the first product alone. Their weights are 0: leave "
                    "them out of the second one, too.",
                    when=["fused_basic verified", "shared loads 300,288"],
                    edits=[(SECOND_PRODUCT.format("seen"), SECOND_PRODUCT.format("kTile"))],
                    of_solution=True),
               Slip("You leave keys out of the second product alone. Nobody reads their scores: "
                    "leave them out of the first one, too.",
                    when=["fused_basic verified", "shared loads 298,752"],
                    edits=[(FIRST_PRODUCT.format("seen"), FIRST_PRODUCT.format("kTile"))],
                    of_solution=True),
               Slip("Without --causal it is wrong: there every row attends to all keys, and "
                    "nothing may be left out.",
                    when=[f"{ATTENTION} 256 --causal --kernel fused_basic: verified",
                          f"{ATTENTION} 96 --once --kernel fused_basic: WRONG"],
                    edits=[(part.format("seen"),
                            part.format("min(seen, int(row / 16 * 16 + 16 - first))"))
                           for part in (FIRST_PRODUCT, SECOND_PRODUCT)], of_solution=True),
               Slip("You leave out a part of which some keys are needed: of the 16 keys in which "
                    "the warp's own rows are, each row attends to some.",
                    when=[f"{ATTENTION} 256 --causal --kernel fused_basic: WRONG"],
                    edits=[(FIRST_PRODUCT.format("seen"),
                            FIRST_PRODUCT.format("seen - 16"))], of_solution=True)]),
    50: Facts(
        answer=0.546, within=0.015,
        hints=["`host: launching` adds up all passes. The headline says how many there are.",
               "11 calls, over 107.1 us."],
        slips=[Slip("That is over the span. In a part of it the GPU is idle: what is busy?",
                    value=0.49),
               Slip("That is `chain`, where the host is the limit.", value=1.6),
               Slip("That is microseconds. How many times the busy time is it?", value=58.5),
               Slip("That is one launch. A pass has 11.", value=0.05)]),
    51: Facts(
        answer=4280, within=25,
        hints=["4194304 x 64 numbers of 2 bytes are 0.537 GB. How often does it pass?",
               "Take the time of one launch, `mean us`: 1.07 GB in 250.84 us."],
        slips=[Slip("It reads a matrix and writes one: twice the bytes.", value=2140),
               Slip("That is GiB. A GB is 10^9 bytes.", value=3987),
               Slip("That is the time of all launches, in ms. What does one take?", value=8.7),
               Slip("A number has 2 bytes, not 4. Or have you taken 128 columns? They are x's.",
                    value=8561)]),
    52: Facts(
        answer=6,
        hints=["A stage holds 320 rows and 128 rows of 64 numbers. How much are three?",
               "227 - 16.2 KiB are left for stages of (128 + 128) x 64 x 2 B."],
        slips=[Slip("Some memory is needed besides the stages: 184.2 KiB less three stages.",
                    value=7),
               Slip("That is what fits where this kernel's 184.2 KiB are. A block may have more.",
                    value=5),
               Slip("A number has 2 bytes, and a stage holds a piece of A and one of B.",
                    value=13)]),
    53: Facts(
        answer=16.35, within=0.2,
        hints=["What is left are the two kernels of the library. How long does each take?",
               "The chain's median is 10260 us, and the products are 329 and 298."],
        slips=[Slip("That is the percentage that is saved. How many times as fast is that?",
                    value=93.9),
               Slip("You have kept one product. There are two.", value=31.2),
               Slip("You have kept one product. There are two.", value=34.4),
               Slip("That is what fused_tile reaches. What would the products alone take?",
                    value=17.2)]),
    54: Facts(
        answer=288.5, within=3,
        hints=["If they ran one after the other, a pass would take the sum of their means.",
               "382.25 + 289.11 us of kernels are in 382.9 us."],
        slips=[Slip("That is the sum. How much of it fits the pass only if both run at once?",
                    value=671.4),
               Slip("That is how long the longer one takes. Does the other one run all that time?",
                    value=382.3),
               Slip("That is the difference, when the longer one runs alone.", value=93.1)]),
}
