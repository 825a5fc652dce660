"""C = A B: the page that all matrix products share."""

import torch_demo as demo
from torch_demo import tl, torch, triton


def formula(A, B):  # [M, K], [K, N]
    return torch.matmul(A, B)


# In Triton: a block computes a tile.
@demo.even_tiles
@triton.jit
def product_tile(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                 GROUP: tl.constexpr, PRECISION: tl.constexpr, EVEN: tl.constexpr,
                 INDEX: tl.constexpr):
    tile_m, tile_n = demo.place_of(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP)
    m = tile_m.to(INDEX) * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK).to(INDEX)
    A_at = A + demo.within(m, M, EVEN)[:, None] * K + k[None, :]
    B_at = B + k[:, None] * N + demo.within(n, N, EVEN)[None, :]
    c = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        inside = k < K - first
        a = demo.load_step(A_at, inside[None, :], EVEN)
        b = demo.load_step(B_at, inside[:, None], EVEN)
        c = tl.dot(a, b, c, input_precision=PRECISION)
        A_at += BK
        B_at += BK * N
    demo.store_tile(C, m, n, M, N, c, EVEN)


# By the bytes of an element: fp32 and TF32 need smaller tiles.
TUNED = {size: demo.tuned(["N"], *demo.tiles(*tiles))(product_tile)
         for size, tiles in {
             2: ((128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 3),
                 (128, 128, 64, 8, 4), (128, 128, 64, 4, 4), (128, 64, 64, 4, 4),
                 (64, 64, 64, 4, 5)),
             4: ((128, 256, 32, 8, 3), (128, 128, 32, 8, 3), (128, 128, 16, 8, 3),
                 (128, 64, 16, 4, 3), (64, 64, 16, 4, 3))}.items()}


def in_triton(A, B):
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"  # of fp32's products
    return demo.launch_product(TUNED[A.element_size()], A, B, GROUP=8, PRECISION=precision)


def peers(problem):
    # cuBLAS: no user of PyTorch would write anything else.
    return {"library": demo.Peer(formula), "triton": demo.Peer(in_triton)}


def expected(dtype, inputs, rows):
    return demo.verification.product(dtype, *inputs, rows)
