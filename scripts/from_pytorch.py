#!/usr/bin/env python3
"""Usage: scripts/from_pytorch.py [N,...]

Calls a lesson's kernel from PyTorch: `fused` of 7_gelu becomes a function of tensors, and one more
line of scripts/frameworks/7_gelu.py: verified by the program's bound, and timed beside PyTorch's
ways and Triton's. x is N x N in fp32; N is 8192 by default.

torch.utils.cpp_extension.load_inline compiles the lesson's own file, with the lines of C++ in CUDA
below. That takes a minute the first time; build/from_pytorch/ keeps what came of it. To bring your
own kernel into PyTorch, begin with these lines.

Needed: a GPU, PyTorch, Triton, nvcc of PyTorch's major version, g++, ninja (pip install ninja).

Exit status: 0 verified; 1 a wrong result; 2 usage; 3 something is missing or failed; 77 no PyTorch,
or no GPU.
"""

import os
import re
import sys
from pathlib import Path

from frameworks import alone, load_page
from shared import command_line, cuda_toolkit
from shared.command_line import PROJECT, SKIPPED, Stop

WHO = "from_pytorch.py"
BUILD = PROJECT / "build/from_pytorch"

CPP = "torch::Tensor fused(torch::Tensor x);"
CUDA = """
#define main main_of_the_program  // it stays uncalled
#include "src/7_gelu.cu"
#undef main

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

torch::Tensor fused(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous(), "a contiguous tensor on a GPU is expected");
    const c10::cuda::CUDAGuard guard(x.device());  // while it lives, x's GPU is the current one
    torch::Tensor out = torch::empty_like(x);
    const size_t size = x.numel(), blocks = (size + gelu::kThreads - 1) / gelu::kThreads;
    // On PyTorch's current stream: the work that it has enqueued there comes first, and what it
    // enqueues next waits for the kernel. data_ptr<float> throws where the tensor has another type.
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    gelu::fused<<<blocks, gelu::kThreads, 0, stream>>>(x.data_ptr<float>(), out.data_ptr<float>(),
                                                       size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""
# What the programs share, for the main that stays uncalled.
HARNESS = "".join(f'#include "{file.relative_to(PROJECT)}"\n' for kind in ("*.cu", "*.cpp")
                  for file in sorted((PROJECT / "src/demo").glob(kind)))


def load(torch, toolkit):
    """The module with the function. Raises Stop."""
    from torch.utils import cpp_extension

    command_line.say(WHO, "compiling (at once where an earlier run's build serves)")
    BUILD.mkdir(parents=True, exist_ok=True)
    # PyTorch links with -lcudart, which PyPI's wheels have under its versioned name alone.
    library = BUILD / "libcudart.so"
    library.unlink(missing_ok=True)
    for found in sorted(Path(toolkit.lib_dir).glob("libcudart.so*"))[:1]:
        library.symlink_to(found)
    arch = cuda_toolkit.target(int("%d%d" % torch.cuda.get_device_capability()))
    # The lessons use fp16's operators, which PyTorch's own flags switch off.
    operators = [f"-U__CUDA_NO_{each}__" for each in (
        "HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS", "BFLOAT16_CONVERSIONS")]
    try:
        return cpp_extension.load_inline(
            name="from_pytorch", functions=["fused"], cpp_sources=[CPP],
            cuda_sources=[CUDA, HARNESS],
            extra_cuda_cflags=[f"-gencode=arch=compute_{arch},code=sm_{arch}", *toolkit.flags,
                               *cuda_toolkit.OPTIMIZED, "-std=c++20", *operators],
            extra_include_paths=[str(PROJECT / folder) for folder in ("", "include", "src")],
            extra_ldflags=[f"-L{BUILD}", f"-L{toolkit.lib_dir}", f"-Wl,-rpath,{toolkit.lib_dir}"],
            build_directory=str(BUILD))
    except (RuntimeError, OSError, ImportError, ValueError) as error:
        raise Stop(f"7_gelu cannot be compiled: {reason(error)}")


def reason(error):
    """One line of what went wrong: a compiler's first error, or the message's first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror\b|undefined reference", line, re.I)
              and not line.startswith("Error building extension")]
    return (errors or lines or [type(error).__name__])[0][:200]


@command_line.reporting(WHO)
def main(arguments):
    parser = command_line.Parser(prog=WHO, add_help=False, allow_abbrev=False)
    parser.add_argument("N", nargs="?", type=command_line.sizes(), default=[8192])
    sizes = parser.parse_args(arguments).N
    try:
        from torch_demo import one_kernel, torch
    except (ImportError, OSError) as error:
        raise Stop(f"PyTorch and Triton are needed: {error}", SKIPPED)
    if not torch.cuda.is_available():
        raise Stop("PyTorch finds no NVIDIA GPU here", SKIPPED)
    try:
        toolkit = cuda_toolkit.find()
    except cuda_toolkit.ToolkitError as error:
        raise Stop(str(error))
    os.environ["CUDA_HOME"] = str(Path(toolkit.nvcc).parents[1])
    os.environ["PATH"] += os.pathsep + str(Path(sys.executable).parent)  # where pip puts ninja
    if cuda_toolkit.host_compiler():
        os.environ.pop("CC", None)  # it would name nvcc a second one
    fused, page = load(torch, toolkit).fused, load_page("7_gelu")
    theirs = page.peers
    page.peers = lambda problem: {**theirs(problem), "fused": one_kernel(fused)}
    return max([alone.compare(page, n, None) for n in sizes])


if __name__ == "__main__":
    command_line.run(main, __doc__)
