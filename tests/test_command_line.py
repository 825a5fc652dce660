"""The command line of every program: what it refuses, before CUDA is touched, and how it says so.
The parser is the same for all, so two programs stand for the rest: one without --talk, one with it.
(What each option takes, test_describe.py tries.)"""

import re

import pytest

import suite
from suite import NO_GPU, PROGRAMS, USAGE, VERIFIED, assert_one_line

each_program = pytest.mark.parametrize("program", PROGRAMS)

REFUSED = [
    [""], ["0"], ["4096", "4096"], ["--bogus"], ["--kernel", "bogus"], ["--seed"],
    ["--talk", "17"], ["64", "--talk", "32"], ["--rounds", "0"], ["--describe", "--bogus"],
    ["--describe", "--kernel", "bogus"], ["--describe", "--describe"], ["--describe", "31"],
    ["abc"], ["33"], ["-32"], ["9223372036854775808"], ["1e3"], ["12abc"], ["+32"], [" 32"],
    ["32.0"], ["--csv", "--csv"], ["--seed", "-1"], ["--seed", "one"], ["--device", "-1"],
    ["--device", ""], ["--kernel"], ["--kernel", ""], ["--talk"], ["--talk", "0"],
    ["--talk", "32", "64"], ["--rounds"], ["--rounds", "100"], ["--rounds", "1.5"],
    ["--rows", "1"],
]
REFUSED_SHAPES = [
    ["--rows", "4"], ["--cols", "4"], ["--rows", "0", "--cols", "4"],
    ["--rows", "4", "--cols", "x"], ["64", "--rows", "4", "--cols", "4"], ["--dtype", "fp64"],
    ["--dtype"], ["1.5"],
]


@pytest.mark.parametrize("program, arguments", [
    *((program, tuple(arguments)) for program in ("1_matmul_basic", "6_gating_fused")
      for arguments in REFUSED),
    *((program, tuple(arguments)) for program in suite.programs(suite.any_shape)[:1]
      for arguments in REFUSED_SHAPES),
    *((program, ("--bogus",)) for program in PROGRAMS), *suite.runs_of("REFUSED")], ids=suite.words)
def test_bad_arguments_end_with_one_line_before_cuda_is_touched(backend, program, arguments):
    done = backend.run(program, *arguments, env=NO_GPU)
    assert done.returncode == USAGE
    assert done.stdout == ""
    assert_one_line(done.stderr, program)
    assert len(done.stderr) < 250


@pytest.mark.parametrize("program", suite.programs(suite.takes_n))
def test_a_bad_size_is_answered_with_what_is_accepted(backend, program):
    accepted = "a whole number from 1 up" if suite.any_n(program) else "a multiple of 32 from 32 up"
    assert accepted in backend.run(program, "0", env=NO_GPU).stderr


@each_program
def test_talk_is_for_the_programs_that_declare_it(backend, program):
    done = backend.run(program, "--talk", "32", "--describe", env=NO_GPU)
    assert done.returncode == (VERIFIED if suite.takes_talk(program) else USAGE)


@each_program
def test_an_unknown_kernel_is_answered_with_the_known_ones(backend, program):
    message = backend.run(program, "--kernel", "bogus", env=NO_GPU).stderr
    assert all(name in message for name in suite.kernels(program))


@pytest.mark.parametrize("program", suite.programs(suite.any_shape)[:1])
def test_too_many_rows_are_refused_with_how_many_fit(live, program):
    done = live.run(program, "--rows", 10**12, "--cols", 1000)
    assert done.returncode == 3 and done.stdout == ""
    assert_one_line(done.stderr, program)
    assert re.search(r"R = 10{12} needs .* the largest R that fits is \d+", done.stderr)
