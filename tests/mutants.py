"""Programs with one bug each: every one of them must end with exit code 1.

`scons mutants` builds build/mutants/NAME from src/PROGRAM.cu with the edits applied; each edit's
text must occur exactly once in the source. tests/test_mutants.py runs them.
"""

from typing import NamedTuple, Sequence, Tuple


class Mutant(NamedTuple):
    name: str
    program: str
    kernels: Tuple[str, ...]  # those that the bug breaks; the program's others must stay verified
    reason: str  # what is wrong with them
    edits: Sequence[Tuple[str, str]]  # (old, new)
    sizes: Tuple[int, ...] = (160, 1024)  # N: each must be rejected ...
    talk_sizes: Tuple[int, ...] = ()  # ... and each S of the talk's shape ...
    cpu_sizes: Tuple[int, ...] = ()  # N on the CPU lane, where `sizes` would take too long
    race: bool = False  # ... or, where the bug is a matter of luck, one of them
    timed: bool = False  # shows only after several launches, so not with --once
    oldest_sm: int = 0  # on older GPUs the bug has no effect

    @property
    def on_cpu(self):
        """Whether the CPU lane can run it."""
        return self.program != "bonus_matmul_hopper"


def _launch_once(launch):
    """Makes a launch happen the first time only: afterwards the output is stale."""
    return (launch, "static int launches; if (launches++ == 0) " + launch)


_BASIC, _SHARED, _STATIONARY = ("matmul_basic",), ("matmul_sharedmem",), ("matmul_A_stationary",)
_WMMA, _CUBLAS = ("wmma_global", "wmma_tiled"), ("cublas_fp32", "cublas_tf32", "cublas_fp16")
_UNFUSED = ("six_kernels", "library_best")
_TILED, _STREAMED = ("fused_tiled",), ("fused_streamed",)
_HOPPER = ("wgmma", "tma", "specialised", "persistent")
_TALK = dict(sizes=(), talk_sizes=(16, 32, 256))

_ALWAYS_PACKED = (
    "packed_ = quick_time([&] { one_packed_gemm(); }) < quick_time([&] { two_gemms(); });",
    "packed_ = true;",
)
_NEVER_PACKED = (_ALWAYS_PACKED[0], "packed_ = false;")

MUTANTS = [
    # --- 1_matmul_basic ---
    Mutant("basic_dropped_k", "1_matmul_basic", _BASIC,
           "the loop ends before the last k",
           [("k = 0; k < N; ++k", "k = 0; k < N - 1; ++k")]),
    Mutant("basic_swapped_A", "1_matmul_basic", _BASIC,
           "A is read transposed",
           [("A[row * N + k]", "A[k * N + row]")]),
    Mutant("basic_swapped_B", "1_matmul_basic", _BASIC,
           "B is read transposed",
           [("B[k * N + col]", "B[col * N + k]")]),
    Mutant("basic_fp16_accumulator", "1_matmul_basic", _BASIC,
           "the sum is rounded to fp16 at every step",
           [("sum += A[row * N + k] * B[k * N + col];",
             "sum = __half2float(__float2half(sum + A[row * N + k] * B[k * N + col]));")]),
    Mutant("basic_unwritten_rows", "1_matmul_basic", _BASIC,
           "the grid lacks its last row of blocks",
           [("grid(N / kBlock, N / kBlock)", "grid(N / kBlock, N / kBlock - 1)")]),
    Mutant("basic_stale", "1_matmul_basic", _BASIC,
           "only the first launch computes",
           [_launch_once("matmul_basic<<<")], timed=True),
    # --- 2_matmul_sharedmem ---
    Mutant("sharedmem_dropped_k", "2_matmul_sharedmem", _SHARED,
           "the last tile's last k is left out",
           [("k = 0; k < kTile; ++k", "k = 0; k < kTile - int(t + kTile == N); ++k")]),
    Mutant("sharedmem_swapped_B", "2_matmul_sharedmem", _SHARED,
           "the tile of B is read transposed",
           [("tile_B[k][x]", "tile_B[x][k]")]),
    Mutant("sharedmem_swapped_C", "2_matmul_sharedmem", _SHARED,
           "C is written transposed",
           [("C[row * N + col]", "C[col * N + row]")]),
    Mutant("sharedmem_no_first_barrier", "2_matmul_sharedmem", _SHARED,
           "threads compute with tiles that are not complete",
           [("__syncthreads();  // the tiles are complete", "")], race=True),
    Mutant("sharedmem_no_second_barrier", "2_matmul_sharedmem", _SHARED,
           "threads load over tiles that others still compute with",
           [("__syncthreads();  // nobody needs the tiles any more", "")], race=True),
    Mutant("sharedmem_unwritten_tile", "2_matmul_sharedmem", _SHARED,
           "the block in the lower left corner does not store",
           [("C[row * N + col] = sum;",
             "if (blockIdx.x > 0 || blockIdx.y + 1 < gridDim.y) C[row * N + col] = sum;")]),
    Mutant("sharedmem_stale", "2_matmul_sharedmem", _SHARED,
           "only the first launch computes",
           [_launch_once("matmul_sharedmem<<<")], timed=True),
    # --- 3_matmul_tensorcore ---
    Mutant("wmma_global_dropped_k", "3_matmul_tensorcore", _WMMA[:1],
           "the last 16 of k, one fragment, are left out",
           [("k = 0; k < N; k += kFragment", "k = 0; k < N - kFragment; k += kFragment")]),
    Mutant("wmma_tiled_dropped_k", "3_matmul_tensorcore", _WMMA[1:],
           "the last 8 of k, one asynchronous copy, are left out",
           [("N - block_row, N - k);", "N - block_row, N - k - 8);")]),
    Mutant("wmma_swapped_B", "3_matmul_tensorcore", _WMMA,
           "every fragment of B is read transposed",
           [("wmma::matrix_b, 16, 16, 16, half, wmma::row_major",
             "wmma::matrix_b, 16, 16, 16, half, wmma::col_major")]),
    Mutant("wmma_fp16_accumulator", "3_matmul_tensorcore", _WMMA,
           "the tensor cores sum in fp16",
           [("wmma::accumulator, 16, 16, 16, float", "wmma::accumulator, 16, 16, 16, half"),
            ("wmma::store_matrix_sync(patch, accumulator, kPatchPitch, wmma::mem_row_major);",
             "wmma::store_matrix_sync(C, accumulator, pitch, wmma::mem_row_major); return;")]),
    Mutant("wmma_tiled_no_wait", "3_matmul_tensorcore", _WMMA[1:],
           "tiles are read before their copies have arrived",
           [("__pipeline_wait_prior(kStages - 2);", ""),
            # A copy that started three tiles ago has arrived anyway: let it start just now.
            ("if (t + kStages - 1 < tiles) copy_stage(t + kStages - 1);", "copy_stage(t);")],
           race=True),
    Mutant("wmma_tiled_no_barrier", "3_matmul_tensorcore", _WMMA[1:],
           "threads wait for their own copies, and not for each other's",
           [("__syncthreads();                     // everyone's has", "// everyone's has")],
           sizes=(160, 1024, 2048), race=True),
    Mutant("wmma_tiled_unwritten_tiles", "3_matmul_tensorcore", _WMMA[1:],
           "the grid is rounded down: what is no multiple of 128 has no blocks",
           [("(N + kBlockN - 1) / kBlockN", "N / kBlockN")], sizes=(160, 2080)),
    Mutant("wmma_tiled_unwritten_fragment", "3_matmul_tensorcore", _WMMA[1:],
           "the last 16 columns are not stored",
           [("if (row < N && col < N)", "if (row < N && col + kFragment < N)")]),
    Mutant("wmma_tiled_stale", "3_matmul_tensorcore", _WMMA[1:],
           "only the first launch computes",
           [_launch_once("kernel<<<grid, kThreads, shared_bytes>>>")], timed=True),
    # --- 4_matmul_cublas ---
    Mutant("cublas_tf32_as_fp32", "4_matmul_cublas", _CUBLAS[:1],
           "TF32 passes itself off as fp32",
           [('"fp32", CUBLAS_COMPUTE_32F)', '"fp32", CUBLAS_COMPUTE_32F_FAST_TF32)')],
           sizes=(1024, 4096), cpu_sizes=(160,), oldest_sm=80),
    Mutant("cublas_dropped_k", "4_matmul_cublas", _CUBLAS,
           "the last k is left out",
           [("n, n, n, &alpha", "n, n, n - 1, &alpha")]),
    Mutant("cublas_swapped", "4_matmul_cublas", _CUBLAS,
           "B A instead of A B",
           [("B, type, n, A, type", "A, type, n, B, type")]),
    Mutant("cublas_stale", "4_matmul_cublas", _CUBLAS,
           "only the first call computes",
           [_launch_once("matmul_cublas::gemm(cublas, compute")], timed=True),
    # --- 5_gating_unfused ---
    Mutant("unfused_dropped_k", "5_gating_unfused", _UNFUSED,
           "every gemm leaves out the last 8 of k",
           [("&layout_W_, type, N, K, N", "&layout_W_, type, N, K - 8, N"),
            ("&layout_x_, type, K, M, K", "&layout_x_, type, K - 8, M, K")]),
    Mutant("unfused_no_bias", "5_gating_unfused", _UNFUSED[:1],
           "the sigmoid is taken of the product without its bias",
           [("(t2_, t1_, M, H);", "(t1_, t1_, M, H);")]),
    Mutant("unfused_swapped_biases", "5_gating_unfused", _UNFUSED[:1],
           "the first product gets the second bias",
           [("(t1_, g_.b1.data(), t2_", "(t1_, g_.b2.data(), t2_")]),
    Mutant("unfused_no_product", "5_gating_unfused", _UNFUSED[:1],
           "the last kernel is never launched, so that its right factor is the result",
           [("multiply<<<grid(M, H), block()>>>(t1_, out, out, M, H);", "")]),
    Mutant("unfused_wrong_factor", "5_gating_unfused", _UNFUSED[1:],
           "the sigmoid is taken of the other factor",
           [("load(&v1[row * pitch + col]), w = load(&v2[row * pitch + col])",
             "load(&v2[row * pitch + col]), w = load(&v1[row * pitch + col])")]),
    Mutant("unfused_swapped_packing", "5_gating_unfused", _UNFUSED[1:],
           "the weights are packed in the wrong order",
           [("W_(g.W1, g.W2, g.shape.H)", "W_(g.W2, g.W1, g.shape.H)"), _ALWAYS_PACKED]),
    Mutant("unfused_two_gemms_no_bias", "5_gating_unfused", _UNFUSED[1:],
           "the first gemm adds no bias",
           [("g.W1.data(), g.b1.data(), t,", "g.W1.data(), nullptr, t,"), _NEVER_PACKED]),
    Mutant("unfused_unwritten_columns", "5_gating_unfused", _UNFUSED,
           "the grid is rounded down: what is no multiple of 64 columns has no blocks",
           [("(H + kColumns - 1) / kColumns", "H / kColumns")], sizes=(160, 1056)),
    Mutant("unfused_stale", "5_gating_unfused", _UNFUSED[:1],
           "only the first launch of the last kernel computes",
           [_launch_once("multiply<<<grid(M, H), block()>>>(t1_, out, out")], timed=True),
    # --- 6_gating_fused ---
    Mutant("fused_tiled_dropped_k", "6_gating_fused", _TILED,
           "the last 8 of k, one asynchronous copy, are left out",
           [("M - block_row, K - k);", "M - block_row, K - k - 8);")]),
    Mutant("fused_tiled_swapped_weights", "6_gating_fused", _TILED,
           "W1 and W2 change places",
           [("stage.W1, &W1[", "stage.W1, &W2["), ("stage.W2, &W2[", "stage.W2, &W1[")]),
    Mutant("fused_tiled_swapped_biases", "6_gating_fused", _TILED,
           "both products get the first bias",
           [("&b1[block_col], &b2[block_col]", "&b1[block_col], &b1[block_col]")]),
    Mutant("fused_tiled_no_bias", "6_gating_fused", _TILED,
           "the first product is left without its bias",
           [("wmma::load_matrix_sync(v1[i][j], &biases.b1[0][col], kBlockH, wmma::mem_row_major);",
             "wmma::fill_fragment(v1[i][j], 0.0f);")]),
    Mutant("fused_tiled_wrong_factor", "6_gating_fused", _TILED,
           "the sigmoid is taken of the other factor",
           [("sigmoid(v1.x[e]) * v2.x[e]", "sigmoid(v2.x[e]) * v1.x[e]")]),
    Mutant("fused_tiled_no_wait", "6_gating_fused", _TILED,
           "tiles are read before their copies have arrived",
           [("__pipeline_wait_prior(kStages - 2);", ""),
            # A copy that started three tiles ago has arrived anyway: let it start just now.
            ("if (t + kStages - 1 < tiles) copy_stage(t + kStages - 1);", "copy_stage(t);")],
           race=True),
    Mutant("fused_tiled_no_barrier", "6_gating_fused", _TILED,
           "threads wait for their own copies, and not for each other's",
           [("__syncthreads();                     // everyone's has", "// everyone's has")],
           sizes=(160, 1024, 2048), race=True),
    Mutant("fused_tiled_unwritten_columns", "6_gating_fused", _TILED,
           "the last 32 columns are not stored",
           [("|| size_t(col) >= columns)", "|| size_t(col) + 32 >= columns)")]),
    Mutant("fused_tiled_stale", "6_gating_fused", _TILED,
           "only the first launch computes",
           [_launch_once("kernel<<<grid, kThreads, shared_bytes>>>")], timed=True),
    Mutant("fused_streamed_dropped_k", "6_gating_fused", _STREAMED,
           "the first product leaves out the last 16 of k, one fragment",
           [("wmma::mma_sync(v1[i], a, w1[k], v1[i]);",
             "if (k + 1 < kSteps) wmma::mma_sync(v1[i], a, w1[k], v1[i]);")], **_TALK),
    Mutant("fused_streamed_swapped_weights", "6_gating_fused", _STREAMED,
           "W1 and W2 change places",
           [("(stream.W[0], W1,", "(stream.W[0], W2,"),
            ("(stream.W[1], W2,", "(stream.W[1], W1,")], **_TALK),
    Mutant("fused_streamed_swapped_biases", "6_gating_fused", _STREAMED,
           "both products get the first bias",
           [("fill(stream.biases, b1, b2,", "fill(stream.biases, b1, b1,")], **_TALK),
    Mutant("fused_streamed_no_wait", "6_gating_fused", _STREAMED,
           "tiles are read before their copies have arrived",
           [("__pipeline_wait_prior(kTileStages - 2);", "__pipeline_wait_prior(kTileStages - 1);")],
           race=True, **_TALK),
    Mutant("fused_streamed_no_barrier", "6_gating_fused", _STREAMED,
           "threads wait for their own copies, and not for each other's",
           [("__syncthreads();                         // everyone's has", "// everyone's has")],
           race=True, sizes=(), talk_sizes=(16, 256, 1024)),
    Mutant("fused_streamed_unwritten_tile", "6_gating_fused", _STREAMED,
           "the last tile is not computed",
           [("tiles = M / kRows;", "tiles = M / kRows - 1;")], **_TALK),
    Mutant("fused_streamed_stale", "6_gating_fused", _STREAMED,
           "only the first launch computes",
           [_launch_once("gating_streamed<<<")], timed=True, **_TALK),
    # --- bonus_matmul_A_stationary ---
    Mutant("stationary_dropped_k", "bonus_matmul_A_stationary", _STATIONARY,
           "the last block leaves out its last k",
           [("k = 0; k < kTile; ++k", "k = 0; k < kTile - int(k0 + kTile == N); ++k")]),
    Mutant("stationary_no_first_barrier", "bonus_matmul_A_stationary", _STATIONARY,
           "threads compute with tiles that are not complete",
           [("__syncthreads();  // the tiles are complete", "")], race=True),
    Mutant("stationary_not_atomic", "bonus_matmul_A_stationary", _STATIONARY,
           "blocks overwrite each other's partial sums",
           [("atomicAdd(&C[(row + y) * N + (col + x)], sum);",
             "C[(row + y) * N + (col + x)] += sum;")],
           sizes=(1024, 2048), cpu_sizes=(256, 512), race=True),
    Mutant("stationary_missing_tile", "bonus_matmul_A_stationary", _STATIONARY,
           "one tile of A is left out",
           [("atomicAdd(", "if (blockIdx.x != 1 || blockIdx.y != 2) atomicAdd(")]),
    Mutant("stationary_not_zeroed", "bonus_matmul_A_stationary", _STATIONARY,
           "C is not zeroed, so each launch adds to what the one before left",
           [("DEMO_CHECK(cudaMemsetAsync(C.data(), 0, C.bytes()));",
             "static int launches;"
             " if (launches++ == 0) DEMO_CHECK(cudaMemsetAsync(C.data(), 0, C.bytes()));")],
           timed=True),
    # --- bonus_matmul_hopper ---
    Mutant("hopper_dropped_k", "bonus_matmul_hopper", _HOPPER,
           "the last 16 of a stage's 64 k, one wgmma, are left out",
           [("k = 0; k < kBlockK; k += 16", "k = 0; k < kBlockK - 16; k += 16")]),
    Mutant("hopper_wrong_panels", "bonus_matmul_hopper", _HOPPER,
           "the descriptor of B says that its panels lie closer together than they do",
           [("&stage.B[0][k][0], sizeof stage.B[0])", "&stage.B[0][k][0], sizeof stage.B[0] / 2)")],
           sizes=(2080,)),
    Mutant("hopper_wgmma_not_swizzled", "bonus_matmul_hopper", _HOPPER[:1],
           "rows are copied as they are, and wgmma reads them as if swizzled",
           [("to[row][(chunk ^ row % 8) * 8]", "to[row][chunk * 8]")]),
    Mutant("hopper_no_full_wait", "bonus_matmul_hopper", _HOPPER[1:2],
           "stages are multiplied before their copies have arrived",
           [("""        hopper::wait(&ring.full[at.stage], at.parity);
        multiply_stage<T, kBlockN>(sums, ring.stages[at.stage], warpgroup, t > 0);
        hopper::wgmma_wait<1>();""",
             """        multiply_stage<T, kBlockN>(sums, ring.stages[at.stage], warpgroup, t > 0);
        hopper::wgmma_wait<1>();""")], race=True),
    Mutant("hopper_edges_left_out", "bonus_matmul_hopper", _HOPPER[:3],
           "the last 32 columns are not stored",
           [("if (r < N && c < N)", "if (r < N && c + 32 < N)")]),
    Mutant("hopper_last_panel_left_out", "bonus_matmul_hopper", _HOPPER[3:],
           "the last 64 columns of each tile are not stored",
           [("pending = p + 1 < kPanels;", "pending = p + 2 < kPanels;")], sizes=(2080, 4096)),
    Mutant("hopper_panel_overwritten", "bonus_matmul_hopper", _HOPPER[3:],
           "a panel is written again while TMA still reads it",
           [("if (lane == 0) hopper::wait_stores_read<kOutPanels - 1>();", "")],
           sizes=(2048, 4096), race=True),
    Mutant("hopper_too_few_rounds", "bonus_matmul_hopper", _HOPPER[3:],
           "a cluster takes no second tile",
           [("i < tiles; i += clusters", "i < clusters; i += clusters")], sizes=(4096,)),
    Mutant("hopper_sums_not_passed_on", "bonus_matmul_hopper", _HOPPER[3:],
           "a divided tile is stored with its first block's share of the sums alone",
           [("exchange.add(sums, c * kCluster + rank);", "")], sizes=(2080, 8192)),
    Mutant("hopper_stale", "bonus_matmul_hopper", _HOPPER[3:],
           "only the first launch computes",
           [_launch_once("kernel<<<kCluster * clusters")], timed=True),
]
