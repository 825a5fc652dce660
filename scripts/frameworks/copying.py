"""A copy, the yardstick where memory is the limit."""

import torch
import triton
import triton.language as tl
from triton.testing import do_bench

from frameworks.peers import Peer
from frameworks.triton_kernels import launch, tuned
from frameworks.verification import Wrong


@tuned(["size"], *[({"BLOCK": 1024 * k}, 4 * k, 1) for k in (1, 2, 4)])
@triton.jit
def copy(source, target, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < size), mask=at < size)


def by_pytorch(source, target):
    target.copy_(source)


def by_triton(source, target):
    launch(copy, lambda tile: (triton.cdiv(source.numel(), tile["BLOCK"]),),
           source, target, source.numel())


def copy_of(traffic):
    """A peer that copies: it reads half of `traffic` bytes and writes the other half. It is
    PyTorch's or Triton's, whichever is faster here."""

    def prepare(*_):
        words = traffic // 2 // 4
        source = torch.randint(-1 << 31, 1 << 31, (words,), dtype=torch.int32, device="cuda")
        ways = []
        for way in by_pytorch, by_triton:
            target = torch.zeros_like(source)
            way(source, target)
            if not torch.equal(source, target):
                raise Wrong("a copy differs from its source")
            ways.append((do_bench(lambda: way(source, target), return_mode="median"), way))
        fastest = min(ways, key=lambda timed: timed[0])[1]
        return fastest, source, target

    return Peer(lambda way, source, target: way(source, target), prepare, rival=False)
