"""Every program's promises: command line, exit codes, output, and right results at every size."""

import re
import subprocess
import time

import pytest

from suite import (BENCHMARK, FAILED, GATING, GPU, HOPPER_KERNELS, MATRIX, NO_GPU, PROGRAMS,
                   SKIPPED, TIMES, USAGE, VERIFIED, assert_one_line, flops, kernels_of,
                   verified_rows)

each_program = pytest.mark.parametrize("program", PROGRAMS)

# --- Command line, which needs no GPU ---------------------------------------------------------

# Every program gets these ...
BAD_ARGUMENTS = [
    [""], ["0"], ["4096", "4096"], ["--bogus"], ["--kernel", "bogus"], ["--seed"],
    ["--talk", "17"], ["64", "--talk", "32"],
]
# ... and one with --talk and one without all the rest: the parser is the same.
MORE_BAD_ARGUMENTS = [
    ["abc"], ["33"], ["-32"], ["9223372036854775808"], ["1e3"], ["12abc"], ["+32"], [" 32"],
    ["32.0"], ["--csv", "--csv"], ["--seed", "-1"], ["--seed", "one"], ["--device", "-1"],
    ["--device", ""], ["--kernel"], ["--kernel", ""], ["--talk"], ["--talk", "0"],
    ["--talk", "32", "64"],
]


def name_of(arguments):
    return " ".join(arguments) or "empty"


@each_program
@pytest.mark.parametrize("arguments", BAD_ARGUMENTS, ids=name_of)
def test_bad_arguments_end_with_one_line_before_cuda_is_touched(backend, program, arguments):
    refuse(backend, program, arguments)


@pytest.mark.parametrize("program", ["1_matmul_basic", "6_gating_fused"])
@pytest.mark.parametrize("arguments", MORE_BAD_ARGUMENTS, ids=name_of)
def test_more_bad_arguments(program, arguments):
    refuse(GPU, program, arguments)


def refuse(backend, program, arguments):
    done = backend.run(program, *arguments, env=NO_GPU)
    assert done.returncode == USAGE
    assert done.stdout == ""
    assert_one_line(done.stderr, program)
    assert len(done.stderr) < 250


@each_program
def test_a_bad_size_is_answered_with_what_is_accepted(backend, program):
    accepted = "a whole number from 1 up" if program in MATRIX else "a multiple of 32"
    assert accepted in backend.run(program, "0", env=NO_GPU).stderr


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p not in GATING])
def test_talk_is_for_the_gating_programs(backend, program):
    assert backend.run(program, "--talk", "32", env=NO_GPU).returncode == USAGE


@each_program
def test_help(backend, program):
    done = backend.run(program, "--help", env=NO_GPU)
    assert done.returncode == VERIFIED
    assert done.stderr == ""
    assert done.stdout.startswith(program + ": ")
    for option in ("--seed", "--device", "--csv", "--hot", "--once", "--help"):
        assert option in done.stdout
    assert ("--talk" in done.stdout) == (program in GATING)
    assert all(len(line) <= 100 for line in done.stdout.splitlines())
    assert backend.run(program, "-h", env=NO_GPU).stdout == done.stdout


@each_program
def test_an_unknown_kernel_is_answered_with_the_known_ones(backend, program):
    names = kernels_of(backend, program)
    message = backend.run(program, "--kernel", "bogus", env=NO_GPU).stderr
    assert all(name in message for name in names)
    assert names or "--kernel" in message


@each_program
@pytest.mark.parametrize("arguments", [["32"], ["--once"], ["64", "--csv", "--seed", "3"]],
                         ids=" ".join)
def test_without_a_gpu_a_program_is_skipped_and_says_why(program, arguments):
    done = GPU.run(program, *arguments, env=NO_GPU)
    assert done.returncode == SKIPPED
    assert done.stdout == ""
    assert_one_line(done.stderr, program)


# --- Right results ----------------------------------------------------------------------------


def assert_untimed(rows):
    assert all(row[name] == "" for row in rows for name in TIMES), "--once times nothing"


@each_program
def test_every_size_is_verified(live_n, program):
    live, n = live_n
    rows = verified_rows(live.run(program, n, "--once", "--csv"), program)
    assert_untimed(rows)
    if program == BENCHMARK:
        square = [int(row["n"]) for row in rows if row["shape"] == "square"]
        talk = [int(row["n"]) for row in rows if row["shape"] == "talk"]
        assert max(square) == n and min(square) == min(n, 1024)
        assert max(talk) == max(32, n // 8 // 16 * 16) and min(talk) == 32
    else:
        assert {(row["shape"], row["n"]) for row in rows} == {("square", str(n))}


@pytest.mark.parametrize("program", GATING)
def test_every_talk_size_is_verified(live_s, program):
    live, s = live_s
    rows = verified_rows(live.run(program, "--talk", s, "--once", "--csv"), program)
    assert_untimed(rows)
    assert {row["shape"] for row in rows} == {"talk"}
    assert max(int(row["n"]) for row in rows) == s


@each_program
def test_each_kernel_can_be_run_alone(live, program):
    for kernel in kernels_of(live, program):
        options = ["--kernel", kernel, "--once", "--csv"]
        done = live.run(program, 64, *options)
        if kernel in HOPPER_KERNELS and done.returncode == SKIPPED:
            assert_one_line(done.stderr, program)
            assert "Hopper" in done.stderr
            continue
        if program in GATING and done.returncode == USAGE:  # a kernel for the talk's shape alone
            assert_one_line(done.stderr, program)
            assert "--talk" in done.stderr
            done = live.run(program, "--talk", 16, *options)
        assert {row["kernel"] for row in verified_rows(done, program)} == {kernel}


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p != BENCHMARK])
def test_the_seed_decides_the_data(live, program):
    # In fp16, so that every program rounds: x + b is exact in fp32.
    dtype = ["--dtype", "fp16"] if program in MATRIX else []

    def errors(seed):
        done = live.run(program, 64, "--once", "--csv", "--seed", seed, *dtype)
        rows = verified_rows(done, program)
        return [row["error_of_bound"] for row in rows]

    assert errors(0) != errors(2**63 - 1)
    if "A_stationary" not in program:  # its sums depend on the order of the blocks
        assert errors(7) == errors(7)


# --- Figures ----------------------------------------------------------------------------------


@each_program
@pytest.mark.parametrize("options", [[], ["--hot"]], ids=["cold", "hot"])
def test_figures_agree_with_each_other(live, program, options):
    done = live.run(program, live.timed_size, "--csv", *options)
    for row in verified_rows(done, program):
        ms = float(row["median_ms"])
        assert ms > 0
        assert float(row["tflops"]) == pytest.approx(flops(row) / ms / 1e9, rel=2e-3, abs=1e-9)
        if row["shape"] == "talk" or program in MATRIX:  # bound by memory: GB/s is for that
            expected = int(row["least_bytes"]) / ms / 1e6
            assert float(row["gb_per_s"]) == pytest.approx(expected, rel=2e-3, abs=1e-9)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p != BENCHMARK])
def test_people_get_one_line_per_kernel(live, program):
    n = live.timed_size
    done = live.run(program, n)
    assert done.returncode == VERIFIED and done.stderr == ""
    assert not re.search(r"\b(inf|nan)\b", done.stdout, re.IGNORECASE)
    header, *lines = done.stdout.splitlines()
    assert header.startswith(f"{program} on ") and f"N = {n}" in header
    figures = [re.match(r"  (\S+) +([\d.]+) ms +([\d.]+) TFLOP/s .*spread [\d.]+%.* verified", line)
               for line in lines]
    times = {match[1]: float(match[2]) for match in figures if match}
    known = kernels_of(live, program)
    assert list(times) == [kernel for kernel in known if kernel in times]
    absent = {"fused_streamed", "copy"} if program == "6_gating_fused" else set()  # the talk's
    absent |= set() if "(sm_90)" in header else HOPPER_KERNELS
    assert set(known) - set(times) <= absent

    ratios = re.findall(r"^  (\S+) runs at ([\d.]+) x the speed of (\S+)$", done.stdout, re.M)
    for kernel, ratio, rival in ratios:
        assert float(ratio) == pytest.approx(times[rival] / times[kernel], rel=5e-3)
    if program == "1_matmul_basic":
        assert f"grid: ({n // 32} x {n // 32}) blocks of (32 x 32) threads" in done.stdout
        assert re.search(r"to the device [\d.]+ ms", done.stdout)
    if program == "3_matmul_tensorcore":
        assert ("mma_ptx", "cublas_fp16") in [(kernel, rival) for kernel, _, rival in ratios]
    if program == "6_gating_fused":
        assert {rival for _, _, rival in ratios} == {"six_kernels", "library_best"}


def test_the_benchmark_prints_a_table_for_each_shape(live):
    done = live.run(BENCHMARK, live.timed_size)
    assert done.returncode == VERIFIED and done.stderr == ""
    tables = done.stdout.split("\n\n")
    assert len(tables) == 3 and tables[0].startswith(BENCHMARK + " on ")
    for table, size in zip(tables[1:], (max(32, live.timed_size // 8), live.timed_size)):
        rows = [line for line in table.splitlines() if re.match(r" *\d+ \|", line)]
        assert rows and all("verified" in row for row in rows)
        assert rows[-1].split()[0] == str(size)
        assert all(row.count(" x ") + row.endswith(" x") >= 2 for row in rows), "two speed-ups"
    assert not re.search(r"\b(inf|nan)\b", done.stdout, re.IGNORECASE)


@pytest.mark.parametrize("program", ["5_gating_unfused", "6_gating_fused"])
def test_fusion_saves_launches_memory_and_bytes(live, program):
    for size in (["64"], ["--talk", "16"]):
        rows = verified_rows(live.run(program, *size, "--once", "--csv"), program)
        by_kernel = {row["kernel"]: row for row in rows}
        six, library = by_kernel["six_kernels"], by_kernel["library_best"]
        assert six["launches"] == "6"
        assert library["launches"] in ("2", "3")  # one packed gemm or two, and one kernel more
        assert int(six["moved_bytes"]) > int(library["moved_bytes"]) > int(six["least_bytes"])
        assert int(six["temp_bytes"]) > 0
        fused = [row for row in rows if row["kernel"].startswith("fused")]
        assert bool(fused) == (program == "6_gating_fused")
        for row in fused:
            assert (row["launches"], row["temp_bytes"]) == ("1", "0")
            assert row["moved_bytes"] == row["least_bytes"]


@each_program
def test_the_first_line_appears_within_two_seconds(live, program):
    arguments = ["64", "--once"] if program == BENCHMARK else ["--once"]
    live.run(program, "64", "--once")  # from the disk into memory, as on a stage
    start = time.monotonic()
    with subprocess.Popen([str(live.folder / program)] + arguments, stdout=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, text=True) as process:
        line = process.stdout.readline()
        seconds = time.monotonic() - start
        process.stdout.read()
    assert line.startswith(program)
    assert seconds < 2


# --- What cannot run --------------------------------------------------------------------------

TOO_LARGE = [["1048576"], ["4294967296"], ["9223372036854775776"]]  # the last two wrap in 64 bits
TOO_LARGE_TALK = [["--talk", "1048576"], ["--talk", "9223372036854775792"]]


@pytest.mark.parametrize(
    "program, arguments",
    [(p, a) for p in PROGRAMS if p != BENCHMARK
     for a in TOO_LARGE + (TOO_LARGE_TALK if p in GATING else [])],
    ids=lambda value: value if isinstance(value, str) else " ".join(value))
def test_too_little_memory_names_the_largest_size_that_fits(live, program, arguments):
    name, step = ("S", 16) if "--talk" in arguments else ("N", 1 if program in MATRIX else 32)
    done = live.run(program, *arguments)
    assert done.returncode == FAILED
    assert done.stdout == ""
    assert_one_line(done.stderr, program)
    match = re.search(
        rf"{name} = {arguments[-1]} needs [\d.]+ [KMGTPE]iB of (GPU|host) memory, but "
        rf"[\d.]+ [KMGT]iB are free; the largest {name} that fits is (\d+)", done.stderr)
    assert match, done.stderr
    largest = int(match[2])
    assert 0 < largest < 1048576 and largest % step == 0

    # A little more is refused as well. (Not the very next size: what is free changes.)
    more = (largest + largest // 20) // step * step + step
    assert live.run(program, *arguments[:-1], more).returncode == FAILED


@each_program
def test_a_gpu_that_is_not_there_is_a_usage_error(live, program):
    for index in ("99", "4294967296"):
        done = live.run(program, "64", "--once", "--device", index)
        assert done.returncode == USAGE
        assert done.stdout == ""
        assert_one_line(done.stderr, program)
