"""scripts/from_pytorch.py without PyTorch: modules stand in for it, which compile nothing and know
the times. And what it compiles, against headers that stand in for PyTorch's."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

import from_pytorch
from fakes import script
from suite import FAILED, ROOT, SKIPPED, USAGE, VERIFIED, assert_one_line


def test_bad_arguments_end_with_one_line():
    for arguments in (["--bogus"], ["0"], ["64", "64"]):
        done = script("from_pytorch.py", *arguments)
        assert (done.returncode, done.stdout) == (USAGE, "")
        assert_one_line(done.stderr, "from_pytorch.py")


@pytest.mark.parametrize("how, status, said", [
    ("right", VERIFIED, "compiling"),
    ("broken", FAILED, '7_gelu cannot be compiled: src/7_gelu.cu(9): error: "y" is undefined'),
    ("no GPU", SKIPPED, "no NVIDIA GPU"), ("no PyTorch", SKIPPED, "PyTorch and Triton are needed")])
def test_the_kernel_is_one_more_line_of_the_page(monkeypatch, capsys, tmp_path, how, status, said):
    def load_inline(**_):
        if how == "broken":
            raise RuntimeError("Error building extension 'x': c++\n"
                               'src/7_gelu.cu(9): error: "y" is undefined')
        return SimpleNamespace(fused="the kernel")

    def compare(page, n, s):
        print(n, page.peers({}))
        return VERIFIED

    cuda = SimpleNamespace(is_available=lambda: how != "no GPU",
                           get_device_capability=lambda: (9, 0))
    demo = SimpleNamespace(torch=SimpleNamespace(cuda=cuda), one_kernel=lambda run: [run])
    extension = SimpleNamespace(cpp_extension=SimpleNamespace(load_inline=load_inline))
    monkeypatch.setitem(sys.modules, "torch_demo", None if how == "no PyTorch" else demo)
    monkeypatch.setitem(sys.modules, "torch", demo.torch)
    monkeypatch.setitem(sys.modules, "torch.utils", extension)
    monkeypatch.setattr(from_pytorch.alone, "compare", compare)
    monkeypatch.setattr(from_pytorch, "load_page", lambda name: SimpleNamespace(
        peers=lambda problem: {"eager": name}))
    toolkit = SimpleNamespace(nvcc="/cuda/bin/nvcc", version="13.0", lib_dir="/cuda/lib", flags=[])
    monkeypatch.setattr(from_pytorch.cuda_toolkit, "find", lambda: toolkit)
    monkeypatch.setattr(from_pytorch, "BUILD", tmp_path)
    monkeypatch.setattr(from_pytorch.os, "environ", {**from_pytorch.os.environ})  # it sets some
    assert from_pytorch.main(["64,96"]) == status
    out, err = capsys.readouterr()
    assert said in err.splitlines()[-1]
    peers = "{'eager': '7_gelu', 'fused': ['the kernel']}"
    assert out == (f"64 {peers}\n96 {peers}\n" if status == VERIFIED else "")


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
