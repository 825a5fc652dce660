"""Every program on the simulator: in any order of its threads, and under the sanitizers."""

import re

import pytest

from suite import (NO_GPU, ROOT, SKIPPED, any_shape, assert_one_line, describe, one_size, programs,
                   run, runs_anywhere, takes_n, takes_talk, verified_rows)

SCHEDULES = ("forward", "reverse", "random:7")
RUNS = [(program, (str(n),)) for program in programs(runs_anywhere, takes_n)
        for n in (32, 64, 96, 160, 256)]
RUNS += [(program, ("--talk", "16")) for program in programs(runs_anywhere, takes_talk)]
RUNS += [(program, ("--rows", "5", "--cols", cols, "--dtype", "fp16"))
         for program in programs(runs_anywhere, any_shape) for cols in ("7", "1032")]


def name(value):
    return value if isinstance(value, str) else " ".join(value)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("program, size", RUNS, ids=name)
def test_verified_in_any_order(program, size, schedule):
    done = run(ROOT / "cpu" / program, *size, "--once", "--csv", env={"DEMO_SCHEDULE": schedule})
    verified_rows(done, program)


ONCE = set(programs(one_size))  # another's sizes are tried as those of the programs that it runs


@pytest.mark.parametrize("program, size", [
    (program, size) for program, size in RUNS
    if size in (("96",), ("--talk", "16")) and program in ONCE], ids=name)
def test_the_sanitizers_find_nothing(program, size):
    done = run(ROOT / "cpu/sanitize" / program, *size, "--once", "--csv", timeout=300)
    assert "Sanitizer" not in done.stderr and "runtime error" not in done.stderr
    verified_rows(done, program)


# A sweep's lines have no room for it.
@pytest.mark.parametrize("program", programs(one_size, takes_n))
def test_what_not_every_gpu_has_is_named(program):
    done = run(ROOT / "cpu" / program, 64, "--once", env=NO_GPU)
    lacking = {c["kernel"]: c["needs"] for c in describe(program)["contenders"]
               if c["needs"] and c["only"] != "talk" and c["role"] != "record"}
    if not runs_anywhere(program):
        assert done.returncode == SKIPPED
        assert done.stdout == ""
        assert_one_line(done.stderr, program)
        assert any(reason in done.stderr for reason in lacking.values())
    else:
        skipped = re.findall(r"^  (\w+) +skipped: (.*)$", done.stdout, re.MULTILINE)
        assert dict(skipped) == lacking
