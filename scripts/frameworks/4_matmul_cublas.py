"""C = A B by cuBLAS: the control.

The same library computes on both sides, so a ratio far from 1 is an error of the comparison.
"""

from frameworks.matmul import expected, formula, peers  # noqa: F401

SIZES = (4096, 8192)
