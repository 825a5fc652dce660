// Which tiles stream_k of bonus_matmul_register_tiled takes, and which steps of them each block
// does. Plain arithmetic, for host and device, so that tests run it without a GPU.
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
    int tiles, divided, steps, blocks;  // `steps` make a tile

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

    /// The steps of block 0, which has the most to do.
    int most_steps() const { return share(1) + (tiles - divided + blocks - 1) / blocks * steps; }
};

/// A tile of C (M x N), the k of one step (K), and times, where a step of the large tile takes 1.
struct TileShape {
    int M, N, K;
    double step_time, division_time;
};

// By its multiply-adds a step of a middle or small tile would take 0.5. Dividing tiles takes time,
// too: more tiles are begun, and sums go through memory. (Fitted to an NVIDIA H100's times of the
// three shapes, divided and whole, at 28 sizes from 1024 to 8192: the choice is the best of the
// six, or at most 1.5% slower.)
constexpr TileShape kLargeTile{128, 256, 16, 1, 6}, kMiddleTile{128, 128, 16, 0.5002, 3},
    kSmallTile{64, 128, 32, 0.53, 3};

struct TileChoice {
    TileShape shape;
    Deal deal;

    double time() const {
        return deal.most_steps() * shape.step_time + (deal.divided > 0 ? shape.division_time : 0);
    }
};

/// All tiles whole; or, so that all blocks have the same to do, those that fill no round divided,
/// and with them a full one. N is a multiple of K.
inline TileChoice tiles_of(TileShape shape, int N, int blocks, bool divide) {
    const int tiles = (N + shape.M - 1) / shape.M * ((N + shape.N - 1) / shape.N);
    const int divided = tiles < blocks ? tiles : blocks + tiles % blocks;
    return {shape, {tiles, divide ? divided : 0, N / shape.K, blocks}};
}

/// The fastest way to deal out C [N, N].
inline TileChoice choose_tiles(int N, int blocks) {
    TileChoice best = tiles_of(kLargeTile, N, blocks, false);
    for (const TileShape& shape : {kLargeTile, kMiddleTile, kSmallTile})
        for (bool divide : {false, true}) {
            const TileChoice choice = tiles_of(shape, N, blocks, divide);
            if (choice.time() < best.time()) best = choice;
        }
    return best;
}

}  // namespace demo
