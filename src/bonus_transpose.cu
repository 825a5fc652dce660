// Bonus: transposition, out[c][r] = x[r][c], in four steps up to the speed of a copy.
//
// Nothing is computed: x is read once and out written once, 2 R C numbers for x[R, C]. But memory
// delivers sectors of 32 bytes, and a warp's 32 neighbors in x are 32 rows apart in out:
//
//         x[R, C]                       out[C, R]
//         +--------------------+        +-----------+
//         |  a b c d           |        |  a e      |     a row of x is a column of out: either
//         |  e f g h           |        |  b f      |     the loads or the stores of a warp touch
//         |                    |        |  c g      |     32 sectors, to use 4 bytes of each
//         +--------------------+        |  d h      |
//                                       +-----------+
//
// So a block brings a tile into shared memory along the rows of x, and takes it out along those of
// out. Shared memory has 32 banks of 4 bytes: it takes part in the question, too. The rungs:
//
//     naive      a warp loads a row, and stores a column: 4 + 32 sectors
//     tiled      by way of shared memory: 4 + 4 sectors, but a column of the tile is in one bank
//     padded     rows of the tile are one number longer: a column is in 32 banks
//     swizzled   16 bytes at a time everywhere, four times as many on their way, no padding
//
//     ./bonus_transpose 8192        ./bonus_transpose --rows 1000 --cols 50257
//     DEMO_COUNT=1 cpu/bonus_transpose 128        sectors and conflicts of each
#include "demo.cuh"
#include "demo/copy.cuh"
#include "demo/rows.cuh"
#include "ptx.cuh"

// --- Tiles of 32 x 32 ---------------------------------------------------------------------------

constexpr int kTile = 32;  // a warp's width
constexpr int kRows = 8;   // of threads in a block: each moves kTile / kRows numbers

/// The upper left corner in x of the block's tile, of `size` x `size` numbers. Tiles are numbered
/// row by row.
struct Corner {
    size_t row, col;
    __device__ Corner(size_t C, unsigned int size) {
        const unsigned int across = unsigned((C + size - 1) / size);
        row = size_t(blockIdx.x / across) * size, col = size_t(blockIdx.x % across) * size;
    }
};

/// Adds: nothing; this is the definition. Costs: a store of a warp touches 32 sectors. Limits: the
/// caches take 32 bytes for each 4 that are stored.
__global__ void naive(const float* x, float* out, size_t R, size_t C) {  // x: [R, C], out: [C, R]
    const Corner corner(C, kTile);
    const size_t col = corner.col + threadIdx.x;
    for (int i = threadIdx.y; i < kTile; i += kRows)
        if (const size_t row = corner.row + i; row < R && col < C)
            out[col * R + row] = x[row * C + col];
}

/// Transposes by way of a tile whose rows in shared memory are kPadding numbers longer.
template <int kPadding>
__device__ void by_tile(const float* x, float* out, size_t R, size_t C) {
    __shared__ float tile[kTile][kTile + kPadding];
    const Corner corner(C, kTile);
    const int lane = threadIdx.x;
    for (int i = threadIdx.y; i < kTile; i += kRows)
        if (const size_t row = corner.row + i, col = corner.col + lane; row < R && col < C)
            tile[i][lane] = x[row * C + col];
    __syncthreads();  // the tile is complete
    for (int i = threadIdx.y; i < kTile; i += kRows)
        if (const size_t row = corner.row + lane, col = corner.col + i; row < R && col < C)
            out[col * R + row] = tile[lane][i];
}

/// Adds: the tile. Costs: a barrier, during which a block loads nothing. Limits: a column of the
/// tile is in one bank, which gives its 32 numbers one after the other.
__global__ void tiled(const float* x, float* out, size_t R, size_t C) { by_tile<0>(x, out, R, C); }

/// Adds: a 33rd number in each row of the tile, so that the one below is in the next bank. Costs:
/// 128 bytes. Limits: bytes in flight: a thread asks for four times 4 bytes, then waits.
__global__ void padded(const float* x, float* out, size_t R, size_t C) { by_tile<1>(x, out, R, C); }

// --- 16 bytes at a time -------------------------------------------------------------------------

constexpr int kLargeTile = 64, kVectors = kLargeTile / 4;  // vectors in a row of the tile
constexpr int kThreads = kVectors * kVectors;              // each moves 4 x 4 numbers
using Vector = demo::Vector<float>;

/// Where vector v of row `row` of the tile is. Rows are 256 bytes long, so without this vectors
/// below each other would be in the same banks. Eight threads load or store 128 bytes at a time:
/// v of eight rows, four apart, or eight v of a row. Both are in all banks once.
__device__ int swizzled_place(int row, int v) { return v ^ (row / 4 % kVectors); }

/// Adds: loads and stores of 16 bytes, for which padding would be 16 bytes a row. A thread loads
/// four vectors below each other; taken by columns they are four vectors of out. Costs: 64
/// registers, R and C must be multiples of 4, or all is done by fours of single numbers. Limits:
/// memory, as of a copy.
__global__ void __launch_bounds__(kThreads)
    swizzled(const float* x, float* out, size_t R, size_t C) {
    __shared__ Vector tile[kLargeTile][kVectors];  // of out: [column of x][row of x / 4]
    const Corner corner(C, kLargeTile);
    const int left = threadIdx.x % kVectors, top = threadIdx.x / kVectors;  // which 4 x 4 of them

    Vector in[4];  // [row of x]
    const size_t row = corner.row + 4 * top, col = corner.col + 4 * left;
    for (int i = 0; i < 4; ++i) {
        const float* const from = x + (row + i) * C + col;
        if (C % 4 == 0 && row + i < R && col < C)
            // The hint makes loads faster on an H200: see 7_gelu.
            ptx::ld_global_evict_last(in[i], reinterpret_cast<const Vector*>(from));
        else if (row + i < R)
            for (int j = 0; j < 4; ++j)
                if (col + j < C) in[i].at[j] = from[j];
    }
    for (int j = 0; j < 4; ++j) {
        const Vector column = {in[0].at[j], in[1].at[j], in[2].at[j], in[3].at[j]};
        tile[4 * left + j][swizzled_place(4 * left + j, top)] = column;
    }
    __syncthreads();  // the tile of out is complete
    for (int i = 0; i < 4; ++i) {
        const int below = top + kVectors * i;  // a row of the tile: 16 threads store 256 bytes
        const Vector values = tile[below][swizzled_place(below, left)];
        const size_t row = corner.row + 4 * left, col = corner.col + below;
        float* const to = out + col * R + row;
        if (R % 4 == 0 && row < R && col < C)
            *reinterpret_cast<Vector*>(to) = values;
        else if (col < C)
            for (int j = 0; j < 4; ++j)
                if (row + j < R) to[j] = values.at[j];
    }
}

// --- Running ------------------------------------------------------------------------------------

struct ExpectTransposed {  // exactly
    const float* x;        // [R, C]
    size_t C;
    DEMO_HOST_DEVICE demo::Expected operator()(size_t, size_t row, size_t col) const {
        return {double(x[col * C + row]), 0};
    }
};

static void run(demo::Session& session) {
    const auto shape = demo::MatrixShape::of(session.options);
    const size_t R = shape.rows, C = shape.cols;
    const demo::Input<float> x(session, "x", shape);  // random
    const demo::Output<float> out(session, "out", {C, R});
    auto tiles = [&](size_t size) { return (R + size - 1) / size * ((C + size - 1) / size); };
    auto by = [&](void (*kernel)(const float*, float*, size_t, size_t), size_t tile, dim3 block) {
        return [=, &x, &out] { kernel<<<tiles(tile), block>>>(x, out, R, C); };
    };
    const demo::Workload work = shape.workload(session, 0);
    const dim3 block(kTile, kRows);
    session.run(work, out.check(ExpectTransposed{x, C}),
                {{.kernel = "naive", .launch = by(naive, kTile, block)},
                 {.kernel = "tiled", .launch = by(tiled, kTile, block)},
                 {.kernel = "padded", .launch = by(padded, kTile, block)},
                 {.kernel = "swizzled", .launch = by(swizzled, kLargeTile, dim3(kThreads))},
                 demo::copy_contender(session, work)});
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "bonus_transpose",
                                .summary = "out[c][r] = x[r][c] in four steps up to a copy's speed",
                                .types = {{"fp32", run}},
                                .any_shape = true,
                                .sizes = {4096, 8192, 16384}};
    return demo::main_of(program, argc, argv);
}
