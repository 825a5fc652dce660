"""scripts/from_pytorch.py without PyTorch: modules stand in for it, which compile nothing and know
the times. And what it compiles, against headers that stand in for PyTorch's."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

import frameworks
import from_pytorch
from fakes import script
from suite import FAILED, ROOT, SKIPPED, USAGE, VERIFIED, WRONG, assert_one_line


def test_bad_arguments_end_with_one_line():
    for arguments in (["--bogus"], ["0"], ["64", "64"]):
        done = script("from_pytorch.py", *arguments)
        assert (done.returncode, done.stdout) == (USAGE, "")
        assert_one_line(done.stderr, "from_pytorch.py")


@pytest.mark.parametrize("how, status, said", [
    ("right", VERIFIED, "compiling"), ("wrong", WRONG, "N = 64: wrong: 7 of 8 elements are off"),
    ("broken", FAILED, '7_gelu cannot be compiled: src/7_gelu.cu(9): error: "y" is undefined'),
    ("no GPU", SKIPPED, "no NVIDIA GPU"), ("no PyTorch", SKIPPED, "PyTorch is not installed")])
def test_the_kernel_is_checked_and_timed_beside_eager(monkeypatch, capsys, tmp_path, how, status,
                                                      said):
    def load_inline(**_):
        if how == "broken":
            raise RuntimeError("Error building extension 'x': c++\n"
                               'src/7_gelu.cu(9): error: "y" is undefined')
        return SimpleNamespace(fused=lambda x: x)

    def check(problem, inputs, output, expected):
        if how == "wrong":
            raise ValueError("7 of 8 elements are off")
        return 4.7e-7

    x = SimpleNamespace(uniform_=lambda *_: SimpleNamespace(nbytes=2**22))
    gpu = SimpleNamespace(is_available=lambda: how != "no GPU", get_device_name=lambda: "A GPU",
                          get_device_capability=lambda: (9, 0))
    torch = SimpleNamespace(__version__="2.x", empty=lambda shape, device: x, cuda=gpu)
    extension = SimpleNamespace(cpp_extension=SimpleNamespace(load_inline=load_inline))
    times = iter([4.0, 2.0])
    monkeypatch.setitem(sys.modules, "torch", None if how == "no PyTorch" else torch)
    monkeypatch.setitem(sys.modules, "torch.utils", extension)
    for name, module in (("timing", SimpleNamespace(measure=lambda run: next(times))),
                         ("verification", SimpleNamespace(check=check, gelu=None,
                                                         Wrong=ValueError))):
        monkeypatch.setattr(frameworks, name, module, raising=False)
    toolkit = SimpleNamespace(nvcc="/cuda/bin/nvcc", version="13.0", lib_dir="/cuda/lib", flags=[])
    monkeypatch.setattr(from_pytorch.cuda_toolkit, "find", lambda: toolkit)
    monkeypatch.setattr(from_pytorch, "BUILD", tmp_path)
    monkeypatch.setattr(from_pytorch.os, "environ", {**from_pytorch.os.environ})  # it sets some
    assert from_pytorch.main(["64"]) == status
    out, err = capsys.readouterr()
    assert said in err.splitlines()[-1] and ("verified" in out) == (status == VERIFIED)
    if status == VERIFIED:  # 8 MiB move
        assert "fused    2.00 ms, 4.19 GB/s, 2.00x as fast; verified, error up to 4.7e-07" in out


# As much of PyTorch's C++ as the function uses.
TORCH = """
#include <cuda_runtime.h>
#include <cstdint>
#define TORCH_CHECK(condition, ...) (void)(condition)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() (void)0
namespace torch {
struct Device {};
struct Tensor {
    bool is_cuda() const; bool is_contiguous() const; int64_t numel() const;
    Device device() const; template <class T> T* data_ptr() const;
};
Tensor empty_like(const Tensor&);
}
namespace c10::cuda {
cudaStream_t getCurrentCUDAStream();
struct CUDAGuard { explicit CUDAGuard(torch::Device); };
}
"""


def test_it_fits_the_lessons_source(tmp_path):
    if not shutil.which("clang++"):
        pytest.skip("clang++ is not installed")
    (tmp_path / "c10/cuda").mkdir(parents=True)
    for name in ("CUDAException", "CUDAGuard", "CUDAStream"):
        (tmp_path / f"c10/cuda/{name}.h").touch()
    source = tmp_path / "cuda.cu"
    source.write_text(TORCH + from_pytorch.CUDA + from_pytorch.HARNESS + from_pytorch.CPP)
    assert script("compile_commands.py").returncode == 0
    commands = json.loads((ROOT / "compile_commands.json").read_text(encoding="utf-8"))
    flags = next(each["arguments"] for each in commands if each["file"] == "src/7_gelu.cu")[:-2]
    done = subprocess.run([*flags, f"-I{tmp_path}", "-I.", "-fsyntax-only", source], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
