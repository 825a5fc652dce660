// How stream_k of bonus_matmul_register_tiled deals the steps of its tiles to blocks. Plain
// arithmetic, for host and device, so that tests run it without a GPU.
#pragma once

#include "demo/error_bounds.hpp"

namespace demo {

/// Steps first ... last - 1 of a tile, along k.
struct Part {
    int tile, first, last;
};

/// How blocks that all run at the same time share the tiles of a matrix. The steps of the first
/// `divided` tiles are lined up, and each block gets an even share of the line. The other tiles
/// stay whole and are dealt out in turn.
struct Deal {
    int tiles, steps, blocks;  // `steps` make a tile
    // Of the last round, if it has fewer tiles than blocks, and of the round before it: so a share
    // is mostly longer than a tile. To divide a round that is nearly full would not pay.
    int last_round = tiles % blocks;
    int divided = last_round == 0 || last_round > 0.9 * blocks ? 0
                  : tiles < blocks                             ? tiles
                                                               : blocks + last_round;

    /// Where a block's share of the line begins.
    DEMO_HOST_DEVICE int share(int block) const {
        const int each = divided * steps / blocks, left = divided * steps % blocks;
        return block * each + (block < left ? block : left);
    }

    /// A block's i-th part; one without steps means that it is done. Its share of the line comes
    /// first. So a divided tile's rest is mostly there when its first block has done its own part.
    DEMO_HOST_DEVICE Part part(int block, int i) const {
        const int begin = share(block), end = share(block + 1);
        const int tile = begin / steps + i;
        const int first = i == 0 ? begin % steps : 0;
        const int last = end < (tile + 1) * steps ? end - tile * steps : steps;
        if (first < last) return {tile, first, last};
        const int parts = begin < end ? (end - 1) / steps - begin / steps + 1 : 0;
        const int whole = divided + block + (i - parts) * blocks;
        return {whole, 0, whole < tiles ? steps : 0};
    }
};

}  // namespace demo
