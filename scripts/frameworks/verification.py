"""Whether a peer's result is right: an fp64 reference, and how far rounding may lead from it."""

import torch

ROUNDOFF = {"fp32": 2.0**-24, "tf32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
# The spacing of numbers too small for the roundoff to hold. (In fp32 these may be taken as 0.)
SUBNORMAL = {"fp32": 2.0**-126, "tf32": 2.0**-126, "fp16": 2.0**-24, "bf16": 2.0**-126}
CHECKED_ROWS = 512


class Wrong(Exception):
    """A result that the reference rejects."""


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


def check(problem, inputs, output, expected):
    """Compares up to 512 rows with expected(dtype, inputs, rows), and returns the largest error.
    All elements must be finite. Raises Wrong."""
    shape = problem["outputs"][0]["shape"]
    if list(output.shape) != shape or output.dtype != inputs[0].dtype:
        raise Wrong(f"{list(output.shape)} of {output.dtype} instead of {shape} of "
                    f"{inputs[0].dtype}")
    if not torch.isfinite(output).all():
        raise Wrong("values that are not finite")
    output = output.flatten(end_dim=-2)
    count = min(CHECKED_ROWS, len(output))
    rows = torch.linspace(0, len(output) - 1, count, device=output.device).long()
    values, room = expected(problem["dtype"], inputs, rows)
    error = (output[rows].double() - values).abs()
    wrong = (~(error <= room)).sum().item()
    if wrong:
        worst = (error / room).max().item()
        raise Wrong(f"{wrong} of {error.numel()} checked elements are off, by up to {worst:.3g} "
                    "times what rounding explains")
    return error.max().item()
