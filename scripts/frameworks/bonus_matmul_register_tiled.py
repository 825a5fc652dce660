"""C = A B in fp32, without tensor cores."""

from frameworks.matmul import expected, peers  # noqa: F401

SIZES = (4096, 8192)
