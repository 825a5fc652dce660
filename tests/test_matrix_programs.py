"""Programs of any shape: every one from 1 x 1, all data types, own options, and special values."""

import re

import pytest

from suite import (NO_GPU, ROOT, SKIPPED, USAGE, any_shape, assert_one_line, declared, programs,
                   run, verified_rows)

MATRIX = programs(any_shape)
each_program = pytest.mark.parametrize("program", MATRIX)
each_dtype = pytest.mark.parametrize("dtype", ["fp32", "fp16"])
IN_EACH_DTYPE = [(program, dtype) for program in MATRIX
                 for dtype in (declared(program) or {"dtypes": ["fp32"]})["dtypes"]]

SHAPES = [(1, 1), (7, 7), (33, 33), (128, 512), (1000, 7), (3, 1023), (5, 1000), (2, 1025),
          (300, 1), (1, 4099), (37, 1028), (3, 257), (2, 511)]
LARGE = [(5, 16384), (24, 20000), (3, 131072), (2, 1048576), (3, 100003), (20000, 40), (2500, 1026),
         (120, 16384), (700, 9001), (300, 20001), (2, 300001)]


def arguments_of(rows, cols):
    return ["--rows", str(rows), "--cols", str(cols)]


@pytest.mark.parametrize("program, dtype", IN_EACH_DTYPE)
@pytest.mark.parametrize("rows, cols", SHAPES + LARGE)
def test_every_shape_is_verified(live, program, dtype, rows, cols):
    if live.name == "cpu" and (rows > 10000 or rows * cols > 2000000):
        pytest.skip("takes too long here")
    done = live.run(program, *arguments_of(rows, cols), "--dtype", dtype, "--once", "--csv")
    for row in verified_rows(done, program):
        assert (row["shape"], row["n"], row["dtype"]) == (f"{rows}x{cols}", str(rows), dtype)


# Of R x C numbers of 4 bytes: matrices, rows and columns that are moved at least; that the chain
# moves; its launches; those that it keeps between them. By hand.
TRAFFIC = {
    "7_gelu": ((2, 0, 0), (21, 0, 0), 9, (1, 0, 0)),
    "8_softmax": ((2, 0, 0), (8, 0, 4), 5, (1, 0, 2)),
    "9_bias_relu": ((2, 1, 0), (4, 1, 0), 2, (1, 0, 0)),
    "10_add_mul_activation": ((3, 1, 0), (9, 1, 0), 4, (2, 0, 0)),
}


@pytest.mark.parametrize("program", TRAFFIC)
def test_traffic_is_counted(live, program):
    rows, cols = 24, 20

    def total(parts):
        return 4 * sum(part * size for part, size in zip(parts, (rows * cols, cols, rows)))

    least, chain, launches, kept = TRAFFIC[program]
    done = live.run(program, *arguments_of(rows, cols), "--once", "--csv")
    found = verified_rows(done, program)
    roles = [row["role"] for row in found]
    assert roles == ["chain", "ours", "ours"] + ["record"] * roles.count("record") + ["yardstick"]
    for row in found:
        assert int(row["least_bytes"]) == total(least)
        counted = (int(row["moved_bytes"]), int(row["launches"]), int(row["temp_bytes"]))
        if row["role"] == "chain":
            assert counted == (total(chain), launches, total(kept))
        else:
            assert counted == (total(least), 1, 0)


@each_program
@pytest.mark.parametrize("arguments", [
    ["--rows", "4"], ["--cols", "4"], ["--rows", "0", "--cols", "4"],
    ["--rows", "4", "--cols", "x"], ["64", "--rows", "4", "--cols", "4"], ["--dtype", "fp64"],
    ["--dtype"], ["1.5"]], ids=" ".join)
def test_a_bad_shape_is_refused_before_cuda_is_touched(backend, program, arguments):
    done = backend.run(program, *arguments, env=NO_GPU)
    assert done.returncode == USAGE and done.stdout == ""
    assert_one_line(done.stderr, program)


@each_program
def test_too_many_rows_are_refused_with_how_many_fit(live, program):
    done = live.run(program, *arguments_of(10**12, 1000))
    assert done.returncode == 3 and done.stdout == ""
    assert_one_line(done.stderr, program)
    assert re.search(r"R = 10{12} needs .* the largest R that fits is \d+", done.stderr)


# --- Options of one program ---


@each_dtype
def test_bias_relu_in_place(live, dtype):
    """Timed, too: b must not be added again and again."""
    for size in (["--rows", "37", "--cols", "1028"], [str(live.timed_size)]):
        done = live.run("9_bias_relu", *size, "--in-place", "--dtype", dtype, "--csv")
        rows = verified_rows(done, "9_bias_relu")
        assert {row["temp_bytes"] for row in rows} == {"0"}


@each_dtype
@pytest.mark.parametrize("activation", ["relu", "sigmoid", "gelu", "none"])
def test_every_activation(live, activation, dtype):
    for size in ([33], arguments_of(9, 1028)):
        done = live.run("10_add_mul_activation", *size, "--activation", activation, "--dtype",
                        dtype, "--once", "--csv")
        chain = verified_rows(done, "10_add_mul_activation")[0]
        assert chain["launches"] == ("3" if activation == "none" else "4")


@pytest.mark.parametrize("arguments", [["--activation", "tanh"], ["--activation"],
                                       ["--sweep", "64"], ["--sweep", "--rows", "4", "--cols", "4"],
                                       ["--sweep", "--kernel", "fused"], ["--in-place"]],
                         ids=" ".join)
def test_bad_options_of_program_10(backend, arguments):
    done = backend.run("10_add_mul_activation", *arguments, env=NO_GPU)
    assert done.returncode == USAGE and done.stdout == ""
    assert_one_line(done.stderr, "10_add_mul_activation")


def test_special_values():
    """On the simulator; on a GPU test_compiled.py runs them."""
    done = run(ROOT / "build/cpu/release/tests/test_special_values", "--gtest_brief=1", timeout=300)
    assert done.returncode not in (SKIPPED,), done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[  PASSED  ]" in done.stdout
