"""compare_gpus.sh over several machines: by ssh (--hosts), as an array of Slurm's, and what is said
of GPUs that should be alike. Stand-ins for ssh and scp work in a host's home folder, and Slurm's
part is its variables."""

import os
import re
import signal
import subprocess
import time
import uuid

import pytest

from fakes import FAKE_NVIDIA_SMI, TWO_GPUS, FakeMachine, row, script, write_csv
from suite import FAILED, SKIPPED, USAGE, WRONG, assert_one_line
from test_script_failures import INTERRUPTED, left_of

FAKE_SSH = r"""#!/usr/bin/env bash
# ssh OPTION ... HOST COMMAND, scp OPTION ... HOST:FILES FOLDER: HOST is a folder, the home of
# whoever logs in there. As a terminal that goes away, the end of ssh hangs up on the command.
host=${@: -2:1} folder=HOSTS/${host%%:*}
[[ $* == *BatchMode=yes* ]] || { echo "Password: " >&2 && sleep 9; }
cd "$folder" 2>/dev/null || {
    printf 'ssh: connect to host %s port 22: Connection refused\r\n' "$host" >&2
    exit 255
}
[[ $0 != *scp ]] || exec cp ${host#*:} "${@: -1}"
HOME=$PWD setsid bash -c "${@: -1}" <&0 &
trap 'kill -HUP $!' TERM
wait $!
"""
PROFILE = """PATH="$HOME/bin:$PATH"
echo Welcome!
echo You have mail. >&2
"""
ONE, TWO, THREE = (["--sizes", "64", "--programs", names] for names in ("1", "1,2", "1,2,6"))


class Fleet(FakeMachine):
    """A checkout that git knows, on a machine without a GPU, and hosts that have some."""

    def __init__(self, root):
        super().__init__(root / "checkout")
        self.hosts = root / "hosts"
        self.has()
        for name in ("ssh", "scp"):
            self.install(self.root / "bin" / name, FAKE_SSH.replace("HOSTS", str(self.hosts)))
        self.git("init", "-q")
        self.git("add", "scripts", "src")

    def git(self, *arguments):
        subprocess.run(["git", *arguments], cwd=self.root, check=True)

    def host(self, name, *gpus):
        """Adds a host, and returns the folder where it measures."""
        home = self.hosts / name
        (home / "bin").mkdir(parents=True)
        (home / ".profile").write_text(PROFILE)
        self.install(home / "bin/nvidia-smi", FAKE_NVIDIA_SMI)
        (home / "bin/list").write_text("".join(gpu + "\n" for gpu in gpus))
        (home / "bin/sample").write_text("100, 1755, 61, 698.20, 0x0")
        self.install(home / "bin/python3", (self.root / "bin/python3").read_text())
        folder = home / ".cache/compare_gpus" / name.rpartition("@")[2].replace(".", "-")
        (folder / "fakes").mkdir(parents=True)
        return folder

    def written(self):
        return sorted(path.name for path in (self.root / "build/results").iterdir())


@pytest.fixture
def fleet(tmp_path):
    (tmp_path / "checkout").mkdir()
    return Fleet(tmp_path)


def calls(folder):
    return (folder / "calls").read_text().splitlines()


def wait_until(what):
    deadline = time.monotonic() + 30
    while not what() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert what()


# --- By ssh -----------------------------------------------------------------------------------


def test_hosts_measure_and_one_that_fails_is_named(fleet):
    one = fleet.host("node1", *TWO_GPUS)
    two = fleet.host("me@node2.lab", TWO_GPUS[0])
    fleet.host("bare")
    old = one / "src/99_old.cu"
    old.parent.mkdir()
    old.touch()
    fleet.git("-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "-m", "x")
    (fleet.root / "src/1_matmul_basic.cu").write_text("// changed\n")
    done = fleet.run("compare_gpus.sh", "--hosts", "node1,dead,me@node2.lab,bare", *ONE)
    assert done.returncode == FAILED
    assert sorted(done.stderr.splitlines()[:-1]) == [
        "compare_gpus.sh: bare: compare_gpus.sh: no GPU here: measuring needs an NVIDIA GPU and "
        "its driver",
        "compare_gpus.sh: dead: ssh: connect to host dead port 22: Connection refused"]
    assert fleet.written() == ["fake-gpu-0@node1.csv", "fake-gpu-1@node1.csv",
                               "fake-gpu@node2-lab.csv"]
    assert all(name in done.stderr.splitlines()[-1] for name in fleet.written())
    about, rows = fleet.results("fake-gpu-1@node1.csv")
    assert about["GPU"] == "Fake GPU" and about["place"] == "1@node1" and len(rows) == 1
    assert re.fullmatch("[0-9a-f]{7,}-dirty", about["suite"])  # of this checkout, as it is now
    assert (one / "src/1_matmul_basic.cu").read_text() == "// changed\n" and not old.exists()
    assert len(calls(one)) == 2 and len(calls(two)) == 1
    assert not (fleet.root / "calls").exists()
    assert "me@node2.lab: [1/1] Fake GPU: 1_matmul_basic 64 ... 12.5 TFLOP/s" in done.stdout
    assert "Fake GPU 0@node1  Fake GPU 1@node1  Fake GPU node2-lab" in done.stdout


@pytest.mark.parametrize("status, exit_status", [(1, WRONG), (3, FAILED), (77, 0)])
def test_what_a_program_says_on_a_host_counts(fleet, status, exit_status):
    fleet.host("node1", TWO_GPUS[0])
    two = fleet.host("node2", TWO_GPUS[0])
    (two / "fakes/1_matmul_basic").write_text(f"{status} some reason\n")
    done = fleet.run("compare_gpus.sh", "--hosts", "node1,node2", *TWO)
    assert done.returncode == exit_status
    assert fleet.written() == ["fake-gpu@node1.csv", "fake-gpu@node2.csv"]
    _, rows = fleet.results("fake-gpu@node2.csv")
    assert rows[0]["note"] == "some reason"


def test_hosts_without_a_gpu_are_skipped(fleet):
    fleet.host("bare")
    done = fleet.run("compare_gpus.sh", "--hosts", "bare", *ONE)
    assert (done.returncode, fleet.written()) == (SKIPPED, [])
    assert_one_line(done.stderr, "compare_gpus.sh")


def test_an_interrupt_ends_all_and_the_same_command_goes_on(fleet):
    """The host waits in its third program then."""
    one = fleet.host("node1", TWO_GPUS[0])
    (one / "fakes/6_gating_fused").write_text("41 hangs\n")
    mark = f"MARK={uuid.uuid4()}"
    process = subprocess.Popen(
        ["bash", "scripts/compare_gpus.sh", "--no-build", "--hosts", "node1", *THREE],
        cwd=fleet.root, env={**os.environ, **dict([mark.split("=")]),
                             "PATH": f"{fleet.root}/bin:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: (one / "calls").exists() and len(calls(one)) == 3)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == INTERRUPTED
    assert said == "compare_gpus.sh: interrupted: the same command goes on from here\n"
    wait_until(lambda: not left_of(mark))

    (one / "fakes/6_gating_fused").unlink()
    done = fleet.run("compare_gpus.sh", "--hosts", "node1", *THREE)
    assert done.returncode == 0, done.stderr
    assert "node1: compare_gpus.sh: Fake GPU: 2 of 3 steps were measured before" in done.stdout
    assert len(calls(one)) == 3 + 1


# --- An array of Slurm's ----------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path):
    """A checkout that all machines share. Each sees its own GPUs, by its own nvidia-smi."""
    machine = FakeMachine(tmp_path)
    for i in (1, 2):
        folder = tmp_path / f"node{i}"
        folder.mkdir()
        machine.install(folder / "nvidia-smi", FAKE_NVIDIA_SMI)
        (folder / "list").write_text("\n".join(TWO_GPUS[:i]) + "\n")
        (folder / "sample").write_text("100, 1755, 61, 698.20, 0x0")
    return machine


def task(cluster, number, node, *arguments):
    """Starts a task of the array as Slurm does: a copy of the script, by another name."""
    copy = cluster.root / f"slurm_script_{number}_{node}"
    copy.write_text((cluster.root / "scripts/compare_gpus.sbatch").read_text())
    return subprocess.Popen(
        ["bash", copy, *arguments], cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
        env={**os.environ, "SLURM_SUBMIT_DIR": str(cluster.root), "SLURM_ARRAY_JOB_ID": "7",
             "SLURM_ARRAY_TASK_ID": str(number), "SLURMD_NODENAME": node,
             "PATH": f"{cluster.root}/{node}:{cluster.root}/bin:{os.environ['PATH']}"})


def ended(process):
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_tasks_measure_one_machine_each_and_their_files_merge(cluster):
    """The second is canceled in its third program, and begins once more."""
    cluster.fail("6_gating_fused", 41, "hangs")
    two = task(cluster, 2, "node2", *THREE)
    wait_until(lambda: (cluster.root / "calls").exists() and len(cluster.calls()) == 3)
    (cluster.root / "fakes/6_gating_fused").unlink()
    status, out, err = ended(task(cluster, 1, "node1", *THREE))
    assert (status, err) == (0, "") and len(out.splitlines()) == 3  # progress, and no table
    two.terminate()
    assert ended(two)[0] == INTERRUPTED
    status, out, err = ended(task(cluster, 2, "node2", *THREE))
    assert status == 0 and "Fake GPU: 2 of 3 steps were measured before" in err
    folder = cluster.root / "build/results"
    names = ["fake-gpu-0@node2.csv", "fake-gpu-1@node2.csv", "fake-gpu@node1.csv"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert not list((cluster.root / "build/as").glob("*/*"))
    done = script("compare_gpus.sh", "--table", *(folder / name for name in names))
    assert (done.returncode, done.stderr) == (0, "")
    assert "0@node2" in done.stdout and "Fake GPU node1" in done.stdout

    status, out, err = ended(task(cluster, 3, "node2", *THREE))
    assert (status, out) == (SKIPPED, "")
    assert_one_line(err, "compare_gpus.sbatch")
    assert "another task has node2" in err and err.endswith("--exclude=node1,node2\n")


def test_out_of_slurm_the_array_is_refused(cluster):
    done = script("compare_gpus.sbatch", root=cluster.root)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "compare_gpus.sbatch")


# --- GPUs that should be alike ----------------------------------------------------------------


def measured(path, place, *rates, gpu="X"):
    rows = [row(n=str(1024 * (i + 1)), tflops=f"{rate:.1f}") for i, rate in enumerate(rates)]
    return write_csv(path / f"x@{place}.csv", *rows, comments=[f"GPU: {gpu}", f"place: {place}"])


def notes(*files):
    done = script("compare_gpus.sh", "--table", *files)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n\n")[-1].splitlines()


def test_a_gpu_that_is_slower_than_others_of_its_kind_is_named(tmp_path):
    """Also where it is not the baseline's kind."""
    files = [measured(tmp_path, "a", *[100] * 5), measured(tmp_path, "b", 98, 50, 100, 100, 100),
             measured(tmp_path, "slow", 96, 96, 96, 96, 200),
             measured(tmp_path, "y", 90, 90, gpu="Y"), measured(tmp_path, "z", 100, 100, gpu="Y")]
    what, why = "  1_matmul_basic matmul_basic fp32", "clocks were not sampled"
    assert notes(*files) == [
        "X slow is 4.0% slower than X a, by the median of 5 results",
        "X a -> X b: 4 of 5 steady results within 3%, but",
        f"{what} N=2048: -50.0%; {why}",
        "X a -> X slow: 0 of 5 steady results within 3%, but",
        f"{what} N=5120: +100.0%; {why}",
        *(f"{what} N={n}: -4.0%; {why}" for n in (1024, 2048, 3072, 4096)),
        "Y y is 10.0% slower than Y z, by the median of 2 results",
        "Y y -> Y z: 0 of 2 steady results within 3%, but",
        *(f"{what} N={n}: +11.1%; {why}" for n in (1024, 2048))]


def test_of_many_rows_the_worst_are_shown(tmp_path):
    files = [measured(tmp_path, "a", *[100] * 9), measured(tmp_path, "b", *range(81, 90)),
             measured(tmp_path, "c", *[100] * 9)]
    lines = notes(*files)
    assert lines[0] == ("X b is 15.0% slower than X a, by the median of 9 results, and over 3% "
                        "slower than 1 more of its kind")
    assert lines[1].endswith("0 of 9 steady results within 3%, but")
    assert [re.search("N=[0-9]+: [^;]*", line)[0] for line in lines[2:7]] == [
        f"N={1024 * (i + 1)}: {i - 19:+}.0%" for i in range(5)]
    assert lines[7:] == ["  and 4 more, by less",
                         "X a -> X c: 9 of 9 steady results within 3%"]


def test_places_that_tell_nothing_apart_are_not_names(tmp_path):
    (tmp_path / "later").mkdir()
    again = measured(tmp_path / "later", "a", 100).rename(tmp_path / "again.csv")
    assert notes(measured(tmp_path, "a", 100), again) == [
        "x@a.csv -> again.csv: 1 of 1 steady results within 3%"]
