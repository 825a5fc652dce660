"""run.sh, and the tables that it prints: of lessons, of kernels, a line for each step. Fake
programs and a fake nvidia-smi stand in for a machine with GPUs."""

import functools
import os
import re
import shutil
import subprocess
import sys

import pytest

import fakes
from fakes import FakeMachine, description, row, script, table_lines, write_csv
from shared import cuda_toolkit, one_run, programs, runner, table
from suite import FAILED, GPU, NO_GPU, SKIPPED, USAGE, assert_one_line, run


@pytest.fixture
def machine(tmp_path):
    return FakeMachine(tmp_path)


@pytest.mark.parametrize("name, arguments", [
    ("shared/programs.py", []), ("shared/programs.py", ["6"]),
], ids=lambda value: value if isinstance(value, str) else " ".join(value) or "none")
def test_bad_arguments_end_with_one_line(name, arguments):
    done = script(name, *arguments)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, os.path.basename(name))


# --- A run ------------------------------------------------------------------------------------


def test_run_shows_progress_and_a_row_for_each_lesson(machine):
    done = machine.run("run.sh", "2048")
    assert done.returncode == 0, done.stderr
    steps, table = done.stdout.split("\n\n")
    assert [re.sub(r" \.\.\. .*", "", line) for line in steps.splitlines()] == [
        "[1/4] 1_matmul_basic N=2048", "[2/4] 2_matmul_sharedmem N=2048",
        "[3/4] 6_gating_fused N=2048", "[3/4] 6_gating_fused talk S=512", "[4/4] 10_fake N=2048"]
    lines = table_lines(table)
    assert lines[0] == ["Fake GPU, N=2048", "speed-up over"]
    assert [line[:2] for line in lines[3:8]] == [
        ["1_matmul_basic", "kernel_of_1_matmul_basic"],
        ["2_matmul_sharedmem", "kernel_of_2_matmul_sharedmem"],
        ["6_gating_fused", "kernel_of_6_gating_fused"],
        ["talk S=512", "kernel_of_6_gating_fused"],
        ["10_fake", "kernel_of_10_fake"]]
    assert lines[-1] == ["results: all verified"]


def test_run_all_shows_every_kernel_of_every_program(machine):
    done = machine.run("run.sh", "--all", "2048")
    assert done.returncode == 0, done.stderr
    steps, table = done.stdout.split("\n\n")
    begin = ["[1/6] 1_matmul_basic N=2048 ... 12.5 TFLOP/s",
             "[2/6] 2_matmul_sharedmem N=2048 ... ", "[3/6] 6_gating_fused N=2048 ... ",
             "[3/6] 6_gating_fused talk S=512 ... ", "[4/6] 10_fake N=2048 ... ",
             "[5/6] bonus_benchmark_fused ", "[6/6] bonus_fake N=2048 ... "]
    assert len(steps.splitlines()) == len(begin)
    assert all(line.startswith(text) for line, text in zip(steps.splitlines(), begin)), steps
    lines = table.splitlines()[2:]
    assert [line for line in lines if not line.startswith(" ")] == list(fakes.FAKES)
    kernels = [line.split() for line in lines if line.startswith(" ")]
    names = list(fakes.FAKES)
    assert [row[0] for row in kernels] == ["kernel_of_" + name for name in names[:3] + names[2:]]
    assert all(row[-1] == "yes" for row in kernels)


def test_run_runs_what_describes_itself(machine):
    machine.install(machine.root / "2_matmul_sharedmem", "#!/bin/sh\necho nonsense\n")
    machine.describes("bonus_fake", description("bonus_fake", multiple=1000))
    done = machine.run("run.sh", "--all", "2048")
    assert done.returncode == FAILED
    assert_one_line(done.stderr, "run.sh")
    assert "2_matmul_sharedmem does not describe itself" in done.stderr
    ran = {call.split()[0] for call in machine.calls()}
    # The latter does not take this size.
    assert ran == set(fakes.FAKES) - {"2_matmul_sharedmem", "bonus_fake"}


@pytest.mark.parametrize("program, reason", [
    ("echo '{\"program\": 1}'", "--describe printed something else"),
    ("echo 7", "--describe printed something else"),
    ("echo usage: x", "--describe printed no JSON"),
    ("echo 'x: unknown option --describe' >&2; exit 2", "exit status 2: unknown option --describe"),
    ("exit 3", "exit status 3: it gave no reason"),
    (None, "it is not built"),
])
def test_a_program_that_does_not_describe_itself_is_named(tmp_path, program, reason):
    if program:
        FakeMachine.install(tmp_path / "x", f"#!/bin/sh\n{program}\n")
    with pytest.raises(programs.ProgramError) as error:
        programs.describe(tmp_path / "x")
    assert str(error.value) == f"x does not describe itself: {reason}"
    assert error.value.status == FAILED


@pytest.mark.parametrize("failures, status, shown", [
    ({"2_matmul_sharedmem": 1}, 1, "FAILED, a wrong result: some reason"),
    ({"2_matmul_sharedmem": 3}, 3, "FAILED, exit status 3: some reason"),
    ({"2_matmul_sharedmem": 3, "10_fake": 1}, 1, "FAILED, a wrong result"),
    ({"2_matmul_sharedmem": 1, "10_fake": 3}, 1, "FAILED, exit status 3"),
    ({"2_matmul_sharedmem": 77}, 0, "skipped: some reason"),
    ({name: 77 for name in fakes.FAKES}, 77, "skipped: some reason"),
], ids=["wrong", "error", "error-then-wrong", "wrong-then-error", "one-skipped", "all-skipped"])
def test_run_goes_on_after_a_failure_and_reports_it(machine, failures, status, shown):
    for program, code in failures.items():
        machine.fail(program, code, "some reason")
    done = machine.run("run.sh", "--all")
    assert done.returncode == status
    assert shown in done.stdout
    assert {call.split()[0] for call in machine.calls()} == set(fakes.FAKES)


def test_run_ends_where_it_is_interrupted(machine):
    machine.fail("2_matmul_sharedmem", 130, "pressed Ctrl-C")
    assert machine.run("run.sh", "2048").returncode == 130
    assert [call.split()[0] for call in machine.calls()] == ["1_matmul_basic", "2_matmul_sharedmem"]


def copy_to_the_simulator(machine):
    """The same programs once more, as if they were built for the simulator."""
    (machine.root / "cpu").mkdir()
    for name in fakes.FAKES:
        shutil.copy(machine.root / name, machine.root / "cpu" / name)


def assert_ran_on_the_simulator(machine, done, why, programs):
    """Each at its own default, which is 4096 for all of them here; one line says why."""
    assert done.returncode == 0, done.stdout
    assert_one_line(done.stderr, "run.sh")
    assert done.stderr.startswith(f"run.sh: {why}: running the same programs on the CPU")
    calls = (machine.root / "cpu/calls").read_text()
    (machine.root / "cpu/calls").unlink()
    assert {call.split()[0] for call in calls.splitlines()} == programs
    assert {"4096", "--talk 16"} == set(re.findall(r"(?<= )(?:--talk )?\d+(?= )", calls))


LESSONS = {name for name in fakes.FAKES if name[0].isdigit()}


def test_run_without_a_gpu_runs_the_same_programs_on_the_cpu(machine):
    FakeMachine.install(machine.root / "bin/nvidia-smi", "#!/bin/sh\nexit 9\n")
    copy_to_the_simulator(machine)
    for arguments, ran in (["--all"], set(fakes.FAKES)), ([], LESSONS):
        done = machine.run("run.sh", *arguments)
        assert_ran_on_the_simulator(machine, done, "no GPU here", ran)
    assert not (machine.root / "calls").exists()


def with_a_build(machine, name="run.sh"):
    """Lets a script build, by a SCons that has nothing to do."""
    machine.install(machine.root / "bin/scons", '#!/bin/sh\necho "$@" >>"$(dirname "$0")/built"\n')
    machine.install(machine.root / "bin/id", "#!/bin/sh\necho 1000\n")  # nothing is installed
    machine.install(machine.root / "bin/python3", f"""#!/bin/sh
case "$*" in
    *--machine*) ;;
    *cuda_toolkit.py*) echo /fake/cuda/bin/nvcc; exit 0 ;;
esac
exec "{sys.executable}" "$@"
""")
    env = {"PATH": f"{machine.root}/bin:{os.environ['PATH']}", "CUDA_HOME": "", "CUDA_PATH": ""}
    done = script(name, root=machine.root, env=env)
    built = machine.root / "bin/built"
    return done, built.read_text().split()[-1] if built.exists() else None


BROKEN = ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
          "that the latest NVIDIA driver is installed and running.")


@pytest.mark.parametrize("said, status", [
    (BROKEN, 9), ("No devices were found", 6), ("No devices were found", 0),
    ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.1", 18),
], ids=["driver", "gpu", "gpu-0", "mismatch"])
def test_run_where_the_driver_serves_no_gpu_builds_for_the_cpu_alone(machine, said, status):
    FakeMachine.install(machine.root / "bin/nvidia-smi",
                        f'#!/bin/sh\ncat <<"END"\n{said}\nEND\nexit {status}\n')
    copy_to_the_simulator(machine)
    done, built = with_a_build(machine)
    why = f"no GPU here that the driver serves (nvidia-smi: {said.splitlines()[0]})"
    assert_ran_on_the_simulator(machine, done, why, LESSONS)
    assert built == "cpu/lessons"


@pytest.mark.parametrize("answers, why", [
    (("580.1", "470.86"), "and this is 470 (update it)"),
    (("*) exit 1", "*compute_cap*) echo 6.1 ;; *) exit 1"), "capability 6.1, and 7.5 (Turing) or"),
], ids=["driver", "gpu"])
def test_a_gpu_that_no_program_could_use_is_told_before_any_is_built(machine, answers, why):
    machine.install(machine.root / "bin/nvidia-smi", fakes.FAKE_NVIDIA_SMI.replace(*answers))
    copy_to_the_simulator(machine)
    done, built = with_a_build(machine, "compare_gpus.sh")
    assert (done.returncode, done.stdout, built) == (SKIPPED, "", None)
    assert_one_line(done.stderr, "compare_gpus.sh")
    assert why in done.stderr
    why = done.stderr.rstrip().partition(": ")[2]
    done, built = with_a_build(machine)
    assert_ran_on_the_simulator(machine, done, why, LESSONS)
    assert built == "cpu/lessons"


@pytest.mark.parametrize("version, driver, runs, capability, why", [
    ("13.0.88", "535.54", "12.2", 90, "CUDA 13.0.88 needs driver 580"),
    ("13.0.88", "535.54", "13.0", 90, ""),  # by cuda-compat
    ("12.4", "535.54", "", 90, ""), ("12.4", "520", "", 90, "CUDA 12.4 needs driver 525"),
    ("", "570.86", "", 90, "CUDA 13.0 needs driver 580"), ("", "580.1", "", 75, ""),
    ("13.0", "[N/A]", "", 90, ""), ("12.4", "580.1", "", 50, "capability 5.0")])
def test_what_programs_need_of_a_machine(monkeypatch, version, driver, runs, capability, why):
    def find():
        if not version:
            raise cuda_toolkit.ToolkitError
        return cuda_toolkit.Toolkit("nvcc", version, "lib")

    said = {"--query-gpu=compute_cap": f"{capability / 10}\n", "--query-gpu=driver_version": driver}
    monkeypatch.setattr(cuda_toolkit, "find", find)
    monkeypatch.setattr(cuda_toolkit, "_nvidia_smi", lambda *arguments: said.get(
        (arguments or [""])[0], f"CUDA Version: {runs}"))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert why in cuda_toolkit.unusable() and bool(why) == bool(cuda_toolkit.unusable())


@pytest.mark.parametrize("reason", [
    "no NVIDIA driver, so no GPU, on this machine",
    "cudaGetDeviceCount: cudaErrorNoDevice: there is no GPU that CUDA can use (...)",
    "cudaGetDeviceCount: cudaErrorInsufficientDriver: the NVIDIA driver is older than this program",
])
def test_run_where_no_program_can_use_the_gpu_runs_them_on_the_cpu(machine, reason):
    copy_to_the_simulator(machine)
    for program in fakes.FAKES:
        machine.fail(program, 77, reason)
    for arguments, ran in (["--all"], set(fakes.FAKES)), ([], LESSONS):
        done = machine.run("run.sh", *arguments)
        why = "there is a GPU here, but no program can use it"
        assert_ran_on_the_simulator(machine, done, why, ran)
        assert done.stdout.splitlines()[0].endswith(f" 1_matmul_basic N=4096 ... skipped: {reason}")
        assert done.stdout.count("skipped") == 1


@pytest.mark.parametrize("reasons", [
    {"1_matmul_basic": "no NVIDIA driver, so no GPU, on this machine"},
    {name: "built for other GPUs; build it here with scons" for name in fakes.FAKES},
    {**{name: "no NVIDIA driver, so no GPU, on this machine" for name in fakes.FAKES},
     "10_fake": "built for other GPUs; build it here with scons"},
], ids=["one", "other-reason", "one-other-reason"])
def test_run_leaves_skipped_what_is_skipped_for_another_reason(machine, reasons):
    copy_to_the_simulator(machine)
    for program, reason in reasons.items():
        machine.fail(program, 77, reason)
    done = machine.run("run.sh", "--all")
    assert (done.returncode, done.stderr) == (0 if len(reasons) == 1 else 77, "")
    for program, reason in reasons.items():
        assert re.search(rf" {program} .* skipped: {re.escape(reason)}\n", done.stdout)
    assert not (machine.root / "cpu/calls").exists()


def test_programs_that_find_no_gpu_say_so_as_run_knows_it():
    done = run(GPU.folder / "1_matmul_basic", 32, "--once", env=NO_GPU)
    assert runner.Outcome(done.returncode, done.stderr).no_gpu


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
def test_nothing_is_installed_over_a_toolkit_that_the_user_chose(machine, variable):
    """Where it will not do, the script says why."""
    code = ("source scripts/setup.sh; ensure_compiler() { :; }; pip_install() { echo installed; }; "
            "ensure_cuda")
    env = {**os.environ, "CUDA_HOME": "", "CUDA_PATH": "", variable: "/no/cuda"}
    done = subprocess.run(["bash", "-c", code, "run.sh"], cwd=machine.root, env=env, text=True,
                          capture_output=True)
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert done.stderr == (f"run.sh: {variable} is /no/cuda: no /no/cuda/bin/nvcc there; correct "
                           "it, or unset it\n")


# --- Its tables -------------------------------------------------------------------------------


def test_one_runs_table_has_a_heading_for_each_program(tmp_path):
    gelu = dict(program="7_gelu", dtype="fp16", tflops="4.0")
    a = write_csv(tmp_path / "a.csv", row(median_ms="0.2"), row(n="2048", spread_pct="2.50"))
    b = write_csv(tmp_path / "b.csv", row(kernel="fused", gb_per_s="4000", **gelu),
                  row(kernel="slow", gb_per_s="4", **dict(gelu, verified="no")),
                  row("7_gelu", "copy", dtype="fp16", sm="", tflops="", role="yardstick"),
                  row("bonus_matmul_register_tiled", "matmul_A_stationary", n="16384",
                      tflops="0.00312", spread_pct="3"))
    text = one_run.run([a, b])
    lines = table_lines(text)
    assert lines == [
        ["kernel", "data", "size", "time/ms", "rate", "verified"], [lines[1][0]],
        ["1_matmul_basic"],
        ["matmul_basic", "fp32", "N=1024", "0.200", "2.00 TFLOP/s", "yes"],
        ["matmul_basic", "fp32", "N=2048", "1.00", "2.00 TFLOP/s", "yes, noisy"],
        ["7_gelu"],
        ["fused", "fp16", "N=1024", "1.00", "4000 GB/s", "yes"],
        ["slow", "fp16", "N=1024", "1.00", "4.00 GB/s", "wrong"],
        ["copy", "fp16", "N=1024", "(CPU) 1.00", "yes"],  # on the simulator
        ["bonus_matmul_register_tiled"],
        ["matmul_A_stationary", "fp32", "N=16384", "1.00", "0.00312 TFLOP/s", "yes, noisy"],
    ]
    assert max(map(len, text.splitlines())) <= 79


def lessons_table(tmp_path, *rows):
    """The table of lessons of these rows: its text, and its lines as lists of cells."""
    text = one_run.lessons([write_csv(tmp_path / "a.csv", *rows)])
    assert max(map(len, text.splitlines())) <= 79
    return text, [cells for cells in table_lines(text) if cells[0].strip("-")]


def gating(kernel, ms, role, program="6_gating_fused", tflops="100", **more):
    return row(program, kernel, dtype="fp16", median_ms=ms, tflops=tflops, role=role, **more)


def test_a_lessons_row_has_its_best_kernel_and_below_it_the_record(tmp_path):
    talk = dict(shape="talk", n="512", gb_per_s="4000")
    text, lines = lessons_table(
        tmp_path, row(median_ms="46.64", spread_pct="2.5"),
        gating("six_kernels", "0.8", "chain"), gating("library_best", "0.5", "library"),
        gating("fused_basic", "8", "ours"), gating("fused_wmma", "1", "ours", tflops="428"),
        gating("fused_hopper", "0.4", "record"),
        gating("six_kernels", "4", "chain", **talk), gating("library_best", "2", "library", **talk),
        gating("copy", "0.9", "yardstick", **{**talk, "tflops": ""}),
        gating("fused_wmma", "1", "ours", **talk),
        gating("chain", "3", "chain", program="10_add_mul_activation", gb_per_s="1"),
        gating("fused_vectorized", "1", "ours", program="10_add_mul_activation", gb_per_s="3844"))
    assert lines == [
        ["GPU A, N=1024", "speed-up over"],
        ["lesson", "kernel", "data", "rate", "chain", "library"],
        ["1_matmul_basic", "matmul_basic", "fp32", "~2.00 TFLOP/s", "-", "-"],
        ["6_gating_fused", "fused_wmma", "fp16", "428 TFLOP/s", "0.800x", "0.500x"],
        ["record", "fused_hopper", "fp16", "100 TFLOP/s", "2.00x", "1.25x"],
        ["talk S=512", "fused_wmma", "fp16", "4000 GB/s", "4.00x", "2.00x"],
        ["10_add_mul_activation", "fused_vectorized", "fp16", "3844 GB/s", "3.00x", "-"],
        *([line] for line in text.splitlines()[-4:])]
    assert text.splitlines()[-1] == "results: all verified"
    assert "\nrecord: " in text and "\n~: noisy" in text


def test_a_lesson_without_kernels_of_ours_shows_the_best_that_it_calls(tmp_path):
    call = functools.partial(row, "4_matmul_cublas", role="library")
    _, lines = lessons_table(
        tmp_path, call("cublas_fp32", median_ms="2", tflops="50"),
        call("cublas_fp16", dtype="fp16", median_ms="0.2", tflops="700"),
        gating("six_kernels", "3", "chain", program="5_gating_unfused"),
        gating("library_best", "2", "library", program="5_gating_unfused"))
    assert lines[2:4] == [  # fp32 takes no part: other numbers, other work
        ["4_matmul_cublas", "cublas_fp16", "fp16", "700 TFLOP/s", "-", "-"],
        ["5_gating_unfused", "library_best", "fp16", "100 TFLOP/s", "1.50x", "-"]]


def test_a_lessons_rival_is_the_best_of_the_library_but_never_a_copy(tmp_path):
    _, lines = lessons_table(
        tmp_path, gating("mine", "2", "ours"), gating("cublas", "1", "yardstick"),
        gating("slow_call", "3", "library"), gating("copy", "0.1", "yardstick", tflops=""))
    assert lines[2][-2:] == ["-", "0.500x"]


def test_a_wrong_kernel_is_a_row_of_its_own_and_never_the_best(tmp_path):
    text, lines = lessons_table(
        tmp_path, gating("six_kernels", "1", "chain", verified="no"),
        gating("fused_basic", "2", "ours"), gating("fused_wmma", "0.1", "ours", verified="no"),
        gating("fused_hopper", "0.2", "record", verified="no"),
        row("7_gelu", "fused", verified="no"))
    assert lines[2:7] == [
        ["6_gating_fused", "fused_basic", "fp16", "100 TFLOP/s", "-", "-"],
        ["six_kernels", "fp16", "wrong", "-", "-"],
        ["fused_wmma", "fp16", "wrong", "-", "-"],
        ["record", "fused_hopper", "fp16", "wrong", "-", "-"],
        ["7_gelu", "fused", "fp32", "wrong", "-", "-"]]
    assert text.endswith("\nresults: 4 of 5 WRONG")


def test_a_lessons_row_on_the_simulator_has_kernels_and_no_times(tmp_path):
    cpu = dict(gpu="CPU simulation", sm="", median_ms="7.77")
    names = [f"kernel_number_{i}" for i in range(6)]
    text, lines = lessons_table(
        tmp_path, row(**cpu), *(gating(name, role="ours", ms="7.77", gpu="CPU simulation", sm="")
                                for name in names),
        gating("copy", "7.77", "yardstick", gpu="CPU simulation", sm=""),
        gating("fused", "7.77", "ours", shape="talk", n="16", gpu="CPU simulation", sm="",
               verified="no"))
    assert "7.77" not in text and "copy" not in text and text.startswith("CPU simulation, N=1024;")
    assert lines[1:] == [
        ["lesson", "kernels that ran"], ["1_matmul_basic", "matmul_basic"],
        ["6_gating_fused", ", ".join(names[:3]) + ","], [", ".join(names[3:])],
        ["talk S=16", "fused (WRONG)"], ["results: 1 of 9 WRONG"]]


@pytest.mark.parametrize("rows, text", [
    ([row(tflops="0.2")], "0.200 TFLOP/s (matmul_basic)"),
    ([row(kernel="a", tflops="3"), row(kernel="b", tflops="2", role="record"),
      row(kernel="c", tflops="9", role="library"), row(kernel="d", tflops="8", role="chain"),
      row(kernel="e", tflops="7", role="yardstick")], "3.00 TFLOP/s (a, the best of 2)"),
    ([row(kernel="a", tflops="1", role="chain"), row(kernel="b", tflops="2", role="library"),
      row(kernel="c", tflops="9", role="yardstick")], "2.00 TFLOP/s (b, the best of 2)"),
    ([row(kernel="a", tflops="", gb_per_s="4100", role="yardstick")], "4100 GB/s (a)"),
    ([row(kernel="a", tflops="300"), row(kernel="b", tflops="9", gb_per_s="4000"),
      row(kernel="c", tflops="", gb_per_s="4200", role="yardstick")],
     "300 TFLOP/s (a, the best of 2)"),
], ids=["one", "ours", "no-own", "copy", "units"])
def test_one_line_names_the_best_kernel_of_the_programs_own(tmp_path, rows, text):
    assert one_run.summary(write_csv(tmp_path / "a.csv", *rows)) == text


@pytest.mark.parametrize("value, text", [
    (None, "-"), (0.0, "0"), (0.0041, "0.00410"), (0.2, "0.200"), (0.9996, "1.00"), (3.06, "3.06"),
    (9.999, "10.0"), (50.64, "50.6"), (99.96, "100"), (716.4, "716"), (4812.3, "4812"),
])
def test_figures_have_three_significant_digits(value, text):
    assert table.number(value) == text
