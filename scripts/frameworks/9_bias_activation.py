"""ReLU of x + b, and of x + m y + b."""

import torch_demo as demo
from torch_demo import tl, torch, triton

# 4 x 4, 16 x 8, 64 x 16, ..., 262144 x 1024: from launches alone to memory alone.
SHAPES = ((16384, 16384), *((4**i, 2 * 2**i) for i in range(1, 10)))
RUNS = tuple(f"--rows {rows} --cols {columns} --op add_mul"
             for rows, columns in ((4, 4), (1024, 64), (16384, 256), (16384, 16384)))
TILE = ("bonus_tile", "bias_relu_tile")


def bias_relu(x, b):  # [R, C], [C]
    return torch.relu(x + b)


def add_mul(x, y, b, m):  # [R, C], [R, C], [C]
    return torch.relu(x + m * y + b)


def formula(*inputs):
    return (bias_relu if len(inputs) == 2 else add_mul)(*inputs)


# PyTorch multiplies and adds in one call. In place, the others need no memory of their own.
def bias_relu_in_place(x, b):
    return torch.relu_(x + b)


def add_mul_in_place(x, y, b, m):
    return torch.relu_(torch.add(x, y, alpha=m).add_(b))


# In Triton.
@demo.elementwise_tuned
@triton.jit
def bias_relu_kernel(x, b, out, columns, BLOCK: tl.constexpr):
    at, column, inside = demo.block_of_a_row(columns, BLOCK)
    v = tl.load(x + at, mask=inside).to(tl.float32)
    v += tl.load(b + column, mask=inside).to(tl.float32)
    tl.store(out + at, tl.maximum(v, 0.0), mask=inside)


@demo.elementwise_tuned
@triton.jit
def add_mul_kernel(x, y, b, m, out, columns, BLOCK: tl.constexpr):
    at, column, inside = demo.block_of_a_row(columns, BLOCK)
    v = tl.load(x + at, mask=inside).to(tl.float32)
    v += m * tl.load(y + at, mask=inside).to(tl.float32)
    v += tl.load(b + column, mask=inside).to(tl.float32)
    tl.store(out + at, tl.maximum(v, 0.0), mask=inside)


def peers(problem):
    ways = bias_relu, bias_relu_in_place, bias_relu_kernel
    if len(problem["inputs"]) == 3:
        ways = add_mul, add_mul_in_place, add_mul_kernel
    plain, in_place, kernel = ways
    return {"eager": demo.Peer(plain), "library": demo.Peer(in_place),
            "compile": demo.compiled(plain),
            "triton": demo.Peer(lambda *inputs: demo.launch_elementwise(kernel, *inputs))}
