// 2: Matrix multiplication, C = A B, by tiles in shared memory. Watch: scripts/watch.sh 2
//
// In 1_matmul_basic a block of 32 x 32 threads asks for 2 * 32 * 32 * N numbers, of which 2 * 32 *
// N differ. So the block fetches each once, together, into shared memory: small, fast, filled by
// the program. Each multiprocessor has its own (an H200 has 132, and a block runs on one).
//
//                              B: [N, N]
//                              +----+----+----+
//                              |    |  0 |    |      for the tiles at t = 0, 32, 64, ...:
//                              +----+----+----+        load    32 x 32 of A and of B, one
//                              |    | 32 |    |                element of each per thread
//                              +----+----+----+        barrier the tiles are complete
//            A: [N, N]         |    | 64 |    |        compute 32 steps of every thread's sum
//            +----+----+----+  +----+----+----+        barrier nobody needs the tiles any more
//            |  0 | 32 | 64 |  |    | C  |    |
//            +----+----+----+  +----+----+----+
//
// Why two barriers: threads run in any order. Without the first, some would compute with a tile
// that others have yet to load; without the second, some would load over a tile that others are
// still computing with.
//
// What limits it: loads fell 32-fold, time 3-fold. Each multiply-add still reads two numbers from
// shared memory, the new bottleneck. Next: bonus_matmul_register_tiled.
// H200, N = 4096, ms: matmul_basic 46.6, matmul_sharedmem 15.9 (docs/figures.md)
#include "demo.cuh"
#include "matmul/matmul.cuh"

constexpr int kTile = 32;  // a tile is kTile x kTile elements, a block kTile x kTile threads

__global__ void matmul_sharedmem(const float* A,  // [N, N] row-major
                                 const float* B,  // [N, N] row-major
                                 float* C,        // [N, N] row-major
                                 size_t N) {
    __shared__ float tile_A[kTile][kTile];
    __shared__ float tile_B[kTile][kTile];

    const int x = threadIdx.x, y = threadIdx.y;
    const size_t row = size_t(blockIdx.y) * kTile + y;
    const size_t col = size_t(blockIdx.x) * kTile + x;

    float sum = 0;
    for (size_t t = 0; t < N; t += kTile) {
        tile_A[y][x] = A[row * N + (t + x)];
        tile_B[y][x] = B[(t + y) * N + col];
        __syncthreads();  // the tiles are complete

        for (int k = 0; k < kTile; ++k) sum += tile_A[y][k] * tile_B[k][x];
        __syncthreads();  // nobody needs the tiles any more
    }
    C[row * N + col] = sum;
}

static void run(demo::Session& session) {
    const size_t N = session.n();
    // Device memory, which kernels take as pointers and which frees itself; A and B are random.
    const demo::Input<float> A(session, "A", {N, N}), B(session, "B", {N, N});
    const demo::Output<float> C(session, "C", {N, N});
    const demo::MatmulReference reference(session, A, B);  // in fp64

    const dim3 block(kTile, kTile);
    const dim3 grid(N / kTile, N / kTile);
    auto launch = [&] { matmul_sharedmem<<<grid, block>>>(A, B, C, N); };

    session.run(demo::matmul_workload<float>(N), reference.check(C),
                {{"matmul_sharedmem", demo::Role::kOurs, launch}});
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "2_matmul_sharedmem",
                                .summary = "C = A B by tiles in shared memory, and the barrier",
                                .types = {{"fp32", run}},
                                .sizes = {1024, 2048, 4096, 8192}};
    return demo::main_of(program, argc, argv);
}
