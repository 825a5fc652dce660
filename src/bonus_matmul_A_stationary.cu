// Bonus: Matrix multiplication, C = A B, with A stationary.
//
// 1_matmul_basic and 2_matmul_sharedmem keep the output where it is: a thread's sum stays in its
// register while A and B stream past. Here it is A that stays. A block loads one 32 x 32 tile of A
// once and for all, and streams over everything it will ever be multiplied with: 32 rows of B.
//
//                          B: [N, N]
//                          +----+----+----+----+
//                          |    |    |    |    |
//                          +----+----+----+----+
//                          |  ----- stream --> |
//                          +----+----+----+----+
//         A: [N, N]        C: [N, N]
//         +----+----+      +----+----+----+----+
//         |    | A  |      | += | += | += | += |     partial sums, to be added to those of
//         +----+----+      +----+----+----+----+     all other tiles in this row of A
//
// Every tile of A in a row contributes to the same elements of C, each from another block. Blocks
// run at the same time and in any order, so they must add with atomicAdd, and C must be zero before
// (which is timed: it belongs to the method).
//
// What limits it: every element of C takes N / 32 atomic additions, each a trip to the L2 cache: at
// N = 4096, 8 GiB of sums on the road for a result of 64 MiB. The inner loop is
// 2_matmul_sharedmem's, so where the L2 cache adds fast enough (an H200's does) both take equally
// long. The operand to keep is the one that costs most to move: nearly always the sum.
#include "demo.cuh"
#include "matmul/matmul.cuh"

constexpr int kTile = 32;  // a tile is kTile x kTile elements, a block kTile x kTile threads

__global__ void matmul_A_stationary(const float* A,  // [N, N] row-major
                                    const float* B,  // [N, N] row-major
                                    float* C,        // [N, N] row-major, all zero
                                    size_t N) {
    __shared__ float tile_A[kTile][kTile];
    __shared__ float tile_B[kTile][kTile];

    const int x = threadIdx.x, y = threadIdx.y;
    const size_t row = size_t(blockIdx.y) * kTile;  // of A and of C
    const size_t k0 = size_t(blockIdx.x) * kTile;   // column of A, row of B

    tile_A[y][x] = A[(row + y) * N + (k0 + x)];  // it stays

    for (size_t col = 0; col < N; col += kTile) {
        tile_B[y][x] = B[(k0 + y) * N + (col + x)];
        __syncthreads();  // the tiles are complete

        float sum = 0;
        for (int k = 0; k < kTile; ++k) sum += tile_A[y][k] * tile_B[k][x];
        atomicAdd(&C[(row + y) * N + (col + x)], sum);
        __syncthreads();  // nobody needs tile_B any more
    }
}

static void run(demo::Session& session) {
    const size_t N = session.n();
    const demo::Input<float> A(session, "A", {N, N}), B(session, "B", {N, N});  // random
    const demo::Output<float> C(session, "C", {N, N});
    const demo::MatmulReference reference(session, A, B);

    const dim3 block(kTile, kTile);
    const dim3 grid(N / kTile, N / kTile);  // over A
    auto launch = [&] {
        DEMO_CHECK(cudaMemsetAsync(C, 0, N * N * sizeof(float)));
        matmul_A_stationary<<<grid, block>>>(A, B, C, N);
    };
    session.run(demo::matmul_workload<float>(N), reference.check(C),
                {{.kernel = "matmul_A_stationary", .launch = launch, .repeatable = false}});
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "bonus_matmul_A_stationary",
                                .summary = "C = A B, another dataflow: A stays, the sums travel",
                                .types = {{"fp32", run}},
                                .sizes = {1024, 2048, 4096, 8192}};
    return demo::main_of(program, argc, argv);
}
