// 13: DLRM, a recommendation model: will this user follow this link? (arXiv 1906.00091)
//
// It knows 13 numbers and 26 ids of user and link. Every id has E = 16 numbers, a row of its table.
// Two MLPs (lesson 12), whose layers differ here, turn this into a number from 0 to 1:
//
//     13 numbers --> 512, 256, 64, E --> E numbers --+                    z_i z_j, all products:
//     id 1  --> row of table 1  -------> E numbers --+--> z[27 E], 432 --> 186,624 features
//     ...                                            |                       |
//     id 26 --> row of table 26 -------> E numbers --+    0 ... 1 <-- 1, 256, 512
//
// Nearly all operations are the top MLP's first layer: relu(features W + b), W[186624, 512].
// (With --dot the features are 351 dot products of vectors instead, as in the paper.)
//
// chain             a framework's way, a kernel for each line: 43, mostly tiny (dlrm/chain.cuh)
// grouped           ReLU in the gemms; one kernel for hash, 26 lookups and cat (dlrm/grouped.cuh)
// interaction_tile  the gemm makes its operand itself, in registers: 0.7 GiB that are never stored
//
//           z_j, 64 columns of z     +--------+ W    for all i, and each 64 columns j of z:
//           times the column z_i     +--------+          features = z_j * z_i, of 128 samples
//                       +--------+   |  sums  |          sums += features times 64 rows of W
//                       +--------+   +--------+
//     ./13_dlrm 2048        ./13_dlrm 2048 --dot --ids zipf        ./13_dlrm 2048 --dtype tf32
// What limits it: it is nearly as fast as the library's products (lesson 4). But it multiplies both
// z_i z_j and z_j z_i; bonus_dlrm, in CUDA C++ by wgmma, multiplies only one.
// H200, N = 2048, ms: chain 0.961, grouped 0.880, interaction_tile 0.618 (docs/figures.md)
#include "demo.cuh"
#include "dlrm/grouped.cuh"
#include "tile.cuh"

namespace dlrm {

constexpr int kTileRows = 128, kTileCols = 256;      // of the sums that a block computes
constexpr int kBlocks = demo::kSimulator ? 8 : 128;  // wanted: an H200 has 132 multiprocessors

#ifdef __CUDACC_TILE__  // CUDA Tile C++, as in lesson 6, where the compiler knows it: see tile.cuh
using In = tile::In<half>;
/// partials[part] = features W, summed over the part's i and all j, for 128 samples x 256 columns.
/// W has a row for each feature, so one for each i and j: it is [width, width, kHidden].
/// `turned`, [width, N rounded up to 128], is z transposed: there the numbers z_i of 128 samples
/// are neighbors.
template <bool kAligned>  // rows of z begin at multiples of 16 bytes; else it is much slower
[[cutile::hint(0, num_worker_warps_per_cta = 8)]] __tile_global__ void interaction_tile(
    In z, In turned, In W, tile::Out<float> partials, size_t N, int width, int parts) {
    const int rows = tile::count(N, kTileRows), cols = kHidden / kTileCols, block = ct::bid().x;
    const int n = block % cols, m = block / cols % rows, part = block / cols / rows;
    auto sums = ct::zeros<ct::tile<float, ct::shape<kTileRows, kTileCols>>>();
    for (int i : ct::irange(width * part / parts, width * (part + 1) / parts)) {
        const auto row = tile::matrix<1, kTileRows>(turned, width, rows * kTileRows).load(i, m);
        const auto z_i = ct::reshape(row, ct::shape<kTileRows, 1>{});  // a column, for 64 columns j
        for (int j : ct::irange(0, tile::count(width, 64))) {
            const auto z_j = tile::matrix<kTileRows, 64, kAligned>(z, N, width).load_masked(m, j);
            const auto from_W = tile::matrices<64, kTileCols>(W, width, width, kHidden);
            const auto w = ct::reshape(from_W.load_masked(i, j, n), ct::shape<64, kTileCols>{});
            sums = ct::mma(z_j * z_i, w, sums);
        }
    }
    tile::matrices<kTileRows, kTileCols>(partials, parts, rows * kTileRows, kHidden)
        .store(ct::reshape(sums, ct::shape<1, kTileRows, kTileCols>{}), part, m, n);
}

static void launch_tiles(const half* z, const half* turned, const half* W, float* partials,
                         size_t N, int width, int parts) {
    const int blocks = tile::count(N, kTileRows) * (kHidden / kTileCols) * parts;
    const auto kernel = width % 8 ? interaction_tile<false> : interaction_tile<true>;
    kernel<<<blocks>>>(z, turned, W, partials, N, width, parts);
}
#else
static void launch_tiles(const half*, const half*, const half*, float*, size_t, int, int) {}
#endif

/// hidden = relu(b + all partial sums)
__global__ void add_partials(const float* partials, int count, size_t pitch, const half* b,
                             half* hidden, size_t size) {
    if (my_index() >= size) return;
    float sum = b[my_index() % kHidden];
    for (int p = 0; p < count; ++p) sum += partials[p * pitch + my_index()];
    hidden[my_index()] = sum < 0 ? 0 : sum;
}

/// z, turned z, the kernels above, and the library's gemms around. The models must outlive it.
static demo::Contender fused(const demo::Dlrm<half>& m, const demo::DlrmLayers<half>& mlps, half* z,
                             const demo::Gpu& gpu) {
    const size_t N = m.shape.N, E = m.shape.E, width = m.shape.width, size = N * kHidden;
    const size_t rows = (N + kTileRows - 1) / kTileRows, padded = rows * kTileRows;
    // Few samples make few tiles. Then several blocks share a tile's sums, each for some i.
    const size_t parts = std::clamp<size_t>(kBlocks / (rows * (kHidden / kTileCols)), 1, width / 4);
    const auto partials = std::make_shared<demo::Buffer<float>>(parts, padded * kHidden);
    const auto turned = std::make_shared<demo::Buffer<half>>(width, padded);
    auto between = [=, &m] {
        gather<half><<<blocks(N * kTables * E / 4), kElementThreads>>>(m.ids, m.tables, z, N, E);
        demo::turn<<<blocks(N * width), kElementThreads>>>(z, turned->data(), N, width, padded);
        launch_tiles(z, turned->data(), m.top[0].W, partials->data(), N, int(width), parts);
        add_partials<<<blocks(size), kElementThreads>>>(partials->data(), parts, padded * kHidden,
                                                        m.top[0].b, m.hidden.data(), size);
    };
    const size_t z_bytes = 2 * N * width, sums = 4 * parts * (padded * kHidden + size);
    return mlps.contender({.kernel = "interaction_tile",
                           .launches = 4,
                           .temporary_bytes = z_bytes + turned->bytes() + partials->bytes(),
                           .moved_bytes = m.lookup_bytes() + 4 * z_bytes + m.hidden_bytes() + sums,
                           .why_not = tile::why_not(gpu)},
                          {.bottom = z, .pitch = width}, between);
}

template <class T>
static void run(demo::Session& session) {
    const demo::Dlrm<T> m(session);     // inputs, the layers' weights, out, and the reference
    const demo::DlrmLayers<T> mlps(m);  // both MLPs by the library
    const demo::DlrmChain<T> chain(m, mlps);
    const demo::Buffer<T> z(m.shape.N, m.shape.width), f(m.shape.N, m.shape.pitch);  // f: features
    std::vector<demo::Contender> ways{chain.contender(), grouped(m, mlps, z.data(), f.data())};
    if constexpr (std::is_same_v<T, half>)
        if (!m.shape.dot) ways.push_back(fused(m, mlps, z.data(), session.gpu));
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
