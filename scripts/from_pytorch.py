#!/usr/bin/env python3
"""Calls kernels of the lessons from PyTorch: each becomes a function of tensors, is held against an
fp64 reference, and timed beside eager PyTorch, which launches a kernel for every operation.

torch.utils.cpp_extension.load_inline compiles the lesson's own file, src/NAME.cu, with some lines
of C++ that take tensors apart. That takes a minute or two the first time; build/from_pytorch/ keeps
what came of it. To bring your own kernel into PyTorch, begin with PROGRAMS in this script.

Both are timed as the programs time themselves: 0.2 s of warm-up, then at least 0.5 s and 30
launches, with the cache overwritten before each; the median. GB/s are those of the kernel: the
bytes that must move at least, over its time. The error is the largest among up to 512 rows.

Needed: a GPU, PyTorch with Triton, nvcc of PyTorch's major version, g++, and ninja (pip install
ninja).

Exit status: 0 all verified; 1 a wrong result; 2 usage; 3 something is missing or failed;
77 PyTorch, Triton or the GPU is missing.
"""

import argparse
import fcntl
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Callable, NamedTuple, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent / "shared"))
import command_line  # noqa: E402
import compare_frameworks  # noqa: E402
import cuda_toolkit  # noqa: E402
from command_line import OK, PROJECT, USAGE, WRONG, Stop  # noqa: E402
from table import number, ratio  # noqa: E402

WHO = "from_pytorch.py"
BUILD = PROJECT / "build/from_pytorch"
DTYPES = ("fp32", "fp16")
SIZE, TALK_SIZE = 8192, 1024  # without --sizes and --talk


class Program(NamedTuple):
    """A lesson's kernels as functions of tensors."""

    formula: str  # for people; what eager PyTorch runs stands in scripts/frameworks/NAME.py
    dtypes: Tuple[str, ...]
    talk: bool  # a size is S of the talk's shape, not N
    inputs: Callable  # a size -> [(shape, (lowest, highest value))], in the formula's order
    functions: Tuple[str, ...]  # in `cuda`, named like the kernels
    declaration: str  # of each function, with its name for NAME
    cuda: str  # their C++, compiled together with BEGIN


# In front of each program's C++. The functions must launch on PyTorch's current stream: work that
# it has enqueued there comes first, and what it enqueues next waits for the kernel.
BEGIN = """
#define main main_of_the_program  // it stays uncalled
#include "src/PROGRAM.cu"
#undef main

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

using c10::cuda::CUDAGuard;  // while it lives, its GPU is the current one
using torch::Tensor;

static cudaStream_t stream() { return c10::cuda::getCurrentCUDAStream(); }

/// A tensor's elements, for a kernel on the current GPU that expects them there and in order.
template <class T>
T* data(const Tensor& tensor) {
    using Plain = std::remove_const_t<T>;
    using Theirs = std::conditional_t<std::is_same_v<Plain, half>, c10::Half, Plain>;
    TORCH_CHECK(tensor.is_cuda() && tensor.get_device() == c10::cuda::current_device() &&
                    tensor.is_contiguous(), "contiguous tensors on one GPU are expected");
    TORCH_CHECK(tensor.scalar_type() == c10::CppTypeToScalarType<Theirs>::value,
                "every tensor must have the kernel's type");
    TORCH_CHECK(size_t(tensor.data_ptr()) % 16 == 0, "they must begin at a multiple of 16 bytes");
    return static_cast<T*>(tensor.data_ptr());
}

/// work(T()), T being the type that kernels have for the tensor's elements.
template <class Work>
void with_type(const Tensor& tensor, Work work) {
    if (tensor.scalar_type() == torch::kHalf) return work(half());
    TORCH_CHECK(tensor.scalar_type() == torch::kFloat, "float32 or float16 is expected");
    work(float());
}
"""

GELU = """
Tensor fused(Tensor x) {
    const CUDAGuard guard(x.device());
    Tensor out = torch::empty_like(x);
    with_type(x, [&](auto type) {
        using T = decltype(type);
        const size_t size = x.numel(), blocks = (size + gelu::kThreads - 1) / gelu::kThreads;
        gelu::fused<<<blocks, gelu::kThreads, 0, stream()>>>(data<T>(x), data<T>(out), size);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

Tensor fused_vectorized(Tensor x) {
    const CUDAGuard guard(x.device());
    Tensor out = torch::empty_like(x);
    with_type(x, [&](auto type) {
        using T = decltype(type);
        constexpr int kThreads = gelu::kVectorThreads;
        const size_t size = x.numel(), blocks = size / (kThreads * demo::Vector<T>::kSize) + 1;
        gelu::fused_vectorized<<<blocks, kThreads, 0, stream()>>>(data<T>(x), data<T>(out), size);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

ADD_MUL_ACTIVATION = """
namespace program = add_mul_activation;

void check_shapes(const Tensor& x, const Tensor& y, const Tensor& b) {
    TORCH_CHECK(x.dim() == 2 && y.sizes() == x.sizes() && b.sizes() == x.sizes().slice(1),
                "x[M, N], y[M, N] and b[N] are expected");
}

Tensor fused(Tensor x, Tensor y, Tensor b) {
    check_shapes(x, y, b);
    const CUDAGuard guard(x.device());
    Tensor out = torch::empty_like(x);
    with_type(x, [&](auto type) {
        using T = decltype(type);
        constexpr int kThreads = program::kThreads;
        const size_t size = x.numel(), blocks = (size + kThreads - 1) / kThreads;
        program::fused<program::Relu><<<blocks, kThreads, 0, stream()>>>(
            data<const T>(x), 0.5f, data<const T>(y), data<const T>(b), data<T>(out), size,
            b.numel());
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

Tensor fused_vectorized(Tensor x, Tensor y, Tensor b) {
    check_shapes(x, y, b);
    const CUDAGuard guard(x.device());
    Tensor out = torch::empty_like(x);
    with_type(x, [&](auto type) {
        using T = decltype(type);
        constexpr int kThreads = program::kVectorThreads;
        const size_t size = x.numel(), blocks = size / (kThreads * demo::Vector<T>::kSize) + 1;
        program::fused_vectorized<program::Relu><<<blocks, kThreads, 0, stream()>>>(
            data<const T>(x), 0.5f, data<const T>(y), data<const T>(b), data<T>(out), size,
            b.numel());
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

GATING = """
namespace program = gating_fused;

Tensor fused_wmma(Tensor x, Tensor W1, Tensor W2, Tensor b1, Tensor b2) {
    TORCH_CHECK(x.dim() == 2 && W1.dim() == 2 && W1.size(0) == x.size(1) &&
                    W2.sizes() == W1.sizes() && b1.sizes() == W1.sizes().slice(1) &&
                    b2.sizes() == b1.sizes(),
                "x[M, K], W1[K, H], W2[K, H], b1[H] and b2[H] are expected");
    const size_t M = x.size(0), K = x.size(1), H = W1.size(1);
    TORCH_CHECK(M % 32 == 0 && K % 32 == 0 && H % 32 == 0, "sizes must be multiples of 32");
    const CUDAGuard guard(x.device());
    Tensor out = torch::empty({x.size(0), W1.size(1)}, x.options());
    const program::Operands operands{data<half>(x),  data<half>(W1), data<half>(b1),
                                     data<half>(W2), data<half>(b2), data<half>(out), M, K, H};
    const dim3 blocks((M + program::kBlock - 1) / program::kBlock,
                      (H + program::kCols - 1) / program::kCols);
    constexpr size_t kShared = sizeof(program::Tiles);
    C10_CUDA_CHECK(cudaFuncSetAttribute(program::fused_wmma,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
    program::fused_wmma<<<blocks, program::kThreads, kShared, stream()>>>(operands);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

UNIFORM = (-1, 1)
PROGRAMS = {
    "6_gating_fused": Program(
        "sigmoid(x W1 + b1) * (x W2 + b2)", ("fp16",), True,
        lambda s: [((4 * s * s, 128), UNIFORM), *[((128, 64), (-0.153, 0.153))] * 2,
                   *[((64,), UNIFORM)] * 2],
        ("fused_wmma",), "Tensor NAME(Tensor x, Tensor W1, Tensor W2, Tensor b1, Tensor b2);",
        GATING),
    "7_gelu": Program(
        "gelu(x)", DTYPES, False, lambda n: [((n, n), (-6, 6))],
        ("fused", "fused_vectorized"), "Tensor NAME(Tensor x);", GELU),
    "10_add_mul_activation": Program(
        "relu(x + 0.5 y + b)", DTYPES, False, lambda n: [((n, n), UNIFORM)] * 2 + [((n,), UNIFORM)],
        ("fused", "fused_vectorized"), "Tensor NAME(Tensor x, Tensor y, Tensor b);",
        ADD_MUL_ACTIVATION),
}


# --- Compiling ---


def find_tools():
    """The CUDA toolkit. Raises Stop where it is missing, or what else the compilation needs."""
    os.environ["PATH"] += os.pathsep + str(Path(sys.executable).parent)  # where pip puts ninja
    if not shutil.which("ninja"):
        raise Stop("PyTorch compiles with ninja, which is not here: pip install ninja")
    compiler = os.environ.get("CXX", "c++").split()  # "ccache g++"
    if not compiler or not shutil.which(compiler[0]):
        raise Stop("PyTorch compiles with c++, which is not here: install g++, or set CXX")
    try:
        toolkit = cuda_toolkit.find(has_nvtx=nvtx() is not None)
    except cuda_toolkit.ToolkitError as error:
        raise Stop(str(error))
    # PyTorch reads it when its module is imported.
    os.environ["CUDA_HOME"] = str(Path(toolkit.nvcc).parents[1])
    if cuda_toolkit.host_compiler():
        os.environ.pop("CC", None)  # it would name nvcc a second one
    return toolkit


def nvtx():
    """The folder of NVTX's headers among PyTorch's own wheels, or None."""
    found = [folder for path in sys.path for folder in Path(path).glob("nvidia/*/include/nvtx3")
             if (folder / "nvToolsExt.h").is_file()]
    return next(iter(found), None)


def sources(name):
    """(C++, CUDA C++) of a program, without the headers that PyTorch puts in front."""
    program = PROGRAMS[name]
    declared = [program.declaration.replace("NAME", each) for each in program.functions]
    begin = BEGIN.replace("PROGRAM", name)
    return "\n".join(["using torch::Tensor;", *declared]), begin + program.cuda


def nvcc_flags(toolkit, capability):
    arch = cuda_toolkit.target(int(capability))
    flags = [f"-gencode=arch=compute_{arch},code=sm_{arch}", *toolkit.flags,
             *cuda_toolkit.OPTIMIZED, "-std=c++20"]
    # The lessons use fp16's operators, which PyTorch's own flags switch off.
    flags += [f"-U__CUDA_NO_{each}__" for each in (
        "HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS", "BFLOAT16_CONVERSIONS")]
    return flags


def include_paths(toolkit, folder):
    """The project's headers; and NVTX's, where the toolkit has none. Alone: the wheel's folder
    may hold headers of another CUDA, too."""
    paths = [str(PROJECT), str(PROJECT / "include"), str(PROJECT / "src")]
    if toolkit.has_header("nvtx3/nvToolsExt.h"):
        return paths
    headers = folder / "include/nvtx3"
    headers.parent.mkdir(exist_ok=True)
    headers.unlink(missing_ok=True)
    headers.symlink_to(nvtx())
    return [*paths, str(headers.parent)]


def link_flags(toolkit, folder):
    """Where -lcudart is. PyPI's wheels have it under its versioned name alone."""
    library = folder / "libcudart.so"
    library.unlink(missing_ok=True)
    for found in sorted(Path(toolkit.lib_dir).glob("libcudart.so*"))[:1]:
        library.symlink_to(found)
    # cuBLAS is the program's own, for the contenders that are not called here.
    return [f"-L{folder}", f"-L{toolkit.lib_dir}", *map(toolkit.link_flag, ("cublas", "cublasLt")),
            f"-Wl,-rpath,{toolkit.lib_dir}"]


def load(name, toolkit, capability):
    """The module with a program's functions. Raises Stop."""
    from torch.utils import cpp_extension

    command_line.say(WHO, f"compiling {name} (at once where an earlier run's build serves)")
    folder = BUILD / name
    folder.mkdir(parents=True, exist_ok=True)
    cpp, cuda = sources(name)
    with open(folder / "in_use", "w", encoding="utf-8") as in_use:
        fcntl.flock(in_use, fcntl.LOCK_EX)
        # PyTorch waits for whoever left this file, also after that was killed.
        (folder / "lock").unlink(missing_ok=True)
        try:
            return cpp_extension.load_inline(
                name=f"from_pytorch_{name}", cpp_sources=[cpp], cuda_sources=[cuda],
                functions=list(PROGRAMS[name].functions),
                extra_cuda_cflags=nvcc_flags(toolkit, capability),
                extra_include_paths=include_paths(toolkit, folder),
                extra_ldflags=link_flags(toolkit, folder), build_directory=str(folder))
        except (RuntimeError, OSError, ImportError, ValueError) as error:
            raise Stop(f"{name} cannot be compiled: {reason(error)}")


def reason(error):
    """One line of what went wrong: a compiler's first error, or the message's first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror\b|undefined reference", line, re.I)]
    plain = [line for line in errors if not line.startswith("Error building extension")]
    return (plain or lines or [type(error).__name__])[0][:200]


# --- Checking and timing ---


def make_inputs(torch, program, size, dtype):
    generator = torch.Generator(device="cuda").manual_seed(1)
    kind = {"fp32": torch.float32, "fp16": torch.float16}[dtype]
    return [torch.empty(shape, dtype=kind, device="cuda").uniform_(*limits, generator=generator)
            for shape, limits in program.inputs(size)]


def measure(name, page, module, size, dtype):
    """Prints a table of a program's kernels. Returns the exit status."""
    import torch
    from frameworks import timing, verification

    program = PROGRAMS[name]
    inputs = make_inputs(torch, program, size, dtype)

    def expected(*arguments):
        if hasattr(page, "expected"):
            return page.expected(*arguments)
        return verification.elementwise(page.formula, *arguments)

    def check(output):
        """The largest error. Raises verification.Wrong."""
        problem = {"dtype": dtype, "outputs": [{"shape": shape}]}
        return verification.check(problem, inputs, output, expected)

    eager = page.formula(*inputs)
    shape, moved = list(eager.shape), sum(tensor.nbytes for tensor in [*inputs, eager])
    try:
        check(eager)
    except verification.Wrong as wrong:
        raise Stop(f"{name}: eager PyTorch is wrong: {wrong}", WRONG)
    del eager
    eager_ms = timing.measure(lambda: page.formula(*inputs))

    print(f"\n{name}, {'S' if program.talk else 'N'} = {size}, {dtype}: {program.formula}")
    print(f"{'eager':>28}{'kernel':>11}{'GB/s':>7}{'speed-up':>10}{'error':>9}")
    status = OK
    for kernel in program.functions:
        function = getattr(module, kernel)
        try:
            error = check(function(*inputs))
        except verification.Wrong as wrong:
            print(f"  {kernel:16}  WRONG: {wrong}")
            status = WRONG
            continue
        ms = timing.measure(lambda: function(*inputs))
        figures = f"{number(eager_ms):>7} ms{number(ms):>8} ms{number(moved / ms / 1e6):>7}"
        print(f"  {kernel:16}  {figures}{ratio(eager_ms, ms):>10}{error:>9.1e}  verified",
              flush=True)
    return status


# --- Command line ---


def parse_arguments(arguments):
    parser = command_line.Parser(prog=WHO, description=__doc__, allow_abbrev=False,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    names = list(PROGRAMS)
    add("--operations", metavar="NAME,...", type=compare_frameworks.operations(names),
        default=names, help="programs, or their numbers; all without it: " + ", ".join(names))
    add("--sizes", metavar="N,...", type=command_line.sizes(), default=[SIZE],
        help=f"matrices of N x N; {SIZE} without it")
    add("--talk", metavar="S,...", type=command_line.sizes(16), default=[TALK_SIZE],
        help=f"the talk's shape, x[4 S^2, 128] and W[128, 64]; {TALK_SIZE} without it")
    add("--dtype", metavar="NAME,...", type=dtypes, default=list(DTYPES),
        help="leaves out the others: " + ", ".join(DTYPES))
    return parser.parse_args(arguments)


def dtypes(text):
    for part in text.split(","):
        if part not in DTYPES:
            raise argparse.ArgumentTypeError(f"'{part}' is none of {', '.join(DTYPES)}")
    return text.split(",")


@command_line.reporting(WHO)
def main(arguments):
    options = parse_arguments(arguments)
    wanted = [(name, [dtype for dtype in PROGRAMS[name].dtypes if dtype in options.dtype])
              for name in options.operations]
    if not any(kinds for _, kinds in wanted):
        raise Stop("none of these programs has that data type", USAGE)
    gpu, capability = compare_frameworks.load_frameworks()
    toolkit = find_tools()

    import torch
    print(f"{gpu}, PyTorch {torch.__version__}, nvcc {toolkit.version}")
    status = OK
    for name, kinds in wanted:
        if kinds:
            page = compare_frameworks.load_page(name)
            module = load(name, toolkit, capability)
        for dtype in kinds:
            for size in options.talk if PROGRAMS[name].talk else options.sizes:
                try:
                    status = max(status, measure(name, page, module, size, dtype))
                except RuntimeError as error:  # CUDA's, and too little memory
                    raise Stop(f"{name}: {reason(error)}")
    return status


if __name__ == "__main__":
    command_line.run(main)
