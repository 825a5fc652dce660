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


# A block of threads takes BLOCK neighbors of a row.
elementwise_tuned = tuned(["columns"], *[({"BLOCK": block}, warps, 1) for block, warps in (
    (1024, 4), (2048, 4), (2048, 8), (4096, 8))])


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


def multiprocessors():
    return torch.cuda.get_device_properties(0).multi_processor_count


_compiled = set()  # kernels, with the types and constants that they were compiled for


def launch(kernel, grid, *arguments, **constants):
    """Launches a tuned kernel. Before the first time all its configurations compile, side by side:
    tuning would compile them one after the other."""
    types = tuple(getattr(argument, "dtype", None) for argument in arguments)
    this = (id(kernel), types, tuple(constants.items()))
    if this not in _compiled:
        _compiled.add(this)
        with ThreadPoolExecutor() as pool, triton.AsyncCompileMode(pool, ignore_errors=True):
            for config in kernel.configs:
                kernel.fn.warmup(*arguments, grid=(1,), **constants, **config.all_kwargs())
    kernel[grid](*arguments, **constants)
