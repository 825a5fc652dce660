"""GELU, with the approximation by tanh."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from frameworks.peers import Peer, compiled
from frameworks.triton_kernels import block_of_a_row, elementwise_tuned, launch_elementwise

SHAPES = ((16384, 16384),)
TILE = ("bonus_tile", "gelu_tile")


def formula(x):  # [R, C]
    return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))


# PyTorch has it.
def library(x):
    return F.gelu(x, approximate="tanh")


# In Triton, with (1 + tanh(t)) / 2 = sigmoid(2 t).
@elementwise_tuned
@triton.jit
def gelu(x, out, columns, BLOCK: tl.constexpr):
    at, _, inside = block_of_a_row(columns, BLOCK)
    v = tl.load(x + at, mask=inside).to(tl.float32)
    v *= tl.sigmoid(2 * 0.79788456 * (v + 0.044715 * v * v * v))
    tl.store(out + at, v, mask=inside)


def peers(problem):
    return {"eager": Peer(formula), "library": Peer(library), "compile": compiled(formula),
            "compile lib": compiled(library),
            "triton": Peer(lambda x: launch_elementwise(gelu, x))}
