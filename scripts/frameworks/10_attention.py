"""Attention in fp16, softmax(Q K^T / sqrt(D)) V of every head. All are [B, heads, N, D].

    python3 scripts/frameworks/10_attention.py 4096

Written as a formula it stores N x N scores for each head. A kernel that walks through K and V keeps
a row's maximum, sum and result so far, rescales both where the maximum grows, and stores no score.
N is a multiple of 32, by default 4096, on CPUs 256. B N is some 16384, but B is 1 on CPUs.
"""

import torch_demo as demo
from torch_demo import data, tl, torch, triton

SIZES = (1024, 2048, 4096, 16384)
RUNS = ("4096 --dim 64", "4096 --causal")
TILE = ("10_attention", "fused_tile")
expected = demo.verification.attention


def formula(Q, K, V, causal):
    scores = Q @ K.transpose(-1, -2) * Q.shape[-1] ** -0.5
    if causal:
        later = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return torch.softmax(scores, dim=-1) @ V


def library(Q, K, V, causal):  # PyTorch chooses one of its kernels, unless it is told which
    return torch.nn.functional.scaled_dot_product_attention(Q, K, V, is_causal=bool(causal))


def library_by(name):
    def run(*inputs):
        with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, name)):
            return library(*inputs)
    return demo.Peer(run, why_not="needs a GPU" if demo.INTERPRETED else "")


# For FlexAttention, which skips the blocks that the mask leaves out.
def flexible(Q, K, V, causal):
    N, mask = Q.shape[-2], None
    if causal:
        from torch.nn.attention.flex_attention import create_block_mask
        mask = create_block_mask(lambda b, h, row, key: row >= key, None, None, N, N)
    return Q, K, V, None, mask


# --- Triton: a block has BM rows of Q, and walks through K and V in tiles of BN rows ---


@triton.jit
def attend_keys(q, K, V, o, highest, total, head, limits, first, last, factor, D: tl.constexpr,
                BN: tl.constexpr, MASKED: tl.constexpr):
    """(o, highest, total) after keys `first` to `last`. MASKED: a row has `limits` keys."""
    for key in tl.range(first, last, BN):
        s = tl.dot(q, K.load([head, key, 0]).reshape(BN, D).trans()) * factor
        if MASKED:
            s = tl.where((key + tl.arange(0, BN))[None, :] < limits[:, None], s, float("-inf"))
        higher = tl.maximum(highest, tl.max(s, axis=1))
        weights = tl.exp2(s - higher[:, None])
        rescale = tl.exp2(highest - higher)
        total = total * rescale + tl.sum(weights, axis=1)
        v = V.load([head, key, 0]).reshape(BN, D)
        o = tl.dot(weights.to(v.dtype), v, o * rescale[:, None])
        highest = higher
    return o, highest, total


@demo.tuned(["N", "D", "CAUSAL"], *[({"BM": m, "BN": n}, warps, stages) for m, n, warps, stages in (
    (128, 128, 8, 2), (128, 64, 8, 3), (128, 64, 4, 3), (64, 128, 4, 2), (64, 64, 4, 3))])
@triton.jit
def attend(Q, K, V, out, heads, N, factor, D: tl.constexpr, CAUSAL: tl.constexpr,
           BM: tl.constexpr, BN: tl.constexpr):
    blocks = tl.cdiv(N, BM)
    head = tl.program_id(0) // blocks
    row = (blocks - 1 - tl.program_id(0) % blocks) * BM  # first those that attend to the most keys
    Q_tiles = tl.make_tensor_descriptor(Q, [heads, N, D], [N * D, D, 1], [1, BM, D])
    K_tiles = tl.make_tensor_descriptor(K, [heads, N, D], [N * D, D, 1], [1, BN, D])
    V_tiles = tl.make_tensor_descriptor(V, [heads, N, D], [N * D, D, 1], [1, BN, D])
    out_tiles = tl.make_tensor_descriptor(out, [heads, N, D], [N * D, D, 1], [1, BM, D])
    q = Q_tiles.load([head, row, 0]).reshape(BM, D)
    o = tl.zeros((BM, D), tl.float32)
    highest = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    limits = row + 1 + tl.arange(0, BM) if CAUSAL else tl.full((BM,), N, tl.int32)
    end = tl.minimum(row + BM, N) if CAUSAL else N
    whole = (row if CAUSAL else N) // BN * BN  # whole tiles of keys that all rows attend to
    o, highest, total = attend_keys(q, K_tiles, V_tiles, o, highest, total, head, limits, 0, whole,
                                    factor, D, BN, False)
    o, highest, total = attend_keys(q, K_tiles, V_tiles, o, highest, total, head, limits, whole,
                                    end, factor, D, BN, True)
    o = (o / total[:, None]).to(out.dtype.element_ty)
    out_tiles.store([head, row, 0], o.reshape(1, BM, D))


def in_triton(Q, K, V, causal):
    B, H, N, D = Q.shape
    out, factor = torch.empty_like(Q), D**-0.5 * 1.44269504  # 2^(x log2(e)) is e^x
    demo.launch(attend, lambda tile: (B * H * triton.cdiv(N, tile["BM"]),),
                Q, K, V, out, B * H, N, factor, D=D, CAUSAL=bool(causal))
    return out


def peers(problem):
    from torch.nn.attention.flex_attention import flex_attention
    return {"eager": demo.Peer(formula), "library": demo.Peer(library),
            "flash": library_by("FLASH_ATTENTION"), "cudnn": library_by("CUDNN_ATTENTION"),
            "efficient": library_by("EFFICIENT_ATTENTION"), "compile": demo.compiled(formula),
            "flex": demo.compiled(flex_attention, flexible), "triton": demo.one_kernel(in_triton)}


def problem(N):
    B, H, _, D = shape = (1, 2, N, 128) if demo.INTERPRETED else (max(1, 16384 // N), 16, N, 128)
    inputs = dict(Q=data.uniform(*shape, hard=data.HARD_QUERIES),
                  K=data.uniform(*shape, scale=0.5, offset=0.5), V=data.uniform(*shape))
    return data.describe(f"N = {N}, D = {D}, {B} x {H} heads", inputs, shape,
                         4 * B * H * N * N * D, N, parameters={"causal": 0})


if __name__ == "__main__":
    demo.run()
