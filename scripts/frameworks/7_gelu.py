"""GELU, with the approximation by tanh, of x[N, N] in fp32: all memory traffic.

    python3 scripts/frameworks/7_gelu.py 4096

Written as a formula it is nine kernels, and each reads its operand and writes its result. One
kernel reads x once: PyTorch's own, what torch.compile makes of either, or the one in Triton. `copy`
moves as many bytes, and computes nothing. N is by default 4096, on CPUs 256.
"""

import torch_demo as demo
from torch_demo import data, tl, torch, triton

SHAPES = ((16384, 16384),)
TILE = ("bonus_tile", "gelu_tile")

expected = demo.verification.gelu


def formula(x):  # [R, C]
    return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))


# PyTorch has it.
def library(x):
    return torch.nn.functional.gelu(x, approximate="tanh")


# In Triton, with (1 + tanh(t)) / 2 = sigmoid(2 t).
@demo.elementwise_tuned
@triton.jit
def gelu(x, out, columns, BLOCK: tl.constexpr):
    at, _, inside = demo.block_of_a_row(columns, BLOCK)
    v = tl.load(x + at, mask=inside).to(tl.float32)
    v *= tl.sigmoid(2 * 0.79788456 * (v + 0.044715 * v * v * v))
    tl.store(out + at, v, mask=inside)


def peers(problem):
    return {"eager": demo.Peer(formula), "library": demo.Peer(library),
            "compile": demo.compiled(formula), "compile lib": demo.compiled(library),
            "triton": demo.one_kernel(lambda x: demo.launch_elementwise(gelu, x))}


def problem(N):
    return data.describe(f"{N} x {N}", {"x": data.uniform(N, N, scale=6, hard=data.HARD_ROWS)},
                         (N, N), 9 * N * N, N, dtype="fp32", memory_bound=True)


if __name__ == "__main__":
    demo.run()
