// The choice of tiles: what moves it, and that its divisions can be computed.
#include <gtest/gtest.h>

#include <algorithm>

#include "matmul/hopper_tiles.cuh"

namespace {

using namespace matmul_hopper;

constexpr Machine kH200{132};

TileShape chosen(size_t N, const Machine& machine) {
    return kShapes[fastest_shape(kShapes, square_product(N), machine)];
}
int area(const TileShape& tile) { return tile.rows * tile.columns; }

TEST(FastestShape, FollowsTheNumberOfMultiprocessors) {
    EXPECT_EQ(area(chosen(1024, kH200)), 128 * 64);  // 128 tiles, one each
    EXPECT_EQ(area(chosen(1024, {32})), 128 * 256);  // 32 tiles, one each
    EXPECT_EQ(area(chosen(4096, kH200)), 128 * 256);
}

/// What all blocks copy while the busiest one works, in rows of A and columns of B.
double copied(const TileShape& tile, size_t N) {
    const double rows = double(tile.rows) / tile.beside,
                 columns = double(tile.columns) / tile.below;
    const Division division = divide(tile, square_product(N), 132 / tile.cluster());
    return division.steps * (rows + columns) * std::min(132, division.clusters * tile.cluster());
}

TEST(FastestShape, FollowsTheCache) {
    // With a slow one shapes pay that copy less.
    int less = 0;
    // (Of 0 MiB: no limit where lines are straddled, or shapes could differ in what that limits.)
    for (size_t N = 512; N <= 8192; N += 32) {
        const double slow = copied(chosen(N, {132, 10, 0}), N),
                     fast = copied(chosen(N, {132, 1000, 0}), N);
        EXPECT_LE(slow, fast) << N;
        less += slow < fast;
    }
    EXPECT_GT(less, 10);
}

TEST(FastestShape, ReadsLessInAllWhereLinesAreStraddled) {
    // 1056 is an odd multiple of 32: of 160 x 64 there are 119 tiles, of 96 x 128, 99.
    constexpr Machine kH100{.multiprocessors = 132, .l2_mib = 50};
    EXPECT_EQ(chosen(1056, kH200).columns, 64);
    EXPECT_EQ(chosen(1056, kH100).columns, 128);
    EXPECT_EQ(chosen(2144, kH200).rows, 144);
    EXPECT_EQ(chosen(2144, kH100).rows, 160);
    // Where none is straddled it does not depend on the cache's size.
    for (size_t N = 512; N <= 8192; N += 64)
        EXPECT_EQ(area(chosen(N, kH200)), area(chosen(N, kH100))) << N;
}

TEST(FastestShape, GivesABlockOneTileWhereAllTilesRunAtOnce) {
    for (size_t N = 512; N < 1200; N += 32) EXPECT_FALSE(chosen(N, kH200).persistent) << N;
    EXPECT_TRUE(chosen(4096, kH200).persistent);
    EXPECT_TRUE(chosen(2048, {16}).persistent);
}

TEST(FastestShape, IsForARoundThatIsFull) {
    // 3072: 16 x 24 tiles of 192 x 128 are 2.9 rounds of 132, 20 x 24 of 160 x 128 are 3.6.
    EXPECT_EQ(chosen(3072, kH200).rows, 192);
    // 2144: 15 x 17 tiles of 144 x 128 are 1.9 rounds, 14 x 17 of 160 x 128 are 1.8.
    EXPECT_EQ(chosen(2144, kH200).rows, 144);
}

TEST(FastestShape, AlternatesWhereRoundsAreFew) {
    EXPECT_FALSE(chosen(1024, kH200).pingpong);  // one round: nobody multiplies beside a tile's end
    EXPECT_TRUE(chosen(3072, kH200).pingpong);
    EXPECT_FALSE(chosen(8192, kH200).pingpong);  // patches are copied less often
}

TEST(Divide, EachClusterHasStepsOfDividedTiles) {
    for (const TileShape& tile : kShapes)
        for (int at_once : {1, 2, 7, 30, 57, 66, 132})
            for (size_t N = 32; N <= 16384; N += 32) {
                const Division division = divide(tile, {N, N}, at_once);
                const size_t height = tile.rows * tile.below, width = tile.columns * tile.beside;
                const int tiles = int((N + height - 1) / height * ((N + width - 1) / width));
                ASSERT_GE(division.clusters, 1);
                if (!tile.persistent) {
                    ASSERT_EQ(division.clusters, tiles);
                    continue;
                }
                ASSERT_LE(division.clusters, at_once);
                ASSERT_LE(division.divided, tiles);
                if (division.divided == 0) continue;
                // A block waits for the sums of all clusters up to a tile's end.
                ASSERT_GE(division.divided * int((N + 63) / 64), division.clusters);
                ASSERT_EQ((tiles - division.divided) % division.clusters, 0);  // full rounds
            }
}

TEST(Divide, AFullRoundIsNotDivided) {
    EXPECT_EQ(divide({128, 256, 2}, {4096, 4096}, 64).divided, 0);
    EXPECT_GT(divide({128, 256, 2}, {5120, 5120}, 66).divided, 66);  // 400 pairs are 6 rounds and 4
    EXPECT_EQ(divide({128, 256, 2, false}, {5120, 5120}, 66).divided, 0);
}

TEST(EightsAndTwos, LeaveFewPatches) {
    constexpr EightsAndTwos kClusters{15, 6};
    EXPECT_EQ(kClusters.count_left(200, 4), 2);  // 6 x 33, and 2
    EXPECT_EQ(kClusters.count_left(50, 4), 2);   // 33 and 15, and 2
    EXPECT_EQ(kClusters.count_left(48, 4), 0);
    EXPECT_EQ(kClusters.count_left(200, 1), 0);  // too many
}

TEST(FastestShape, TakesPatchesWhereFewAreLeft) {
    // Gating of 2560: 50 patches are three rounds and 2, for which a fourth round is too much.
    constexpr TileShape kTwo[] = {{128, 256, 2}, kPatches};
    Product product{.rows = 2560, .columns = 5120, .tile_end = 5500, .depth = 2560};
    EXPECT_EQ(fastest_shape(kTwo, product, {132, 160}), 0);
    product.small_tiles = 32;
    EXPECT_EQ(fastest_shape(kTwo, product, {132, 160}), 1);
    product.small_tiles = 128;  // there is room for the small tiles of one patch
    EXPECT_EQ(fastest_shape(kTwo, product, {132, 160}), 0);
}

TEST(Edges, AreWhatWholePatchesLeave) {
    const Edges edges = Edges::of(kPatches, square_product(12320));  // 24 patches of 512, and 32
    EXPECT_EQ(edges.rows, 12288);
    EXPECT_EQ(edges.columns, 12288);
    EXPECT_EQ(edges.tiles_below, 193);  // the corner is below
    EXPECT_EQ(edges.tiles, 193 + 192);
    EXPECT_GT(Edges::of(kPatches, square_product(8256)).tiles, 0);   // 64 more
    EXPECT_EQ(Edges::of(kPatches, square_product(8288)).tiles, 0);   // 96: too many
    EXPECT_EQ(Edges::of(kPatches, square_product(12288)).tiles, 0);  // none
    EXPECT_EQ(Edges::of(kPatches, square_product(32)).tiles, 0);     // not one whole patch
    EXPECT_EQ(Edges::of(kPatches, {.rows = 12320, .columns = 12320}).tiles, 0);  // not asked for
}

TEST(Edges, SaveARowAndAColumnOfPatches) {
    const Product with = square_product(12320), without{.rows = 12320, .columns = 12320};
    // 576 patches instead of 625, and three rounds of small tiles.
    EXPECT_LT(divide_patches(kPatches, with, kH200).steps,
              divide_patches(kPatches, without, kH200).steps * 0.95);
    EXPECT_TRUE(chosen(11296, kH200).two_launches());
}

TEST(EightsAndTwos, CountRounds) {
    constexpr EightsAndTwos kAll{15, 6}, kFewer{15, 4};
    EXPECT_EQ(kAll.count_rounds(256), 16);    // 7 x 33 patches, and 25
    EXPECT_EQ(kFewer.count_rounds(256), 16);  // 8 x 32
    EXPECT_EQ(kAll.count_rounds(225), 14);
    EXPECT_EQ(kFewer.count_rounds(225), 15);  // one patch more than 7 x 32
    EXPECT_EQ(kFewer.count_rounds(16), 2);    // the last one is the first of the second round
}

TEST(EightsAndTwos, ShareTheMultiprocessors) {
    const auto [eights, twos] = EightsAndTwos::of(66, 16);
    EXPECT_EQ(eights, 15);
    EXPECT_EQ(twos, 6);
    EXPECT_EQ(EightsAndTwos::of(66, 12).twos, 18);  // where fewer of eight have room
    EXPECT_EQ(EightsAndTwos::of(57, 14).twos, 4);   // of 5: their number is even
}

TEST(FastestShape, CountsRoundsOfPatches) {
    // 4608: 81 patches, five rounds. 16 clusters of eight alone would need six.
    EXPECT_EQ(divide_patches(kPatches, square_product(4608), kH200).steps, 5 * 4608 / 64);
    EXPECT_TRUE(chosen(4608, kH200).two_launches());
    EXPECT_FALSE(chosen(5120, kH200).two_launches());  // 100 patches: the seventh has one
}

TEST(FastestShape, WeighsWhatNothingIsMultipliedIn) {
    // 2048 x 4096 are 128 pairs of tiles of 128 x 256, or 512 tiles of 128 x 128: two rounds, whose
    // ends both count, or four, of whose ends all but the last one have others' steps beside them.
    constexpr TileShape kTwo[] = {{128, 256, 2, false}, pingpong(128)};
    EXPECT_EQ(fastest_shape(kTwo, {2048, 4096, 0}, kH200), 0);
    EXPECT_EQ(fastest_shape(kTwo, {2048, 4096, 100000}, kH200), 1);
    EXPECT_EQ(fastest_shape(kTwo, {2048, 4096, 100000}, kH200, 1), 0);  // of the first alone
}

}  // namespace
