"""The scripts: their usage, how they take what goes wrong, and the tables they print. Fake programs
and a fake nvidia-smi stand in for a machine with GPUs."""

import glob
import os
import re
import shutil
import stat
import subprocess
import sys

import pytest

from suite import COLUMNS, GATING, PROGRAMS, ROOT, USAGE, assert_one_line

SCRIPTS = ["run.sh", "test.sh", "compare_gpus.sh", "table.py", "update_readme.py"]


def script(name, *arguments, root=ROOT, cwd=None, env=None):
    path = root / "scripts" / name
    command = [sys.executable] if name.endswith(".py") else ["bash"]
    return subprocess.run(command + [str(path)] + [str(a) for a in arguments], cwd=cwd or root,
                          capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                          env={**os.environ, **(env or {})})


@pytest.mark.parametrize("name", SCRIPTS)
def test_help(name):
    done = script(name, "--help")
    assert done.returncode == 0
    assert done.stderr == ""
    assert name in done.stdout


@pytest.mark.parametrize("name, arguments", [
    ("run.sh", ["--bogus"]), ("run.sh", ["64", "96"]),
    ("compare_gpus.sh", ["--bogus"]), ("compare_gpus.sh", ["33"]), ("compare_gpus.sh", ["abc"]),
    ("compare_gpus.sh", ["0"]), ("compare_gpus.sh", [""]), ("compare_gpus.sh", ["--talk", "17"]),
    ("compare_gpus.sh", ["--talk"]), ("compare_gpus.sh", ["--table"]),
    ("compare_gpus.sh", ["64", "--table", "x.csv"]),
    ("table.py", []), ("table.py", ["bogus", "x.csv"]), ("table.py", ["run"]),
    ("update_readme.py", ["--bogus"]),
], ids=lambda value: value if isinstance(value, str) else " ".join(value) or "none")
def test_bad_arguments_end_with_one_line(name, arguments):
    done = script(name, *arguments)
    assert done.returncode == USAGE
    assert done.stdout == ""
    assert_one_line(done.stderr, name)


# --- Tables -----------------------------------------------------------------------------------


def row(program="1_matmul_basic", kernel="matmul_basic", gpu="GPU A", sm="90", dtype="fp32",
        shape="square", n="1024", median_ms="1.000000", spread_pct="0.50", tflops="2.000",
        gb_per_s="", verified="yes", error_of_bound="0.2", launches="1", temp_bytes="0",
        moved_bytes="", least_bytes="12582912"):
    values = locals()
    return ",".join(values[name] for name in COLUMNS)


def write_csv(path, *rows, comments=(), columns=COLUMNS):
    lines = [f"# {comment}" for comment in comments] + [",".join(columns)] + list(rows)
    path.write_text("\n".join(lines) + "\n")
    return path


def compare(*files, cwd=None):
    return script("compare_gpus.sh", "--table", *files, cwd=cwd)


def table_lines(text):
    """The lines of a printed table, as lists of its cells."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


def test_compare_puts_two_gpus_side_by_side(tmp_path):
    a = write_csv(tmp_path / "a.csv", row(), row(n="2048", tflops="4.000"),
                  row("6_gating_fused", "fused_tiled", dtype="fp16", shape="talk", n="512",
                      tflops="50.00", gb_per_s="1000"),
                  comments=["GPU: GPU A", "protocol: 1"])
    b = write_csv(tmp_path / "b.csv", row(gpu="GPU B", tflops="5.000"),
                  row("2_matmul_sharedmem", "matmul_sharedmem", gpu="GPU B", tflops="8.000"),
                  comments=["GPU: GPU B", "protocol: 1"])
    done = compare("a.csv", "b.csv", cwd=tmp_path)  # names are relative to the caller
    assert done.returncode == 0
    assert done.stderr == ""
    head, _, *lines = [" ".join(cells) for cells in table_lines(done.stdout)]
    assert head == "program kernel dtype size unit GPU A GPU B ratio"
    assert sorted(lines) == [
        "1_matmul_basic matmul_basic fp32 N=1024 TFLOP/s 2.00 5.00 2.50x",
        "1_matmul_basic matmul_basic fp32 N=2048 TFLOP/s 4.00 - -",
        "2_matmul_sharedmem matmul_sharedmem fp32 N=1024 TFLOP/s - 8.00 -",
        "6_gating_fused fused_tiled fp16 S=512 TFLOP/s 50.0 - -",
    ]


def test_compare_tells_alike_gpus_apart_by_their_files(tmp_path):
    a = write_csv(tmp_path / "h200-0.csv", row(), comments=["GPU: H200"])
    b = write_csv(tmp_path / "h200-1.csv", row(), comments=["GPU: H200"])
    head = compare(a, b).stdout.splitlines()[0]
    assert "h200-0.csv" in head and "h200-1.csv" in head


def test_compare_shows_no_figure_for_a_wrong_or_untimed_result(tmp_path):
    a = write_csv(tmp_path / "a.csv", row(), row(n="2048"))
    b = write_csv(tmp_path / "b.csv", row(gpu="GPU B", verified="no", median_ms="", tflops=""),
                  row(gpu="GPU B", n="2048", verified="no", tflops="999.0"))
    done = compare(a, b)
    assert done.returncode == 0
    assert [line[-2:] for line in table_lines(done.stdout)[2:]] == [["wrong", "-"], ["wrong", "-"]]


def test_compare_warns_of_different_protocols(tmp_path):
    a = write_csv(tmp_path / "a.csv", row(), comments=["protocol: 1"])
    b = write_csv(tmp_path / "b.csv", row(gpu="GPU B"), comments=["protocol: 2"])
    done = compare(a, b)
    assert done.returncode == 0
    assert "not comparable" in done.stderr and "1, 2" in done.stderr


def test_compare_reads_files_that_were_mailed(tmp_path):
    a = write_csv(tmp_path / "a.csv", row(gpu='"GPU ""A"", 80 GB"'), comments=["date: 2026-01-01"])
    text = a.read_text()
    a.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    done = compare(a)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].endswith('GPU "A", 80 GB')


def test_compare_finds_columns_by_name(tmp_path):
    columns = ["new"] + COLUMNS[::-1]
    cells = ["7"] + row().split(",")[::-1]
    done = compare(write_csv(tmp_path / "a.csv", ",".join(cells), columns=columns))
    assert done.returncode == 0
    assert "2.00" in done.stdout


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
    (",".join(COLUMNS) + "\n" + row(n="1e3")).encode(),
    (",".join(COLUMNS) + "\n" + row(verified="maybe")).encode(),
    (",".join(COLUMNS[:-6]) + "\n" + ",".join(row().split(",")[:-6])).encode(),
    (",".join(COLUMNS) + "\n" + '"unfinished').encode(),
], ids=["empty", "blank", "comment", "text", "binary", "no-rows", "short-row", "long-row", "nan",
        "inf", "word", "size", "verdict", "missing-column", "quote"])
def test_a_broken_file_is_named_in_one_line(tmp_path, content):
    good = write_csv(tmp_path / "good.csv", row())
    broken = tmp_path / "broken.csv"
    broken.write_bytes(content)
    done = compare(good, broken)
    assert done.returncode == USAGE
    assert done.stdout == ""
    assert_one_line(done.stderr, "table.py")
    assert "broken.csv" in done.stderr


def test_a_missing_file_is_named_in_one_line(tmp_path):
    done = compare(tmp_path / "nowhere.csv")
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "table.py")
    assert "nowhere.csv" in done.stderr


def test_one_runs_table_marks_what_is_noisy(tmp_path):
    file = write_csv(tmp_path / "a.csv", row(), row(n="2048", spread_pct="2.50"))
    quiet, noisy = script("table.py", "run", file).stdout.splitlines()[2:]
    assert "noisy" not in quiet and "0.5%" in quiet
    assert "noisy 2.5%" in noisy


# --- README -----------------------------------------------------------------------------------


@pytest.fixture
def readme(tmp_path):
    """A project with a README and one file of results. Returns its root."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "results").mkdir()
    write_csv(tmp_path / "results/h200.csv", row(tflops="3.210"),
              row("6_gating_fused", "fused_tiled", dtype="fp16", shape="talk", n="1024",
                  tflops="345.0", gb_per_s="4100"),
              comments=["GPU: NVIDIA H200", "driver: 580", "toolkit: 13.0", "date: 2026-01-01"])
    (tmp_path / "README.md").write_text(
        "# Title\nbefore\n<!-- results:begin -->\nold\n<!-- results:end -->\nafter\n")
    return tmp_path


def test_update_readme_writes_between_the_markers_alone(readme):
    assert script("update_readme.py", "--check", root=readme).returncode == 1
    assert script("update_readme.py", root=readme).returncode == 0
    text = (readme / "README.md").read_text()
    assert text.startswith("# Title\nbefore\n<!-- results:begin -->\n")
    assert text.endswith("\n<!-- results:end -->\nafter\n")
    assert "old" not in text
    assert "NVIDIA H200" in text and "3.21" in text and "345" in text and "4100" in text
    assert script("update_readme.py", "--check", root=readme).returncode == 0
    assert script("update_readme.py", root=readme).returncode == 0
    assert (readme / "README.md").read_text() == text  # once more changes nothing


def test_update_readme_check_notices_new_results_and_changes_nothing(readme):
    script("update_readme.py", root=readme)
    before = (readme / "README.md").read_text()
    write_csv(readme / "results/h200.csv", row(tflops="9.870"))
    done = script("update_readme.py", "--check", root=readme)
    assert done.returncode == 1
    assert_one_line(done.stderr, "update_readme.py")
    assert (readme / "README.md").read_text() == before


@pytest.mark.parametrize("damage", ["markers", "results", "broken"])
def test_update_readme_refuses_what_it_cannot_do(readme, damage):
    if damage == "markers":
        (readme / "README.md").write_text("# Title\n")
    elif damage == "results":
        shutil.rmtree(readme / "results")
    else:
        (readme / "results/b.csv").write_text("nonsense\n")
    before = (readme / "README.md").read_text()
    done = script("update_readme.py", root=readme)
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "update_readme.py")
    assert (readme / "README.md").read_text() == before


def test_this_readme_shows_what_results_holds():
    if not glob.glob(str(ROOT / "results/*.csv")):
        pytest.skip("results/ holds no measurements yet")
    done = script("update_readme.py", "--check")
    assert done.returncode == 0, done.stderr


# --- run.sh and compare_gpus.sh, with fake programs -------------------------------------------

FAKE_PROGRAM = r"""#!/usr/bin/env bash
# Prints what a program with one kernel would; fakes/NAME holds another exit status and message.
name=$(basename "$0") shape=square n=4096
echo "$name $* on ${CUDA_VISIBLE_DEVICES-}" >>"$(dirname "$0")/calls"
while (($#)); do
    case $1 in
        --talk) shape=talk n=$2; shift ;;
        --seed) shift ;;
        --csv) ;;
        *) n=$1 ;;
    esac
    shift
done
status=0
if [[ -f $(dirname "$0")/fakes/$name ]]; then
    read -r status message <"$(dirname "$0")/fakes/$name"
    echo "$name: $message" >&2
fi
((status == 2)) && exit 2
((status == 77)) && exit 77
echo COLUMNS
verified=yes
((status == 1)) && verified=no
((status == 3)) && exit 3
echo "$name,kernel_of_$name,Fake GPU,90,fp32,$shape,$n,1.0,0.1,12.5,,$verified,0.2,1,0,,100"
exit $status
""".replace("COLUMNS", ",".join(COLUMNS))

FAKE_NVIDIA_SMI = r"""#!/usr/bin/env bash
case "$*" in
    -L) echo "GPU 0: Fake GPU (UUID: GPU-aaa)" && echo "GPU 1: Fake GPU (UUID: GPU-bbb)" ;;
    *uuid*) echo "GPU-aaa, 580.1, Fake GPU" && echo "GPU-bbb, 580.1, Fake GPU" ;;
    *) exit 1 ;;
esac
"""


FAKES = ["1_matmul_basic", "2_matmul_sharedmem", "6_gating_fused", "10_fake",
         "bonus_benchmark_fused", "bonus_fake"]  # in the order of the talk


class FakeMachine:
    """A copy of the scripts with fake programs, and two fake GPUs."""

    def __init__(self, root):
        self.root = root
        shutil.copytree(ROOT / "scripts", root / "scripts")
        shutil.copytree(ROOT / "site_scons", root / "site_scons")
        for folder in ("src", "bin", "fakes"):
            (root / folder).mkdir()
        for program in FAKES:
            (root / "src" / f"{program}.cu").touch()
            self.install(root / program, FAKE_PROGRAM)
        self.install(root / "bin/nvidia-smi", FAKE_NVIDIA_SMI)

    @staticmethod
    def install(path, text):
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def fail(self, program, status, message):
        (self.root / "fakes" / program).write_text(f"{status} {message}\n")

    def run(self, name, *arguments):
        path = f"{self.root}/bin:{os.environ['PATH']}"
        return script(name, "--no-build", *arguments, root=self.root, env={"PATH": path})

    def calls(self):
        return (self.root / "calls").read_text().splitlines()


@pytest.fixture
def machine(tmp_path):
    return FakeMachine(tmp_path)


def test_run_shows_progress_and_one_table(machine):
    done = machine.run("run.sh", "2048")
    assert done.returncode == 0, done.stderr
    steps, table = done.stdout.split("\n\n")
    begin = ["[1/6] 1_matmul_basic N=2048 ... 12.5 TFLOP/s",
             "[2/6] 2_matmul_sharedmem N=2048 ... ", "[3/6] 6_gating_fused N=2048 ... ",
             "[3/6] 6_gating_fused talk S=512 ... ", "[4/6] 10_fake N=2048 ... ",
             "[5/6] bonus_benchmark_fused ", "[6/6] bonus_fake N=2048 ... "]
    assert len(steps.splitlines()) == len(begin)
    assert all(line.startswith(text) for line, text in zip(steps.splitlines(), begin)), steps
    rows = [line.split() for line in table.splitlines()[2:]]
    assert [row[0] for row in rows] == FAKES[:3] + FAKES[2:]
    assert all(row[-1] == "yes" for row in rows)


@pytest.mark.parametrize("failures, status, shown", [
    ({"2_matmul_sharedmem": 1}, 1, "FAILED, a wrong result: some reason"),
    ({"2_matmul_sharedmem": 3}, 3, "FAILED, exit status 3: some reason"),
    ({"2_matmul_sharedmem": 3, "10_fake": 1}, 1, "FAILED, a wrong result"),
    ({"2_matmul_sharedmem": 1, "10_fake": 3}, 1, "FAILED, exit status 3"),
    ({"2_matmul_sharedmem": 77}, 0, "skipped: some reason"),
    ({name: 77 for name in FAKES}, 77, "skipped: some reason"),
], ids=["wrong", "error", "error-then-wrong", "wrong-then-error", "one-skipped", "all-skipped"])
def test_run_goes_on_after_a_failure_and_reports_it(machine, failures, status, shown):
    for program, code in failures.items():
        machine.fail(program, code, "some reason")
    done = machine.run("run.sh")
    assert done.returncode == status
    assert shown in done.stdout
    assert {call.split()[0] for call in machine.calls()} == set(FAKES)


def test_run_refuses_a_size_as_the_programs_do(machine):
    machine.fail("1_matmul_basic", 2, "N takes a multiple of 32 from 32 up, not '33'")
    done = machine.run("run.sh", "33")
    assert done.returncode == USAGE
    assert "multiple of 32" in done.stderr
    assert len(machine.calls()) == 1


def test_run_misses_a_program_that_is_not_built(machine):
    (machine.root / "10_fake").unlink()
    done = machine.run("run.sh")
    assert done.returncode == 3
    assert "not built" in done.stdout


def test_run_without_a_gpu_runs_the_same_programs_on_the_cpu(machine):
    if glob.glob("/dev/nvidia[0-9]*"):
        pytest.skip("this machine has a GPU, which cannot be hidden from a script")
    FakeMachine.install(machine.root / "bin/nvidia-smi", "#!/bin/sh\nexit 9\n")
    (machine.root / "cpu").mkdir()
    for name in FAKES:
        (machine.root / name).rename(machine.root / "cpu" / name)
    done = machine.run("run.sh")
    assert done.returncode == 0, done.stdout
    assert_one_line(done.stderr, "run.sh")
    assert "no GPU here" in done.stderr
    calls = (machine.root / "cpu/calls").read_text()
    assert {"256", "--talk 16"} == set(re.findall(r"(?<= )(?:--talk )?\d+(?= )", calls))


def test_compare_measures_each_gpu_into_a_file_of_its_own(machine):
    done = machine.run("compare_gpus.sh", "64", "--talk", "32")
    assert done.returncode == 0, done.stderr
    files = sorted(path.name for path in (machine.root / "results").iterdir())
    assert files == ["fake-gpu-0.csv", "fake-gpu-1.csv"]
    lines = (machine.root / "results/fake-gpu-0.csv").read_text().splitlines()
    about = [line for line in lines if line.startswith("#")]
    for name in ("GPU: Fake GPU", "driver: 580.1", "toolkit: ", "date: ", "seed: ", "protocol: "):
        assert any(line.startswith("# " + name) for line in about), name
    assert lines[len(about)] == ",".join(COLUMNS)

    steps = len(set(FAKES) - {"bonus_benchmark_fused"}) + 1  # one N each, and one S
    assert len(lines) == len(about) + 1 + steps
    assert len(machine.calls()) == 2 * steps
    assert {call.split()[-1] for call in machine.calls()} == {"GPU-aaa", "GPU-bbb"}
    assert "fake-gpu-0.csv" in done.stdout  # the table's head
    assert compare(*(machine.root / "results" / name for name in files)).returncode == 0


def test_compare_keeps_what_it_has_when_a_program_fails(machine):
    machine.fail("2_matmul_sharedmem", 3, "some reason")
    done = machine.run("compare_gpus.sh", "64", "--talk", "16")
    assert done.returncode == 3
    text = (machine.root / "results/fake-gpu-0.csv").read_text()
    assert "1_matmul_basic" in text and "2_matmul_sharedmem" not in text


def test_compare_without_a_gpu_is_skipped(machine):
    FakeMachine.install(machine.root / "bin/nvidia-smi", "#!/bin/sh\nexit 9\n")
    done = machine.run("compare_gpus.sh", "64")
    assert done.returncode == 77
    assert_one_line(done.stderr, "compare_gpus.sh")
    assert not (machine.root / "results").exists()


def test_the_scripts_know_which_programs_have_the_talks_shape():
    ask = "source scripts/demo_step.sh; for p in %s; do ! has_talk_shape $p || echo $p; done"
    done = subprocess.run(["bash", "-c", ask % " ".join(PROGRAMS)], cwd=ROOT, capture_output=True,
                          text=True)
    assert done.stdout.split() == [name for name in GATING if name != "bonus_benchmark_fused"]
