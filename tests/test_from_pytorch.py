"""scripts/from_pytorch.py without PyTorch: modules stand in for it, which compile nothing and know
the times. And what it compiles, against headers that stand in for PyTorch's."""

import json
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from fakes import FakeMachine, script
from suite import FAILED, ROOT, USAGE, VERIFIED, WRONG, assert_one_line, describe, scons
from test_compare_frameworks import FakeFrameworks, install, pretend

import compare_frameworks
import cuda_toolkit
import from_pytorch

NAME = "from_pytorch.py"
SKIPPED = 77


@pytest.mark.parametrize("arguments", [
    ["--bogus"], ["7"], ["--operations", "8"], ["--sizes", "0"], ["--talk", "17"],
    ["--dtype", "bf16"], ["--operations", "6", "--dtype", "fp32"],
], ids=" ".join)
def test_bad_arguments_end_with_one_line(arguments):
    done = script(NAME, *arguments)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, NAME)


# --- Where something is missing -----------------------------------------------------------------


def said_by_main(capsys):
    said = capsys.readouterr()
    assert said.out == ""
    assert_one_line(said.err, NAME)
    return said.err


def test_without_pytorch_it_says_so(monkeypatch, capsys):
    pretend(monkeypatch)
    assert from_pytorch.main([]) == SKIPPED
    assert "PyTorch is not installed" in said_by_main(capsys)


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    install(monkeypatch, FakeFrameworks({}, gpu=None))
    assert from_pytorch.main([]) == SKIPPED
    assert "no NVIDIA GPU" in said_by_main(capsys)


@pytest.mark.parametrize("there, advice", [
    ((), "pip install ninja"), (("ninja",), "install g++"),
    (("ninja", "c++"), "install the CUDA Toolkit")], ids=["ninja", "compiler", "nvcc"])
def test_what_the_compilation_needs_is_named(monkeypatch, capsys, tmp_path, there, advice):
    install(monkeypatch, FakeFrameworks({}))
    for name in there:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(from_pytorch.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(from_pytorch.cuda_toolkit, "_candidates", lambda: [])
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert from_pytorch.main([]) == FAILED
    assert advice in said_by_main(capsys)


# --- A whole run, with canned times -------------------------------------------------------------


class Tensor:
    """Knows its shape, and whether it is a right result."""

    def __init__(self, shape, right=True, itemsize=4):
        self.shape, self.right, self.itemsize = shape, right, itemsize

    @property
    def nbytes(self):
        size = self.itemsize
        for side in self.shape:
            size *= side
        return size

    def uniform_(self, *_, **__):
        return self


class Wrong(Exception):
    pass


@pytest.fixture
def pytorch(monkeypatch, tmp_path):
    """Stands in for PyTorch on a GPU. `ms` has the times, `wrong` the kernels that are wrong,
    `broken` what compiling raises; `compiled` is what load_inline was given."""
    state = types.SimpleNamespace(ms={"eager": 4.0, "fused": 2.0, "fused_vectorized": 1.0},
                                  wrong=(), broken=None, compiled=[], has_nvtx=True)
    install(monkeypatch, FakeFrameworks({}))
    torch = sys.modules["torch"]
    torch.__version__, torch.float32, torch.float16 = "2.x", 4, 2
    torch.Generator = lambda device: types.SimpleNamespace(manual_seed=lambda seed: seed)
    torch.empty = lambda shape, dtype, device: Tensor(shape, itemsize=dtype)

    def function(name):
        def run(*inputs):
            state.last = name
            return Tensor(inputs[0].shape, name not in state.wrong, inputs[0].itemsize)
        return run

    def load_inline(**arguments):
        state.compiled.append(arguments)
        if state.broken:
            raise state.broken
        return types.SimpleNamespace(**{name: function(name) for name in arguments["functions"]})

    def check(problem, inputs, output, expected):
        if output.shape != inputs[0].shape or not output.right:
            raise Wrong("7 of 8 checked elements are off")
        return 4.7e-7

    def measure(run):
        run()
        return state.ms[state.last]

    modules = {"torch.utils": {"cpp_extension": types.SimpleNamespace(load_inline=load_inline)},
               "frameworks.timing": {"measure": measure},
               "frameworks.verification": {"check": check, "Wrong": Wrong}}
    import frameworks
    for name, members in modules.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
        if name.startswith("frameworks."):
            monkeypatch.setattr(frameworks, name.partition(".")[2], module, raising=False)
    monkeypatch.setattr(compare_frameworks, "load_page",
                        lambda name: types.SimpleNamespace(formula=function("eager")))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libcudart.so.13").write_text("")
    toolkit = types.SimpleNamespace(version="13.0.88", lib_dir=str(tmp_path / "lib"),
                                    link_flag=lambda name: f"-l:lib{name}.so.13",
                                    flags=["-ccbin=g++-12", "-isystem=/hpc_sdk/include"],
                                    has_header=lambda name: state.has_nvtx)
    monkeypatch.setattr(from_pytorch, "find_tools", lambda: toolkit)
    monkeypatch.setattr(from_pytorch, "BUILD", tmp_path / "build")
    return state


def test_a_line_for_each_kernel(pytorch, capsys):
    arguments = ["--operations", "7", "--sizes", "1024", "--dtype", "fp32"]
    assert from_pytorch.main(arguments) == VERIFIED
    out = capsys.readouterr().out
    assert out.startswith("Fake, GPU, PyTorch 2.x, nvcc 13.0.88\n")
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()[-2:]}
    assert rows == {  # 8 MiB move
        "fused": "4.00 ms 2.00 ms 4.19 2.00x 4.7e-07 verified".split(),
        "fused_vectorized": "4.00 ms 1.00 ms 8.39 4.00x 4.7e-07 verified".split()}
    assert all(len(line) <= 79 for line in out.splitlines())


def test_a_wrong_kernel_is_not_timed_and_the_others_are(pytorch, capsys):
    pytorch.wrong = ("fused",)
    assert from_pytorch.main(["--operations", "7", "--sizes", "64", "--dtype", "fp16"]) == WRONG
    wrong, right = capsys.readouterr().out.splitlines()[-2:]
    assert wrong.split(None, 1) == ["fused", "WRONG: 7 of 8 checked elements are off"]
    assert right.endswith("verified")


def test_every_size_and_type_of_what_is_compiled_once(pytorch, capsys):
    assert from_pytorch.main(["--operations", "7,10", "--sizes", "64,100"]) == VERIFIED
    heads = [line for line in capsys.readouterr().out.splitlines() if line[:1].isdigit()]
    assert [head.partition(":")[0] for head in heads] == [
        f"{name}, N = {n}, {dtype}" for name in ("7_gelu", "10_add_mul_activation")
        for dtype in ("fp32", "fp16") for n in (64, 100)]
    assert [each["name"] for each in pytorch.compiled] == [
        "from_pytorch_7_gelu", "from_pytorch_10_add_mul_activation"]


def test_the_compiler_gets_the_lessons_own_file_and_this_gpus_architecture(pytorch, tmp_path):
    from_pytorch.main(["--operations", "7"])
    given, = pytorch.compiled
    assert '#include "src/7_gelu.cu"' in given["cuda_sources"][0]
    assert str(ROOT) in given["extra_include_paths"]
    assert "-gencode=arch=compute_90a,code=sm_90a" in given["extra_cuda_cflags"]
    assert "-U__CUDA_NO_HALF_OPERATORS__" in given["extra_cuda_cflags"]
    assert {"-ccbin=g++-12", "-isystem=/hpc_sdk/include"} < set(given["extra_cuda_cflags"])
    # Wheels have the library by its versioned name alone.
    folder = tmp_path / "build/7_gelu"
    assert f"-L{folder}" in given["extra_ldflags"]
    assert (folder / "libcudart.so").resolve() == tmp_path / "lib/libcudart.so.13"


def test_pytorchs_own_nvtx_serves_a_toolkit_without(pytorch, tmp_path, monkeypatch):
    wheel = tmp_path / "site-packages/nvidia/cu13/include/nvtx3"
    wheel.mkdir(parents=True)
    (wheel / "nvToolsExt.h").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    for pytorch.has_nvtx in (True, False, False):
        from_pytorch.main(["--operations", "7"])
    first, *others = pytorch.compiled
    for given in others:
        *same, last = map(Path, given["extra_include_paths"])
        assert [str(path) for path in same] == first["extra_include_paths"]
        assert (last / "nvtx3").resolve() == wheel and len(list(last.iterdir())) == 1


def test_a_toolkit_without_nvtx_will_do_for_whoever_has_it(tmp_path):
    (tmp_path / "bin").mkdir()
    FakeMachine.install(tmp_path / "bin/nvcc", f"""#!/bin/sh
case $* in
    --version) echo "Cuda compilation tools, release 13.0, V13.0.88" ;;
    *) echo '#$ TOP={tmp_path}' ;;
esac
""")
    (tmp_path / "lib").mkdir()
    for name in ("cublas", "cublasLt"):
        (tmp_path / f"lib/lib{name}.so.13").touch()
    nvcc = str(tmp_path / "bin/nvcc")
    if cuda_toolkit.Toolkit(nvcc, "", str(tmp_path / "lib")).has_header("nvtx3/nvToolsExt.h"):
        pytest.skip("NVTX's headers lie in /usr/include")
    with pytest.raises(cuda_toolkit.ToolkitError, match="lacks NVTX"):
        cuda_toolkit._inspect(nvcc, has_nvtx=False)
    assert cuda_toolkit._inspect(nvcc, has_nvtx=True).nvcc == nvcc


def test_a_compiler_of_two_words_is_found(monkeypatch, tmp_path):
    for name in ("ninja", "ccache"):
        FakeMachine.install(tmp_path / name, "#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "ccache g++")
    monkeypatch.setattr(from_pytorch.cuda_toolkit, "_candidates", lambda: [])
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(from_pytorch.Stop, match="install the CUDA Toolkit"):
        from_pytorch.find_tools()


def test_a_lock_that_a_killed_run_left_is_no_reason_to_wait(pytorch, tmp_path):
    (tmp_path / "build/7_gelu").mkdir(parents=True)
    (tmp_path / "build/7_gelu/lock").write_text("")
    from_pytorch.main(["--operations", "7"])
    assert not (tmp_path / "build/7_gelu/lock").exists()


@pytest.mark.parametrize("message, reason", [
    ("Error building extension 'x': [1/3] c++ -c main.cpp\nFAILED: cuda.cuda.o\n"
     "src/7_gelu.cu(9): error: identifier \"y\" is undefined\nninja: build stopped.",
     'src/7_gelu.cu(9): error: identifier "y" is undefined'),
    ("\nThe detected CUDA version (12.4) mismatches the version that was used to compile\n"
     "PyTorch (13.0).", "The detected CUDA version (12.4) mismatches the version that was used to "
     "compile")], ids=["compiler", "version"])
def test_a_failed_compilation_is_one_line(pytorch, capsys, message, reason):
    pytorch.broken = RuntimeError(message)
    assert from_pytorch.main(["--operations", "7"]) == FAILED
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"{NAME}: 7_gelu cannot be compiled: {reason}"


# --- What is compiled ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", from_pytorch.PROGRAMS)
def test_its_functions_are_the_lessons_kernels(name):
    about = describe(name)
    own = {each["kernel"] for each in about["contenders"] if each["role"] == "ours"}
    program = from_pytorch.PROGRAMS[name]
    assert set(program.functions) <= own and set(program.dtypes) <= set(about["dtypes"])


# As much of PyTorch's C++ as the functions use.
TORCH = """
#pragma once
#include <cstdint>
#include <initializer_list>
#define TORCH_CHECK(condition, ...) (void)(condition)
namespace torch {
enum ScalarType { kHalf, kFloat };
struct Options {};
struct Device {};
struct Sizes { Sizes slice(int) const; bool operator==(Sizes) const; };
struct Tensor {
    bool is_cuda() const; bool is_contiguous() const; int get_device() const;
    void* data_ptr() const; ScalarType scalar_type() const; int64_t numel() const;
    int64_t dim() const; int64_t size(int) const; Sizes sizes() const;
    Device device() const; Options options() const;
};
Tensor empty_like(const Tensor&);
Tensor empty(std::initializer_list<int64_t>, Options);
}
namespace c10 {
struct Half;
template <class> struct CppTypeToScalarType;
template <> struct CppTypeToScalarType<Half> { static constexpr auto value = torch::kHalf; };
template <> struct CppTypeToScalarType<float> { static constexpr auto value = torch::kFloat; };
}
"""


@pytest.mark.parametrize("name", from_pytorch.PROGRAMS)
def test_they_fit_the_lessons_source(name, tmp_path):
    if not shutil.which("clang++"):
        pytest.skip("clang++ is not installed")
    stream = "namespace c10::cuda { cudaStream_t getCurrentCUDAStream(); }"
    guard = "namespace c10::cuda { int current_device(); struct CUDAGuard {\n" \
            "explicit CUDAGuard(torch::Device); ~CUDAGuard(); }; }\n"
    headers = {"torch/types.h": TORCH, "c10/cuda/CUDAStream.h": stream,
               "c10/cuda/CUDAGuard.h": guard,
               "c10/cuda/CUDAException.h": "#define C10_CUDA_CHECK(call) (void)(call)\n"
                                           "#define C10_CUDA_KERNEL_LAUNCH_CHECK() (void)0\n"}
    for header, text in headers.items():
        (tmp_path / header).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / header).write_text(text)
    cpp, cuda = from_pytorch.sources(name)
    (tmp_path / "cuda.cu").write_text(f"#include <torch/types.h>\n{cuda}\n{cpp}\n")
    assert scons("compile_commands").returncode == 0
    commands = json.loads((ROOT / "compile_commands.json").read_text(encoding="utf-8"))
    flags = next(each["arguments"] for each in commands if each["file"] == f"src/{name}.cu")[:-2]
    source = str(tmp_path / "cuda.cu")
    done = subprocess.run([*flags, f"-I{tmp_path}", "-I.", "-ferror-limit=0", "-fsyntax-only",
                           source], cwd=ROOT, capture_output=True, text=True)
    # Up to version 15 clang has errors of its own in lambdas that capture parts of a struct.
    ours = [line for line in done.stderr.splitlines() if source in line and "error:" in line]
    assert not ours and "fatal error" not in done.stderr
