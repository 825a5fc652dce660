// 13: DLRM, a recommendation model: does this user follow this link? (arXiv 1906.00091)
//
//     13 numbers --> bottom MLP --> E numbers --+             z = 27 vectors of E numbers
//     id 1  --> row of table 1  --> E numbers --+--> z --> interaction --> top MLP --> 0 ... 1
//     ...                                       |          z_i z_j of all 27 E numbers;
//     id 26 --> row of table 26 --> E numbers --+          with --dot 351 dot products of vectors
//
// chain launches a kernel for each line of the model, as a framework does: 43, most of them tiny.
// grouped (dlrm/grouped.cuh), a talk's first step: ReLU in the gemms, and one kernel for hash, 26
// lookups and cat; with --dot it computes the products, too. With E = 16 a sample has 186,624
// features, and 2048 samples 0.7 GiB, written once and read once, all made of 432 numbers a sample.
//
// fused_interaction, the second, in fp16: the gemm makes its own operand. A tile of features is 48
// columns of z, each sample's times that sample's z_i: made in shared memory, and never stored.
//
//                  W[27E i + j]      for each 48 columns j of z (a thread has its sample's 48):
//                   +--------+           for each i:
//        z_j z_i    +--------+               tile = columns j times z_i, of 128 samples
//         +--+      +--------+               sums += tile times 48 rows of W, from 27E i + j on
//         |  |      |  sums  |
//         +--+      +--------+       What limits it: lesson 3's main loop.
// The library's loop is so much faster that it wins, although it writes and reads the features.
//
//     ./13_dlrm 2048        ./13_dlrm 16384 --dot --ids zipf        ./13_dlrm 2048 --dtype tf32
#include "demo.cuh"
#include "demo/launch.cuh"
#include "dlrm/grouped.cuh"
#include "matmul/wmma_tile.cuh"

namespace dlrm {

using namespace wmma_tile;  // fragments, copy_tile, multiply, kBlock = 128, kThreads = 128, ...

constexpr int kPanel = 48, kStages = 3;         // columns of z at a time; tiles of W
constexpr int kBlocks = 256, kLeastSteps = 60;  // wanted in a grid; of a block, at least

struct Tiles {
    half features[2][kBlock][kPanel + kPad], W[kStages][kPanel][kBlock + kPad];
};

/// A thread's row of the features' tiles: 48 neighbors of a row of z, times one number of it.
struct RowOfFeatures {
    const half* z;  // the thread's sample
    unsigned int width;
    half2 panel[kPanel / 2];
    half factor;  // of the next step: loaded a step early

    __device__ void load(unsigned int first) {  // zeros for what is outside
        for (int c = 0; c < kPanel; c += 4) {
            const auto v = first + c < width ? four(&z[first + c]) : Four<half>{};
            panel[c / 2] = {v.at[0], v.at[1]}, panel[c / 2 + 1] = {v.at[2], v.at[3]};
        }
    }
    __device__ void store(half* row, unsigned int next) {
        const half2 both = __half2half2(factor);
        factor = z[next];
        for (int c = 0; c < kPanel; c += 8) {
            alignas(16) half2 features[4];
            for (int p = 0; p < 4; ++p) features[p] = __hmul2(panel[c / 2 + p], both);
            *reinterpret_cast<uint4*>(&row[c]) = *reinterpret_cast<uint4*>(features);
        }
    }
};

/// partials[blockIdx.z] = features W over a block's steps: 128 samples x 128 columns. A step is 48
/// columns j and one i. Few samples make few blocks, so several divide the steps of a sum.
__global__ void __launch_bounds__(kThreads)
    fused_interaction(const half* z,    // [N, width]
                      const half* W,    // [width * width, kHidden]
                      float* partials,  // [gridDim.z, N rounded up to 128, kHidden]
                      size_t N, unsigned int width) {
    extern __shared__ __align__(128) unsigned char shared[];
    Tiles& tiles = *reinterpret_cast<Tiles*>(shared);
    const size_t block_row = size_t(blockIdx.x) * kBlock, block_col = blockIdx.y * kBlock;
    const size_t steps = size_t((width + kPanel - 1) / kPanel) * width;
    const unsigned int first = steps * blockIdx.z / gridDim.z;
    const unsigned int last = steps * (blockIdx.z + 1) / gridDim.z;
    auto copy_W = [=, &tiles](unsigned int s) {
        const size_t j = s / width * kPanel, k = s % width * size_t(width) + j;
        if (s < last)
            copy_tile<kPanel, kBlock>(tiles.W[s % kStages], &W[k * kHidden + block_col], kHidden,
                                      width - j, kBlock);
        __pipeline_commit();
    };
    z += min(block_row + threadIdx.x, N - 1) * width;  // past the last sample any will do
    RowOfFeatures mine{z, width, {}, z[first % width]};
    auto make_features = [&](unsigned int s) {
        if (s >= last) return;
        if (s == first || s % width == 0) mine.load(s / width * kPanel);
        mine.store(tiles.features[s % 2][threadIdx.x], (s + 1) % width);
    };
    Accumulator sums[kSide][kSide];
    for (auto& of_row : sums)
        for (auto& sum : of_row) wmma::fill_fragment(sum, 0.0f);
    const int warp = threadIdx.x / 32, warp_row = warp / 2 * kWarp, warp_col = warp % 2 * kWarp;
    copy_W(first), copy_W(first + 1), make_features(first);
    for (unsigned int s = first; s < last; ++s) {
        __pipeline_wait_prior(kStages - 2);  // this thread's copies of step s have arrived
        __syncthreads();                     // everyone's have, and step s - 1 is used up
        copy_W(s + kStages - 1);
        make_features(s + 1);
        multiply(sums, &tiles.features[s % 2][warp_row], tiles.W[s % kStages], warp_col);
    }
    partials += (blockIdx.z * size_t(gridDim.x) * kBlock + block_row + warp_row) * kHidden;
    partials += block_col + warp_col;
    for (int i = 0; i < kSide; ++i)
        for (int j = 0; j < kSide; ++j)
            wmma::store_matrix_sync(&partials[(i * kHidden + j) * kFragment], sums[i][j], kHidden,
                                    wmma::mem_row_major);
}

/// hidden = relu(b + all partial sums)
__global__ void add_partials(const float* partials, int count, size_t pitch, const half* b,
                             half* hidden, size_t size) {
    if (my_index() >= size) return;
    float sum = b[my_index() % kHidden];
    for (int p = 0; p < count; ++p) sum += partials[p * pitch + my_index()];
    hidden[my_index()] = sum < 0 ? 0 : sum;
}

/// z, the kernels above, and the library's gemms around them. The models must outlive it.
demo::Contender fused(const demo::Dlrm<half>& m, const demo::DlrmLayers<half>& mlps, half* z) {
    const size_t N = m.shape.N, E = m.shape.E, width = m.shape.width, size = N * kHidden;
    const size_t rows = (N + kBlock - 1) / kBlock, columns = kHidden / kBlock;  // of blocks
    const size_t most = (width + kPanel - 1) / kPanel * width / kLeastSteps;    // splits of a sum
    const dim3 grid(rows, columns, std::clamp<size_t>(kBlocks / (rows * columns), 1, most));
    const size_t pitch = rows * kBlock * kHidden;  // from one to the next
    const auto partials = std::make_shared<demo::Buffer<float>>(grid.z, pitch);
    auto between = [=, &m] {
        gather<half><<<blocks(N * kTables * E / 4), kElementThreads>>>(m.ids, m.tables, z, N, E);
        fused_interaction<<<grid, kThreads, sizeof(Tiles)>>>(z, m.top[0].W, partials->data(), N,
                                                             width);
        add_partials<<<blocks(size), kElementThreads>>>(partials->data(), grid.z, pitch, m.top[0].b,
                                                        m.hidden.data(), size);
    };
    const size_t z_bytes = 2 * N * width, sums = 4 * grid.z * (pitch + size);
    return mlps.contender({.kernel = "fused_interaction",
                           .launches = 3,
                           .temporary_bytes = z_bytes + partials->bytes(),
                           .moved_bytes = m.lookup_bytes() + z_bytes + m.hidden_bytes() + sums,
                           .why_not = demo::try_shared_bytes(fused_interaction, sizeof(Tiles))},
                          {z, width}, between);
}

template <class T>
static void run(demo::Session& session) {
    const demo::Dlrm<T> m(session);     // inputs, the layers' weights, out, and the reference
    const demo::DlrmLayers<T> mlps(m);  // both MLPs by the library
    const demo::DlrmChain<T> chain(m, mlps);
    const demo::Buffer<T> z(m.shape.N, m.shape.width), f(m.shape.N, m.shape.pitch);  // f: features
    std::vector<demo::Contender> ways{chain.contender(), grouped(m, mlps, z.data(), f.data())};
    if constexpr (std::is_same_v<T, half>)
        if (!m.shape.dot) ways.push_back(fused(m, mlps, z.data()));
    session.run(m.workload(session), m.check(), ways);
}

}  // namespace dlrm

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "13_dlrm",
        .summary = "DLRM, a recommendation model: as a framework runs it, grouped, and fused",
        .types = {{"fp16", dlrm::run<half>}, {"tf32", dlrm::run<float>}},
        .any_n = true,
        .n_means = "samples",
        .default_n = demo::kSimulator ? 32 : 2048,
        .options = demo::dlrm_options(),
        .sizes = {128, 2048, 16384},
        .variants = {"2048 --dot"}};
    return demo::main_of(program, argc, argv);
}
