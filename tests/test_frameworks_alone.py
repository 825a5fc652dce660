"""Pages of scripts/frameworks that run alone: by Triton's interpreter on the CPU, where PyTorch and
Triton are installed, and without them."""

import importlib
import importlib.util
import re
import subprocess
import sys

import pytest

import frameworks
import suite
from fakes import copy_folders
from suite import CPU, GPU, ROOT, SKIPPED, USAGE, VERIFIED, WRONG, assert_one_line, declared_by

PAGES = ("5_gating_unfused", "6_gating_fused", "7_gelu", "8_softmax", "10_attention",
         "bonus_benchmark_fused")
HAS_BOTH = all(importlib.util.find_spec(module) for module in ("torch", "triton"))
needs_both = pytest.mark.skipif(not HAS_BOTH, reason="PyTorch or Triton is not installed")


def torch_demo():
    return importlib.import_module("torch_demo")


def run_page(name, *arguments, root=ROOT):
    return subprocess.run([sys.executable, str(root / f"scripts/frameworks/{name}.py"), *arguments],
                          capture_output=True, text=True, cwd="/")


@pytest.mark.parametrize("name", PAGES)
def test_bad_arguments_and_missing_modules_end_with_one_line(name):
    wrong = [["-1"], ["--bogus"], ["64,128"], ["0"]]
    if name in ("7_gelu", "8_softmax", "10_attention"):
        wrong += [["--talk", "16"]]
    else:
        wrong += [["33"], ["--talk", "17"], ["--talk", "16", "64"]]
    for arguments in wrong:
        done = run_page(name, *arguments)
        assert (done.returncode, done.stdout) == (USAGE, ""), arguments
        assert_one_line(done.stderr, f"{name}.py")
    if not HAS_BOTH:
        done = run_page(name)
        assert (done.returncode, done.stdout) == (SKIPPED, "")
        assert_one_line(done.stderr, f"{name}.py")
        assert "pip install torch triton" in done.stderr


@needs_both
@pytest.mark.parametrize("name, arguments, kernels", [
    ("5_gating_unfused", ["96"], 3), ("5_gating_unfused", ["--talk", "16"], 3),
    ("6_gating_fused", ["96"], 4), ("6_gating_fused", ["160"], 4),
    ("6_gating_fused", ["--talk", "16"], 4), ("7_gelu", ["1"], 3), ("7_gelu", ["100"], 3),
    ("8_softmax", ["1"], 3), ("8_softmax", ["100"], 3), ("10_attention", ["96"], 3),
    ("10_attention", ["256"], 3)], ids=str)
def test_a_page_verifies_its_kernels(name, arguments, kernels):
    done = run_page(name, *arguments)
    assert (done.returncode, done.stderr) == (VERIFIED, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{name}.py on ") and all(len(line) <= 79 for line in lines)
    own = [line for line in lines if line.endswith("verified") and " copy " not in line]
    assert len(own) == kernels or torch_demo().DEVICE == "cuda"


@needs_both
@pytest.mark.parametrize("arguments, sizes", [(["64"], ["S = 32", "N = 64"]),
                                              (["--talk", "16"], ["S = 16"])], ids=str)
def test_the_benchmark_has_a_line_for_each_size(arguments, sizes):
    done = run_page("bonus_benchmark_fused", *arguments)
    assert done.returncode == VERIFIED
    assert re.findall(r"^  ([NS] = \d+) .* ok$", done.stdout, re.M) == sizes


@needs_both
@pytest.mark.parametrize("name, arguments, old, new", [
    ("6_gating_fused", ["96"], "range(0, K, BK)", "range(0, K - BK, BK)"),
    ("6_gating_fused", ["96"], "tl.sigmoid(v1) * v2", "tl.sigmoid(v2) * v1"),
    ("6_gating_fused", ["96"], "mask=columns < N)", "mask=columns < N - 1, other=0)"),
    ("6_gating_fused", ["96"], "demo.store_tile(out, m, n, M", "demo.store_tile(out, m, n, M - 1"),
    ("6_gating_fused", ["--talk", "16"], "M // BM, tl", "M // BM - 1, tl"),
    ("5_gating_unfused", ["96"], "torch.addmm(b2, x, W2)", "torch.addmm(b1, x, W2)"),
    ("7_gelu", ["100"], "2 * 0.79788456", "1.702"),
    ("8_softmax", ["100"], "tl.max(row, axis=0)", "0"),
    ("8_softmax", ["100"], 'other=float("-inf")).to', "other=-1).to"),
    ("10_attention", ["256"], "total * rescale", "total"),
    ("10_attention", ["96"], 'float("-inf"), tl.float32', "0, tl.float32")], ids=str)
def test_a_wrong_kernel_is_rejected(tmp_path, name, arguments, old, new):
    copy_folders(tmp_path, "scripts")
    page = tmp_path / f"scripts/frameworks/{name}.py"
    text = page.read_text(encoding="utf-8")
    assert old in text
    page.write_text(text.replace(old, new), encoding="utf-8")
    done = run_page(name, *arguments, root=tmp_path)
    assert done.returncode == WRONG, done.stdout
    assert re.search(r"elements are off|not finite", done.stderr)


@needs_both
@pytest.mark.parametrize("name, size, arguments", [
    ("5_gating_unfused", (4096,), ["4096"]), ("5_gating_unfused", (96,), ["96"]),
    ("5_gating_unfused", (None, 16), ["--talk", "16"]), ("7_gelu", (100,), ["100"]),
    ("8_softmax", (1,), ["1"]), ("8_softmax", (256,), ["256"]), ("10_attention", (96,), ["96"])],
    ids=str)
def test_a_pages_problem_is_its_programs(name, size, arguments):
    own = frameworks.load_page(name).problem(*size)
    program = (GPU if torch_demo().DEVICE == "cuda" else CPU).folder / name
    if not program.exists():
        pytest.skip(f"{name} is not built")
    told = declared_by(program, *arguments)["problems"][0]
    for key in ("shape", "n", "dtype", "flops", "least_bytes", "memory_bound", "parameters"):
        assert own[key] == told[key], key
    assert own["outputs"][0]["shape"] == told["outputs"][0]["shape"]
    assert own["inputs"] == [{key: each[key] for key in ("shape", "fill", "name", "dtype")}
                             for each in told["inputs"]]


@needs_both
@pytest.mark.parametrize("bound, page, causal", [
    ("gating", "5_gating_unfused", 0), ("gelu", "7_gelu", 0), ("softmax", "8_softmax", 0),
    ("attention", "10_attention", 0), ("causal", "10_attention", 1)])
def test_bounds_are_the_programs(tmp_path, bound, page, causal):
    import torch

    from frameworks import data, verification

    built = suite.scons("cpu/bounds")
    assert built.returncode == 0, built.stderr
    problem = frameworks.load_page(page).problem(160)
    inputs = data.make_inputs(problem, "cpu")
    files = [tmp_path / f"{i}" for i in range(len(problem["inputs"]))]
    for file, tensor in zip(files, inputs):
        file.write_bytes(tensor.float().numpy().tobytes())
    done = subprocess.run([ROOT / "cpu/bounds", bound, *files], stdout=subprocess.PIPE)
    assert done.returncode == 0
    theirs = torch.frombuffer(bytearray(done.stdout), dtype=torch.float64).view(2, -1, 2)
    if bound == "causal":
        inputs = (*inputs[:3], causal)
    rows = torch.arange(problem["outputs"][0]["shape"][-2] * (2 if "10_" in page else 1))
    formula = getattr(verification, "attention" if bound == "causal" else bound)
    for rounded in (False, True):
        values, room = formula(problem["dtype"], inputs, rows, rounded=rounded)
        want = theirs[int(rounded)]
        assert values.numel() == len(want)
        assert torch.allclose(values.flatten(), want[:, 0], rtol=1e-9, atol=1e-300)
        # Where all terms cancel, sums in fp64 differ in their last places; some are kept in fp32.
        assert torch.allclose(room.flatten(), want[:, 1], rtol=1e-5, atol=1e-300)
