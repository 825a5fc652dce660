// How stream_k deals tiles to blocks: every step once, evenly; and which tiles it chooses.
#include <gtest/gtest.h>

#include <vector>

#include "demo/stream_k.hpp"

namespace {

using namespace demo;

constexpr int kMultiprocessors[] = {1, 4, 20, 40, 68, 82, 108, 114, 132, 142, 170};
constexpr int kSizes[] = {32, 96, 256, 1024, 1056, 1408, 1952, 2048, 3104, 4096};

void deals_every_step_once(const Deal& deal) {
    std::vector<int> done(size_t(deal.tiles) * deal.steps);
    for (int block = 0; block < deal.blocks; ++block) {
        int steps = 0;
        for (int i = 0;; ++i) {
            const TilePart part = deal.part(block, i);
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
            for (const TileShape& shape : {kLargeTile, kSmallTile})
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
    // 128 large tiles for 132 multiprocessors: as good as it gets.
    EXPECT_EQ(choose_tiles(2048, 132).shape.M, kLargeTile.M);
    EXPECT_EQ(choose_tiles(2048, 132).deal.divided, 0);
    // 162 of them: whole, the second round would have 30.
    EXPECT_EQ(choose_tiles(2304, 132).shape.M, kLargeTile.M);
    EXPECT_EQ(choose_tiles(2304, 132).deal.divided, 162);
    // 32 of them, or 128 small ones.
    EXPECT_EQ(choose_tiles(1024, 132).shape.M, kSmallTile.M);
    EXPECT_EQ(choose_tiles(1024, 132).deal.divided, 0);
    // One multiprocessor has everything to do anyway.
    EXPECT_EQ(choose_tiles(4096, 1).shape.M, kLargeTile.M);
    EXPECT_EQ(choose_tiles(4096, 1).deal.divided, 0);
}

}  // namespace
