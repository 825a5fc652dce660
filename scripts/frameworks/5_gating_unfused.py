"""Gating in PyTorch, call by call: sigmoid(x W1 + b1) * (x W2 + b2) in fp16, with fp32 sums.

    python3 scripts/frameworks/5_gating_unfused.py 4096         x[N, N], W[N, N]
    python3 scripts/frameworks/5_gating_unfused.py --talk 1024  x[4 S^2, 128], W[128, 64]

Every kernel reads its operands from the GPU's memory and writes its result there. In the talk's
shape these trips take most of the time, in the square one the products do. N is a multiple of 32,
S of 16; N is by default 4096, on CPUs 256.
"""

import torch_demo as demo
from torch_demo import data, torch

expected = demo.verification.gating


def formula(x, W1, W2, b1, b2):  # six kernels: two products, two sums, the sigmoid, the gate
    return torch.sigmoid(x @ W1 + b1) * (x @ W2 + b2)


# A product and its bias in one call, the rest in place: four kernels, and less memory.
def in_place(x, W1, W2, b1, b2):
    return torch.addmm(b1, x, W1).sigmoid_().mul_(torch.addmm(b2, x, W2))


# Both products in one, which reads x once. The weights of a model do not change, so packing them is
# not timed. Five kernels, until torch.compile makes two of them: `packed` of 6_gating_fused.py.
def pack(x, W1, W2, b1, b2):
    return x, torch.cat([W1, W2], dim=1), b1, b2


def packed(x, W, b1, b2):  # W[K, 2 H]
    both = x @ W
    H = b1.shape[0]
    return torch.sigmoid(both[:, :H] + b1) * (both[:, H:] + b2)


def peers(problem):
    return {"eager": demo.Peer(formula), "library": demo.Peer(in_place),
            "one product": demo.Peer(packed, pack)}


def problem(N, S=None):
    """x[M, K], W1 and W2[K, H], b1 and b2[H], out[M, H]."""
    M, K, H = (4 * S * S, 128, 64) if S else (N, N, N)
    weights = dict(scale=float(torch.tensor(3 / K).sqrt()))  # so that sums stay near 1
    inputs = dict(x=data.uniform(M, K, hard=data.hard_operand(128)),
                  W1=data.uniform(K, H, **weights), W2=data.uniform(K, H, **weights),
                  b1=data.uniform(H), b2=data.uniform(H))
    text = f"S = {S}: x[{M}, {K}], W[{K}, {H}]" if S else f"N = {N}"
    return data.describe(text, inputs, (M, H), 4 * M * K * H, S or N, "talk" if S else "square",
                         memory_bound=bool(S))


if __name__ == "__main__":
    demo.run()
