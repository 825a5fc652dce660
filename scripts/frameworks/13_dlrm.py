"""DLRM in fp16 or TF32, with fp32 sums."""

from frameworks.dlrm import expected, peers  # noqa: F401

SIZES = (128, 2048)
RUNS = ("128 --dot", "2048 --dot", "16384 --dot", "65536 --dot")
