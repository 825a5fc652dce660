"""C = A B: the page that all matrix products share."""

import torch
import triton
import triton.language as tl

from frameworks import triton_kernels, verification
from frameworks.peers import Peer
from frameworks.triton_kernels import launch, load_step, place_of, store_tile, tuned, within


def formula(A, B):  # [M, K], [K, N]
    return torch.matmul(A, B)


# In Triton, square: a block computes a tile.
@triton_kernels.even_tiles
@triton.jit
def product_tile(A, B, C, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                 GROUP: tl.constexpr, PRECISION: tl.constexpr, EVEN: tl.constexpr):
    tile_m, tile_n = place_of(tl.program_id(0), tl.cdiv(N, BM), tl.cdiv(N, BN), GROUP)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    A_at = A + within(m, N, EVEN)[:, None] * N + k[None, :]
    B_at = B + k[:, None] * N + within(n, N, EVEN)[None, :]
    c = tl.zeros((BM, BN), tl.float32)
    for first in range(0, N, BK):
        inside = k < N - first
        a, b = load_step(A_at, inside[None, :], EVEN), load_step(B_at, inside[:, None], EVEN)
        c = tl.dot(a, b, c, input_precision=PRECISION)
        A_at += BK
        B_at += BK * N
    store_tile(C, m, n, N, c, EVEN)


# By the bytes of an element: fp32 and TF32 need smaller tiles.
TUNED = {size: tuned(["N"], *[({"BM": m, "BN": n, "BK": k}, warps, stages)
                              for m, n, k, warps, stages in tiles])(product_tile)
         for size, tiles in {
             2: ((128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 3),
                 (128, 128, 64, 8, 4), (128, 128, 64, 4, 4), (128, 64, 64, 4, 4),
                 (64, 64, 64, 4, 5)),
             4: ((128, 256, 32, 8, 3), (128, 128, 32, 8, 3), (128, 128, 16, 8, 3),
                 (128, 64, 16, 4, 3), (64, 64, 16, 4, 3))}.items()}


def in_triton(A, B):
    N, C = len(A), torch.empty_like(A)
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"  # of fp32's products
    launch(TUNED[A.element_size()], lambda tile: (triton_kernels.count_tiles(N, tile),),
           A, B, C, N, GROUP=8, PRECISION=precision)
    return C


def peers(problem):
    # cuBLAS: no user of PyTorch would write anything else.
    return {"library": Peer(formula), "triton": Peer(in_triton)}


def expected(dtype, inputs, rows):
    return verification.product(dtype, *inputs, rows)
