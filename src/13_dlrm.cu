// 13: DLRM, a recommendation model: will this user follow this link? (arXiv 1906.00091)
//
// Of both it knows 13 numbers and 26 ids. Every id has E = 16 numbers, a row of its table. Two MLPs
// (lesson 12), here of layers that differ, make of that a number from 0 to 1:
//
//     13 numbers --> 512, 256, 64, E --> E numbers --+                    z_i z_j, all products:
//     id 1  --> row of table 1  -------> E numbers --+--> z[27 E], 432 --> 186,624 features
//     ...                                            |                       |
//     id 26 --> row of table 26 -------> E numbers --+    0 ... 1 <-- 1, 256, 512
//
// Nearly all operations are the top MLP's first layer: relu(features W + b), W[186624, 512].
// (With --dot the features are 351 dot products of vectors instead, as in the paper.)
//
// chain             a kernel for each line, as a framework: 43, most of them tiny (dlrm/chain.cuh)
// grouped           ReLU in the gemms; one kernel for hash, 26 lookups and cat (dlrm/grouped.cuh).
//                   Of 2048 samples the features are 0.7 GiB, made of 1.7 MiB: written, then read.
// interaction_wmma  makes a tile of features at a time, in shared memory, and never stores it:
//                                  +--------+
//               z_j, 32 columns,   +--------+ W    for all i, and each 32 columns j of z:
//               times z_i    +--+  +--------+          features = z_j times z_i, of 128 samples
//                            +--+  |  sums  |          sums += features times 32 rows of W
// interaction_tile  the same in CUDA Tile C++
//
//     ./13_dlrm 2048        ./13_dlrm 2048 --dot --ids zipf        ./13_dlrm 2048 --dtype tf32
// Figures: docs/figures.md.
#include "demo.cuh"
#include "demo/launch.cuh"
#include "dlrm/grouped.cuh"
#include "matmul/wmma_tile.cuh"
#include "tile.cuh"

namespace dlrm {

// --- Lesson 3's wmma_tiled, which makes its tiles of features instead of copying them ------------
using namespace wmma_tile;  // fragments, Stage, copy_tile, multiply, kBlock = kThreads = 128, ...

constexpr int kStages = 3;

/// One of gridDim.z parts of the sum: partials[part] = features W, over the part's i and all j. A
/// block computes 128 samples x 128 columns. Each of its 128 threads makes one sample's features.
__global__ void __launch_bounds__(kThreads)
    interaction_wmma(const half* z,    // [N, width]
                     const half* W,    // [width, width, kHidden]
                     float* partials,  // [gridDim.z, N rounded up to 128, kHidden]
                     size_t N, unsigned int width) {
    extern __shared__ __align__(128) unsigned char shared[];
    Stage* const stages = reinterpret_cast<Stage*>(shared);
    const size_t block_row = size_t(blockIdx.x) * kBlock, block_col = blockIdx.y * kBlock;
    const int warp = threadIdx.x / 32, warp_row = warp / 2 * kWarp, warp_col = warp % 2 * kWarp;
    const unsigned int first = width * blockIdx.z / gridDim.z;  // the part's first i, ...
    const unsigned int count = width * (blockIdx.z + 1) / gridDim.z - first;  // ... and how many
    const unsigned int steps = count * ((width + kBlockK - 1) / kBlockK);

    z += min(block_row + threadIdx.x, N - 1) * width;  // past the last sample any will do
    Four<half> z_j[kBlockK / 4];                       // 32 neighbors of the thread's row of z
    auto fill = [&](unsigned int s) {                  // the stage of step s: one i, 32 j
        const unsigned int i = first + s % count, j = s / count * kBlockK;
        Stage& stage = stages[s % kStages];
        if (s < steps) {
            copy_tile<kBlockK, kBlock>(stage.B, &W[(size_t(i) * width + j) * kHidden + block_col],
                                       kHidden, width - j, kBlock);
            const half z_i = z[i];
            for (int c = 0; c < kBlockK; c += 4) {
                if (s % count == 0) z_j[c / 4] = j + c < width ? four(&z[j + c]) : Four<half>{};
                Four<half> features = z_j[c / 4];
                for (half& v : features.at) v = v * z_i;
                four(&stage.A[threadIdx.x][c]) = features;
            }
        }
        __pipeline_commit();
    };
    Accumulator sums[kSide][kSide];
    for (auto& row : sums)
        for (auto& sum : row) wmma::fill_fragment(sum, 0.0f);
    for (unsigned int s = 0; s < kStages - 1; ++s) fill(s);
    for (unsigned int s = 0; s < steps; ++s) {
        __pipeline_wait_prior(kStages - 2);  // this thread's copies of step s have arrived
        __syncthreads();                     // everyone's have, and step s - 1 is used up
        fill(s + kStages - 1);
        const Stage& stage = stages[s % kStages];
        multiply(sums, &stage.A[warp_row], stage.B, warp_col);
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

// --- The same in CUDA Tile C++, as in lesson 6 ---------------------------------------------------
constexpr int kTileCols = 256;
#ifdef __CUDACC_TILE__  // where the compiler knows it: see tile.cuh
/// A block computes 128 x 256 sums. z is turned, [width, N rounded up to 128], so that the factors
/// z_i of 128 samples are neighbors.
template <bool kAligned>  // rows of z begin at multiples of 16 bytes; else it is much slower
[[cutile::hint(0, num_worker_warps_per_cta = 8)]] __tile_global__ void interaction_tile(
    tile::In<half> z, tile::In<half> turned, tile::In<half> W, tile::Out<float> partials, size_t N,
    int width, int parts) {
    const int rows = tile::count(N, kBlock), cols = kHidden / kTileCols, block = ct::bid().x;
    const int n = block % cols, m = block / cols % rows, part = block / cols / rows;
    auto sum = ct::zeros<ct::tile<float, ct::shape<kBlock, kTileCols>>>();
    for (int i : ct::irange(width * part / parts, width * (part + 1) / parts)) {
        const auto row = tile::matrix<1, kBlock>(turned, width, rows * kBlock).load(i, m);
        const auto z_i = ct::reshape(row, ct::shape<kBlock, 1>{});  // a column, for all columns
        for (int j : ct::irange(0, tile::count(width, 64))) {
            const auto z_j = tile::matrix<kBlock, 64, kAligned>(z, N, width).load_masked(m, j);
            const auto w = tile::matrices<64, kTileCols>(W, width, width, kHidden);
            const auto of_i = ct::reshape(w.load_masked(i, j, n), ct::shape<64, kTileCols>{});
            sum = ct::mma(z_j * z_i, of_i, sum);
        }
    }
    const auto result = ct::reshape(sum, ct::shape<1, kBlock, kTileCols>{});
    tile::matrices<kBlock, kTileCols>(partials, parts, rows * kBlock, kHidden)
        .store(result, part, m, n);
}

static void launch_tile(const half* z, const half* turned, const half* W, float* partials, size_t N,
                        size_t width, int parts) {
    const int blocks = tile::count(N, kBlock) * (kHidden / kTileCols) * parts;
    const auto kernel = width % 8 ? interaction_tile<false> : interaction_tile<true>;
    kernel<<<blocks>>>(z, turned, W, partials, N, int(width), parts);
}
#else
static void launch_tile(const half*, const half*, const half*, float*, size_t, size_t, int) {}
#endif

// --- Their place in the model: z, the parts of the sum, all parts, the other layers --------------
class Fused {
  public:
    Fused(const demo::Dlrm<half>& m, const demo::DlrmLayers<half>& mlps, half* z)
        : m(m), mlps(mlps), z(z) {}

    demo::Contender by_wmma() const {
        const size_t columns = kHidden / kBlock, parts = parts_of(256, columns);
        const dim3 grid(rows, columns, parts);
        auto launch = [=, *this](float* partials) {
            interaction_wmma<<<grid, kThreads, kShared>>>(z, m.top[0].W, partials, N, width);
        };
        return contender({.kernel = "interaction_wmma",
                          .launches = 1,
                          .why_not = demo::try_shared_bytes(interaction_wmma, kShared)},
                         parts, launch);
    }
    demo::Contender by_tiles(const demo::Gpu& gpu) const {
        const size_t parts = parts_of(128, kHidden / kTileCols), pitch = rows * kBlock;
        const auto turned = std::make_shared<demo::Buffer<half>>(width, pitch);
        auto launch = [=, *this](float* partials) {
            demo::turn<<<blocks(N * width), kElementThreads>>>(z, turned->data(), N, width, pitch);
            launch_tile(z, turned->data(), m.top[0].W, partials, N, width, parts);
        };
        return contender({.kernel = "interaction_tile",
                          .launches = 2,
                          .temporary_bytes = turned->bytes(),
                          .moved_bytes = 3 * 2 * N * width,
                          .why_not = tile::why_not(gpu)},
                         parts, launch);
    }

  private:
    static constexpr size_t kShared = kStages * sizeof(Stage);
    /// Few samples make few blocks: so many parts of the sum that there are about `wanted`.
    size_t parts_of(size_t wanted, size_t columns) const {
        return std::clamp<size_t>(wanted / (rows * columns), 1, width / 4);
    }
    demo::Contender contender(demo::Contender c, size_t parts,
                              std::function<void(float*)> launch) const {
        const size_t pitch = rows * kBlock * kHidden, size = N * kHidden, z_bytes = 2 * N * width;
        const auto partials = std::make_shared<demo::Buffer<float>>(parts, pitch);
        auto between = [=, *this] {
            gather<half>
                <<<blocks(N * kTables * E / 4), kElementThreads>>>(m.ids, m.tables, z, N, E);
            launch(partials->data());
            add_partials<<<blocks(size), kElementThreads>>>(partials->data(), parts, pitch,
                                                            m.top[0].b, m.hidden.data(), size);
        };
        c.launches += 2;
        c.temporary_bytes += z_bytes + partials->bytes();
        c.moved_bytes += m.lookup_bytes() + z_bytes + m.hidden_bytes() + 4 * parts * (pitch + size);
        return mlps.contender(c, {z, width}, between);
    }

    const demo::Dlrm<half>& m;
    const demo::DlrmLayers<half>& mlps;
    half* const z;
    const size_t N = m.shape.N, E = m.shape.E, width = m.shape.width;
    const size_t rows = (N + kBlock - 1) / kBlock;  // of blocks
};

template <class T>
static void run(demo::Session& session) {
    const demo::Dlrm<T> m(session);     // inputs, the layers' weights, out, and the reference
    const demo::DlrmLayers<T> mlps(m);  // both MLPs by the library
    const demo::DlrmChain<T> chain(m, mlps);
    const demo::Buffer<T> z(m.shape.N, m.shape.width), f(m.shape.N, m.shape.pitch);  // f: features
    std::vector<demo::Contender> ways{chain.contender(), grouped(m, mlps, z.data(), f.data())};
    if constexpr (std::is_same_v<T, half>)
        if (!m.shape.dot) {
            const Fused fused(m, mlps, z.data());
            ways.push_back(fused.by_wmma());
            ways.push_back(fused.by_tiles(session.gpu));
        }
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
