"""Every program on the CPU lane: in any order of its threads, and under the sanitizers."""

import pytest

from suite import (BENCHMARK, GATING, HOPPER, MATRIX, PROGRAMS, ROOT, SKIPPED, assert_one_line, run,
                   verified_rows)

SCHEDULES = ("forward", "reverse", "random:7")
RUNS = [(program, (str(n),)) for program in PROGRAMS if program not in HOPPER
        for n in (32, 64, 96, 160, 256)]
RUNS += [(program, ("--talk", "16")) for program in GATING]
RUNS += [(program, ("--rows", "5", "--cols", cols, "--dtype", "fp16")) for program in MATRIX
         for cols in ("7", "1032")]


def name(value):
    return value if isinstance(value, str) else " ".join(value)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("program, size", RUNS, ids=name)
def test_verified_in_any_order(program, size, schedule):
    done = run(ROOT / "cpu" / program, *size, "--once", "--csv", env={"DEMO_SCHEDULE": schedule})
    verified_rows(done, program)


@pytest.mark.parametrize("program, size", [
    (program, size) for program, size in RUNS
    if size in (("96",), ("--talk", "16")) and program != BENCHMARK], ids=name)
def test_the_sanitizers_find_nothing(program, size):
    done = run(ROOT / "cpu/sanitize" / program, *size, "--once", "--csv", timeout=300)
    assert "Sanitizer" not in done.stderr and "runtime error" not in done.stderr
    verified_rows(done, program)


@pytest.mark.parametrize("program", sorted(HOPPER))
def test_what_needs_hopper_is_skipped_and_says_why(program):
    done = run(ROOT / "cpu" / program, "64", "--once")
    assert done.returncode == SKIPPED
    assert done.stdout == ""
    assert_one_line(done.stderr, program)
    assert "Hopper" in done.stderr
