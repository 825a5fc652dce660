"""Whether a peer's result is right: an fp64 reference, and how far rounding may lead from it.

gating(), gelu(), softmax() and attention() are the programs' own bounds. `rounded`: the result of
every operation is rounded to the data type; else that of the whole formula alone.
"""

import math

import torch

from frameworks.splitmix64 import MASK, random_bits

ROUNDOFF = {"fp32": 2.0**-24, "tf32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
# The spacing of numbers too small for the roundoff to hold. (In fp32 these may be taken as 0.)
SUBNORMAL = {"fp32": 2.0**-126, "tf32": 2.0**-126, "fp16": 2.0**-24, "bf16": 2.0**-126}
CHUNK = 512  # rows that are checked at once


class Wrong(Exception):
    """A result that the reference rejects."""


# --- Bounds ---


def elementwise(formula, dtype, inputs, rows):
    """(values, tolerance) of these rows, for a formula that treats every element alone. A chain of
    operations rounds in between, and no intermediate result is larger than the terms together."""
    tensors = [each for each in inputs if torch.is_tensor(each)]
    parameters = inputs[len(tensors):]
    exact = [tensor[rows].double() if tensor.dim() == 2 else tensor.double() for tensor in tensors]
    terms = max((1, *parameters)) * sum(tensor.abs() for tensor in exact)
    room = (2.0**-18 + 8 * ROUNDOFF[dtype]) * terms + 4 * SUBNORMAL[dtype]
    return formula(*exact, *parameters), room


def product(dtype, x, W, rows):
    """(values, tolerance) of these rows of x W: the sum in fp32 over K terms, in any order, then
    the rounding of the result. A library may also keep parts of the sum in `dtype`."""
    u, K = ROUNDOFF[dtype], x.shape[1]
    x, W = x[rows].double(), W.double()
    values, terms = x @ W, x.abs() @ W.abs()
    room = K**0.5 * 2.0**-24 * terms + 2 * u * (values.abs() + terms / K**0.5)
    return values, room + SUBNORMAL[dtype]


def half_spacing(dtype):
    """demo::Format's `subnormal`."""
    return 2.0**-25 if dtype == "fp16" else 0


def stored(values, error, dtype):
    """demo::expect_stored()."""
    return values, error + ROUNDOFF[dtype] * values.abs() + half_spacing(dtype) + 2.0**-149


def error_of_exp(t):
    """demo::exp_error()."""
    return (t != 0) * (2.0**-21 + 2.0**-22 * t.abs())


def gating(dtype, inputs, rows, rounded=True):
    """demo::expect_gating()."""
    u, tiny = ROUNDOFF[dtype], half_spacing(dtype)
    x, W1, W2, b1, b2 = (each.double() for each in (inputs[0][rows], *inputs[1:]))
    K = x.shape[1]

    def sum_of(W, b):  # and its error
        v, terms = x @ W, x.abs() @ W.abs()
        several = (x != 0).double() @ (W != 0).double() > 1  # of one term alone nothing is added
        d = K**0.5 * 2.0**-24 * terms * several + K / 8 * 2.0**-23 * b.abs()
        return v + b, d + rounded * (u * (v.abs() + (v + b).abs()) + 2 * tiny)

    (v1, d1), (v2, d2) = sum_of(W1, b1), sum_of(W2, b2)
    gate = torch.sigmoid(v1)
    values = gate * v2
    room = v2.abs() * d1 / 4 + gate * d2 + d1 * d2 / 4 + (2.0**-20 + u) * values.abs() + tiny
    return values, room + rounded * (u * gate + tiny) * (v2.abs() + d2)


def gelu(dtype, inputs, rows, rounded=True):
    """demo::ExpectGelu."""
    u, tiny = ROUNDOFF[dtype], half_spacing(dtype)
    v = inputs[0][rows].double()
    cubic = 0.044715 * v**3
    a = 0.79788456 * (v + cubic)
    gate = torch.sigmoid(2 * a)
    error = gate * (2.0**-21 + (1 - gate) * error_of_exp(2 * a)) + 2.0**-126
    error += gate * (1 - gate) * 2.0**-21 * a.abs() + 2.0**-23
    values, room = stored(v * gate, v.abs() * error, dtype)
    of_a = 2 * u * a.abs() + 0.8 * 4 * u * cubic.abs()
    return values, room + rounded * (v.abs() * (of_a + 2 * u) / 2 + 2 * u * values.abs() + tiny)


def softmax(dtype, inputs, rows, rounded=True):
    """demo::ExpectSoftmax."""
    x = inputs[0][rows].double()
    t = x - x.max(dim=1, keepdim=True).values
    e = torch.exp(t)
    total, inexact, distance = (each.sum(dim=1, keepdim=True)
                                for each in (e, (t != 0) * e, e * t.abs()))
    error = error_of_exp(t) + (2.0**-20 * inexact + 2.0**-22 * distance) / total + 2.0**-22
    error += rounded * ROUNDOFF[dtype] * (t.abs() + (distance + inexact) / total + 1)
    values, room = stored(e / total, error * (e / total) + 2.0**-126, dtype)
    return values, room + rounded * half_spacing(dtype) / total


def attention(dtype, inputs, rows, rounded=True):
    """demo::ExpectAttention; `rounded` is Rounds::kEverything, else Rounds::kWeights."""
    u, tiny = ROUNDOFF[dtype], half_spacing(dtype)
    Q, K, V, causal = inputs
    N, D = Q.shape[-2:]
    found = []
    for head in (rows // N).unique().tolist():
        row = rows[rows // N == head]
        q = Q.view(-1, D)[row].double()
        k, v = (each.view(-1, N, D)[head].double() for each in (K, V))
        s = q @ k.T / D**0.5
        if causal:
            s[torch.arange(N, device=s.device) > (row % N)[:, None]] = -math.inf
        t = s - s.max(dim=1, keepdim=True).values
        w = t.exp()
        total = w.sum(dim=1, keepdim=True)
        w /= total
        s, t = s.nan_to_num(neginf=0), t.nan_to_num(neginf=0)  # their weights are 0
        norm = w.norm(dim=1, keepdim=True)
        of_scores = 2.0**-22 * q.abs().sum(dim=1, keepdim=True) * (4 * norm).clamp(max=1)
        error = N**0.5 * 2.0**-24 + of_scores
        error = error + 2.0**-20 * (1 + (w * t.abs()).sum(dim=1, keepdim=True))
        small = tiny * 4 * N**0.5
        stepped = (w * (2 * s.abs() + t.abs() + 1)).norm(dim=1, keepdim=True)
        error = error + (2 * small + 8 * u * stepped if rounded else small / total)
        # The weights' own rounding: at most the sum of all, or four times the root of squares.
        of_weights = torch.minimum(w @ v.abs(), 4 * (w**2 @ v**2).sqrt())
        found.append(stored(w @ v, error + u * of_weights, dtype))
    return tuple(torch.cat(each) for each in zip(*found))


# --- Checking ---


def sampled_rows(count, seed=1):
    """demo::sampled_rows(): all of up to 2048 rows; else the first and the last strip of 32, and of
    each other strip one at random."""
    if count <= 2048:
        return torch.arange(count)
    last = (count - 1) // 32 * 32
    strips = torch.arange(32, last, 32)
    return torch.cat([torch.arange(32), strips + (random_bits(seed, strips) & MASK >> 59),
                      torch.arange(last, count)])


def check(problem, inputs, output, expected):
    """Compares sampled rows with expected(dtype, inputs, rows). All elements must be finite. Raises
    Wrong."""
    shape = problem["outputs"][0]["shape"]
    if list(output.shape) != shape or output.dtype != inputs[0].dtype:
        raise Wrong(f"{list(output.shape)} of {output.dtype} instead of {shape} of "
                    f"{inputs[0].dtype}")
    if not torch.isfinite(output).all():
        raise Wrong("values that are not finite")
    output = output.flatten(end_dim=-2)
    wrong, checked, worst = 0, 0, 0.0
    for rows in sampled_rows(len(output)).to(output.device).split(CHUNK):
        values, room = expected(problem["dtype"], inputs, rows)
        error = (output[rows].double() - values).abs()
        wrong += (~(error <= room)).sum()
        worst, checked = max(worst, (error / room).max()), checked + error.numel()
    if wrong:
        raise Wrong(f"{int(wrong)} of {checked} checked elements are off, by up to "
                    f"{float(worst):.3g} times what rounding explains")
