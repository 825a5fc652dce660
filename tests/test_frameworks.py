"""scripts/compare_frameworks.py, without PyTorch: a module of canned times stands in for it."""

import csv
import importlib.machinery
import re
import shutil
import subprocess
import sys
import time
import types

import pytest

from suite import FAILED, ROOT, SKIPPED, USAGE, VERIFIED, WRONG, assert_one_line

sys.path.insert(0, str(ROOT / "scripts"))
import compare_frameworks as frameworks  # noqa: E402
import table  # noqa: E402

NAME = "compare_frameworks.py"
GELU = ["--operations", "gelu", "--dtype", "fp32"]


def case_of(name, size, dtype):
    operation = next(o for o in frameworks.OPERATIONS if o.name == name)
    return frameworks.Case(operation, size, dtype)


# --- Command line -----------------------------------------------------------------------------


def test_help_names_every_option_and_operation():
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / NAME), "--help"],
                          capture_output=True, text=True)
    assert done.returncode == VERIFIED and done.stderr == ""
    for word in ["--operations", "--shapes", "--sizes", "--talk", "--dtype", "--rounds", "--csv",
                 "--table", "--programs"] + [o.name for o in frameworks.OPERATIONS]:
        assert word in done.stdout


@pytest.mark.parametrize("arguments", [
    ["--bogus"], ["4096"], ["--operations", "bogus"], ["--operations", ""], ["--operations"],
    ["--sizes", "33"], ["--sizes", "0"], ["--sizes", "64,"], ["--sizes", "1e3"], ["--talk", "17"],
    ["--shapes", "4096"], ["--shapes", "0x8"], ["--shapes", "8x8x8"], ["--dtype", "fp64"],
    ["--rounds", "0"], ["--rounds", "x"], ["--operations", "gelu", "--dtype", "bf16"],
    ["--table", "nowhere.csv"], ["--table", str(ROOT / "results/nvidia-h200.csv")],
], ids=" ".join)
def test_bad_arguments_end_with_one_line(arguments):
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / NAME)] + arguments,
                          capture_output=True, text=True)
    assert done.returncode == USAGE
    assert done.stdout == ""
    assert_one_line(done.stderr, NAME)


def pretend(monkeypatch, *modules):
    """Makes find_spec find these of torch and triton, and not the others."""
    for name in ("torch", "triton"):
        module = types.ModuleType(name) if name in modules else None
        if module:
            module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("there, named", [((), "PyTorch"), (("torch",), "Triton"),
                                          (("torch", "triton"), "cannot be loaded")],
                         ids=["no-torch", "no-triton", "broken"])
def test_without_the_frameworks_it_says_so_in_one_line(monkeypatch, capsys, there, named):
    pretend(monkeypatch, *there)
    monkeypatch.delitem(sys.modules, "framework_peers", raising=False)
    assert frameworks.main([]) == SKIPPED
    said = capsys.readouterr()
    assert said.out == ""
    assert_one_line(said.err, NAME)
    assert named in said.err


def test_without_a_gpu_it_says_so_in_one_line(monkeypatch, capsys):
    install(monkeypatch, FakePeers({}, gpu=False))
    assert frameworks.main([]) == SKIPPED
    said = capsys.readouterr()
    assert said.out == ""
    assert_one_line(said.err, NAME)
    assert "no NVIDIA GPU" in said.err


# --- What is compared -------------------------------------------------------------------------


@pytest.mark.parametrize("name, size, dtype, arguments", [
    ("gelu", (8, 16), "fp16", "--rows 8 --cols 16 --dtype fp16"),
    ("add_mul_relu", (8, 16), "fp32", "--rows 8 --cols 16 --dtype fp32 --activation relu"),
    ("gating", 1024, "fp16", "1024"),
    ("gating_talk", 128, "fp16", "--talk 128"),
    ("matmul_hopper", 8192, "bf16", "8192 --dtype bf16"),
    ("matmul_cublas", 4096, "tf32", "4096"),
])
def test_our_programs_command_lines(name, size, dtype, arguments):
    assert case_of(name, size, dtype).arguments() == arguments.split()


def test_operations_and_bytes_are_counted_as_our_programs_count_them():
    talk = case_of("gating_talk", 1024, "fp16")
    assert talk.flops() == 4 * (4 * 1024**2) * 128 * 64
    assert talk.least_bytes() == 2 * (4 * 1024**2 * (128 + 64) + 2 * 128 * 64 + 2 * 64)
    assert case_of("gating", 4096, "fp16").flops() == 4 * 4096**3
    assert case_of("matmul_hopper", 4096, "fp16").flops() == 2 * 4096**3
    assert case_of("softmax", (3, 5), "fp32").least_bytes() == 2 * 3 * 5 * 4
    assert case_of("bias_relu", (3, 5), "fp16").least_bytes() == (2 * 3 * 5 + 5) * 2
    assert case_of("add_mul_relu", (3, 5), "fp16").least_bytes() == (3 * 3 * 5 + 5) * 2


def result(kernel, ms, dtype="fp16", verified="yes"):
    return {"kernel": kernel, "median_ms": ms, "dtype": dtype, "verified": verified}


def test_ours_is_the_fastest_verified_kernel_of_our_own():
    case = case_of("gating", 4096, "fp16")
    rows = [result("fused_tiled", "3.0"), result("six_kernels", "2.0"), result("fused", "2.5"),
            result("library_best", "1.0"), result("cublas_gemms", "0.5"),
            result("fused_wrong", "0.1", verified="no"), result("fused_once", ""),
            result("fused_other", "0.2", dtype="bf16")]
    assert frameworks.best_of_ours(case, rows) == ("fused", 2.5)


@pytest.mark.parametrize("name, size, rows", [
    ("gelu", (8, 8), [result("chain", "1.0"), result("copy", "0.5")]),
    ("matmul_hopper", 4096, [result("cublas_fp16", "1.0"), result("cublasLt_best", "1.0")]),
    ("matmul_hopper", 4096, [result("pipeline", "1.0", dtype="bf16")]),
    ("matmul_hopper", 4096, []),
])
def test_the_librarys_and_the_unfused_kernels_are_never_ours(name, size, rows):
    with pytest.raises(frameworks.Failure):
        frameworks.best_of_ours(case_of(name, size, "fp16"), rows)


# --- A whole run, with canned times -----------------------------------------------------------

FAKE_PROGRAM = """#!/bin/sh
echo "$0 $*" >>"$(dirname "$0")/calls"
%s
"""
ROWS = """cat <<'END'
program,kernel,gpu,sm,dtype,shape,n,median_ms,spread_pct,tflops,gb_per_s,verified
7_gelu,chain,Fake,90,fp32,square,8,0.1,0.1,,1,yes
7_gelu,fused,Fake,90,fp32,square,8,2.0,0.1,,1,yes
7_gelu,fused_fast,Fake,90,fp32,square,8,1.0,0.1,,1,yes
END"""


class FakePeers(types.ModuleType):
    """framework_peers: `times` holds for each peer the ms of each round, or what it raises."""

    class Wrong(Exception):
        pass

    def __init__(self, times, gpu=True):
        super().__init__("framework_peers")
        self.times = {name: iter(ms) if isinstance(ms, list) else ms for name, ms in times.items()}
        self.torch = types.SimpleNamespace(__version__="2.x", cuda=types.SimpleNamespace(
            is_available=lambda: gpu, get_device_name=lambda _: "Fake, GPU",
            get_device_capability=lambda _: (9, 0)))
        self.triton = types.SimpleNamespace(__version__="3.x")

    def peers_of(self, case, max_autotune):
        return {name: name for name in self.times if name != "copy"}

    def verify(self, case, peer):
        if callable(self.times[peer]):
            self.times[peer]()

    def measure_peer(self, case, peer):
        return next(self.times[peer])

    def measure_copy(self, case):
        return next(self.times["copy"])

    def free(self):
        pass


def install(monkeypatch, fake):
    pretend(monkeypatch, "torch", "triton")
    monkeypatch.setitem(sys.modules, "framework_peers", fake)


@pytest.fixture
def compare(monkeypatch, capsys, tmp_path):
    """Runs the script with a fake 7_gelu and canned times of theirs."""

    def run(times, program=ROWS, arguments=GELU):
        install(monkeypatch, FakePeers(times))
        if program is not None:
            path = tmp_path / "7_gelu"
            path.write_text(FAKE_PROGRAM % program)
            path.chmod(0o755)
        status = frameworks.main(arguments + ["--programs", str(tmp_path),
                                              "--csv", str(tmp_path / "new/results.csv")])
        said = capsys.readouterr()
        return types.SimpleNamespace(status=status, out=said.out, err=said.err)

    return run


def cells(text):
    """The last line of a printed table, by its head."""
    head, _, *lines = [re.split(r"\s{2,}", line) for line in text.split("\n\n")[-1].splitlines()]
    return dict(zip(head, lines[-1]))


def test_medians_ratios_and_their_range_over_the_rounds(compare, tmp_path):
    done = compare({"eager": [9, 9, 9], "library": [1.5, 1.2, 1.1], "compile": [3, 1, 1.6],
                    "copy": [0.9, 0.9, 0.9]})
    assert (done.status, done.err) == (VERIFIED, "")
    least = 2 * 16384 * 16384 * 4 / 1e6  # GB/s of 1 ms
    line = cells(done.out)
    assert line["our kernel"] == "fused_fast"
    assert line["ours"] == f"{least:.0f} 90%"
    assert line["library"] == f"{least / 1.2:.0f} 75%"
    assert line["copy"] == f"{least / 0.9:.0f} 100%"
    # The best of theirs is the one with the best median, not the one with the best round.
    assert line["best of theirs"] == "library"
    assert line["ours / theirs"] == "1.20x"
    assert line["rounds"] == "1.10-1.50"

    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 1 + 3  # one to choose, then one in each round
    assert "--kernel" not in calls[0]
    assert all(call.endswith("--csv --kernel fused_fast") for call in calls[1:])


def test_the_csv_holds_every_contender_and_prints_the_same_table(compare, tmp_path, capsys):
    done = compare({"library": [1.5, 1.2, 1.1], "copy": [0.9, 0.9, 0.9]})
    file = tmp_path / "new/results.csv"
    lines = file.read_text().splitlines()
    about = [line for line in lines if line.startswith("#")]
    for name in ("GPU: Fake, GPU", "driver: ", "toolkit: ", "pytorch: 2.x", "triton: 3.x",
                 "date: ", "suite: ", "protocol: "):
        assert any(line.startswith("# " + name) for line in about), name
    rows = {row["contender"]: row for row in csv.DictReader(lines[len(about):])}
    assert list(rows) == ["ours", "library", "copy"]
    assert rows["ours"]["kernel"] == "fused_fast" and rows["ours"]["against"] == "library"
    assert float(rows["ours"]["ratio"]) == pytest.approx(1.2)
    assert [float(rows["library"][c]) for c in ("median_ms", "low_ms", "high_ms", "rounds")] == [
        1.2, 1.1, 1.5, 3]
    assert table.read(file).gpu == "Fake, GPU"  # the other scripts read it too

    assert frameworks.main(["--table", str(file)]) == VERIFIED
    assert capsys.readouterr().out == done.out.split("\n\n")[-1]


def test_the_csv_keeps_what_was_measured_before_and_not_again(compare, tmp_path):
    def measured():
        rows = table.read(tmp_path / "new/results.csv").rows
        return [(row["shape"], row["contender"], row["median_ms"]) for row in rows]

    for shape, ms in (("8x8", 2), ("16x16", 3), ("8x8", 4)):
        times = {"library": [ms] * 3, "copy": [1] * 3}
        assert compare(times, arguments=GELU + ["--shapes", shape]).status == VERIFIED
    assert measured() == [("16x16", "ours", 1), ("16x16", "library", 3), ("16x16", "copy", 1),
                          ("8x8", "ours", 1), ("8x8", "library", 4), ("8x8", "copy", 1)]

    file = tmp_path / "new/results.csv"
    file.write_text(file.read_text().replace("# pytorch: 2.x", "# pytorch: 1.x"))
    compare({"library": [5] * 3, "copy": [1] * 3}, arguments=GELU + ["--shapes", "32x32"])
    assert {shape for shape, _, _ in measured()} == {"32x32"}  # others are not comparable


def raise_wrong():
    raise FakePeers.Wrong("7 elements\nare off")


def raise_error():
    raise MemoryError("no room")


def test_a_wrong_peer_is_shown_and_not_timed(compare):
    done = compare({"library": raise_wrong, "compile": [2, 2, 2], "copy": [1, 1, 1]})
    assert done.status == WRONG
    assert_one_line(done.err, NAME)
    assert "library: 7 elements are off" in done.err
    line = cells(done.out)
    assert line["library"] == "wrong" and line["best of theirs"] == "compile"


def test_a_peer_that_fails_does_not_stop_the_others(compare):
    done = compare({"library": raise_error, "compile": [2, 2, 2], "copy": [1, 1, 1]})
    assert done.status == FAILED
    assert "MemoryError: no room" in done.err
    assert cells(done.out)["library"] == "failed"
    assert cells(done.out)["ours / theirs"] == "2.00x"


def test_a_peer_that_fails_in_a_later_round_has_no_figure(compare):
    done = compare({"library": [1], "compile": [2, 2, 2], "copy": [1, 1, 1]})
    assert done.status == FAILED
    assert cells(done.out)["library"] == "failed"
    assert cells(done.out)["best of theirs"] == "compile"


def test_a_step_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(frameworks, "peers", FakePeers({}))

    def stubborn():
        try:
            time.sleep(30)
        except Exception:  # as compilers do
            pass

    start = time.monotonic()
    with pytest.raises(frameworks.Failure, match="not done after"):
        with frameworks.step(0.1):
            stubborn()
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("program, status, shown, reason", [
    (None, FAILED, "missing", "7_gelu is not built"),
    ("echo '7_gelu: too little memory' >&2; exit 3", FAILED, "missing", "too little memory"),
    (ROWS + "\necho '7_gelu: fused: wrong' >&2; exit 1", WRONG, "wrong", "fused: wrong"),
    ("echo '7_gelu: no code for this GPU' >&2; exit 77", VERIFIED, "missing", "no code"),
    ("exit 2", FAILED, "missing", "exit status 2"),
    ("kill -9 $$", FAILED, "missing", "exit status -9"),
    ("echo nonsense; echo nonsense", FAILED, "missing", "something else"),
], ids=["not-built", "error", "wrong", "skipped", "usage", "killed", "nonsense"])
def test_ours_missing_is_shown_with_the_reason(compare, program, status, shown, reason):
    done = compare({"library": [2, 2, 2], "copy": [1, 1, 1]}, program)
    assert done.status == status
    assert_one_line(done.err, NAME)
    assert reason in done.err
    line = cells(done.out)
    assert line["ours"] == shown and line["ours / theirs"] == "-"
    assert line["library"].endswith("50%")  # theirs are there all the same


def test_a_csv_that_cannot_be_written_is_said_before_anything_runs(compare, tmp_path):
    (tmp_path / "new").write_text("a file, not a folder")
    done = compare({"library": [2, 2, 2], "copy": [1, 1, 1]})
    assert done.status == FAILED
    assert_one_line(done.err, NAME)
    assert not (tmp_path / "calls").exists()


# --- Theirs, where PyTorch and Triton are ------------------------------------------------------


@pytest.mark.parametrize("dtype", frameworks.DTYPES)
def test_the_reference_takes_their_results_and_no_wrong_ones(monkeypatch, dtype):
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    import framework_peers

    monkeypatch.setattr(framework_peers, "DEVICE", "cpu")
    size = {"rows": (40, 200), "square": 96, "talk": 16}
    for operation in frameworks.OPERATIONS:
        if dtype not in operation.dtypes:
            continue
        case = frameworks.Case(operation, size[operation.kind], dtype)
        inputs = framework_peers.make_inputs(case)
        peers = framework_peers.peers_of(case)
        for name in ("eager", "library"):  # the others compile
            if name in peers:
                framework_peers.check(case, inputs, peers[name].run(*inputs))
        output = peers["library"].run(*inputs)
        for damage in (lambda x: x * 1.05, lambda x: x.roll(1, dims=1), torch.zeros_like,
                       lambda x: x.index_fill(1, torch.tensor([3]), float("nan"))):
            with pytest.raises(framework_peers.Wrong):
                framework_peers.check(case, inputs, damage(output))


# --- README -----------------------------------------------------------------------------------


def test_the_readme_takes_its_tables_from_results_frameworks(compare, tmp_path):
    compare({"library": [1.5, 1.2, 1.1], "copy": [0.9, 0.9, 0.9]})
    project = tmp_path / "project"
    shutil.copytree(ROOT / "scripts", project / "scripts")
    shutil.copytree(ROOT / "results", project / "results",
                    ignore=shutil.ignore_patterns("frameworks"))
    (project / "results/frameworks").mkdir()
    shutil.copy(tmp_path / "new/results.csv", project / "results/frameworks/fake.csv")
    readme = project / "README.md"
    readme.write_text("a\n<!-- results:begin -->\n<!-- results:end -->\nb\n")

    def update(*arguments):
        return subprocess.run([sys.executable, str(project / "scripts/update_readme.py"),
                               *arguments], capture_output=True, text=True)

    done = update()
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "update_readme.py")

    readme.write_text(readme.read_text() +
                      "<!-- frameworks:begin -->\nold\n<!-- frameworks:end -->\nc\n")
    assert update("--check").returncode == 1
    assert update().returncode == VERIFIED
    part = readme.read_text().split("<!-- frameworks:begin -->")[1]
    assert "old" not in part and part.endswith("<!-- frameworks:end -->\nc\n")
    assert re.search(r"^\| gelu \| 16384x16384 \| fp32 \| fused_fast \|.* 1\.20x \|", part, re.M)
    assert update("--check").returncode == VERIFIED
