"""How a program ends when its surroundings fail: one line on stderr and exit code 3, whatever it
was doing."""

import resource

import pytest

from suite import CPU, FAILED, USAGE, assert_one_line, run

PROGRAM = "1_matmul_basic"


@pytest.fixture
def path():
    reason = CPU.why_not()
    return pytest.skip(reason) if reason else CPU.folder / PROGRAM


@pytest.mark.parametrize("arguments", [["--help"], ["--describe"], ["32", "--once"],
                                       ["32", "--once", "--csv"]], ids=" ".join)
def test_results_that_cannot_be_written_are_not_lost_in_silence(path, arguments):
    with open("/dev/full", "wb") as full:
        done = run(path, *arguments, stdout=full)
    assert done.returncode == FAILED
    assert_one_line(done.stderr, PROGRAM)
    assert "stdout" in done.stderr


def test_host_memory_that_ends_is_one_line(path):
    """Three matrices of 16 MiB on the host, and as many on the device."""
    limit = 80 << 20
    done = run(path, 2048, "--once",
               before=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)))
    assert done.returncode == FAILED
    assert_one_line(done.stderr, PROGRAM)
    assert "memory" in done.stderr


def test_what_was_typed_reaches_no_terminal_as_a_control_character(path):
    done = run(path, "a\n\033[31mb")
    assert done.returncode == USAGE
    assert_one_line(done.stderr, PROGRAM)
    assert "a??[31mb" in done.stderr


def test_a_number_is_refused_as_it_was_typed(path):
    assert "'99999999999'" in run(path, 32, "--device", 99999999999).stderr
