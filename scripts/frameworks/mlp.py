"""An MLP: the page that the programs of MLPs share."""

import torch.nn.functional as F

from frameworks.verification import ROUNDOFF, SUBNORMAL
from torch_demo import Peer, compiled, graphed, torch


def formula(x, W, b):  # [N, D], [L, D, D], [L, D]
    for weights, bias in zip(W, b):
        x = F.gelu(torch.addmm(bias, x, weights), approximate="tanh")
    return x


# As a model is written: the weights of a linear layer are [out, in].
def linear(x, *parameters):
    for weights, bias in zip(parameters[0::2], parameters[1::2]):
        x = F.gelu(F.linear(x, weights, bias), approximate="tanh")
    return x


def parameters_of(x, W, b):
    layers = ((weights.t().contiguous(), bias) for weights, bias in zip(W, b))
    return x, *(tensor for layer in layers for tensor in layer)


def peers(problem):
    one = compiled(linear, parameters_of)
    return {"eager": Peer(formula), "library": Peer(linear, parameters_of), "compile": one,
            "graph": graphed(linear, parameters_of),
            "graph comp": graphed(one.run, parameters_of)}


def gelu_and_slope(v):
    t = torch.tanh(0.79788456 * (v + 0.044715 * v**3))
    inner = 0.79788456 * (1 + 3 * 0.044715 * v**2)
    slope = 0.5 * (1 + t) + 0.5 * v * (1 - t**2) * inner
    return 0.5 * v * (1 + t), slope, 0.5 * v * t * (v.abs() < 6)  # beyond 6 tanh is 1


def expected(dtype, inputs, rows):
    """As the suite's own bound (mlp/mlp.cuh): errors that come with h add up as the root of their
    squares, since the weights give them independent signs; gelu's slope passes them on. Results
    are rounded before each gelu and after it, if not exact, and tanh may be off by 2^-11 of it."""
    def rounding(number):
        inexact = number.to(inputs[0].dtype).double() != number
        return inexact * (ROUNDOFF[dtype] * number.abs() + SUBNORMAL[dtype])

    x, W, b = inputs
    h = x[rows].double()
    errors = torch.zeros_like(h)
    for weights, bias in zip(W.double(), b.double()):
        v, terms = h @ weights + bias, h.abs() @ weights.abs() + bias.abs()
        squares = errors**2 @ weights**2
        room = x.shape[1]**0.5 * 2.0**-24 * terms + 2 * rounding(v)
        h, slope, half_tanh = gelu_and_slope(v)
        most = slope.abs() + 0.4 * (4 * squares.sqrt() + room)
        own = most * room + 2.0**-11 * half_tanh.abs() + 2.0**-20 * v.abs() + rounding(h)
        errors = ((slope**2 + 0.48 * squares) * squares + own**2).sqrt()
    return h, 4 * most * squares.sqrt() + own
