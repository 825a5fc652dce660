"""Gating fused: sigmoid(x W1 + b1) * (x W2 + b2) by torch.compile, and in one kernel in Triton.

    python3 scripts/frameworks/6_gating_fused.py 4096         x[N, N], W[N, N]
    python3 scripts/frameworks/6_gating_fused.py --talk 1024  x[4 S^2, 128], W[128, 64]

torch.compile fuses what follows the products. A kernel in Triton computes a tile of both products,
so it loads x once, and gates the sums before it stores anything. `triton` loads tiles by pointers
to their elements, `triton tma` by descriptors. N is a multiple of 32, by default 4096, on CPUs 256.
"""

import torch_demo as demo
from torch_demo import tl, triton

# 1056, 1952, 3104 and 4064 are no multiples of any BM or BN.
SIZES = (1024, 1056, 1280, 1536, 1952, 2048, 2560, 3072, 3104, 4064, 4096, 5120, 6144, 8192, 12288,
         16384)
TALK = (96, 128, 256, 512, 768, 1024, 2048)
TILE = ("6_gating_fused", "fused_tile", "fused_talk_tile")

unfused = demo.load_page("5_gating_unfused")
formula, problem, expected = unfused.formula, unfused.problem, unfused.expected


@triton.jit
def gate(v1, v2, b1, b2, columns, N):
    """The formula's rest, from a tile of both products, in fp32."""
    v1 += tl.load(b1 + columns, mask=columns < N)[None, :].to(tl.float32)
    v2 += tl.load(b2 + columns, mask=columns < N)[None, :].to(tl.float32)
    return tl.sigmoid(v1) * v2


# By pointers: a block computes one tile.
@demo.tuned(["M", "N"], *demo.tiles(
    (128, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 64, 64, 4, 3), (128, 64, 64, 8, 4),
    (64, 128, 64, 4, 4), (64, 64, 32, 4, 3)))
@demo.even_tiles
@triton.jit
def gate_tile(x, W1, W2, b1, b2, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr,
              BK: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr, INDEX: tl.constexpr):
    tile_m, tile_n = demo.place_of(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP)
    m = tile_m.to(tl.int64) * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK).to(INDEX)
    x_at = x + demo.within(m, M, EVEN)[:, None] * K + k[None, :]
    W_at = k[:, None] * N + demo.within(n, N, EVEN)[None, :]
    v1 = tl.zeros((BM, BN), tl.float32)
    v2 = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        inside = k < K - first
        rows = demo.load_step(x_at, inside[None, :], EVEN)
        v1 = tl.dot(rows, demo.load_step(W1 + W_at, inside[:, None], EVEN), v1)
        v2 = tl.dot(rows, demo.load_step(W2 + W_at, inside[:, None], EVEN), v2)
        x_at += BK
        W_at += BK * N
    demo.store_tile(out, m, n, M, N, gate(v1, v2, b1, b2, n, N), EVEN)


# By descriptors: as many blocks as multiprocessors, which stay for many tiles, so that loading the
# next tile overlaps with finishing the one before. TMA itself loads zeros from outside of a matrix,
# and stores nothing there.
@demo.tuned(["M", "N"], *demo.tiles(
    (128, 128, 64, 8, 3), (128, 128, 64, 8, 4), (256, 64, 64, 8, 3), (128, 64, 128, 8, 3)))
@triton.jit
def gate_tiles_tma(x, W1, W2, b1, b2, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr,
                   BK: tl.constexpr, GROUP: tl.constexpr):
    x_tiles = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, BK])
    W1_tiles = tl.make_tensor_descriptor(W1, [K, N], [N, 1], [BK, BN])
    W2_tiles = tl.make_tensor_descriptor(W2, [K, N], [N, 1], [BK, BN])
    out_tiles = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    step = tl.num_programs(0)
    # The same number as `tile`, counted on its own: Triton pipelines the two loops as one, and
    # there a value must not be needed at a tile's beginning and at its end.
    finished = tl.program_id(0) - step
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, step, flatten=True):
        tile_m, tile_n = demo.place_of(tile, tiles_m, tiles_n, GROUP)
        v1 = tl.zeros((BM, BN), tl.float32)
        v2 = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            rows = x_tiles.load([tile_m * BM, k])
            v1 = tl.dot(rows, W1_tiles.load([k, tile_n * BN]), v1)
            v2 = tl.dot(rows, W2_tiles.load([k, tile_n * BN]), v2)
        finished += step
        tile_m, tile_n = demo.place_of(finished, tiles_m, tiles_n, GROUP)
        gated = gate(v1, v2, b1, b2, tile_n * BN + tl.arange(0, BN), N)
        out_tiles.store([tile_m * BM, tile_n * BN], gated.to(out.dtype.element_ty))


# The talk's shape, where a tile has whole rows: the weights, loaded by pointers, stay in the block.
@demo.tuned(["M"], *[({"BM": m, "PER_SM": blocks}, warps, stages) for m, blocks, warps, stages in (
    (64, 3, 4, 2), (64, 2, 4, 4), (128, 2, 4, 2), (128, 2, 8, 2), (128, 1, 8, 4), (256, 1, 8, 2))])
@triton.jit
def gate_rows_tma(x, W1, W2, b1, b2, out, M, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr,
                  PER_SM: tl.constexpr):
    x_rows = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, K])
    out_rows = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, N])
    n = tl.arange(0, N)
    W_at = tl.arange(0, K)[:, None] * N + n[None, :]
    w1, w2 = tl.load(W1 + W_at), tl.load(W2 + W_at)
    for tile in tl.range(tl.program_id(0), M // BM, tl.num_programs(0)):
        rows = x_rows.load([tile * BM, 0])
        gated = gate(tl.dot(rows, w1), tl.dot(rows, w2), b1, b2, n, N)
        out_rows.store([tile * BM, 0], gated.to(out.dtype.element_ty))


def in_triton(kernel, **how):
    return demo.one_kernel(lambda *inputs: demo.launch_product(kernel, *inputs, **how))


def peers(problem):
    talk = problem["shape"] == "talk"
    by_tma = in_triton(gate_rows_tma, persistent=True) if talk else in_triton(
        gate_tiles_tma, persistent=True, GROUP=8)
    return {"eager": demo.Peer(formula), "library": demo.Peer(unfused.in_place), "compile":
            demo.compiled(formula), "packed": demo.compiled(unfused.packed, unfused.pack),
            "triton": in_triton(gate_tile, GROUP=8), "triton tma": by_tma}


if __name__ == "__main__":
    demo.run()
