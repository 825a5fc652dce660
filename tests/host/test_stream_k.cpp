// How stream_k deals tiles to blocks: every step once, evenly; and which tiles it chooses.
#include <gtest/gtest.h>

#include <vector>

#include "matmul/stream_k.hpp"

namespace {

using namespace demo;

constexpr int kMultiprocessors[] = {1, 4, 20, 40, 68, 82, 108, 114, 132, 142, 170};
constexpr int kSizes[] = {32, 96, 256, 1024, 1056, 1408, 1952, 2048, 3104, 4096};

void deals_every_step_once(const Deal& deal) {
    std::vector<int> done(size_t(deal.tiles) * deal.steps);
    for (int block = 0; block < deal.blocks; ++block) {
        int steps = 0;
        for (int i = 0;; ++i) {
            const Part part = deal.part(block, i);
            if (part.first == part.last) break;
            ASSERT_LT(part.tile, deal.tiles);
            // A block has memory for the sums of one part that is not its tile's first.
            if (i > 0) {
                ASSERT_EQ(part.first, 0);
            }
            for (int s = part.first; s < part.last; ++s) ++done[size_t(part.tile) * deal.steps + s];
            steps += part.last - part.first;
        }
        EXPECT_LE(steps, deal.most_steps());
    }
    for (int times : done) ASSERT_EQ(times, 1);
}

TEST(StreamK, EveryStepOfEveryTileIsDoneOnce) {
    for (int blocks : kMultiprocessors)
        for (int N : kSizes)
            for (const TileShape& shape : {kLargeTile, kMiddleTile, kSmallTile})
                for (bool divide : {false, true}) {
                    SCOPED_TRACE(testing::Message() << N << " on " << blocks);
                    deals_every_step_once(tiles_of(shape, N, blocks, divide).deal);
                }
}

TEST(StreamK, AllDividedMeansTheSameForAllButAStep) {
    for (int blocks : kMultiprocessors) {
        const Deal deal = tiles_of(kLargeTile, 1024, blocks, true).deal;
        if (deal.divided < deal.tiles) continue;
        for (int block = 0; block < blocks; ++block) {
            const int steps = deal.share(block + 1) - deal.share(block);
            EXPECT_LE(deal.most_steps() - steps, 1) << block << " of " << blocks;
        }
    }
}

TEST(StreamK, DividesWhereItIsWorthIt) {
    const auto shape = [](int N) { return choose_tiles(N, 132).shape; };
    const auto divided = [](int N) { return choose_tiles(N, 132).deal.divided; };
    // 128 small tiles for 132 multiprocessors.
    EXPECT_EQ(shape(1024).M, kSmallTile.M);
    EXPECT_EQ(divided(1024), 0);
    // 81 middle ones: whole, 51 multiprocessors would have none.
    EXPECT_EQ(shape(1056).M, kMiddleTile.M);
    EXPECT_EQ(shape(1056).N, kMiddleTile.N);
    EXPECT_EQ(divided(1056), 81);
    // Divided, 3136 middle ones take as long as 1568 large ones, but less for dividing.
    EXPECT_EQ(shape(7136).M, kMiddleTile.M);
    EXPECT_EQ(shape(7136).N, kMiddleTile.N);
    EXPECT_EQ(divided(7136), 132 + 3136 % 132);
    // One multiprocessor has everything to do anyway.
    EXPECT_EQ(choose_tiles(4096, 1).shape.M, kLargeTile.M);
    EXPECT_EQ(choose_tiles(4096, 1).deal.divided, 0);
}

}  // namespace
