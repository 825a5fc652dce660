"""What the pages of this folder are written with, as the programs are with demo.cuh. A page that
runs alone ends with run(). Without a GPU Triton's interpreter runs its kernels, on the CPU."""

import os
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1]))  # a page that runs alone begins here

from frameworks import alone, load_page  # noqa: E402, F401
from shared import command_line  # noqa: E402

SIZES = alone.parse()  # of a page that runs alone: its command line comes first
try:
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")  # Triton reads it as it is imported
    import triton
    import triton.language as tl
    from triton.testing import do_bench
except (ImportError, OSError) as error:
    if SIZES is None:
        raise
    sys.exit(alone.say(f"PyTorch and Triton are needed: pip install torch triton ({error})",
                       command_line.SKIPPED))

from frameworks import data, verification  # noqa: E402, F401

INTERPRETED = triton.knobs.runtime.interpret
DEVICE = "cpu" if INTERPRETED else "cuda"
warnings.filterwarnings("ignore", "overflow", module="triton.runtime.interpreter")  # NumPy's


def run(work=alone.compare):
    """Ends with the exit status of work(page, N, S), for the page that runs alone."""
    page = sys.modules["__main__"]

    @command_line.reporting(Path(page.__file__).name)
    def main(_):
        if not INTERPRETED and not torch.cuda.is_available():
            raise command_line.Stop("no NVIDIA GPU, and TRITON_INTERPRET rules out Triton's "
                                    "interpreter", command_line.SKIPPED)
        return work(page, *SIZES)

    command_line.run(main)


# --- Peers: what a page says of each way to compute its formula ---


class Peer(NamedTuple):
    run: Callable  # enqueues the work and returns its output
    # What run() takes, made of the inputs beforehand: not timed.
    prepare: Callable = lambda *inputs: inputs
    rival: bool = True  # False: shown, and never the best of theirs
    rounded: bool = True  # the results of its operations are rounded to the data type in between
    why_not: str = ""  # it cannot run here


def compiled(formula, prepare=Peer._field_defaults["prepare"]):
    """The formula as torch.compile makes it, for these very shapes."""
    return Peer(torch.compile(formula, dynamic=False), prepare,
                why_not="its compiler needs a GPU" if INTERPRETED else "")


def graphed(formula, prepare=Peer._field_defaults["prepare"]):
    """The formula in a CUDA graph, which the host launches as one: `formula` may be compiled."""
    def record(*inputs):
        inputs = prepare(*inputs)
        stream = torch.cuda.Stream()  # what runs first, and allocates, must not be recorded
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                formula(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = formula(*inputs)
        return graph, output, inputs  # which the graph reads: they must stay

    def replay(graph, output, inputs):
        graph.replay()
        return output

    return Peer(replay, record)


def one_kernel(run):
    """One kernel, which rounds its result alone."""
    return Peer(run, rounded=False)


# --- Triton: tuning and launching ---


# Tensor descriptors that a kernel makes live in memory that the launch allocates.
triton.set_allocator(
    lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=DEVICE))


def tuned(key, *configurations):
    """Tunes a Triton kernel once per value of the arguments `key`: it keeps the fastest of
    (constants of the kernel, warps, stages of the software pipeline). The interpreter takes the
    first."""
    return triton.autotune(
        [triton.Config(constants, num_warps=warps, num_stages=stages)
         for constants, warps, stages in configurations[:1 if INTERPRETED else None]], key=key,
        do_bench=lambda run, quantiles: do_bench(run, warmup=10, rep=40, quantiles=quantiles))


def multiprocessors():
    return 4 if INTERPRETED else torch.cuda.get_device_properties(0).multi_processor_count


_compiled = set()  # kernels, with the types, sizes and constants that they were compiled for


def launch(kernel, grid, *arguments, **constants):
    """Launches a tuned kernel. Before the first time all its configurations compile, side by side:
    tuning would compile them one after the other."""
    types = tuple(getattr(argument, "dtype", argument) for argument in arguments)
    this = (id(kernel), types, tuple(constants.items()))
    if this not in _compiled and not INTERPRETED:
        _compiled.add(this)
        with ThreadPoolExecutor() as pool, triton.AsyncCompileMode(pool, ignore_errors=True):
            for config in kernel.configs:
                kernel.fn.warmup(*arguments, grid=(1,), **constants, **config.all_kwargs())
    kernel[grid](*arguments, **constants)


# --- Triton, rows and columns: a block of threads takes BLOCK neighbors of a row ---


elementwise_tuned = tuned(["columns"], *[({"BLOCK": block}, warps, 1) for block, warps in (
    (256, 1), (512, 2), (1024, 4), (2048, 4), (2048, 8), (4096, 8))])


@triton.jit
def block_of_a_row(columns, BLOCK: tl.constexpr):
    """(places in the matrix, columns, which of them exist) of this block's elements."""
    blocks = tl.cdiv(columns, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    return row * columns + column, column, column < columns


def launch_elementwise(kernel, *inputs):
    """Launches kernel(*inputs, out, columns, BLOCK) on all blocks of all rows; returns `out`."""
    (rows, columns), out = inputs[0].shape, torch.empty_like(inputs[0])
    launch(kernel, lambda tile: (rows * triton.cdiv(columns, tile["BLOCK"]),),
           *inputs, out, columns)
    return out


# --- Triton, products [M, K] times [K, N]: a block computes a tile of [BM, BN], in steps of BK ---

# Whether tiles cover the matrices exactly: where they do not, those at the edges need care. And the
# type of the places in the second factor, which 32 bits hold up to N = 46340.
even_tiles = triton.heuristics({
    "EVEN": lambda values: not any(values[name] % values[f"B{name}"] for name in "MNK"),
    "INDEX": lambda values: tl.int64 if values["K"] * values["N"] >= 2**31 else tl.int32})


@triton.jit
def place_of(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """(row, column) of a tile. Consecutive tiles walk down columns of GROUP tiles: what blocks load
    at about the same time fits the L2 cache."""
    first = tile // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)  # the last group may be lower
    in_group = tile % (GROUP * tiles_n)
    return first + in_group % height, in_group // height


@triton.jit
def within(index, size, EVEN: tl.constexpr):
    """Rows or columns to load from. A tile at the edge repeats others in place of those that are
    not there: it computes with them, and does not store what comes of it."""
    if EVEN:
        return index
    else:
        return index % size


@triton.jit
def load_step(places, inside, EVEN: tl.constexpr):
    """A step's tile of a factor. The last step is filled up with zeros, which add nothing."""
    if EVEN:
        return tl.load(places)
    else:
        return tl.load(places, mask=inside, other=0.0)


@triton.jit
def store_tile(out, m, n, M, N, values, EVEN: tl.constexpr):
    places = out + m[:, None] * N + n[None, :]
    values = values.to(out.dtype.element_ty)
    if EVEN:
        tl.store(places, values)
    else:
        tl.store(places, values, mask=(m < M)[:, None] & (n < N)[None, :])


def tiles(*configurations):
    """For tuned(), of (BM, BN, BK, warps, stages)."""
    return [({"BM": m, "BN": n, "BK": k}, warps, stages)
            for m, n, k, warps, stages in configurations]


def launch_product(kernel, *inputs, persistent=False, **constants):
    """Launches kernel(*inputs, out, M, N, K), whose first inputs are [M, K] and [K, N], on a block
    for each tile; or `persistent` on PER_SM for each multiprocessor. Returns out[M, N]."""
    (M, K), N = inputs[0].shape, inputs[1].shape[1]
    out = torch.empty(M, N, dtype=inputs[0].dtype, device=inputs[0].device)

    def blocks(tile):
        count = triton.cdiv(M, tile["BM"]) * triton.cdiv(N, tile.get("BN", N))
        return min(count, multiprocessors() * tile.get("PER_SM", 1)) if persistent else count,

    launch(kernel, blocks, *inputs, out, M, N=N, K=K, **constants)
    return out
