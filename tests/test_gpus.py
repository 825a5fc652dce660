"""Several GPUs: bonus_gating_gpus on 1 to 4 ranks of the simulator, whose NCCL adds up in the
ranks' order, and what it says of ranks that do not come. On GPUs, where there are two: processes
of one GPU each, and one of them that dies."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from suite import CPU, FAILED, GPU, USAGE, assert_one_line, read_rows, run

PROGRAM = "bonus_gating_gpus"
GPUS = ("1", "2", "3", "4")


@pytest.fixture
def simulated():
    return CPU.folder / PROGRAM


def hashes(done):
    """{kernel: hash of out's bits} of a run in which all were verified."""
    assert done.returncode == 0, done.stderr
    return {row["kernel"]: row["output_hash"] for row in read_rows(done.stdout)}


@pytest.mark.parametrize("arguments", ["32 --hidden 128", "96 --hidden 160"])
def test_any_number_of_gpus(simulated, arguments):
    """Also where the sizes do not divide. row_split computes each row as one_gpu does; fused and
    chunked add up the same parts in the same order."""
    found = [hashes(run(simulated, *arguments.split(), "--gpus", gpus, "--once", "--csv"))
             for gpus in GPUS]
    assert len({each[kernel] for each in found for kernel in ("one_gpu", "row_split")}) == 1
    assert all(each["fused"] == each["chunked"] for each in found)
    assert found[0]["fused"] == found[0]["one_gpu"]


def test_the_table_names_the_number_of_gpus(simulated):
    done = run(simulated, 32, "--gpus", 3, "--once")
    assert "N = 32, H = 128, 3 GPUs" in done.stdout


@pytest.mark.parametrize("launcher", [
    {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29555"},
    {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "--meet": "localhost:29555"},
    {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "--meet": "localhost:29555"},
], ids=lambda launcher: next(iter(launcher)))
def test_a_rank_that_does_not_join_is_not_waited_for_in_vain(simulated, launcher):
    meet = ["--meet", launcher["--meet"]] if "--meet" in launcher else []
    begin = time.monotonic()
    done = run(simulated, 32, "--once", "--patience", 1, *meet,
               env={key: value for key, value in launcher.items() if key != "--meet"})
    assert done.returncode == FAILED and time.monotonic() - begin < 20
    assert_one_line(done.stderr, PROGRAM)
    assert "joining at localhost:29555" in done.stderr


def test_a_process_of_many_that_knows_no_meeting_point_is_alone(simulated):
    """As each task of an array of Slurm's is, which measures its own machine."""
    hashes(run(simulated, 32, "--hidden", 128, "--once", "--csv",
               env={"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}))


@pytest.mark.parametrize("variables", [
    "RANK=2 WORLD_SIZE=2", "RANK=x WORLD_SIZE=2", "WORLD_SIZE=-3", "WORLD_SIZE=",
    "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=-1", "SLURM_NTASKS=1e3",
    "MASTER_PORT=99999999 MASTER_ADDR=localhost", "WORLD_SIZE=2 MASTER_ADDR=localhost",
    "WORLD_SIZE=2 RANK=0 MASTER_ADDR="])
def test_a_launchers_variables_are_read_strictly(simulated, variables):
    done = run(simulated, 32, "--once", env=dict(each.split("=") for each in variables.split()))
    assert done.returncode == USAGE
    assert_one_line(done.stderr, PROGRAM)
    assert re.search(r": (\w+) (takes|is set)", done.stderr)[1] in variables


@pytest.mark.parametrize("meeting", ["localhost", "localhost:", "localhost:port", ":29500"])
def test_a_meeting_point_is_a_host_and_a_port(simulated, meeting):
    done = run(simulated, 32, "--once", "--meet", meeting)
    assert done.returncode == USAGE
    assert_one_line(done.stderr, PROGRAM)
    assert "HOST:PORT" in done.stderr


# --- Two GPUs -----------------------------------------------------------------------------------


@pytest.fixture
def two_gpus():
    path = GPU.folder / PROGRAM
    done = run(path, 32, "--gpus", 2, "--once")
    if done.returncode != 0:
        pytest.skip(f"two GPUs and NCCL are needed: {done.stderr.strip()}")
    return path


def start(path, *arguments):
    """Two ranks, a process each."""
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [subprocess.Popen([path, *map(str, arguments), "--meet", f"127.0.0.1:{port}"], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank),
                                  "WORLD_SIZE": "2"}) for rank in (0, 1)]


def test_two_processes_compute_what_one_does(two_gpus):
    arguments = ("1056", "--hidden", "4128", "--once", "--csv")
    of_one = hashes(run(two_gpus, *arguments, "--gpus", "2"))
    first, second = start(two_gpus, *arguments)
    output, errors = first.communicate(timeout=120)
    assert second.wait(timeout=60) == 0 and second.stdout.read() == ""
    of_two = hashes(subprocess.CompletedProcess([], first.returncode, output, errors))
    assert of_two["row_split"] == of_one["row_split"]


def test_gpus_that_do_not_reach_each_other_use_their_own_memory_alone(two_gpus):
    """All but overlapped. What judges a GPU's results must lie there, too."""
    done = run(two_gpus, 256, "--gpus", 2, "--once", "--csv", env={"NCCL_P2P_DISABLE": "1"})
    verified = [row["kernel"] for row in read_rows(done.stdout) if row["verified"] == "yes"]
    assert done.returncode == 0 and "fused" in verified and "overlapped" not in verified


def test_small_parts_of_many_tiles_are_exchanged_without_waiting_forever(two_gpus):
    """More tiles than run at once, of so few steps that a tile has hardly time to leave."""
    hashes(run(two_gpus, 4160, "--hidden", 256, "--gpus", 2, "--once", "--csv"))


def test_a_rank_that_dies_ends_the_others(two_gpus):
    first, second = start(two_gpus, "2048", "--rounds", "99", "--patience", "5")
    first.stdout.readline()  # the head of the table
    time.sleep(5)
    second.send_signal(signal.SIGKILL)
    _, errors = first.communicate(timeout=60)
    second.wait()
    assert first.returncode == FAILED
    assert_one_line(errors, PROGRAM)
