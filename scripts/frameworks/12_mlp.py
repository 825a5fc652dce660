"""An MLP in fp16: L layers of h = gelu(h W + b), with fp32 sums."""

from frameworks.mlp import expected, peers  # noqa: F401

SIZES = (131072, 1048576)
