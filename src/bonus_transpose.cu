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
// out. There, too, it matters where a warp's numbers are: in which of 32 banks of 4 bytes. The
// rungs:
//
//     naive      a warp loads a row, and stores a column: 4 + 32 sectors
//     tiled      by way of shared memory: 4 + 4 sectors, but a column of the tile is in one bank
//     padded     rows of the tile are 4 bytes longer: a column is in 32 banks
//     swizzled   16 bytes at a time everywhere, four times as many on their way, no padding
//
//     ./bonus_transpose 8192        ./bonus_transpose --rows 1000 --cols 50257
//     DEMO_COUNT=1 cpu/bonus_transpose 128        sectors and conflicts of each
#include "demo.cuh"
#include "demo/copy.cuh"
#include "ptx.cuh"
#include "rows/rows.cuh"

// --- Tiles of 32 x 32 ---------------------------------------------------------------------------

constexpr int kTile = 32;  // a warp's width
constexpr int kRows = 8;   // of threads in a block: each moves kTile / kRows numbers

/// The block's tile in x, of `size` x `size` numbers: its upper left corner. Tiles go row by row.
struct Corner {
    size_t row, col;
    __device__ Corner(size_t C, unsigned int size) {
        const unsigned int across = unsigned((C + size - 1) / size);
        row = size_t(blockIdx.x / across) * size, col = size_t(blockIdx.x % across) * size;
    }
};

/// Adds: nothing; this is the definition. Costs: a store of a warp touches 32 sectors. Limits: the
/// caches take 32 bytes for each number that is stored.
template <class T>
__global__ void naive(const T* x, T* out, size_t R, size_t C) {  // x: [R, C], out: [C, R]
    const Corner corner(C, kTile);
    const size_t col = corner.col + threadIdx.x;
    for (int i = threadIdx.y; i < kTile; i += kRows)
        if (const size_t row = corner.row + i; row < R && col < C)
            out[col * R + row] = x[row * C + col];
}

/// Transposes by way of a tile whose rows in shared memory are kPadding numbers longer.
template <int kPadding, class T>
__device__ void by_tile(const T* x, T* out, size_t R, size_t C) {
    __shared__ T tile[kTile][kTile + kPadding];
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
/// tile is in one bank (fp16: two), which gives its 32 numbers one after the other.
template <class T>
__global__ void tiled(const T* x, T* out, size_t R, size_t C) {
    by_tile<0>(x, out, R, C);
}

/// Adds: one or two more numbers, 4 bytes, in each row of the tile, so that the row below begins in
/// the next bank. Costs: 128 bytes. Limits: bytes in flight. A thread asks for four numbers, and
/// waits.
template <class T>
__global__ void padded(const T* x, T* out, size_t R, size_t C) {
    by_tile<4 / sizeof(T)>(x, out, R, C);
}

// --- 16 bytes at a time -------------------------------------------------------------------------

constexpr int kVectors = 16;                   // in a row of the tile, and as many such rows
constexpr int kThreads = kVectors * kVectors;  // each moves V x V numbers, of which 16 bytes have V
template <class T>
constexpr int kLargeTile = 256 / sizeof(T);  // numbers, on each side

/// Where vector v of row `row` of the tile is. Rows are 256 bytes long, so vectors below each other
/// would be in the same banks. Eight threads load or store 128 bytes at a time: vector v of eight
/// rows, V apart, or eight vectors of a row. In this order both are in all 32 banks once.
template <class T>
__device__ int swizzled_place(int row, int v) {
    return v ^ (row / demo::Vector<T>::kSize % kVectors);
}

/// Adds: loads and stores of 16 bytes. A thread loads V vectors below each other, all on their way
/// at once; taken by columns they are V vectors of out. Padding would take 16 bytes a row now, and
/// a swizzle takes none. Costs: registers; and if R or C is no multiple of V (not kWhole), numbers
/// are moved one by one. Limits: memory, as it limits a copy.
template <class T, bool kWhole>
__global__ void __launch_bounds__(kThreads) swizzled(const T* x, T* out, size_t R, size_t C) {
    using Vector = demo::Vector<T>;
    constexpr int V = Vector::kSize;
    __shared__ Vector tile[kLargeTile<T>][kVectors];  // of out: [column of x][row of x / V]
    const Corner corner(C, kLargeTile<T>);
    const int left = threadIdx.x % kVectors, top = threadIdx.x / kVectors;

    Vector in[V];  // in each of V rows of x
#pragma unroll
    for (int i = 0; i < V; ++i) {
        const size_t row = corner.row + V * top + i, col = corner.col + V * left;
        const T* const from = x + row * C + col;
        if constexpr (kWhole) {  // the hint makes loads faster on an H200: see 7_gelu
            if (row < R && col < C)
                ptx::ld_global_evict_last(in[i], reinterpret_cast<const Vector*>(from));
        } else {
            for (int j = 0; j < V; ++j)
                if (row < R && col + j < C) in[i].at[j] = from[j];
        }
    }
#pragma unroll
    for (int j = 0; j < V; ++j) {
        Vector column;
#pragma unroll
        for (int i = 0; i < V; ++i) column.at[i] = in[i].at[j];
        tile[V * left + j][swizzled_place<T>(V * left + j, top)] = column;
    }
    __syncthreads();  // the tile of out is complete
#pragma unroll
    for (int i = 0; i < V; ++i) {
        const int below = top + kVectors * i;  // a row of the tile: 16 threads store 256 bytes
        const size_t row = corner.row + V * left, col = corner.col + below;
        const Vector values = tile[below][swizzled_place<T>(below, left)];
        T* const to = out + col * R + row;
        if constexpr (kWhole) {
            if (row < R && col < C) *reinterpret_cast<Vector*>(to) = values;
        } else {
            for (int j = 0; j < V; ++j)
                if (row + j < R && col < C) to[j] = values.at[j];
        }
    }
}

// --- Running ------------------------------------------------------------------------------------

template <class T>
struct ExpectTransposed {  // exactly
    const T* x;            // [R, C]
    size_t C;
    DEMO_HOST_DEVICE demo::Expected operator()(size_t, size_t row, size_t col) const {
        return {double(float(x[col * C + row])), 0};
    }
};

template <class T>
void run(demo::Session& session) {
    const auto shape = demo::MatrixShape::of(session.options);
    const size_t R = shape.rows, C = shape.cols;
    const demo::Input<T> x(session, "x", shape);  // random
    const demo::Output<T> out(session, "out", {C, R});
    auto tiles = [&](size_t size) { return (R + size - 1) / size * ((C + size - 1) / size); };
    auto by = [&](void (*kernel)(const T*, T*, size_t, size_t), size_t tile, dim3 block) {
        return [=, &x, &out] { kernel<<<tiles(tile), block>>>(x, out, R, C); };
    };
    const demo::Workload work = shape.workload(session, 0);
    const dim3 block(kTile, kRows);
    const bool whole = R % demo::Vector<T>::kSize == 0 && C % demo::Vector<T>::kSize == 0;
    const auto last = whole ? swizzled<T, true> : swizzled<T, false>;
    session.run(work, out.check(ExpectTransposed<T>{x, C}),
                {{.kernel = "naive", .launch = by(naive<T>, kTile, block)},
                 {.kernel = "tiled", .launch = by(tiled<T>, kTile, block)},
                 {.kernel = "padded", .launch = by(padded<T>, kTile, block)},
                 {.kernel = "swizzled", .launch = by(last, kLargeTile<T>, dim3(kThreads))},
                 demo::copy_contender(session, work)});
}

int main(int argc, char** argv) {
    const demo::Program program{.name = "bonus_transpose",
                                .summary = "out[c][r] = x[r][c] in four steps up to a copy's speed",
                                .types = {{"fp32", run<float>}, {"fp16", run<half>}},
                                .any_shape = true,
                                .default_n = demo::kSimulator ? 256 : 8192,
                                .sizes = {8192}};
    return demo::main_of(program, argc, argv);
}
