"""LayerNorm over rows; and RMSNorm of x + residual, which is stored as well."""

import torch.nn.functional as F

from frameworks.verification import ROUNDOFF, SUBNORMAL
from torch_demo import Peer, compiled, launch, tl, torch, triton, tuned

RUNS = tuple(f"--rows {rows} --cols {columns} --op {op}" for op in ("layernorm", "rmsnorm")
             for rows, columns in ((16384, 16384), (16384, 4096), (4096, 131072), (8192, 50257)))


# By hand one computes in fp32, whatever the type.
def layernorm(x, gamma, beta, epsilon):  # [R, C], [C], [C]
    v = x.float()
    away = v - v.mean(dim=1, keepdim=True)
    scale = torch.rsqrt((away * away).mean(dim=1, keepdim=True) + epsilon)
    return ((away * scale) * gamma + beta).to(x.dtype)


def rmsnorm(x, residual, gamma, epsilon):  # [R, C], [R, C], [C]
    total = x + residual
    v = total.float()
    scale = torch.rsqrt((v * v).mean(dim=1, keepdim=True) + epsilon)
    return (v * scale * gamma).to(x.dtype), total


# PyTorch has both norms.
def library_layernorm(x, gamma, beta, epsilon):
    return F.layer_norm(x, gamma.shape, gamma, beta, epsilon)


def library_rmsnorm(x, residual, gamma, epsilon):
    total = x + residual
    return F.rms_norm(total, gamma.shape, gamma, epsilon), total


# In Triton: a row stays in the registers of one block.
@tuned(["columns"], *[({}, warps, 1) for warps in (4, 8, 16, 32)])
@triton.jit
def layernorm_row(x, gamma, beta, epsilon, out, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    inside = column < columns
    row = tl.load(x + start + column, mask=inside, other=0).to(tl.float32)
    away = tl.where(inside, row - tl.sum(row, axis=0) / columns, 0)
    scale = tl.rsqrt(tl.sum(away * away, axis=0) / columns + epsilon)
    weights = tl.load(gamma + column, mask=inside, other=0).to(tl.float32)
    added = tl.load(beta + column, mask=inside, other=0).to(tl.float32)
    tl.store(out + start + column, away * scale * weights + added, mask=inside)


@tuned(["columns"], *[({}, warps, 1) for warps in (4, 8, 16, 32)])
@triton.jit
def rmsnorm_row(x, residual, gamma, epsilon, out, total, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    inside = column < columns
    row = tl.load(x + start + column, mask=inside, other=0)
    row += tl.load(residual + start + column, mask=inside, other=0)
    tl.store(total + start + column, row, mask=inside)
    row = row.to(tl.float32)
    scale = tl.rsqrt(tl.sum(row * row, axis=0) / columns + epsilon)
    weights = tl.load(gamma + column, mask=inside, other=0).to(tl.float32)
    tl.store(out + start + column, row * scale * weights, mask=inside)


def triton_layernorm(x, gamma, beta, epsilon):
    (rows, columns), out = x.shape, torch.empty_like(x)
    launch(layernorm_row, (rows,), x, gamma, beta, epsilon, out, columns,
           BLOCK=triton.next_power_of_2(columns))
    return out


def triton_rmsnorm(x, residual, gamma, epsilon):
    (rows, columns), out, total = x.shape, torch.empty_like(x), torch.empty_like(x)
    launch(rmsnorm_row, (rows,), x, residual, gamma, epsilon, out, total, columns,
           BLOCK=triton.next_power_of_2(columns))
    return out, total


def adds(inputs):
    """Whether these are RMSNorm's: its second input is a matrix."""
    return inputs[1].dim() == 2


def formula(*inputs):
    """Its outputs. Of two, the first is verified."""
    return (rmsnorm if adds(inputs) else layernorm)(*inputs)


def peers(problem):
    if len(problem["outputs"]) == 2:
        library, in_triton = library_rmsnorm, triton_rmsnorm
    else:
        library, in_triton = library_layernorm, triton_layernorm
    return {"eager": Peer(formula), "library": Peer(library), "compile": compiled(formula),
            "compile lib": compiled(library), "triton": Peer(in_triton)}


def expected(dtype, inputs, rows):
    """As the suite's own bound (rows/norm.cuh), with room for a library's order of operations: sums
    in fp32 are off by a few roundings of the terms; the sum with the residual is rounded, too."""
    x, *others = (each.double() if torch.is_tensor(each) else each for each in inputs)
    x, epsilon = x[rows], others[-1]
    if adds(inputs):
        residual, gamma, beta = others[0][rows], others[1], 0
        total, mean = x + residual, 0
        terms = x.abs() + residual.abs()
    else:
        gamma, beta = others[:2]
        total, mean = x, x.mean(dim=1, keepdim=True)
        terms = x.abs() + x.abs().mean(dim=1, keepdim=True)
    scale = torch.rsqrt(((total - mean) ** 2).mean(dim=1, keepdim=True) + epsilon)
    products = (total - mean) * scale * gamma
    room = 2.0**-21 * terms * scale * gamma.abs()
    room += (2.0**-18 + 4 * ROUNDOFF[dtype]) * (products.abs() + abs(beta))
    return products + beta, room + (4 + 2 * scale * gamma.abs()) * SUBNORMAL[dtype]
