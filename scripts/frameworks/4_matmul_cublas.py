"""C = A B by cuBLAS: the control.

The same library computes on both sides, so a ratio far from 1 is an error of the comparison.
"""

from frameworks import matmul
from frameworks.matmul import expected  # noqa: F401

SIZES = (4096, 8192)
TILE = ("bonus_tile", "matmul_tile")


def peers(problem):
    """The ratio is the library's alone."""
    return {name: peer._replace(rival=name == "library")
            for name, peer in matmul.peers(problem).items()}
