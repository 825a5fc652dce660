"""ReLU of x + m y + b."""

import torch
import triton
import triton.language as tl

from frameworks.peers import Peer, compiled
from frameworks.triton_kernels import block_of_a_row, elementwise_tuned, launch_elementwise

SHAPES = ((16384, 16384),)
OPTIONS = ("--activation", "relu")
M = 0.5


def formula(x, y, b):  # [R, C], [R, C], [C]
    return torch.relu(x + M * y + b)


# PyTorch multiplies and adds in one call. In place, the others need no memory of their own.
def in_place(x, y, b):
    return torch.relu_(torch.add(x, y, alpha=M).add_(b))


# In Triton.
@elementwise_tuned
@triton.jit
def add_mul_relu(x, y, b, out, columns, BLOCK: tl.constexpr):
    at, column, inside = block_of_a_row(columns, BLOCK)
    v = tl.load(x + at, mask=inside).to(tl.float32)
    v += 0.5 * tl.load(y + at, mask=inside).to(tl.float32)  # M: a kernel reads no globals
    v += tl.load(b + column, mask=inside).to(tl.float32)
    tl.store(out + at, tl.maximum(v, 0.0), mask=inside)


def in_triton(x, y, b):
    return launch_elementwise(add_mul_relu, x, y, b)


def peers(problem):
    return {"eager": Peer(formula), "library": Peer(in_place), "compile": compiled(formula),
            "triton": Peer(in_triton)}
