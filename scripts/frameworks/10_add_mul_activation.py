"""ReLU of x + m y + b."""

import torch
import triton
import triton.language as tl

from frameworks.peers import Peer, compiled, scripted
from frameworks.triton_kernels import block_of_a_row, elementwise_tuned, launch_elementwise

# 4 x 4, 16 x 8, 64 x 16, ..., 262144 x 1024: from launches alone to memory alone.
SHAPES = ((16384, 16384), *((4**i, 2 * 2**i) for i in range(1, 10)))
OPTIONS = ("--activation", "relu")


def formula(x, y, b, m: float):  # [R, C], [R, C], [C]; the type is for torch.jit.script
    return torch.relu(x + m * y + b)


# PyTorch multiplies and adds in one call. In place, the others need no memory of their own.
def in_place(x, y, b, m):
    return torch.relu_(torch.add(x, y, alpha=m).add_(b))


# In Triton.
@elementwise_tuned
@triton.jit
def add_mul_relu(x, y, b, m, out, columns, BLOCK: tl.constexpr):
    at, column, inside = block_of_a_row(columns, BLOCK)
    v = tl.load(x + at, mask=inside).to(tl.float32)
    v += m * tl.load(y + at, mask=inside).to(tl.float32)
    v += tl.load(b + column, mask=inside).to(tl.float32)
    tl.store(out + at, tl.maximum(v, 0.0), mask=inside)


def in_triton(x, y, b, m):
    return launch_elementwise(add_mul_relu, x, y, b, m)


def peers(problem):
    return {"eager": Peer(formula), "library": Peer(in_place), "compile": compiled(formula),
            "script": scripted(formula), "triton": Peer(in_triton)}
