"""An MLP in fp16: L layers of h = gelu(h W + b), with fp32 sums, on Hopper."""

from frameworks.mlp import expected, peers  # noqa: F401

# Layers of 64, 128 and 256: rows by the million, and a few.
RUNS = ("1048576", "1048576 --dim 128", "131072 --dim 256", "256 --dim 256")
