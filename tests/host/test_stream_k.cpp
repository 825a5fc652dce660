// How stream_k deals tiles to blocks: every step once, evenly.
#include <gtest/gtest.h>

#include <vector>

#include "matmul/stream_k.hpp"

namespace {

using namespace demo;

constexpr int kMultiprocessors[] = {1, 4, 20, 40, 68, 82, 108, 114, 132, 142, 170};
constexpr int kSizes[] = {32, 96, 256, 1024, 1056, 1408, 1952, 2048, 3104, 4096};

TEST(StreamK, EveryStepOfEveryTileIsDoneOnce) {
    for (int blocks : kMultiprocessors)
        for (int N : kSizes) {
            SCOPED_TRACE(testing::Message() << N << " on " << blocks);
            const int edge = (N + 127) / 128;
            const Deal deal{edge * edge, N / 16, blocks};
            std::vector<int> done(size_t(deal.tiles) * deal.steps);
            for (int block = 0; block < blocks; ++block)
                for (int i = 0;; ++i) {
                    const Part part = deal.part(block, i);
                    if (part.first == part.last) break;
                    ASSERT_LT(part.tile, deal.tiles);
                    // A block has memory for the sums of one part that is not its tile's first.
                    if (i > 0) {
                        ASSERT_EQ(part.first, 0);
                    }
                    for (int s = part.first; s < part.last; ++s)
                        ++done[size_t(part.tile) * deal.steps + s];
                }
            for (int times : done) ASSERT_EQ(times, 1);
        }
}

TEST(StreamK, DividesWhatFillsNoRound) {
    EXPECT_EQ((Deal{81, 66, 132}.divided), 81);            // N = 1056: 51 blocks would have none
    EXPECT_EQ((Deal{3136, 446, 132}.divided), 132 + 100);  // N = 7136
    EXPECT_EQ((Deal{128, 32, 132}.divided), 0);            // N = 1024: nearly a round
    EXPECT_EQ((Deal{264, 32, 132}.divided), 0);
    EXPECT_EQ((Deal{1024, 256, 1}.divided), 0);  // one block has everything to do anyway
    const Deal deal{81, 66, 132};
    for (int block = 0; block < deal.blocks; ++block) {
        const int each = deal.share(block + 1) - deal.share(block), least = 81 * 66 / 132;
        EXPECT_TRUE(each == least || each == least + 1) << block;
    }
}

}  // namespace
