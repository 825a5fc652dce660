"""What the Triton kernels of the pages share: tuning, compiling ahead, and launching."""

from concurrent.futures import ThreadPoolExecutor

import torch
import triton
import triton.language as tl
from triton.testing import do_bench

# Tensor descriptors that a kernel makes live in memory that the launch allocates.
triton.set_allocator(
    lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))


def tuned(key, *configurations):
    """Tunes a Triton kernel once per value of the arguments `key`: it keeps the fastest of
    (constants of the kernel, warps, stages of the software pipeline)."""
    return triton.autotune(
        [triton.Config(constants, num_warps=warps, num_stages=stages)
         for constants, warps, stages in configurations], key=key,
        do_bench=lambda run, quantiles: do_bench(run, warmup=10, rep=40, quantiles=quantiles))


# --- Rows and columns: a block of threads takes BLOCK neighbors of a row ---


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


# --- Products: a block computes a tile of [BM, BN], in steps of BK along its rows ---

# Whether tiles cover N x N exactly. Where they do not, those at the edges need care.
even_tiles = triton.heuristics({
    "EVEN": lambda values: values["N"] % max(values[name] for name in ("BM", "BN", "BK")) == 0})


@triton.jit
def place_of(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """(row, column) of a tile. Consecutive tiles walk down columns of GROUP tiles: what blocks load
    at about the same time fits the L2 cache."""
    first = tile // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)  # the last group may be lower
    in_group = tile % (GROUP * tiles_n)
    return first + in_group % height, in_group // height


@triton.jit
def within(index, N, EVEN: tl.constexpr):
    """Rows or columns to load from. A tile at the edge repeats others in place of those that are
    not there: it computes with them, and does not store what comes of it."""
    if EVEN:
        return index
    else:
        return index % N


@triton.jit
def load_step(places, inside, EVEN: tl.constexpr):
    """A step's tile of a factor. The last step is filled up with zeros, which add nothing."""
    if EVEN:
        return tl.load(places)
    else:
        return tl.load(places, mask=inside, other=0.0)


@triton.jit
def store_tile(out, m, n, N, values, EVEN: tl.constexpr):
    places = out + m[:, None] * N + n[None, :]
    values = values.to(out.dtype.element_ty)
    if EVEN:
        tl.store(places, values)
    else:
        tl.store(places, values, mask=(m < N)[:, None] & (n < N)[None, :])


def count_tiles(N, tile):
    return triton.cdiv(N, tile["BM"]) * triton.cdiv(N, tile["BN"])


# --- Launching ---


def multiprocessors():
    return torch.cuda.get_device_properties(0).multi_processor_count


_compiled = set()  # kernels, with the types, sizes and constants that they were compiled for


def launch(kernel, grid, *arguments, **constants):
    """Launches a tuned kernel. Before the first time all its configurations compile, side by side:
    tuning would compile them one after the other."""
    types = tuple(getattr(argument, "dtype", argument) for argument in arguments)
    this = (id(kernel), types, tuple(constants.items()))
    if this not in _compiled:
        _compiled.add(this)
        with ThreadPoolExecutor() as pool, triton.AsyncCompileMode(pool, ignore_errors=True):
            for config in kernel.configs:
                kernel.fn.warmup(*arguments, grid=(1,), **constants, **config.all_kwargs())
    kernel[grid](*arguments, **constants)
