"""What the tests of 3_matmul_tensorcore need besides what it declares (see tests/pages.py)."""

from pages import COPY_16, Mutant, STORE_16, launch_once

MUTANTS = [
    Mutant("wmma_global_dropped_k", "wmma_global",
           "the last 16 of k, one fragment, are left out",
           [("k = 0; k < N; k += kFragment", "k = 0; k < N - kFragment; k += kFragment")]),
    Mutant("wmma_tiled_dropped_k", "wmma_tiled",
           "the last 8 of k, one asynchronous copy, are left out",
           [("N - block_row, N - k);", "N - block_row, N - k - 8);")]),
    Mutant("wmma_swapped_B", "wmma_global wmma_tiled",
           "every fragment of B is read transposed",
           [("wmma::matrix_b, 16, 16, 16, half, wmma::row_major",
             "wmma::matrix_b, 16, 16, 16, half, wmma::col_major")]),
    Mutant("wmma_fp16_accumulator", "wmma_global wmma_tiled",
           "the tensor cores sum in fp16",
           [("wmma::accumulator, 16, 16, 16, float", "wmma::accumulator, 16, 16, 16, half"),
            ("void to_patch(const Accumulator& fragment, float* patch)",
             "void to_patch(const Accumulator& fragment, half* patch)"),
            ("wmma::load_matrix_sync(fragment, patch, kPatchPitch, wmma::mem_row_major);", ""),
            ("to_patch(fragment, patch);",
             "wmma::store_matrix_sync(C, fragment, pitch, wmma::mem_row_major); return;")]),
    Mutant("wmma_tiled_no_wait", "wmma_tiled",
           "tiles are read before their copies have arrived",
           [("__pipeline_wait_prior(kStages - 2);", ""),
            # A copy that started three tiles ago has arrived anyway: let it start just now.
            ("if (t + kStages - 1 < tiles) copy_stage(t + kStages - 1);", "copy_stage(t);")],
           race=True),
    Mutant("wmma_tiled_no_barrier", "wmma_tiled",
           "threads wait for their own copies, and not for each other's",
           [("__syncthreads();                     // everyone's have", "// everyone's have")],
           sizes=(160, 1024, 2048), race=True),
    Mutant("wmma_tiled_unwritten_tiles", "wmma_tiled",
           "the grid is rounded down: what is no multiple of 128 has no blocks",
           [("grid_tiled((N + kBlock - 1) / kBlock,", "grid_tiled(N / kBlock,")], sizes=(160, 2080)),
    Mutant("wmma_tiled_unwritten_fragment", "wmma_tiled",
           "the last 16 columns are not stored",
           [("if (row < N && col < N)  // N is a multiple of 32",
             "if (row < N && col + kFragment < N)  // N is a multiple of 32")]),
    Mutant("wmma_tiled_stale", "wmma_tiled",
           "only the first launch computes",
           [launch_once("tiled<<<grid_tiled, kThreads, shared_bytes>>>")], timed=True),
]

FAST = {"wmma_tiled": ("HMMA", COPY_16, STORE_16)}
