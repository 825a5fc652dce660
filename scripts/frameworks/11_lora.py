"""A layer with LoRA: relu(x W + s (x A) B + b) in fp16, with fp32 sums.

x is [M, N], W[N, N], A[N, r], B[r, N]; M = N and r = 16 where a size says nothing else.
"""

from frameworks.verification import ROUNDOFF, SUBNORMAL, product
from torch_demo import Peer, compiled, graphed, torch

# 1001 is odd: rows of fp16 do not begin at multiples of 16 bytes.
SIZES = (1001, 1024, 2048, 4096, 8192)
OPTIONS = ("--activation", "relu")


def formula(x, W, A, B, b, s):
    return torch.relu(x @ W + s * ((x @ A) @ B) + b)


# A product and its bias in one call, the update added in place by the gemm that computes it.
def in_place(x, W, A, B, b, s):
    return torch.addmm(b, x, W).addmm_(x @ A, B, alpha=s).relu_()


def peers(problem):
    return {"eager": Peer(formula), "library": Peer(in_place), "compile": compiled(formula),
            "graph": graphed(in_place)}


def expected(dtype, inputs, rows):
    """ReLU's slope is at most 1: the error is that of its argument. What rounding does to u = x A
    arrives there times s B. Then come x W, u B, s u B, and both sums."""
    u, tiny = ROUNDOFF[dtype], SUBNORMAL[dtype]
    x, W, A, B, b, s = inputs
    (v, d), (thin, d_thin) = product(dtype, x, W, rows), product(dtype, x, A, rows)
    B, b = B.double(), b.double()
    update = s * (thin @ B)
    terms = s * (thin.abs() @ B.abs())
    d_update = s * (d_thin @ B.abs()) + len(B)**0.5 * 2.0**-24 * terms
    total = v + update + b
    rounded = 2 * update.abs() + (v + update).abs() + 2 * total.abs()
    # A library may add the bias before the update.
    rounded += (v + b).abs()
    return total.relu(), d + d_update + u * rounded + 6 * tiny
