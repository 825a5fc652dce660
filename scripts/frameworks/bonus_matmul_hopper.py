"""C = A B in fp16 and bf16, with fp32 sums, on Hopper."""

from frameworks.matmul import expected, formula, peers  # noqa: F401

SIZES = (1024, 2048, 3072, 4096, 8192, 16384)
TILE = ("bonus_tile", "matmul_tile")
