"""compare_gpus.sh: what it measures and when, the files that it writes, and the tables of --table.
Fake programs and a fake nvidia-smi stand in for a machine with GPUs."""

import csv
import functools
import os
import re
import subprocess

import pytest

import expectations
import fakes
from fakes import TWO_GPUS, FakeMachine, clocked, description, row, script, stopped, write_csv
from shared import data_sheets, programs
from shared.table import size
from suite import COLUMNS, CPU, FAILED, PROGRAMS, ROOT, USAGE, WRONG, assert_one_line


@pytest.fixture
def machine(tmp_path):
    return FakeMachine(tmp_path)


def compare(*files, cwd=None):
    return script("compare_gpus.sh", "--table", *files, cwd=cwd)


def compared(*arguments):
    """The rows of the table as CSV, without its head. All programs go well."""
    done = compare("--csv", *arguments)
    assert done.returncode == 0, done.stderr
    return list(csv.reader(done.stdout.splitlines()))[1:]


@pytest.mark.parametrize("arguments", [
    ["--bogus"], ["64"], ["--sizes", "33"], ["--sizes", "64,abc"], ["--sizes", "0"],
    ["--talk", "17"], ["--talk"], ["--rounds", "0"], ["--programs", "bonus"],
    ["--programs", ".*"], ["--standard", "--sizes", "64"], ["--grid", "--standard"], ["--table"],
    ["--standard", "--table", "x.csv"], ["--table", "--sizes", "many", "x.csv"],
    ["--table", "--csv", "--markdown", "x.csv"], ["--table", "--bogus", "x.csv"],
    ["--table", "--baseline", "x.csv"], ["--hosts", ""], ["--hosts", "a,,b"],
    ["--hosts=-oProxyCommand=id"], ["--hosts", "a,me@a"], ["--hosts", "a", "--as", "b"],
    ["--as", "a/b"],
], ids=" ".join)
def test_bad_arguments_end_with_one_line(arguments):
    done = script("compare_gpus.sh", *arguments)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "compare_gpus.sh")


def test_compare_has_one_help():
    done = script("compare_gpus.sh", "--table", "--help")
    assert done.returncode == 0 and done.stdout == script("compare_gpus.sh", "--help").stdout


# --- Measuring --------------------------------------------------------------------------------


def test_compare_measures_each_gpu_into_a_file_of_its_own(machine):
    done = machine.run("compare_gpus.sh", "--sizes", "64", "--talk", "32")
    assert done.returncode == 0, done.stderr
    folder = machine.root / "build/results"
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["fake-gpu-0.csv", "fake-gpu-1.csv"]
    about, rows = machine.results("fake-gpu-0.csv")
    assert about["GPU"] == "Fake GPU" and about["driver"] == "580.1" and about["protocol"] == "3"
    assert about["seed"] == about["rounds"] == "1" and about["rows"] == "7"
    assert all(about[name] for name in ("toolkit", "suite", "date"))
    assert [(row["program"], row["shape"], row["dtype"]) for row in rows] == [
        ("1_matmul_basic", "square", "fp32"), ("2_matmul_sharedmem", "square", "fp32"),
        ("6_gating_fused", "square", "fp32"), ("6_gating_fused", "talk", "fp32"),
        ("10_fake", "square", "fp32"), ("10_fake", "square", "fp16"),
        ("bonus_fake", "square", "fp32")]
    assert list(rows[0]) == COLUMNS + fakes.CLOCKS

    assert len(machine.calls()) == 2 * 7
    assert {call.split()[-1] for call in machine.calls()} == {"GPU-aaa", "GPU-bbb"}
    assert not any("GPU-aaa" in (folder / name).read_text() for name in files)
    assert "fake-gpu-0.csv" in done.stdout  # the table's head
    assert compare(*(folder / name for name in files)).returncode == 0


def test_compare_measures_everything_into_results_and_a_selection_elsewhere(machine):
    machine.has(TWO_GPUS[0])
    assert machine.run("compare_gpus.sh").returncode == 0
    _, rows = machine.results("fake-gpu.csv", "results")
    sizes = {}
    for each in rows:
        shape = "other" if "x" in each["shape"] else each["shape"]
        sizes.setdefault((each["program"], shape, each["dtype"]), []).append(int(each["n"]))
    assert sizes == {
        ("1_matmul_basic", "square", "fp32"): [1024, 2048, 4096, 8192],
        ("2_matmul_sharedmem", "square", "fp32"): [1024, 2048, 4096, 8192],
        ("6_gating_fused", "square", "fp32"): [1024, 2048, 4096, 8192, 16384],
        ("6_gating_fused", "talk", "fp32"): [128, 256, 512, 1024, 2048],
        ("10_fake", "square", "fp32"): [4096, 8192, 16384],
        ("10_fake", "other", "fp32"): [4096, 8192],
        ("10_fake", "square", "fp16"): [4096, 8192, 16384],
        ("10_fake", "other", "fp16"): [4096, 8192],
        ("bonus_fake", "square", "fp32"): [1024, 2048, 4096, 8192, 16384],
    }
    before = (machine.root / "results/fake-gpu.csv").read_text()
    done = machine.run("compare_gpus.sh", "--standard")
    assert done.returncode == 0 and "build/results/standard/fake-gpu.csv; send that" in done.stderr
    assert (machine.root / "results/fake-gpu.csv").read_text() == before
    about, rows = machine.results("fake-gpu.csv", "build/results/standard")
    assert (about["list"], about["protocol"]) == ("standard", "3")
    lessons = [("1_matmul_basic", "N=4096"), ("2_matmul_sharedmem", "N=4096"),
               ("6_gating_fused", "N=4096"), ("6_gating_fused", "S=1024"), ("10_fake", "N=4096")]
    assert [(row["program"], size(row), row["dtype"]) for row in rows] == [
        (*lesson, "fp32") for lesson in lessons]
    whole, standard = (machine.root / folder / "fake-gpu.csv" for folder in (
        "results", "build/results/standard"))
    assert [line[:4:3] for line in compared("--best", whole, standard)] == list(map(list, lessons))


def test_compare_chooses_programs_by_name_or_number(machine):
    machine.has(TWO_GPUS[0])
    done = machine.run("compare_gpus.sh", "--programs", "1,bonus_fake", "--talk", "16", "--sizes",
                       "32", "--out", "elsewhere")
    assert done.returncode == 0, done.stderr
    _, rows = machine.results("fake-gpu.csv", "elsewhere")
    assert [row["program"] for row in rows] == ["1_matmul_basic", "bonus_fake"]
    done = machine.run("compare_gpus.sh", "--programs", "1", "--talk", "16")
    assert done.returncode == USAGE  # it has no such shape
    assert_one_line(done.stderr, "compare_gpus.sh")


def test_compare_measures_the_grid_that_programs_declare(machine):
    machine.has(TWO_GPUS[0])
    grid = {"kernels": ["ours", "cublas"], "sizes": [512, 544]}
    machine.describes("bonus_fake", description("bonus_fake", dtypes=("fp16", "bf16"), grid=grid))
    assert machine.run("compare_gpus.sh", "--grid", "--rounds", "2").returncode == 0
    about, rows = machine.results("fake-gpu.csv", "results/grid")
    assert about["rounds"] == "2"
    assert [(row["dtype"], row["n"]) for row in rows] == [
        ("fp16", "512"), ("fp16", "544"), ("bf16", "512"), ("bf16", "544")]
    assert all("--kernel ours,cublas" in call for call in machine.calls())
    assert machine.run("compare_gpus.sh", "--grid", "--programs", "bonus_fake").returncode == 0
    assert machine.results("fake-gpu.csv", "build/results/grid")
    done = machine.run("compare_gpus.sh", "--grid", "--programs", "1")
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert "--grid" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("--sizes", "64")])
def test_compare_measures_no_program_that_declares_no_sizes(machine, arguments):
    machine.has(TWO_GPUS[0])
    done = machine.run("compare_gpus.sh", *arguments, "--programs", "bonus_benchmark_fused")
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "compare_gpus.sh")
    assert "declares no sizes to measure" in done.stderr


def test_compare_measures_a_program_that_declares_variants_alone(machine):
    machine.has(TWO_GPUS[0])
    about = {**description("bonus_fake", ()), "variants": ["64 --hot", "32 --kernel one"]}
    machine.describes("bonus_fake", about)
    assert machine.run("compare_gpus.sh", "--programs", "bonus_fake").returncode == 0
    assert [call.split(" --seed")[0].split(" ", 1)[1] for call in machine.calls()] == [
        "64 --hot", "32 --kernel one"]
    assert machine.run("compare_gpus.sh", "--programs", "bonus_fake", "--sizes",
                       "64").returncode == USAGE


def test_compare_skips_sizes_that_a_program_does_not_take(machine):
    machine.has(TWO_GPUS[0])
    machine.describes("bonus_fake", description("bonus_fake", multiple=128))
    assert machine.run("compare_gpus.sh", "--sizes", "64,128", "--programs",
                       "1,bonus_fake").returncode == 0
    _, rows = machine.results("fake-gpu.csv")
    assert [row["n"] for row in rows if row["program"] == "bonus_fake"] == ["128"]
    assert [row["n"] for row in rows if row["program"] == "1_matmul_basic"] == ["64", "128"]


def test_compare_passes_the_number_of_rounds_on(machine):
    machine.has(TWO_GPUS[0])
    done = machine.run("compare_gpus.sh", "--sizes", "64", "--programs", "1", "--rounds", "3")
    assert done.returncode == 0, done.stderr
    assert [call.split()[:-2] for call in machine.calls()] == [
        "1_matmul_basic 64 --seed 1 --rounds 3 --csv".split()]
    about, _ = machine.results("fake-gpu.csv")
    assert about["rounds"] == "3"


def test_compare_ends_where_a_program_does_not_describe_itself(machine):
    machine.install(machine.root / "10_fake", "#!/bin/sh\nexit 2\n")
    done = machine.run("compare_gpus.sh", "--sizes", "64")
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert_one_line(done.stderr, "compare_gpus.sh")
    assert "10_fake" in done.stderr
    assert not (machine.root / "calls").exists()  # nothing was measured in vain


def test_compare_shows_the_time_left(machine):
    machine.has(TWO_GPUS[0])
    done = machine.run("compare_gpus.sh", "--sizes", "32,64,96", "--programs", "1,2")
    assert re.search(r"^\[6/6, about \d:\d\d left\] Fake GPU: ", done.stdout, re.MULTILINE)


def test_a_run_on_several_gpus_sees_its_gpu_and_those_like_it_that_follow(machine):
    machine.describes("bonus_fake", {**description("bonus_fake"), "variants": ["64 --gpus 2"]})
    machine.has(*TWO_GPUS, "GPU 2: Another GPU (UUID: GPU-ccc)")
    done = machine.run("compare_gpus.sh", "--programs", "bonus_fake")
    assert done.returncode == 0, done.stderr
    seen = [(call.split()[-1], "--gpus" in call) for call in machine.calls()]
    assert seen == [("GPU-aaa", False), ("GPU-aaa,GPU-bbb", True), ("GPU-bbb", False),
                    ("GPU-bbb", True), ("GPU-ccc", False), ("GPU-ccc", True)]


def test_compare_visits_instances_instead_of_a_divided_gpu(machine):
    machine.has("GPU 0: Fake (R) GPU (UUID: GPU-aaa)",
                "  MIG 1g.18gb     Device  0: (UUID: MIG-111)",
                "  MIG 1g.18gb     Device  1: (UUID: MIG-222)",
                "  MIG 3g.71gb     Device  2: (UUID: MIG-333)", TWO_GPUS[1])
    done = machine.run("compare_gpus.sh", "--sizes", "64", "--programs", "1")
    assert done.returncode == 0, done.stderr
    assert [call.split()[-1] for call in machine.calls()] == ["MIG-111", "MIG-222", "MIG-333",
                                                              "GPU-bbb"]
    names = {path.name for path in (machine.root / "build/results").iterdir()}
    assert names == {"fake-r-gpu-mig-1g-18gb-0.csv", "fake-r-gpu-mig-1g-18gb-1.csv",
                     "fake-r-gpu-mig-3g-71gb.csv", "fake-gpu.csv"}
    about, _ = machine.results("fake-r-gpu-mig-3g-71gb.csv")
    assert about["GPU"] == "Fake (R) GPU MIG 3g.71gb"
    for chosen in "MIG-333", "1":
        machine.run("compare_gpus.sh", "--sizes", "64", "--programs", "1",
                    env={"CUDA_VISIBLE_DEVICES": chosen})
    assert [call.split()[-1] for call in machine.calls()[4:]] == ["MIG-333", "GPU-bbb"]
    # Clocks are those of the whole GPU. (A sampler may be stopped before it writes its line.)
    sampled = (machine.root / "bin/calls").read_text().splitlines()
    assert {*sampled} == {"sampling GPU-aaa", "sampling GPU-bbb"}
    assert sampled.count("sampling GPU-aaa") >= 3


def test_compare_joins_clocks_with_what_ran_meanwhile(machine):
    machine.has(TWO_GPUS[0])
    machine.fail("1_matmul_basic", 40, "slow, and right")
    done = machine.run("compare_gpus.sh", "--sizes", "64", "--programs", "1")
    assert done.returncode == 0, done.stderr
    about, (row,) = machine.results("fake-gpu.csv")
    assert [row[name] for name in fakes.CLOCKS] == ["1755", "61", "698", "power cap 100%", ""]
    assert about["SM clock"] == "1755 MHz" and about["temperature"] == "61 C"
    assert about["power"] == "698 W" and about["throttled"] == "power cap 100%"


@pytest.mark.parametrize("how, seen", [
    ("old", ["1755", "61", "698", "power cap 100%"]),  # a driver with the older names
    ("N/A", ["1980", "", "", ""]),  # and a GPU that does not tell everything
    ("nothing", ["", "", "", ""]),
])
def test_compare_takes_what_nvidia_smi_tells(machine, how, seen):
    machine.has(TWO_GPUS[0])
    machine.fail("1_matmul_basic", 40, "slow, and right")
    if how == "old":
        (machine.root / "bin/old").touch()
    elif how == "N/A":
        machine.samples("[N/A], 1980, [N/A], [Not Supported], [N/A]")
    else:
        machine.samples("Unable to determine the device handle")
    done = machine.run("compare_gpus.sh", "--sizes", "64", "--programs", "1")
    assert done.returncode == 0, done.stderr
    _, (row,) = machine.results("fake-gpu.csv")
    assert [row[name] for name in fakes.CLOCKS[:4]] == seen


def test_compare_asks_the_driver_for_sms_and_memory(machine, tmp_path):
    driver = fakes.driver(tmp_path)
    machine.has(TWO_GPUS[0])
    arguments = ["compare_gpus.sh", "--sizes", "64", "--programs", "1"]
    assert machine.run(*arguments, env=driver).returncode == 0
    about, _ = machine.results("fake-gpu.csv")
    assert about["SMs"] == "7" and about["memory"] == "18.0 GiB"


@pytest.mark.parametrize("status, exit_status, verdicts", [
    (3, 3, ["failed"]),
    (4, 3, ["yes", "failed"]),  # at a later kernel
    (1, 1, ["no"]),
    (77, 0, ["skipped"]),
    (2, 3, ["failed"]),
])
def test_compare_goes_on_after_a_failure_and_its_row_says_why(machine, status, exit_status,
                                                              verdicts):
    machine.has(TWO_GPUS[0])
    machine.fail("2_matmul_sharedmem", status, 'a reason, with "quotes"')
    done = machine.run("compare_gpus.sh", "--sizes", "64", "--programs", "2,bonus_fake")
    assert done.returncode == exit_status
    _, rows = machine.results("fake-gpu.csv")
    failed = [row for row in rows if row["program"] == "2_matmul_sharedmem"]
    assert [row["verified"] for row in failed] == verdicts
    assert failed[-1]["note"] == 'a reason, with "quotes"'
    assert failed[-1]["n"] == "64" and failed[-1]["shape"] == "square"
    assert rows[-1]["program"] == "bonus_fake" and rows[-1]["verified"] == "yes"
    assert compare(machine.root / "build/results/fake-gpu.csv").returncode == 0


@pytest.mark.parametrize("expected, gpu, message", [
    ([0.5, 2], "NVIDIA H200", ""),
    ([2, 3], "NVIDIA H100 80GB HBM3", "has 1x the first row's speed, not 2x to 3x"),
    ([2, 3], "Fake GPU", ""),  # of another GPU only the sign counts
    ([0.2, 0.5], "Fake GPU", ""),
])
def test_compare_fails_where_an_experiment_leaves_its_range(machine, expected, gpu, message):
    machine.has(f"GPU 0: {gpu} (UUID: GPU-aaa)")
    about = description("bonus_fake")
    kernel = "kernel_of_bonus_fake"
    about["problems"] = [{"n": 64, "dtype": "fp32", "contenders": [kernel],
                          "expected": {kernel: expected}}]
    machine.describes("bonus_fake", about)
    done = machine.run("compare_gpus.sh", "--sizes", "64", "--programs", "bonus_fake")
    assert done.returncode == (FAILED if message else 0), done.stderr
    assert (message in done.stderr) if message else done.stderr.count("\n") == 1  # "wrote ..."


def test_an_experiment_must_not_lack_a_row():
    problem = {"n": 64, "dtype": "fp32", "contenders": ["a", "b"], "expected": {"b": [1.5, 2]}}
    rows = [{"kernel": "a", "n": 64, "dtype": "fp32", "median_ms": 3.0}]
    assert expectations.left([problem], rows, "GPU A") == ["b has no time"]
    rows.append({**rows[0], "kernel": "b", "median_ms": 2.5})
    assert expectations.left([problem], rows, "GPU A") == []
    [text] = expectations.left([problem], rows, "NVIDIA H200")
    assert text == "b has 1.2x the first row's speed, not 1.5x to 2x"


def test_a_time_that_is_not_as_predicted_is_named():
    row = {"kernel": "a", "n": 64, "median_ms": 3.0, "predicted_ms": 2.0, "as_predicted": "no"}
    assert expectations.left([], [row], "GPU A") == []
    [text] = expectations.left([], [row, {**row, "as_predicted": "yes"}], "NVIDIA H200")
    assert text == "a took 3 ms at N = 64, not 2 ms"


def interrupted(machine):
    """Starts measuring three programs, and presses Ctrl-C at the third. Returns the command."""
    command = ["compare_gpus.sh", "--sizes", "64", "--programs", "1,2,6"]
    machine.fail("6_gating_fused", 130, "pressed Ctrl-C")
    done = machine.run(*command)
    assert done.returncode == 130
    assert "the same command goes on" in done.stderr
    assert not list((machine.root / "build/results").iterdir())
    assert len(machine.calls()) == 3
    (machine.root / "fakes/6_gating_fused").unlink()
    return command


def test_compare_goes_on_where_it_was_interrupted(machine):
    command = interrupted(machine)
    done = machine.run(*command)
    assert done.returncode == 0, done.stderr
    assert "2 of 3 steps were measured before" in done.stderr
    assert len(machine.calls()) == 3 + 1 + 3  # what was cut off, and the other GPU
    about, rows = machine.results("fake-gpu-0.csv")
    assert about["rows"] == "3" == str(len(rows))
    assert not (machine.root / "build/compare").exists()  # the next run starts over


def test_compare_keeps_what_another_selection_has_measured(machine):
    machine.has(TWO_GPUS[0])
    command = interrupted(machine)
    assert machine.run("compare_gpus.sh", "--sizes", "64", "--programs", "1").returncode == 0
    done = machine.run(*command)
    assert done.returncode == 0, done.stderr
    assert "2 of 3 steps were measured before" in done.stderr


@pytest.mark.parametrize("change", ["driver", "program", "fresh"])
def test_compare_starts_over_where_something_has_changed(machine, change):
    machine.has(TWO_GPUS[0])
    command = interrupted(machine)
    if change == "driver":
        machine.install(machine.root / "bin/nvidia-smi",
                        fakes.FAKE_NVIDIA_SMI.replace("580.1", "590.2"))
    elif change == "program":
        for path in machine.root.glob("*_*"):  # built once more
            os.utime(path, (os.path.getmtime(path) + 3600,) * 2)
    done = machine.run(*command, *["--fresh"] * (change == "fresh"))
    assert done.returncode == 0, done.stderr
    assert len(machine.calls()) == 3 + 3


def test_compare_without_a_gpu_is_skipped(machine):
    machine.install(machine.root / "bin/nvidia-smi", "#!/bin/sh\nexit 9\n")
    done = machine.run("compare_gpus.sh", "--standard")
    assert done.returncode == 77
    assert_one_line(done.stderr, "compare_gpus.sh")
    assert not (machine.root / "build/results").exists()


def test_compare_names_a_folder_that_it_cannot_write(machine):
    machine.has(TWO_GPUS[0])
    (machine.root / "file").touch()
    done = machine.run("compare_gpus.sh", "--sizes", "64", "--programs", "1", "--out", "file")
    assert done.returncode == FAILED
    assert_one_line(done.stderr, "compare_gpus.sh")
    assert "file: File exists" in done.stderr
    assert not (machine.root / "calls").exists()  # nothing was measured in vain


def test_programs_take_what_the_scripts_make_of_their_descriptions():
    built = [CPU.folder / name for name in PROGRAMS if (CPU.folder / name).exists()]
    if not built:
        pytest.skip("no program is built")
    for path in built:
        about = programs.describe(path)
        runs = [run.arguments for run in programs.runs_to_measure(about) or []]
        runs += [run for _, run in programs.runs_to_show(about, 256, 16)]
        assert about["program"] == path.name and runs
        for run in runs:
            programs.describe(path, *run.split())


def test_every_column_is_explained():
    text = (ROOT / "docs/measuring.md").read_text(encoding="utf-8")
    table = re.search(r"\n\| column \|.*?\n\n", text, re.DOTALL)[0]
    words = {word for cell in re.findall(r"^\| `([^`]*)`", table, re.MULTILINE)
             for word in cell.split(", ")}
    assert words == set(COLUMNS + fakes.CLOCKS)


# --- Tables -----------------------------------------------------------------------------------


def test_compare_puts_two_gpus_side_by_side(tmp_path):
    write_csv(tmp_path / "a.csv", row(), row(n="2048", tflops="4.000"),
              row("6_gating_fused", "fused_tiled", dtype="fp16", shape="talk", n="512",
                  tflops="50.00", gb_per_s="1000"), comments=["GPU: GPU A", "protocol: 1"])
    write_csv(tmp_path / "b.csv", row(gpu="GPU B", tflops="5.000"),
              row("2_matmul_sharedmem", "matmul_sharedmem", gpu="GPU B", tflops="8.000"),
              comments=["GPU: GPU B", "protocol: 1"])
    done = compare("a.csv", "b.csv", cwd=tmp_path)  # names are relative to the caller
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.partition("\n\n")[2].splitlines() == [
        "  kernel            data    GPU A          GPU B",
        "------------------------------------------------",
        "1_matmul_basic N=1024, TFLOP/s",
        "  matmul_basic      fp32     2.00     5.00 2.50x",
        "1_matmul_basic N=2048, TFLOP/s",
        "  matmul_basic      fp32     4.00  missing     -",
        "6_gating_fused S=512, GB/s",
        "  fused_tiled       fp16     1000  missing     -",
        "2_matmul_sharedmem N=1024, TFLOP/s",
        "  matmul_sharedmem  fp32  missing     8.00     -",
        "x: the ratio to GPU A"]


def test_compare_tells_alike_gpus_apart_by_their_files(tmp_path):
    a = write_csv(tmp_path / "h200-0.csv", row(), comments=["GPU: H200"])
    b = write_csv(tmp_path / "h200-1.csv", row(), comments=["GPU: H200"])
    head = compare(a, b).stdout.splitlines()[0]
    assert "h200-0.csv" in head and "h200-1.csv" in head
    (tmp_path / "other").mkdir()
    c = write_csv(tmp_path / "other/h200-0.csv", row(), comments=["GPU: H200"])
    done = compare(a, c)
    assert str(a) in done.stdout.splitlines()[0] and str(c) in done.stdout.splitlines()[0]
    assert f"{a} -> {c}: 1 of 1 steady" in done.stdout


def test_compare_shows_no_figure_for_a_wrong_or_untimed_result(tmp_path):
    a = write_csv(tmp_path / "a.csv", row(), row(n="2048"))
    b = write_csv(tmp_path / "b.csv", row(gpu="GPU B", verified="no", median_ms="", tflops=""),
                  row(gpu="GPU B", n="2048", verified="no", tflops="999.0"))
    assert [line[-2:] for line in compared(a, b)] == [["wrong", "-"], ["wrong", "-"]]


def test_compare_says_why_a_program_has_no_figure(tmp_path):
    a = write_csv(tmp_path / "a.csv", row(), row("7_gelu", "fused", dtype="fp16"),
                  row("8_softmax", "fused", dtype="fp16"), comments=["GPU: A"])
    b = write_csv(tmp_path / "b.csv", stopped(),
                  stopped("7_gelu", dtype="fp16", verified="skipped"),
                  stopped("8_softmax", dtype="fp32"), columns=COLUMNS + fakes.CLOCKS,
                  comments=["GPU: B"])
    assert [line[:2] + line[-2:] for line in compared(a, b)] == [
        ["1_matmul_basic", "matmul_basic", "failed", "-"],
        ["7_gelu", "fused", "skipped", "-"],
        ["8_softmax", "fused", "missing", "-"],  # what failed was the other data type
        ["8_softmax", "-", "failed", "-"],
    ]


def test_compare_chooses_sizes(tmp_path):
    a = write_csv(tmp_path / "a.csv", row(), row(n="2048"), row(n="4096"),
                  row("5_gating_unfused", shape="talk", n="2048"), row(shape="2048x7", n="2048"))
    sizes = {
        ("--sizes", "2048"): ["N=2048"],
        ("--sizes", "1024,4096"): ["N=1024", "N=4096"],
        ("--talk", "2048"): ["S=2048"],
        ("--sizes", "4096", "--talk", "2048"): ["N=4096", "S=2048"],
        (): ["N=1024", "N=2048", "N=4096", "S=2048", "2048x7"],
    }
    for arguments, expected in sizes.items():
        assert [line[3] for line in compared(*arguments, a)] == expected
    done = compare("--sizes", "64", a)
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "compare_gpus.sh")


def test_compare_chooses_programs(tmp_path):
    a = write_csv(tmp_path / "a.csv", row(), row("5_gating_unfused"), row("bonus_fake"))
    for chosen, expected in {"5": ["5_gating_unfused"],
                             "1,bonus_fake": ["1_matmul_basic", "bonus_fake"]}.items():
        assert [line[0] for line in compared("--programs", chosen, a)] == expected
    done = compare("--programs", "7", a)
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "compare_gpus.sh")


def test_compare_writes_markdown_and_csv(tmp_path):
    a = write_csv(tmp_path / "a.csv", row(gpu='"GPU A, 80 GB"'))
    b = write_csv(tmp_path / "b.csv", row(n="2048"), comments=["GPU: B/C"])
    assert compare("--markdown", a, b).stdout.splitlines() == [
        r"| program | kernel | data | size | unit | GPU A, 80 GB | B/C | ratio |",
        "|---|---|---|---|---|---:|---:|---:|",
        "| 1_matmul_basic | matmul_basic | fp32 | N=1024 | TFLOP/s | 2.00 | missing | - |",
        "| 1_matmul_basic | matmul_basic | fp32 | N=2048 | TFLOP/s | missing | 2.00 | - |",
    ]
    lines = list(csv.reader(compare("--csv", a, b).stdout.splitlines()))
    assert lines[0][-3:] == ["GPU A, 80 GB", "B/C", "ratio"]
    assert lines[1] == ["1_matmul_basic", "matmul_basic", "fp32", "N=1024", "TFLOP/s", "2.00",
                        "missing", "-"]


def test_compare_flags_what_the_datasheet_rules_out(tmp_path):
    rows = [row("4_matmul_cublas", "cublas_fp16", dtype="fp16", tflops="995.0"),
            row("4_matmul_cublas", "cublas_fp32", tflops="66.0"),
            row("7_gelu", "copy", tflops="", gb_per_s="4900", role="yardstick"),
            row("bonus_gating_gpus", "fused", dtype="fp16", shape="h4096g2", tflops="1400")]
    a = write_csv(tmp_path / "a.csv", *rows, comments=["GPU: NVIDIA H200"])
    b = write_csv(tmp_path / "b.csv", *rows, comments=["GPU: NVIDIA H9000"])  # nobody knows it
    assert [line[-3:-1] for line in compared(a, b)] == [
        ["995!", "995"], ["66.0", "66.0"], ["4900!", "4900"], ["1400", "1400"]]
    notes = compare(a, b).stdout.split("\n\n")[-1]
    assert len(notes.splitlines()) == 2
    assert "cublas_fp16 N=1024: 995 TFLOP/s is above the datasheet's 989.4" in notes
    assert "copy N=1024: 4900 GB/s is above the datasheet's 4800" in notes


def test_compare_says_how_two_runs_of_one_gpu_differ(tmp_path):
    first = [clocked(row(tflops="100.0")), clocked(row(n="2048", tflops="100.0"), "1980"),
             clocked(row(n="4096", tflops="100.0")), clocked(row(n="8192", tflops="100.0"))]
    second = [clocked(row(tflops="102.9")),
              clocked(row(n="2048", tflops="96.0"), "1755", "61", "700", "power cap 90%"),
              clocked(row(n="4096", tflops="50.0", spread_pct="2.50")),  # noisy: says nothing
              clocked(row(n="8192", tflops="100.0", verified="no"))]
    a = write_csv(tmp_path / "a.csv", *first, comments=["GPU: X"], columns=COLUMNS + fakes.CLOCKS)
    b = write_csv(tmp_path / "b.csv", *second, comments=["GPU: X"], columns=COLUMNS + fakes.CLOCKS)
    done = compare(a, b)
    assert done.returncode == 0
    assert done.stdout.split("\n\n")[-1].splitlines() == [
        "a.csv -> b.csv: 1 of 2 steady results within 3%, but",
        "  1_matmul_basic matmul_basic fp32 N=2048: -4.0%; SM clock 1980 -> 1755 MHz; "
        "power 600 -> 700 W; temperature 50 -> 61 C; throttled: no -> power cap 90%",
    ]
    assert "1 of 1 steady" in compare("--sizes", "1024", a, b).stdout
    assert "a.csv -> b.csv: 1 of 2 steady" in compare("--csv", a, b).stderr


def test_memory_bound_rows_are_compared_in_gb_per_s(tmp_path):
    a = write_csv(tmp_path / "a.csv", row("7_gelu", "fused", tflops="4.2", gb_per_s="4000"),
                  row("7_gelu", "copy", tflops="", gb_per_s="4200", role="yardstick"))
    b = write_csv(tmp_path / "b.csv", row("7_gelu", "fused", tflops="0.3", gb_per_s="276.8"),
                  row("7_gelu", "copy", tflops="", gb_per_s="300", role="yardstick"),
                  comments=["GPU: GPU B"])
    simulator = write_csv(tmp_path / "c.csv", row("7_gelu", "fused", sm="", tflops="0.001"))
    assert [line[4:] for line in compared(a, b)] == [
        ["GB/s", "4000", "277", "0.0692x"], ["GB/s", "4200", "300", "0.0714x"]]
    assert compared(simulator, a)[0][4:] == ["GB/s", "(CPU)", "4000", "-"]


def test_a_file_from_the_simulator_and_one_of_another_gpus_name_are_second_columns(tmp_path):
    program = ROOT / "cpu/1_matmul_basic"
    simulated = tmp_path / "simulated.csv"
    if program.exists():
        simulated.write_text(subprocess.run([program, "96", "--csv"], capture_output=True,
                                            text=True).stdout)
    else:
        write_csv(simulated, row(gpu='"CPU simulation"', sm="", n="96", tflops="0.001"))
    measured = write_csv(tmp_path / "measured.csv", row(), row(n="2048"),
                         comments=["GPU: NVIDIA H200"])
    renamed = tmp_path / "renamed.csv"
    renamed.write_text(measured.read_text().replace("# GPU: NVIDIA H200", "# GPU: NVIDIA H300"))
    done = compare("--csv", measured, simulated, renamed)
    assert (done.returncode, done.stderr) == (0, "")  # only runs on one kind of GPU should agree
    assert list(csv.reader(done.stdout.splitlines())) == [
        "program kernel data size unit".split()
        + ["NVIDIA H200", "CPU simulation", "ratio", "NVIDIA H300", "ratio"],
        *(["1_matmul_basic", "matmul_basic", "fp32", size, "TFLOP/s", *cells] for size, *cells in [
            ("N=1024", "2.00", "missing", "-", "2.00", "1.00x"),
            ("N=2048", "2.00", "missing", "-", "2.00", "1.00x"),
            ("N=96", "missing", "(CPU)", "-", "missing", "-")])]  # its figure says nothing of a GPU


def measured_by(tmp_path):
    """Files of three GPUs. The second has half of the first's speed on tensor cores and a quarter
    of its bandwidth; its result in fp32 is wrong."""
    def rated(program, kernel, tflops, dtype="fp16", **more):
        return row(program, kernel, dtype=dtype, tflops=f"{tflops:g}", **more)

    def write(name, gpu, tensor, memory, *more):
        return write_csv(
            tmp_path / f"{name}.csv",
            rated("3_matmul", "wmma", 400 * tensor),
            rated("3_matmul", "record", 600 * tensor, role="record"),
            rated("3_matmul", "cublas", 900, role="yardstick"),
            rated("3_matmul", "wmma", 500 * tensor ** 3, n="2048"),
            rated("6_gating", "six_kernels", 900, role="chain"),
            rated("6_gating", "fused", 800 * tensor),
            rated("7_gelu", "fused", 4, "fp32", gb_per_s=f"{4000 * memory:g}"),
            row("7_gelu", "copy", tflops="", gb_per_s="9999", role="yardstick"), *more,
            comments=[f"GPU: NVIDIA {gpu}"], columns=COLUMNS)
    return [write("a", "H300", 1, 1, row("bonus_fake", "mine", tflops="50")),
            write("b", "GeForce RTX 1", 0.5, 0.25, row("bonus_fake", "mine", verified="no")),
            write("c", "Small One", 0.1, 0.01)]


def test_a_summary_is_the_mean_over_the_best_kernels_of_each_kind_of_work(tmp_path):
    a, b, c = measured_by(tmp_path)
    assert fakes.table_lines(compare(a, b, c).stdout)[:6] == [
        ["ratio to H300", "RTX 1", "Small One"], ["-" * 45],
        ["matmul, tensor cores", "0.250x (2)", "0.0100x (2)"],  # of 1/2 and 1/8; 1/10 and 1/1000
        ["fusion", "0.500x (1)", "0.100x (1)"],  # by role: the chain is faster, the copy too
        ["memory", "0.250x (1)", "0.0100x (1)"],
        ["Geometric mean over the best kernel of each program, size and data type; in"]]


def test_the_summary_of_one_file_says_how_much_of_the_peak_was_reached(tmp_path):
    a = write_csv(tmp_path / "a.csv", row("7_gelu", "fused", tflops="4", gb_per_s="1200"),
                  row("4_matmul", "cublas", dtype="fp16", tflops="494.7", role="library"),
                  comments=["GPU: NVIDIA H200"])
    assert fakes.table_lines(compare(a).stdout)[2:4] == [
        ["matmul, tensor cores", "495 TFLOP/s", "50%", "cublas of 4"],
        ["memory", "1200 GB/s", "25%", "fused of 7"]]


@pytest.mark.parametrize("baseline", ["2", "b.csv"])
def test_the_baseline_can_be_another_file(tmp_path, baseline):
    files = measured_by(tmp_path)
    done = compare("--baseline", baseline, "--programs", "7", *files)
    assert done.returncode == 0
    text, lines = done.stdout.split("\n\n")
    assert fakes.table_lines(text)[0] == ["ratio to RTX 1", "H300", "Small One"]
    assert fakes.table_lines(text)[2] == ["memory", "4.00x (1)", "0.0400x (1)"]
    assert lines.splitlines()[3].split() == ["fused", "fp32", "4000", "4.00x", "1000", "40.0",
                                             "0.0400x"]
    assert lines.splitlines()[-1] == "x: the ratio to RTX 1"


@pytest.mark.parametrize("baseline", ["0", "4", "nowhere.csv", ""])
def test_a_baseline_that_is_no_file_is_refused(tmp_path, baseline):
    done = compare("--baseline", baseline, *measured_by(tmp_path))
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "compare_gpus.sh")


def test_the_best_kernel_of_each_program_is_a_row(tmp_path):
    a, b, c = measured_by(tmp_path)
    assert compared("--best", "--sizes", "1024", a, b, c) == [line.split(";") for line in [
        "3_matmul;record;fp16;N=1024;TFLOP/s;600;300;0.500x;60.0;0.100x",
        "6_gating;fused;fp16;N=1024;TFLOP/s;800;400;0.500x;80.0;0.100x",
        "7_gelu;fused;fp32;N=1024;GB/s;4000;1000;0.250x;40.0;0.0100x",
        "bonus_fake;mine;fp32;N=1024;TFLOP/s;50.0;wrong;-;missing;-"]]
    a.write_text(a.read_text().replace(",record,NVIDIA", ",other,NVIDIA").replace("record", "x", 1))
    text = compare("--best", "--sizes", "1024", a).stdout.partition("\n\n")[2]
    assert [line.split() for line in text.splitlines()][:4:3] == [
        ["program", "data", "kernel", "H300"], ["3_matmul", "fp16", "x", "600"]]


def test_three_gpus_fit_a_screen(tmp_path):
    """At every size that the H200 has, with two names that are longer than its own."""
    results = ROOT / "results/nvidia-h200.csv"
    others = [tmp_path / "b.csv", tmp_path / "c.csv"]
    for file, gpu in zip(others, ("NVIDIA A999-SXM4-80GB", "NVIDIA GeForce RTX 9999")):
        file.write_text(results.read_text().replace("NVIDIA H200", gpu))
    for more in ([], ["--best"]):
        done = compare(*more, results, *others)
        assert done.returncode == 0 and len(done.stdout.splitlines()) > 150
        assert max(map(len, done.stdout.splitlines())) <= 79


def test_files_of_strangers_are_laid_side_by_side(tmp_path):
    """Also where nothing of them is alike: the notes say what differs."""
    a = write_csv(tmp_path / "a.csv", row(), comments=[
        "GPU: GPU A", "protocol: 1", "toolkit: 13.0 (6: 13.5)", "suite: aaa", "power limit: 700 W"])
    b = write_csv(tmp_path / "b.csv", row("7_gelu"), comments=[
        "GPU: GPU B", "protocol: 2", "toolkit: 13.0", "driver: 580.1", "power limit: 115 W"])
    nothing, *notes = compare(a, b).stdout.splitlines()
    assert nothing.startswith("no program was measured in two of these files")
    assert notes == ["measured by different protocols, so not comparable: 1, 2",
                     "power limit: 700 W (GPU A), 115 W (GPU B)"]
    assert "missing" in compare("--csv", a, b).stdout  # for other programs


def test_a_file_that_somebody_sends_is_judged(machine):
    (machine.root / "src/1_matmul_basic.cu").write_text('{"matmul_basic", kOurs}')
    (machine.root / "results").mkdir()
    sent, place = machine.root / "sent.csv", machine.root / "results/nvidia-h200.csv"
    about = ["GPU: NVIDIA H200", "suite: 1234567", "protocol: 3", "list: standard", "rows: 1"]
    h200 = functools.partial(row, gpu="NVIDIA H200")
    bad = write_csv(sent, h200(tflops="68"), h200("99_lesson"), h200(kernel="mine"), h200(
        "6_gating_fused", verified="no"), row("10_fake", gpu="T4", sm=""), comments=[
            about[0], "suite: <b>1234567-dirty", "protocol: 2", "list: selection"]).read_text()
    place.write_text(bad)
    done = script("compare_gpus.sh", "--add", sent, root=machine.root)
    assert (done.returncode, done.stdout, place.read_text()) == (WRONG, "", bad)
    assert done.stderr.count("\n") == 12
    for line, doubt in zip(done.stderr.splitlines(), [
            "a selection", "protocol 2", "1234567-dirty is no commit", "results already",
            "the number of rows", "characters that no GPU", "another GPU",
            "no matmul_basic of 99_lesson", "no mine of 1_matmul_basic",
            "1_matmul_basic matmul_basic fp32 N=1024: 68 TFLOP/s is above the datasheet's 67",
            "6_gating_fused matmul_basic fp32 N=1024: a wrong result", "simulator's"]):
        assert line.startswith(f"compare_gpus.sh: {sent}: ") and doubt in line
    place.unlink()
    right = write_csv(sent, h200(), comments=about).read_text()
    sent.write_bytes(b"\xef\xbb\xbf" + right.replace("\n", "\r\n").encode())  # as mail makes it
    for command, said in ("--check", "nothing found"), ("--add", "update_docs.py"):
        done = script("compare_gpus.sh", command, sent, root=machine.root)
        assert (done.returncode, done.stderr) == (0, "") and said in done.stdout
    assert place.read_bytes() == right.encode()


def test_compare_reads_files_that_were_mailed(tmp_path):
    a = write_csv(tmp_path / "a.csv", row(gpu='"GPU ""A"", 80 GB"'), comments=["date: 2026-01-01"])
    text = a.read_text()
    a.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    done = compare(a)
    assert done.returncode == 0
    assert done.stdout.partition("\n\n")[2].splitlines()[0].endswith('GPU "A", 80 GB')


def test_compare_finds_columns_by_name(tmp_path):
    columns = ["new"] + COLUMNS[::-1]
    cells = ["7"] + row().split(",")[::-1]
    done = compare(write_csv(tmp_path / "a.csv", ",".join(cells), columns=columns))
    assert done.returncode == 0
    assert "2.00" in done.stdout


@pytest.mark.full
@pytest.mark.parametrize("content", [
    b"",
    b"\n\n",
    b"# GPU: x\n",
    b"hello\nworld\n",
    b"\xff\xfe\x00binary\x00",
    ",".join(COLUMNS).encode() + b"\n",
    (",".join(COLUMNS) + "\n" + row().rsplit(",", 1)[0]).encode(),
    (",".join(COLUMNS) + "\n" + row() + ",extra").encode(),
    (",".join(COLUMNS) + "\n" + row(tflops="nan")).encode(),
    (",".join(COLUMNS) + "\n" + row(tflops="-inf")).encode(),
    (",".join(COLUMNS) + "\n" + row(median_ms="fast")).encode(),
    (",".join(COLUMNS) + "\n" + row(median_ms="")).encode(),
    (",".join(COLUMNS) + "\n" + row(median_ms="0.000000")).encode(),
    (",".join(COLUMNS) + "\n" + row(median_ms="9" * 400)).encode(),
    (",".join(COLUMNS) + "\n" + row(launches="six")).encode(),
    (",".join(COLUMNS) + "\n" + row(n="1e3")).encode(),
    (",".join(COLUMNS) + "\n" + row(n="0")).encode(),
    (",".join(COLUMNS) + "\n" + row(kernel="a\0b")).encode(),
    (",".join(COLUMNS) + "\n" + row(program="../../x")).encode(),
    (",".join(COLUMNS) + "\n" + row() + "\n" + row()).encode(),
    (",".join(COLUMNS) + "\n" + row(verified="maybe")).encode(),
    (",".join(COLUMNS) + "\n" + row(role="rival")).encode(),
    (",".join(COLUMNS) + "\n" + row(role="")).encode(),
    (",".join(COLUMNS[:-12]) + "\n" + row().rsplit(",", 12)[0]).encode(),
    (",".join(COLUMNS) + "\n" + '"unfinished').encode(),
    ("# rows: 3\n" + ",".join(COLUMNS) + "\n" + row() + "\n").encode(),
    ("# rows: 1\n" + ",".join(COLUMNS) + "\n" + row() + "\n" + row(n="2048")[:60]).encode(),
], ids=["empty", "blank", "comment", "text", "binary", "no-rows", "short-row", "long-row", "nan",
        "inf", "word", "no-median", "zero", "digits", "launches", "size", "no-size", "nul", "path",
        "twice", "verdict", "role", "no-role", "missing-column", "quote", "rows-lost", "row-cut"])
def test_a_broken_file_is_named_in_one_line(tmp_path, content):
    good = write_csv(tmp_path / "good.csv", row())
    broken = tmp_path / "broken.csv"
    broken.write_bytes(content)
    done = compare(good, broken)
    assert done.returncode == USAGE
    assert done.stdout == ""
    assert_one_line(done.stderr, "compare_gpus.sh")
    assert "broken.csv" in done.stderr


def test_a_missing_file_is_named_in_one_line(tmp_path):
    done = compare(tmp_path / "nowhere.csv")
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "compare_gpus.sh")
    assert "nowhere.csv" in done.stderr


def test_data_sheets_are_those_of_the_programs():
    peaks = data_sheets.sheets()
    assert peaks["NVIDIA H200"] == {"capability": 90, "SMs": 132, "fp32": 67, "tf32": 494.7,
                                    "fp16": 989.4, "bf16": 989.4, "GB/s": 4800}
    assert peaks["Tesla T4"] == {"capability": 75, "SMs": 40, "fp32": 8.1, "fp16": 65,
                                 "GB/s": 320}  # it has no other types
    assert peaks["NVIDIA GeForce RTX 4070 Laptop GPU"] == {
        "capability": 89, "SMs": 36, "fp32": 20, "tf32": 20, "fp16": 40.1,
        "bf16": 40.1}  # bandwidth: not stated
    for gpu, peak in peaks.items():
        turing = "tf32" not in peak
        if "GeForce" in gpu:  # half the rate of the same chips for data centers
            assert peak["fp16"] == pytest.approx((4 if turing else 2) * peak["fp32"], rel=0.01), gpu
        assert "fp16" in peak and turing == ("bf16" not in peak)
        assert turing or peak["tf32"] == pytest.approx(peak["fp16"] / 2, rel=0.03), gpu
    text = (ROOT / "src/demo/data_sheets.inc").read_text()
    assert len(peaks) == len(re.findall("^DATA_SHEET", text, re.MULTILINE))


def test_data_sheets_give_each_gpu_a_clock_of_its_generation():
    """A core does a multiply-add, two operations, in each cycle. A wrong number of multiprocessors
    shows as a clock that the generation does not have."""
    expected = {75: (1.58, 1.81), 80: (1.4, 1.45), 86: (1.66, 1.87), 89: (2.03, 2.62),
                90: (1.74, 2.0), 100: (1.97, 2.07), 103: (1.97, 2.07), 120: (2.28, 2.72)}
    for gpu, sheet in data_sheets.sheets().items():
        if "fp32" not in sheet:  # NVIDIA states none of GB10
            continue
        cores = 64 if sheet["capability"] in (75, 80) else 128
        ghz = sheet["fp32"] * 1e3 / (2 * cores * sheet["SMs"])
        low, high = expected[sheet["capability"]]
        assert low < ghz < high, (gpu, ghz)
