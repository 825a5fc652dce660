"""Softmax over rows. Ours is softmax_rows, the record that 8_softmax runs as its last row."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from frameworks.peers import Peer, compiled
from frameworks.triton_kernels import launch, tuned
from frameworks.verification import ROUNDOFF, SUBNORMAL

# The last has as many columns as GPT-2 has tokens.
SHAPES = ((16384, 16384), (4096, 131072), (262144, 1000), (8192, 50257))
TILE = ("bonus_tile", "softmax_tile")


def formula(x):  # [R, C]
    e = torch.exp(x - x.max(dim=1, keepdim=True).values)
    total = e.sum(dim=1, keepdim=True, dtype=torch.promote_types(x.dtype, torch.float32))
    return (e / total).to(x.dtype)  # in fp16 a sum of 131072 terms could be infinite


# PyTorch has it.
def library(x):
    return F.softmax(x, dim=1)


# In Triton: a row stays in the registers of one block.
@tuned(["columns"], *[({}, warps, 1) for warps in (4, 8, 16, 32)])
@triton.jit
def softmax_row(x, out, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    row = tl.load(x + start + column, mask=column < columns, other=float("-inf"))
    e = tl.exp(row.to(tl.float32) - tl.max(row.to(tl.float32), axis=0))
    tl.store(out + start + column, e / tl.sum(e, axis=0), mask=column < columns)


# A row that is too long for that is read twice: once for its maximum and its sum together, and
# once for the result.
@tuned(["columns"], *[({"BLOCK": block}, block // 512, stages)
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
        launch(softmax_long_row, (rows,), x, out, columns)
    else:
        launch(softmax_row, (rows,), x, out, columns, BLOCK=triton.next_power_of_2(columns))
    return out


def peers(problem):
    return {"eager": Peer(formula), "library": Peer(library), "compile": compiled(formula),
            "compile lib": compiled(library), "triton": Peer(in_triton)}


def expected(dtype, inputs, rows):
    """Every step rounds relative to its result. Where t = x - max is rounded, e^t is off by as much
    relative to itself as t is absolutely."""
    x = inputs[0][rows].double()
    values, t = formula(x), x.max(dim=1, keepdim=True).values - x
    room = 2.0**-18 + 8 * ROUNDOFF[dtype] + (2.0**-21 + 2 * ROUNDOFF[dtype]) * t
    return values, room * values + 4 * SUBNORMAL[dtype]
