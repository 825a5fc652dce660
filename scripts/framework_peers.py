"""What compare_frameworks.py compares with: the same operations in PyTorch and Triton, how they
are verified, and how they are timed. Needs both, and a GPU. A `case` is compare_frameworks.Case."""

import contextlib
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

DEVICE = "cuda"
WARM_UP_S, SAMPLES, SAMPLING_S, LONGEST_SAMPLING_S = 0.2, 30, 0.5, 5  # as our programs


class Wrong(Exception):
    """A result that the reference rejects."""


# --- Data and formulas ---

FACTOR = 0.5  # m of x + m y + b


def uniform(dtype, *shape, scale=1.0):
    """Random data in [-scale, scale]; for tf32 fp32 that TF32 holds exactly, so nothing rounds."""
    kind = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(dtype, torch.float32)
    data = torch.empty(shape, dtype=kind, device=DEVICE).uniform_(-scale, scale)
    if dtype == "tf32":
        bits = data.view(torch.int32)
        bits.add_(1 << 12).bitwise_and_(-1 << 13)  # 10 bits of the mantissa remain, rounded
    return data


def make_inputs(case):
    """What the formula takes, in its order."""
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = case.dtype == "tf32"
    name, dtype = case.operation.name, case.dtype
    if case.operation.kind == "rows":
        x, b = uniform(dtype, *case.size), uniform(dtype, case.size[1])
        if name == "add_mul_relu":
            return x, uniform(dtype, *case.size), b
        return (x, b) if name == "bias_relu" else (x,)
    M, K, H = case.dimensions
    x = uniform(dtype, M, K)
    if not case.gating:
        return x, uniform(dtype, K, H)
    weights = [uniform(dtype, K, H, scale=(3 / K) ** 0.5) for _ in range(2)]
    return (x, *weights, uniform(dtype, H), uniform(dtype, H))


def gelu(x):  # [R, C]
    return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))


def softmax(x):  # [R, C], over rows
    e = torch.exp(x - x.max(dim=1, keepdim=True).values)
    return e / e.sum(dim=1, keepdim=True)


def bias_relu(x, b):  # [R, C], [C]
    return torch.relu(x + b)


def add_mul_relu(x, y, b):  # [R, C], [R, C], [C]
    return torch.relu(x + FACTOR * y + b)


def gating(x, W1, W2, b1, b2):  # [M, K], [K, H], [K, H], [H], [H]
    return torch.sigmoid(x @ W1 + b1) * (x @ W2 + b2)


def matmul(A, B):  # [M, K], [K, N]
    return torch.matmul(A, B)


def gating_in_place(x, W1, W2, b1, b2):
    return torch.addmm(b1, x, W1).sigmoid_().mul_(torch.addmm(b2, x, W2))


def gating_packed(x, W, b1, b2):  # W[K, 2 H]
    both = x @ W
    H = b1.shape[0]
    return torch.sigmoid(both[:, :H] + b1) * (both[:, H:] + b2)


def pack_weights(x, W1, W2, b1, b2):
    return x, torch.cat([W1, W2], dim=1), b1, b2


EAGER = {"gelu": gelu, "softmax": softmax, "bias_relu": bias_relu, "add_mul_relu": add_mul_relu,
         "gating": gating, "gating_talk": gating}
LIBRARY = {
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "softmax": lambda x: F.softmax(x, dim=1),
    "bias_relu": lambda x, b: torch.relu_(x + b),
    "add_mul_relu": lambda x, y, b: torch.relu_(torch.add(x, y, alpha=FACTOR).add_(b)),
    "gating": gating_in_place,
    "gating_talk": gating_in_place,
}


# --- Triton ---


def tuned(key, *configurations):
    """A Triton kernel that is tuned once per `key`: of (tile sizes, warps, stages), the fastest."""
    return triton.autotune([triton.Config(tile, num_warps=warps, num_stages=stages)
                            for tile, warps, stages in configurations], key=key)


@tuned(["size"], *[({"BLOCK": 1024 * k}, 4 * k, 1) for k in (1, 2, 4)])
@triton.jit
def copy(source, target, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < size), mask=at < size)


# A row in one block's registers.
@tuned(["columns"], *[({}, warps, 1) for warps in (4, 8, 16, 32)])
@triton.jit
def softmax_row(x, out, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    row = tl.load(x + start + column, mask=column < columns, other=float("-inf"))
    e = tl.exp(row.to(tl.float32) - tl.max(row.to(tl.float32), axis=0))
    tl.store(out + start + column, e / tl.sum(e, axis=0), mask=column < columns)


# A row too long for that: once for its maximum and sum, together, and once more for the rest.
@tuned(["columns"], *[({"BLOCK": block}, block // 512, stages)
                      for block in (4096, 8192, 16384) for stages in (1, 3)])
@triton.jit
def softmax_long_row(x, out, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    highest = float("-inf")
    total = 0.0
    for first in range(0, columns, BLOCK):
        inside = first + column < columns
        part = tl.load(x + start + first + column, mask=inside, other=float("-inf"))
        part = part.to(tl.float32)
        higher = tl.maximum(highest, tl.max(part, axis=0))
        total = total * tl.exp(highest - higher) + tl.sum(tl.exp(part - higher), axis=0)
        highest = higher
    for first in range(0, columns, BLOCK):
        inside = first + column < columns
        part = tl.load(x + start + first + column, mask=inside, other=0).to(tl.float32)
        tl.store(out + start + first + column, tl.exp(part - highest) / total, mask=inside)


# N x N: both products of a tile in one block, which walk down columns of GROUP tiles.
@tuned(["N"], *[({"BM": m, "BN": n, "BK": k}, warps, stages) for m, n, k, warps, stages in (
    (128, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 64, 64, 4, 4), (128, 64, 64, 8, 4),
    (64, 128, 64, 4, 4), (64, 64, 64, 4, 5), (128, 128, 32, 8, 4), (256, 64, 64, 8, 3))])
@triton.jit
def gate_square(x, W1, W2, b1, b2, out, N, BM: tl.constexpr, BN: tl.constexpr,
                BK: tl.constexpr, GROUP: tl.constexpr):
    tiles = GROUP * (N // BN)  # of a group of rows
    first = tl.program_id(0) // tiles * GROUP
    group = tl.minimum(N // BM - first, GROUP)
    m = (first + tl.program_id(0) % tiles % group) * BM + tl.arange(0, BM)
    n = tl.program_id(0) % tiles // group * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_tile = x + m[:, None] * N + k[None, :]
    weight = k[:, None] * N + n[None, :]
    v1 = tl.zeros((BM, BN), tl.float32)
    v2 = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, N, BK):
        rows = tl.load(x_tile)
        v1 = tl.dot(rows, tl.load(W1 + weight), v1)
        v2 = tl.dot(rows, tl.load(W2 + weight), v2)
        x_tile += BK
        weight += BK * N
    v1 += tl.load(b1 + n)[None, :].to(tl.float32)
    v2 += tl.load(b2 + n)[None, :].to(tl.float32)
    tl.store(out + m[:, None] * N + n[None, :], (tl.sigmoid(v1) * v2).to(tl.float16))


# The talk's shape: BM whole rows in one block.
@tuned(["M"], *[({"BM": m, "BK": k}, warps, stages) for m, k, warps, stages in (
    (64, 128, 4, 2), (64, 64, 4, 3), (64, 32, 4, 3), (64, 128, 8, 2), (128, 128, 4, 2),
    (128, 64, 4, 3), (128, 128, 8, 2), (128, 64, 8, 3), (128, 32, 8, 4), (256, 64, 8, 2))])
@triton.jit
def gate_talk(x, W1, W2, b1, b2, out, M, K: tl.constexpr, H: tl.constexpr, BM: tl.constexpr,
              BK: tl.constexpr):
    m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    h = tl.arange(0, H)
    v1 = tl.zeros((BM, H), tl.float32)
    v2 = tl.zeros((BM, H), tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        rows = tl.load(x + m[:, None] * K + k[None, :])
        v1 = tl.dot(rows, tl.load(W1 + k[:, None] * H + h[None, :]), v1)
        v2 = tl.dot(rows, tl.load(W2 + k[:, None] * H + h[None, :]), v2)
    v1 += tl.load(b1 + h)[None, :].to(tl.float32)
    v2 += tl.load(b2 + h)[None, :].to(tl.float32)
    tl.store(out + m[:, None] * H + h[None, :], (tl.sigmoid(v1) * v2).to(tl.float16))


_compiled = set()  # kernels, with the types and constants that they were compiled for


def launch(kernel, grid, *arguments, **constants):
    """Launches a tuned kernel. Before it is tuned all its configurations compile, side by side."""
    types = tuple(getattr(argument, "dtype", None) for argument in arguments)
    this = (id(kernel), types, tuple(constants.items()))
    if this not in _compiled:
        _compiled.add(this)
        with ThreadPoolExecutor() as pool, triton.AsyncCompileMode(pool, ignore_errors=True):
            for config in kernel.configs:
                kernel.fn.warmup(*arguments, grid=(1,), **constants, **config.all_kwargs())
    kernel[grid](*arguments, **constants)


def softmax_triton(x):
    (rows, columns), out = x.shape, torch.empty_like(x)
    if columns > 32768:
        launch(softmax_long_row, (rows,), x, out, columns)
    else:
        block = triton.next_power_of_2(columns)
        launch(softmax_row, (rows,), x, out, columns, BLOCK=block)
    return out


def gating_triton(x, W1, W2, b1, b2):
    (M, K), H = x.shape, W1.shape[1]
    out = torch.empty(M, H, dtype=x.dtype, device=x.device)
    if M != K:
        launch(gate_talk, lambda tile: (M // tile["BM"],), x, W1, W2, b1, b2, out, M,
               K=K, H=H)
    elif M % 256 == 0:
        launch(gate_square, lambda tile: (M // tile["BM"] * (M // tile["BN"]),),
               x, W1, W2, b1, b2, out, M, GROUP=8)
    else:
        raise ValueError("the Triton kernel takes multiples of 256")
    return out


def copy_triton(source, target):
    launch(copy, lambda tile: (triton.cdiv(source.numel(), tile["BLOCK"]),),
           source, target, source.numel())


TRITON = {"softmax": softmax_triton, "gating": gating_triton, "gating_talk": gating_triton}


class Peer(NamedTuple):
    run: Callable  # enqueues the work and returns its output
    prepare: Callable = lambda *inputs: inputs  # what it takes, made beforehand


def peers_of(case, max_autotune=False):
    """All that computes the case, by the name of its column."""
    torch._dynamo.reset()  # else shapes that it saw before make it compile for any shape

    def compiled(formula, mode=None):
        return torch.compile(formula, dynamic=False, mode=mode)

    name = case.operation.name
    if name not in EAGER:
        return {"library": Peer(matmul)}
    peers = {"eager": Peer(EAGER[name]), "library": Peer(LIBRARY[name]),
             "compile": Peer(compiled(EAGER[name]))}
    if name in ("gelu", "softmax"):
        peers["compile lib"] = Peer(compiled(LIBRARY[name]))
    if case.gating:
        peers["packed"] = Peer(compiled(gating_packed), pack_weights)
    if max_autotune:
        peers["autotuned"] = Peer(compiled(EAGER[name], "max-autotune-no-cudagraphs"))
    if name in TRITON:
        peers["triton"] = Peer(TRITON[name])
    return peers


# --- Verifying ---

ROUNDOFF = {"fp32": 2.0**-24, "tf32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
SUBNORMAL = {"fp16": 2.0**-24}  # what fp16 rounds by below its smallest normal number


def expected(case, inputs, rows):
    """(values, how far rounding may take them) of the output's `rows`, in fp64."""
    u, name = ROUNDOFF[case.dtype], case.operation.name
    subnormal = SUBNORMAL.get(case.dtype, 0)
    if case.operation.kind == "rows":
        exact = [tensor[rows].double() if tensor.dim() == 2 else tensor.double()
                 for tensor in inputs]
        values = EAGER[name](*exact)
        terms = values if name == "softmax" else sum(tensor.abs() for tensor in exact)
        return values, (2.0**-18 + 8 * u) * terms + 4 * subnormal

    def product(x, W):
        """x W, and its rounding: sums in fp32; the result, and parts of the sum, in `dtype`."""
        x, W, K = x[rows].double(), W.double(), x.shape[1]
        values, terms = x @ W, x.abs() @ W.abs()
        room = K**0.5 * 2.0**-24 * terms + 2 * u * (values.abs() + terms / K**0.5)
        return values, room + subnormal

    if not case.gating:
        return product(*inputs)
    x, W1, W2, b1, b2 = inputs
    (v1, d1), (v2, d2) = product(x, W1), product(x, W2)
    v1, v2 = v1 + b1.double(), v2 + b2.double()
    d1, d2 = d1 + 2 * u * v1.abs(), d2 + 2 * u * v2.abs()
    values = torch.sigmoid(v1) * v2
    return values, v2.abs() * d1 / 4 + d2 + 4 * u * values.abs() + subnormal


def check(case, inputs, output):
    """Compares up to 512 rows with the reference; all must be finite. Raises Wrong."""
    if output.dtype != inputs[0].dtype or not torch.isfinite(output).all():
        raise Wrong("another type, or values that are not finite")
    rows = torch.linspace(0, len(output) - 1, min(512, len(output)), device=DEVICE).long()
    values, room = expected(case, inputs, rows)
    error = (output[rows].double() - values).abs()
    wrong = (~(error <= room)).sum().item()
    if wrong:
        worst = (error / room).max().item()
        raise Wrong(f"{wrong} of {error.numel()} checked elements are off, by up to {worst:.3g} "
                    "times what rounding explains")


def verify(case, peer):
    """Runs a peer once, which also compiles and tunes it. Raises Wrong."""
    inputs = make_inputs(case)
    check(case, inputs, peer.run(*peer.prepare(*inputs)))


# --- Timing ---


def measure(run):
    """The median time of one run, in milliseconds: as include/demo/measure.cuh does it."""
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    flushed = torch.empty(max(2 * cache, 256 << 20), dtype=torch.int8, device=DEVICE)

    def host_seconds(work):
        """How long enqueueing the work takes, and how long until it is done."""
        start = time.perf_counter()
        work()
        enqueued = time.perf_counter() - start
        torch.cuda.synchronize()
        return enqueued, time.perf_counter() - start

    warm_up = time.perf_counter()
    enqueueing, flushing = [], []
    while time.perf_counter() - warm_up < WARM_UP_S or len(enqueueing) < 3:
        enqueueing.append(host_seconds(run)[0])
        flushing.append(host_seconds(lambda: flushed.fill_(1))[1])

    # Between its events the GPU must not wait for Python. So it is kept busy for as long as Python
    # takes to enqueue the work, with overwriting the cache again.
    times = 1 + int(1.5 * statistics.median(enqueueing) / min(flushing))

    def overwrite(value):
        for _ in range(times):
            flushed.fill_(value)

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    samples, start = [], time.perf_counter()
    overwrite(0)
    while True:
        begin.record()
        run()
        end.record()
        end.synchronize()
        # At once, so that the GPU rests no longer than between our programs' samples.
        overwrite(len(samples) % 100)
        samples.append(begin.elapsed_time(end))
        seconds = time.perf_counter() - start
        enough = len(samples) >= SAMPLES and seconds >= SAMPLING_S
        if len(samples) >= 3 and (enough or seconds >= LONGEST_SAMPLING_S):
            return statistics.median(samples)


def measure_peer(case, peer):
    """The time of a peer in one round, on fresh data."""
    inputs = peer.prepare(*make_inputs(case))
    return measure(lambda: peer.run(*inputs))


def measure_copy(case):
    """A copy that moves as many bytes as the case must: PyTorch's or Triton's, the faster one."""
    words = case.least_bytes() // 2 // 4
    source = torch.randint(-1 << 31, 1 << 31, (words,), dtype=torch.int32, device=DEVICE)
    target = torch.empty_like(source)
    return min(measure(lambda: target.copy_(source)),
               measure(lambda: copy_triton(source, target)))


def free():
    """Gives the memory back: our programs need it next."""
    with contextlib.suppress(RuntimeError):  # after an error of the GPU's own
        torch.cuda.empty_cache()
