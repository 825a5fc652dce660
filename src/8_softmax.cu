// 8: Softmax of every row of x[rows, cols]: out = e^(x - max) / sum of e^(x - max).
//
// A row needs two reductions (a reduction combines many numbers into one): its maximum, then its
// sum. Every result depends on both, so a row must be seen whole before any of it can be written.
// (Why subtract the maximum: e^89 overflows fp32. The result is the same, since e^-max cancels.)
//
// chain    as a framework runs it eagerly: max, subtract, exp, sum, divide (softmax_chain.cuh).
//          Each result goes through global memory: 8 MN numbers for M rows of N, 4 times the least.
// fused    one kernel, a block per row, which keeps the row in shared memory for three passes:
//          2 MN. A row too long for that is loaded three times.
// online   keeps a running pair, maximum and sum: two passes, and one barrier.
//
//              fused    load, max | barrier | sum | barrier | write    (A block's threads all wait
//              online   load, max and sum | barrier | write             there, and load nothing.)
//
//          It also has 8 loads under way a thread, 512 threads, not 256, and a shorter exponential
//          (not measured apart). A row too long to keep costs it 3 MN, and `fused` 4.
//
// A row of -infinity alone gives NaN: there is no distribution over nothing. Beside other numbers,
// -infinity gives 0. A NaN or +infinity makes its whole row NaN.
//
//     ./8_softmax 4096        ./8_softmax --rows 262144 --cols 1000 --dtype fp16
//
// What limits `online`: accesses of 2 or 4 bytes, through shared memory. Next: bonus_softmax_rows.
// H200, N = 4096, ms: chain 0.247, fused 0.0659, online 0.0371 (docs/figures.md)
#include "demo.cuh"
#include "demo/copy.cuh"
#include "rows/max_sum.cuh"
#include "rows/softmax.cuh"
#include "rows/softmax_chain.cuh"
#include "rows/softmax_rows.cuh"

namespace softmax {

// --- One kernel for all -------------------------------------------------------------------------
// merge_block() (max_sum.cuh) has a barrier in it. It merges all threads' pairs (maximum, sum) into
// the block's pair. Here each call uses one of the two, and the other is 0. The last argument, 0 or
// 1, picks its place in shared memory: some threads may still read the other place.
template <class T>
__global__ void fused(const T* x,  // [rows, cols] row-major, like out
                      T* out, size_t rows, size_t cols, bool fits) {
    extern __shared__ __align__(16) unsigned char shared[];
    T* const kept = reinterpret_cast<T*>(shared);  // [cols], if that fits
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* const from = x + row * cols;
        const T* const again = fits ? kept : from;

        float max = kNothing;
        for (size_t col = threadIdx.x; col < cols; col += blockDim.x) {
            const T value = from[col];
            if (fits) kept[col] = value;
            max = fmaxf(max, float(value));
        }
        max = merge_block({max, 0}, 0).max;  // barrier 1

        float sum = 0;
        for (size_t col = threadIdx.x; col < cols; col += blockDim.x)
            sum += __expf(float(again[col]) - shift(max));
        sum = merge_block({0, sum}, 1).sum;  // barrier 2

        for (size_t col = threadIdx.x; col < cols; col += blockDim.x)
            out[row * cols + col] = T(__expf(float(again[col]) - shift(max)) / sum);
    }
}

// --- Maximum and sum together -------------------------------------------------------------------
//
// Cut a row anywhere: each part has its maximum and its sum, and these pairs are enough to know the
// pair of the whole. A sum against a smaller maximum is corrected by one factor, since for every x
// in it e^(x - max) = e^(x - max_a) e^(max_a - max).
//
//          (max_a, sum_a)      (max_b, sum_b)                        3  1  |  5  2
//                       \      /                                      |        |
//          max = max(max_a, max_b)                             (3, 1.135)   (5, 1.050)
//          sum = sum_a e^(max_a - max)                                  \   /
//              + sum_b e^(max_b - max)                                (5, 1.203)
//
// So each thread takes a part, and its warp and its block merge the pairs: merge_warp() and
// merge_block() in max_sum.cuh.
// Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, arXiv 1805.02867.

constexpr int kThreads = 256;        // of a block of fused
constexpr int kOnlineThreads = 512;  // of a block of online, at most
constexpr int kAtOnce = 8;           // numbers that a thread asks for before it waits for any

template <class T>
__global__ void __launch_bounds__(kOnlineThreads)
    online(const T* x,  // [rows, cols] row-major, like out
           T* out, size_t rows, size_t cols, bool fits) {
    extern __shared__ __align__(16) unsigned char shared[];
    T* const kept = reinterpret_cast<T*>(shared);  // [cols], if that fits
    // Columns of a row:  0 ... 31 | 32 ... 63 | ... | 224 ... 255 | 256 ... 287 | ...
    // Warp 0 reads       at i = 0     i = 1             i = 7       (here warp 1 begins)
    const size_t begin = threadIdx.x / 32 * (32 * kAtOnce) + threadIdx.x % 32;  // a lane's first
    const size_t step = kAtOnce * blockDim.x;  // columns that a block takes at a time
    T values[kAtOnce];
    int slot = 0;  // merge_block's place, in turn: some threads may still read the last row's pairs
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x, slot ^= 1) {
        const T* const from = x + row * cols;
        const T* const again = fits ? kept : from;

        MaxSum own{kNothing, 0};
        for (size_t col = begin; col < cols; col += step) {
            const int left = int(min(cols - col, size_t(32 * kAtOnce)));  // up to the row's end
            for (int i = 0; i < kAtOnce; ++i)
                values[i] = 32 * i < left ? from[col + 32 * i] : T(kNothing);
            float max = own.max;
            for (T value : values) max = fmaxf(max, float(value));
            own.sum *= power(own.max, shift(max));  // rescaled once, not for every number
            for (T value : values) own.sum += power(float(value), shift(max));
            own.max = max;
            for (int i = 0; i < kAtOnce; ++i)
                if (fits && 32 * i < left) kept[col + 32 * i] = values[i];
        }
        const MaxSum whole = merge_block(own, slot);

        // Each thread reads what it kept itself, so this needs no barrier.
        const float max = shift(whole.max), factor = 1 / whole.sum;
        for (size_t col = begin; col < cols; col += step) {
            const int left = int(min(cols - col, size_t(32 * kAtOnce)));  // up to the row's end
            for (int i = 0; i < kAtOnce; ++i)
                if (32 * i < left) values[i] = again[col + 32 * i];
            for (int i = 0; i < kAtOnce; ++i)
                if (32 * i < left)
                    out[row * cols + col + 32 * i] = T(power(float(values[i]), max) * factor);
        }
    }
}

// --- Running ------------------------------------------------------------------------------------

template <class T>
void run(demo::Session& session) {
    const auto shape = demo::MatrixShape::of(session.options);
    const size_t rows = shape.rows, cols = shape.cols;
    // Even rows are around 100, odd ones around -100: e^x itself would overflow or vanish.
    const demo::Input<T> x(session, "x", shape,
                           {.then = demo::Then::kOffsetRows, .hard = demo::kHardRows<T>});
    const demo::Output<T> out(session, "out", shape);
    const demo::Buffer<T> temporary(shape.size());
    const demo::Buffer<float> max(rows), sum(rows);
    const demo::SoftmaxReference<T> reference(session, x);

    auto launch_chain = [&] {
        chain<T>(x, temporary.data(), max.data(), sum.data(), out, rows, cols);
    };
    const size_t row_blocks = std::min<size_t>(rows, 1 << 24);
    const size_t most = session.gpu.shared_per_block - 1024;  // merge_block takes 512 of that
    const bool fits = cols <= most / sizeof(T);
    const size_t kept = fits ? cols * sizeof(T) : 0;
    auto by_row = [&](auto kernel, size_t threads) {
        demo::allow_shared_bytes(kernel, kept);
        return [=, &x, &out] { kernel<<<row_blocks, threads, kept>>>(x, out, rows, cols, fits); };
    };
    const size_t warps = (cols + 32 * kAtOnce - 1) / (32 * kAtOnce);  // that a row occupies
    const size_t matrix = x.bytes(), column = max.bytes();
    const demo::Workload work = shape.workload(session, 5);  // operations per element: the chain's
    session.run(work, reference.check(out, false),
                {{.kernel = "chain",
                  .role = demo::Role::kChain,
                  .launch = launch_chain,
                  .check = reference.check(out, true),
                  .launches = 5,
                  .temporary_bytes = matrix + 2 * column,
                  .moved_bytes = 8 * matrix + 4 * column},
                 {.kernel = "fused",
                  .launch = by_row(fused<T>, kThreads),
                  .moved_bytes = (fits ? 2 : 4) * matrix},
                 {.kernel = "online",
                  .launch = by_row(online<T>, std::min<size_t>(32 * warps, kOnlineThreads)),
                  .moved_bytes = (fits ? 2 : 3) * matrix},
                 demo::copy_contender(session, work)},
                records<T>(x, out, rows, cols, session.gpu));  // the suite's fastest: see the bonus
}

}  // namespace softmax

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "8_softmax",
        .summary = "softmax, where rows must be seen whole first: reductions, and rows read once",
        .types = {{"fp32", softmax::run<float>}, {"fp16", softmax::run<half>}},
        .any_shape = true,
        .sizes = {4096, 8192, 16384},
        .shapes = {{4096, 131072}, {262144, 1000}}};  // long rows, and short ones
    return demo::main_of(program, argc, argv);
}
