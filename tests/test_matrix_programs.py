"""Programs 7 to 10: every shape from 1 x 1, both data types, own options, and special values."""

import re

import pytest

from suite import (MATRIX, NO_GPU, ROOT, SKIPPED, USAGE, VERIFIED, assert_one_line, flops, run,
                   verified_rows)

each_program = pytest.mark.parametrize("program", MATRIX)
each_dtype = pytest.mark.parametrize("dtype", ["fp32", "fp16"])

SHAPES = [(1, 1), (7, 7), (33, 33), (128, 512), (1000, 7), (3, 1023), (5, 1000), (2, 1025),
          (300, 1), (1, 4099), (37, 1028), (3, 257), (2, 511)]
LARGE = [(5, 16384), (24, 20000), (3, 131072), (2, 1048576), (3, 100003), (20000, 40), (2500, 1026),
         (120, 16384), (700, 9001), (300, 20001), (2, 300001)]


def arguments_of(rows, cols):
    return ["--rows", str(rows), "--cols", str(cols)]


@each_program
@each_dtype
@pytest.mark.parametrize("rows, cols", SHAPES + LARGE)
def test_every_shape_is_verified(live, program, dtype, rows, cols):
    if live.name == "cpu" and (rows > 10000 or rows * cols > 2000000):
        pytest.skip("takes too long here")
    done = live.run(program, *arguments_of(rows, cols), "--dtype", dtype, "--once", "--csv")
    for row in verified_rows(done, program):
        assert (row["shape"], row["n"], row["dtype"]) == (f"{rows}x{cols}", str(rows), dtype)


@each_program
def test_traffic_is_counted(live, program):
    """Bytes that each kernel moves and keeps, and the least: by hand, for fp32."""
    rows, cols = 24, 20
    matrix, row, column = 4 * rows * cols, 4 * cols, 4 * rows
    expected = {  # least, of the chain, its launches, its temporaries
        "7_gelu": (2 * matrix, 21 * matrix, 9, matrix),
        "8_softmax": (2 * matrix, 8 * matrix + 4 * column, 5, matrix + 2 * column),
        "9_bias_relu": (2 * matrix + row, 4 * matrix + row, 2, matrix),
        "10_add_mul_activation": (3 * matrix + row, 9 * matrix + row, 4, 2 * matrix),
    }[program]
    done = live.run(program, *arguments_of(rows, cols), "--once", "--csv")
    for r in verified_rows(done, program):
        assert int(r["least_bytes"]) == expected[0]
        found = (int(r["moved_bytes"]), int(r["launches"]), int(r["temp_bytes"]))
        if r["kernel"] == "chain":
            assert found == expected[1:]
        else:
            assert found == (expected[0] // 2 * 2, 1, 0)


@each_program
def test_people_see_what_fusion_saves(live, program):
    done = live.run(program, *arguments_of(64, 100), "--dtype", "fp16")
    assert done.returncode == VERIFIED, done.stderr
    header, *lines = done.stdout.splitlines()
    assert "x[64, 100], fp16" in header
    kernels = [line for line in lines if "verified" in line]
    assert len(kernels) == 4
    for line in kernels:
        assert re.search(r"[\d.]+ GB/s +[\d.]+% of copy .* \d+ launch.* moved", line), line
    assert "100.0% of copy" in kernels[-1]
    assert any(line.startswith("  least possible traffic: ") for line in lines)
    assert re.search(r"fused_\w+ runs at [\d.]+ x the speed of chain", lines[-1])


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


def test_the_sweep_prints_a_table(live):
    done = live.run("10_add_mul_activation", "--sweep", timeout=300)
    assert done.returncode == VERIFIED and done.stderr == ""
    rows = re.findall(r"^ *(\d+) x (\d+) \| +([\d.]+) +([\d.]+) +([\d.]+) x "
                      r"\| +([\d.]+) +[\d.]+ % \| verified$", done.stdout, re.MULTILINE)
    assert len(rows) >= 5
    for i, (m, n, chain, fused, ratio, _) in enumerate(rows):
        assert (int(m), int(n)) == (4 ** (i + 1), 4 * 2**i)
        assert float(ratio) == pytest.approx(float(chain) / float(fused), rel=2e-3)
    assert "4 x 4 is all launch" in done.stdout
    done = live.run("10_add_mul_activation", "--sweep", "--once", timeout=300)
    assert done.returncode == VERIFIED and done.stdout.count("verified") == len(rows)
    done = live.run("10_add_mul_activation", "--sweep", "--csv", timeout=300)
    for row in verified_rows(done, "10_add_mul_activation"):
        ms = float(row["median_ms"])
        assert float(row["tflops"]) == pytest.approx(flops(row) / ms / 1e9, rel=2e-3, abs=1e-9)


def test_special_values():
    """On the CPU lane; on a GPU test_compiled.py runs them."""
    done = run(ROOT / "build/cpu/release/tests/test_special_values", "--gtest_brief=1", timeout=300)
    assert done.returncode not in (SKIPPED,), done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[  PASSED  ]" in done.stdout
