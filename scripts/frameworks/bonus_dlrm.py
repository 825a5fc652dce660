"""DLRM in fp16 or TF32, with fp32 sums, on Hopper."""

from frameworks.dlrm import expected, peers  # noqa: F401

SIZES = (2048,)
RUNS = ("2048 --dot", "16384 --dot")
