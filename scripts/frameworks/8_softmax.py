"""Softmax over the rows of x[N, N] in fp32: a row's maximum and sum come first.

    python3 scripts/frameworks/8_softmax.py 4096

Written as a formula it reads x twice, and what it makes of x again and again. A kernel that keeps a
row in registers reads x once: PyTorch's own, what torch.compile makes of either, or the one in
Triton. `copy` moves as many bytes, and computes nothing. N is by default 4096, on CPUs 256.
"""

import torch_demo as demo
from torch_demo import data, tl, torch, triton

# The last has as many columns as GPT-2 has tokens.
SHAPES = ((16384, 16384), (4096, 131072), (262144, 1000), (8192, 50257))
TILE = ("bonus_tile", "softmax_tile")

expected = demo.verification.softmax


def formula(x):  # [R, C]
    e = torch.exp(x - x.max(dim=1, keepdim=True).values)
    total = e.sum(dim=1, keepdim=True, dtype=torch.promote_types(x.dtype, torch.float32))
    return (e / total).to(x.dtype)  # in fp16 a sum of 131072 terms could be infinite


# PyTorch has it.
def library(x):
    return torch.softmax(x, dim=1)


# In Triton: a row stays in the registers of one block.
@demo.tuned(["columns"], *[({}, warps, 1) for warps in (4, 8, 16, 32)])
@triton.jit
def softmax_row(x, out, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    row = tl.load(x + start + column, mask=column < columns, other=float("-inf")).to(tl.float32)
    e = tl.exp(row - tl.max(row, axis=0))
    tl.store(out + start + column, e / tl.sum(e, axis=0), mask=column < columns)


# A row that is too long for that is read twice: once for its maximum and its sum together, and
# once for the result. Where the maximum grows, the sum so far shrinks by e^(old - new).
@demo.tuned(["columns"], *[({"BLOCK": block}, block // 512, stages)
                      for block in (4096, 8192, 16384) for stages in (1, 3)])
@triton.jit
def softmax_long_row(x, out, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    highest = float("-inf")
    total = 0.0
    for first in range(0, columns, BLOCK):
        inside = first + column < columns
        part = tl.load(x + start + first + column, mask=inside, other=float("-inf"))
        part = part.to(tl.float32)
        higher = tl.maximum(highest, tl.max(part, axis=0))
        total = total * tl.exp(highest - higher) + tl.sum(tl.exp(part - higher), axis=0)
        highest = higher
    for first in range(0, columns, BLOCK):
        inside = first + column < columns
        part = tl.load(x + start + first + column, mask=inside, other=0).to(tl.float32)
        tl.store(out + start + first + column, tl.exp(part - highest) / total, mask=inside)


def in_triton(x):
    (rows, columns), out = x.shape, torch.empty_like(x)
    if columns > 32768:
        demo.launch(softmax_long_row, (rows,), x, out, columns)
    else:
        demo.launch(softmax_row, (rows,), x, out, columns, BLOCK=triton.next_power_of_2(columns))
    return out


def peers(problem):
    return {"eager": demo.Peer(formula), "library": demo.Peer(library),
            "compile": demo.compiled(formula), "compile lib": demo.compiled(library),
            "triton": demo.one_kernel(in_triton)}


def problem(N):  # even rows lie around 100, odd ones around -100
    x = data.uniform(N, N, then="offset by rows", hard=data.HARD_ROWS)
    return data.describe(f"{N} x {N}", {"x": x}, (N, N), 5 * N * N, N, dtype="fp32",
                         memory_bound=True)


if __name__ == "__main__":
    demo.run()
