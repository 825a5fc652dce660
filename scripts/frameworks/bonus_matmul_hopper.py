"""C = A B in fp16 and bf16, with fp32 sums, on Hopper."""

from frameworks.matmul import expected, peers  # noqa: F401

# Beside powers of two those that fill the last round of tiles badly.
SIZES = (1024, 1056, 1536, 2048, 3072, 3104, 4096, 5120, 8192, 16384)
TILE = ("bonus_tile", "matmul_tile")
