"""Gating: sigmoid(x W1 + b1) * (x W2 + b2) in fp16, with fp32 sums.

x is [M, K], both weight matrices are [K, H]. Square: M = K = H = N. The talk's shape: M = 4 S^2,
which is a multiple of 1024, K = 128 and H = 64.
"""

import torch
import triton
import triton.language as tl

from frameworks import triton_kernels
from frameworks.peers import Peer, compiled
from frameworks.triton_kernels import launch, load_step, place_of, store_tile, tuned, within
from frameworks.verification import ROUNDOFF, SUBNORMAL, product

# 1056, 1952, 3104 and 4064 are no multiples of any tile's side.
SIZES = (1024, 1056, 1280, 1536, 1952, 2048, 2560, 3072, 3104, 4064, 4096, 5120, 6144, 8192, 12288,
         16384)
TALK = (96, 128, 256, 512, 768, 1024, 2048)
TILE = ("6_gating_fused", "fused_tile", "fused_talk_tile")


def formula(x, W1, W2, b1, b2):
    return torch.sigmoid(x @ W1 + b1) * (x @ W2 + b2)


# --- PyTorch, made fast ---


# A product and its bias in one call, and the rest in place.
def in_place(x, W1, W2, b1, b2):
    return torch.addmm(b1, x, W1).sigmoid_().mul_(torch.addmm(b2, x, W2))


# Both products in one, whose result torch.compile reads in one further kernel. The weights of a
# model do not change, so packing them is not timed.
def pack(x, W1, W2, b1, b2):
    return x, torch.cat([W1, W2], dim=1), b1, b2


def packed(x, W, b1, b2):  # W[K, 2 H]
    both = x @ W
    H = b1.shape[0]
    return torch.sigmoid(both[:, :H] + b1) * (both[:, H:] + b2)


# --- Triton, square: a block computes both products of a tile, so it loads x once for both ---


@triton.jit
def gate(v1, v2, b1, b2, columns):
    """The formula's rest, from a tile of both products, in fp32."""
    v1 += tl.load(b1 + columns)[None, :].to(tl.float32)
    v2 += tl.load(b2 + columns)[None, :].to(tl.float32)
    return tl.sigmoid(v1) * v2


@tuned(["N"], *[({"BM": m, "BN": n, "BK": k}, warps, stages) for m, n, k, warps, stages in (
    (128, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 64, 64, 4, 4), (128, 64, 64, 8, 4),
    (64, 128, 64, 4, 4), (64, 64, 64, 4, 5), (256, 64, 64, 8, 3))])
@triton_kernels.even_tiles
@triton.jit
def gate_tile(x, W1, W2, b1, b2, out, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
              GROUP: tl.constexpr, EVEN: tl.constexpr):
    tile_m, tile_n = place_of(tl.program_id(0), tl.cdiv(N, BM), tl.cdiv(N, BN), GROUP)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    columns = within(n, N, EVEN)
    x_at = x + within(m, N, EVEN)[:, None] * N + k[None, :]
    W_at = k[:, None] * N + columns[None, :]
    v1 = tl.zeros((BM, BN), tl.float32)
    v2 = tl.zeros((BM, BN), tl.float32)
    for first in range(0, N, BK):
        inside = k < N - first
        rows = load_step(x_at, inside[None, :], EVEN)
        v1 = tl.dot(rows, load_step(W1 + W_at, inside[:, None], EVEN), v1)
        v2 = tl.dot(rows, load_step(W2 + W_at, inside[:, None], EVEN), v2)
        x_at += BK
        W_at += BK * N
    store_tile(out, m, n, N, gate(v1, v2, b1, b2, columns), EVEN)


# The same for Hopper: TMA loads and stores, and as many blocks as there are multiprocessors, which
# stay for many tiles, so that loading the next tile overlaps with finishing the one before. TMA
# itself loads zeros from outside of a matrix, and stores nothing there.
@tuned(["N"], *[({"BM": m, "BN": n, "BK": k}, warps, stages) for m, n, k, warps, stages in (
    (128, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4),
    (256, 64, 64, 8, 3), (128, 64, 128, 8, 3))])
@triton_kernels.even_tiles
@triton.jit
def gate_tiles_tma(x, W1, W2, b1, b2, out, N, BM: tl.constexpr, BN: tl.constexpr,
                   BK: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr):
    x_tiles = tl.make_tensor_descriptor(x, [N, N], [N, 1], [BM, BK])
    W1_tiles = tl.make_tensor_descriptor(W1, [N, N], [N, 1], [BK, BN])
    W2_tiles = tl.make_tensor_descriptor(W2, [N, N], [N, 1], [BK, BN])
    out_tiles = tl.make_tensor_descriptor(out, [N, N], [N, 1], [BM, BN])
    tiles_m, tiles_n = tl.cdiv(N, BM), tl.cdiv(N, BN)
    step = tl.num_programs(0)
    # The same number as `tile`, counted on its own: Triton pipelines the two loops as one, and
    # there a value must not be needed at a tile's begin and at its end.
    finished = tl.program_id(0) - step
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, step, flatten=True):
        tile_m, tile_n = place_of(tile, tiles_m, tiles_n, GROUP)
        v1 = tl.zeros((BM, BN), tl.float32)
        v2 = tl.zeros((BM, BN), tl.float32)
        for k in range(0, N, BK):
            rows = x_tiles.load([tile_m * BM, k])
            v1 = tl.dot(rows, W1_tiles.load([k, tile_n * BN]), v1)
            v2 = tl.dot(rows, W2_tiles.load([k, tile_n * BN]), v2)
        finished += step
        tile_m, tile_n = place_of(finished, tiles_m, tiles_n, GROUP)
        columns = within(tile_n * BN + tl.arange(0, BN), N, EVEN)
        gated = gate(v1, v2, b1, b2, columns)
        out_tiles.store([tile_m * BM, tile_n * BN], gated.to(out.dtype.element_ty))


def square_in_triton(x, W1, W2, b1, b2):
    N, out = len(x), torch.empty_like(x)
    launch(gate_tile, lambda tile: (triton_kernels.count_tiles(N, tile),),
           x, W1, W2, b1, b2, out, N, GROUP=8)
    return out


def square_by_tma(x, W1, W2, b1, b2):
    N, out, blocks = len(x), torch.empty_like(x), triton_kernels.multiprocessors()
    launch(gate_tiles_tma, lambda tile: (min(blocks, triton_kernels.count_tiles(N, tile)),),
           x, W1, W2, b1, b2, out, N, GROUP=8)
    return out


# --- Triton, the talk's shape: a block computes BM whole rows ---


@tuned(["M"], *[({"BM": m, "BK": k}, warps, stages) for m, k, warps, stages in (
    (64, 128, 4, 2), (64, 64, 4, 3), (64, 32, 4, 3), (64, 128, 8, 2), (128, 128, 4, 2),
    (128, 64, 4, 3), (128, 128, 8, 2), (128, 64, 8, 3), (256, 64, 8, 2))])
@triton.jit
def gate_rows(x, W1, W2, b1, b2, out, M, K: tl.constexpr, H: tl.constexpr, BM: tl.constexpr,
              BK: tl.constexpr):
    m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    h = tl.arange(0, H)
    v1 = tl.zeros((BM, H), tl.float32)
    v2 = tl.zeros((BM, H), tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        rows = tl.load(x + m[:, None] * K + k[None, :])
        v1 = tl.dot(rows, tl.load(W1 + k[:, None] * H + h[None, :]), v1)
        v2 = tl.dot(rows, tl.load(W2 + k[:, None] * H + h[None, :]), v2)
    tl.store(out + m[:, None] * H + h[None, :], gate(v1, v2, b1, b2, h).to(out.dtype.element_ty))


# By TMA, with PER_SM blocks on each multiprocessor, which keep the weights.
@tuned(["M"], *[({"BM": m, "PER_SM": blocks}, warps, stages) for m, blocks, warps, stages in (
    (64, 3, 4, 2), (64, 2, 4, 4), (128, 2, 4, 2), (128, 2, 8, 2), (128, 1, 8, 4), (256, 1, 8, 2))])
@triton.jit
def gate_rows_tma(x, W1, W2, b1, b2, out, M, K: tl.constexpr, H: tl.constexpr, BM: tl.constexpr,
                  PER_SM: tl.constexpr):
    x_rows = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, K])
    out_rows = tl.make_tensor_descriptor(out, [M, H], [H, 1], [BM, H])
    h = tl.arange(0, H)
    W_at = tl.arange(0, K)[:, None] * H + h[None, :]
    w1, w2 = tl.load(W1 + W_at), tl.load(W2 + W_at)
    for tile in tl.range(tl.program_id(0), M // BM, tl.num_programs(0)):
        rows = x_rows.load([tile * BM, 0])
        gated = gate(tl.dot(rows, w1), tl.dot(rows, w2), b1, b2, h)
        out_rows.store([tile * BM, 0], gated.to(out.dtype.element_ty))


def talk_in_triton(x, W1, W2, b1, b2):
    M, K, H, out = shape_and_output(x, W1)
    launch(gate_rows, lambda tile: (M // tile["BM"],), x, W1, W2, b1, b2, out, M, K=K, H=H)
    return out


def talk_by_tma(x, W1, W2, b1, b2):
    M, K, H, out = shape_and_output(x, W1)
    sms = triton_kernels.multiprocessors()
    launch(gate_rows_tma, lambda tile: (min(sms * tile["PER_SM"], M // tile["BM"]),),
           x, W1, W2, b1, b2, out, M, K=K, H=H)
    return out


def shape_and_output(x, W):
    (M, K), H = x.shape, W.shape[1]
    return M, K, H, torch.empty(M, H, dtype=x.dtype, device=x.device)


# --- What is compared ---


def peers(problem):
    talk = problem["shape"] == "talk"
    return {"eager": Peer(formula), "library": Peer(in_place), "compile": compiled(formula),
            "packed": compiled(packed, pack),
            "triton": Peer(talk_in_triton if talk else square_in_triton),
            "triton tma": Peer(talk_by_tma if talk else square_by_tma)}


def expected(dtype, inputs, rows):
    """The errors d1 and d2 of both sums, carried through the formula. The slope of the sigmoid is
    at most 1/4."""
    u = ROUNDOFF[dtype]
    x, W1, W2, b1, b2 = inputs
    (v1, d1), (v2, d2) = product(dtype, x, W1, rows), product(dtype, x, W2, rows)
    v1, v2 = v1 + b1.double(), v2 + b2.double()
    d1, d2 = d1 + 2 * u * v1.abs(), d2 + 2 * u * v2.abs()
    values = torch.sigmoid(v1) * v2
    return values, v2.abs() * d1 / 4 + d2 + 4 * u * values.abs() + SUBNORMAL[dtype]
