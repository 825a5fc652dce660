// Chooses the tile shape of matmul_hopper and of fused_hopper, and whether blocks divide some
// tiles, by a model of the time that each choice takes:
//
//     time = steps x clocks of a step + epilogues + ends of blocks + second launch
//
//     steps              of the busiest cluster: divide(), or divide_patches() for clusters of
//                        eight and of two. Rounds x steps of a tile, unless tiles are divided.
//     clocks of a step   step_clocks(): multiply + start + copy, or what the whole L2 takes
//     the rest           fastest_shape(): what no multiplication hides
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace matmul_hopper {

/// What the choice depends on.
struct Machine {
    int multiprocessors;
    // Bytes a clock from L2 for a multiprocessor, an effective rate: above the measured 50 to 74,
    // since most of a copy overlaps.
    double l2_bytes = 240;
    double l2_mib = 60;  // size of the L2 cache

    /// Bytes a clock for all multiprocessors together, if rows begin within an L2 line. Fitted to
    /// an NVIDIA H100 with 50 MiB and an H200 with 60: a larger cache has more such slices.
    double straddled_bytes() const { return 100 * l2_mib; }
};

/// C[rows, columns] = A[rows, depth] B[depth, columns].
struct Product {
    size_t rows, columns;
    double tile_end = 0;  // clocks at the end of a tile of 128 rows that no multiplication hides
    size_t depth = rows;
    double pingpong_ends = 10000;  // clocks of both ends of a block of two warpgroups in turn
    // If a round would have few patches, each is computed in so many small tiles. (0: never.)
    int small_tiles = 0;
    // Tiles of edge x edge compute what whole patches leave, if it is no wider. (0: never.)
    int edge = 0;

    /// Whether rows of A begin within an L2 line while A and B fit the cache. (If they do not fit,
    /// other things take longer than L2.)
    bool straddles_in(const Machine& machine) const {
        const double mib = 2.0 * (rows + columns) * depth / (1 << 20);
        return depth % 64 != 0 && mib <= machine.l2_mib;
    }
    /// The most patches whose small tiles all run at once.
    int most_left(const Machine& machine) const {
        return small_tiles == 0 ? 0 : std::max(1, machine.multiprocessors / small_tiles);
    }
};

constexpr int kEdge = 64;

/// The record's product.
inline Product square_product(size_t N) { return {.rows = N, .columns = N, .edge = kEdge}; }

/// A block's tile of C. Blocks of a cluster share their copies of B if their tiles are below each
/// other, and their copies of A if their tiles are beside each other.
struct TileShape {
    int rows, columns, below;
    bool divides = true;     // there is a kernel whose blocks divide such tiles
    bool persistent = true;  // blocks compute tile after tile; otherwise one each
    int beside = 1;
    bool pingpong = false;  // tile after tile, by two warpgroups in turn: multiply_pingpong()

    constexpr int cluster() const { return below * beside; }
    /// Clusters of two compute such tiles, too, in a launch beside the one of these clusters.
    constexpr bool two_launches() const { return persistent && beside > 1; }
};

/// How clusters share the tiles of C.
struct Division {
    int clusters;
    int divided;   // tiles whose steps are dealt out evenly to all clusters; the others are whole
    double tiles;  // of the busiest cluster
    double steps;  // its time in steps, with the cost of dividing
};

/// How many tiles cover C; the tiles of a cluster count as one.
inline int count_tiles(const TileShape& tile, const Product& product) {
    const size_t height = tile.rows * tile.below, width = tile.columns * tile.beside;
    return int((product.rows + height - 1) / height * ((product.columns + width - 1) / width));
}

/// The steps of a tile, each 64 along k.
inline int count_steps(const Product& product) { return int((product.depth + 63) / 64); }

/// `at_once`: clusters that run at the same time.
inline Division divide(const TileShape& tile, const Product& product, int at_once) {
    // In steps.
    constexpr int kExchange = 18;  // once: the time in which sums pass from block to block
    constexpr int kOutOfStep = 4;  // for each tile: clusters out of step share less of L2
    constexpr int kLeast = 4;      // steps of divided tiles that each cluster must have
    const int tiles = count_tiles(tile, product), steps = count_steps(product);
    // As few clusters as need no more rounds: no slower, and they stay in step, so that they find
    // in L2 what others have read.
    const int rounds = (tiles + at_once - 1) / at_once;
    if (!tile.persistent) return {tiles, 0, double(rounds), double(rounds) * steps};
    const Division whole{(tiles + rounds - 1) / rounds, 0, double(rounds), double(rounds) * steps};
    // Or the tiles of the last, incomplete round are divided, with the round before it, if there is
    // one. Then a share is longer than a tile, so that two clusters divide a tile, not many.
    const int rest = tiles % at_once, divided = std::min(tiles, at_once + rest);
    const double each = double(tiles) / at_once;
    const Division even{at_once, divided, each, each * (steps + kOutOfStep) + kExchange};
    const bool possible = tile.divides && rest > 0 && divided * steps >= kLeast * at_once;
    return possible && even.steps < whole.steps ? even : whole;
}

/// Clusters of eight and of two that run side by side.
struct EightsAndTwos {
    int eights, twos;

    /// As many clusters of eight as leave some multiprocessors free, and clusters of two on the
    /// free ones. `room` of eight or `pairs` of two would run alone. (At least some of each.)
    static EightsAndTwos of(int pairs, int room) {
        const int eights = std::max(1, std::min(room, pairs / 4 - 1));
        return {eights, std::max(2, (pairs - 4 * eights) / 2 * 2)};
    }
    /// Rounds for so many patches. In two rounds each cluster of eight computes two, and four
    /// clusters of two compute two together: 33 with 15 and 6 clusters. In a single last round only
    /// the clusters of eight finish patches.
    int count_rounds(int patches) const {
        const int both = 2 * eights + twos / 2, rest = patches % both;
        return 2 * (patches / both) + (rest > 0) + (rest > eights);
    }
    /// How many patches are left for a last round of their own; 0 if more than `most`. Of 200 = 6 x
    /// 33 + 2 patches it is two.
    int count_left(int patches, int most) const {
        int rest = patches % (2 * eights + twos / 2);
        if (rest >= eights) rest -= eights;
        return rest <= most ? rest : 0;
    }
};

/// The edges of C below and beside whole patches, if they are computed in small tiles. 12320 is 24
/// patches of 512 and 32 more: too little for another row and column of patches.
struct Edges {
    int rows = 0, columns = 0;  // where they begin; 0: there are none
    int tiles_below = 0, tiles = 0;

    static Edges of(const TileShape& patch, const Product& product) {
        const int height = patch.rows * patch.below, width = patch.columns * patch.beside;
        const int rows = int(product.rows), columns = int(product.columns), edge = product.edge;
        auto few = [=](int left) { return left > 0 && left <= edge; };
        if (rows < height || !few(rows % height) || !few(columns % width)) return {};
        Edges found{rows / height * height, columns / width * width};
        found.tiles_below = (columns + edge - 1) / edge;
        found.tiles = found.tiles_below + found.rows / edge;
        return found;
    }
};

/// How clusters of eight and of two share whole patches; four of two count as one of eight. Then
/// all multiprocessors compute small tiles: a few patches that are left, or C's edges.
inline Division divide_patches(const TileShape& patch, const Product& product,
                               const Machine& machine) {
    const int pairs = machine.multiprocessors / 2;
    const EightsAndTwos both = EightsAndTwos::of(pairs, pairs / 4);
    const Edges edges = Edges::of(patch, product);
    Product whole = product;
    if (edges.tiles > 0) whole.rows = edges.rows, whole.columns = edges.columns;
    const int patches = count_tiles(patch, whole), most = product.most_left(machine);
    const int left = both.count_left(patches, most);
    // A round of small tiles, in rounds of patches: blocks do less, but start anew, and copy more
    // for each multiplication. Measured in gating, at one size.
    constexpr double kSmallTiles = 0.3;
    const int of_edges = (edges.tiles + machine.multiprocessors - 1) / machine.multiprocessors;
    const int small = (left > 0) + of_edges;
    const double rounds = both.count_rounds(patches - left) + small * kSmallTiles;
    return {both.eights + both.twos / 4, 0, rounds, rounds * count_steps(product)};
}

/// Clocks of a step, 64 along k, while `blocks` blocks run. Copies overlap multiplications, but not
/// for free: their time is added, at a high rate (l2_bytes).
///
/// The constants, here and in fastest_shape(), were fitted on an NVIDIA H200 to products at 88
/// sizes, and to gating at 39.
inline double step_clocks(const TileShape& tile, const Product& product, double blocks,
                          const Machine& machine) {
    // A multiprocessor does 2048 multiply-adds a clock.
    const double multiply = tile.rows * tile.columns * 64 / 2048.0;
    // Each step waits for its bytes and starts its wgmma. If two warpgroups alternate, one's last
    // step hides the other's first wait.
    const int start = tile.pingpong ? 60 : 120;
    // 128 bytes for each row of A and each column of B. Blocks that share them copy a share each.
    const double rows = double(tile.rows) / tile.beside,
                 columns = double(tile.columns) / tile.below;
    const double bytes = (rows + columns) * 128, copy = bytes / machine.l2_bytes;
    // Where rows' 128 bytes are of two lines, L2 as a whole can take longer.
    const double l2 =
        product.straddles_in(machine) ? blocks * bytes / machine.straddled_bytes() : 0;
    return std::max(multiply + start + copy, l2);
}

/// A shape for blocks that compute one tile each.
constexpr TileShape single(int rows, int columns) { return {rows, columns, 1, false, false}; }

/// A shape for blocks whose two warpgroups compute tile after tile in turn (ping-pong): only the
/// last epilogue is exposed.
constexpr TileShape pingpong(int rows) {
    return {.rows = rows, .columns = 128, .below = 1, .divides = false, .pingpong = true};
}

/// What eights_and_twos computes: patches of 4 x 2 tiles, for clusters of eight.
constexpr TileShape kPatches{
    .rows = 128, .columns = 256, .below = 4, .divides = false, .beside = 2};

/// The tiles that the record of matrix products comes in.
constexpr TileShape kShapes[] = {
    {128, 256, 2},    pingpong(208),    pingpong(192),    pingpong(176),    pingpong(160),
    pingpong(144),    pingpong(112),    single(256, 128), single(208, 128), single(176, 128),
    single(160, 128), single(144, 128), single(128, 128), single(112, 128), single(96, 128),
    single(160, 192), single(144, 192), single(128, 192), single(176, 64),  single(160, 64),
    single(128, 64),  single(96, 64),   single(80, 64),   single(64, 64),   kPatches};

/// The fastest of the first `count` shapes; the first of equals.
template <size_t kCount>
int fastest_shape(const TileShape (&shapes)[kCount], const Product& product, const Machine& machine,
                  size_t count = kCount) {
    // Clocks at the start and end of a block, in which it multiplies nothing:
    constexpr int kSingle = 5000;  // with one tile: the first copies, and the last stores
    constexpr int kNext = 10000;   // the next such block, which copies once this one has stored
    constexpr int kPersistent = 13500;   // with several tiles: more code to fetch, and a cluster
    constexpr int kSecondLaunch = 9000;  // see eights_and_twos; a third one is not counted
    auto clocks = [&](const TileShape& tile) {
        const int at_once = std::max(1, machine.multiprocessors / tile.cluster());
        const Division division = tile.two_launches() ? divide_patches(tile, product, machine)
                                                      : divide(tile, product, at_once);
        const double tiles = division.tiles;
        const double blocks = division.clusters * tile.cluster() / (tile.persistent ? 1 : tiles);
        const double steps = division.steps * step_clocks(tile, product, blocks, machine);
        // By ping-pong only the last one shows.
        const double epilogues = (tile.pingpong ? 1 : tiles) * product.tile_end * tile.rows / 128;
        const double ends = tile.pingpong     ? product.pingpong_ends
                            : tile.persistent ? kPersistent
                                              : kSingle + (tiles - 1) * kNext;
        return steps + epilogues + ends + (tile.two_launches() ? kSecondLaunch : 0);
    };
    const auto less = [&](const TileShape& a, const TileShape& b) { return clocks(a) < clocks(b); };
    return int(std::min_element(shapes, shapes + count, less) - shapes);
}

}  // namespace matmul_hopper
