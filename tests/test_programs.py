"""Every program's promises: command line, exit codes, output, and right results at every size."""

import re
import subprocess
import time

import pytest

from suite import (FAILED, GPU, NO_GPU, PROGRAMS, SKIPPED, TIMES, USAGE, VERIFIED, any_shape,
                   assert_one_line, describe, kernels, one_size, problem_of, programs,
                   takes, takes_n, takes_talk, verified_rows)

each_program = pytest.mark.parametrize("program", PROGRAMS)
each_with_n = pytest.mark.parametrize("program", programs(takes_n))
each_of_one_size = pytest.mark.parametrize("program", programs(one_size, takes_n))
each_with_talk = pytest.mark.parametrize("program", programs(takes_talk))
each_with_tables = pytest.mark.parametrize(
    "program", programs(lambda program: describe(program)["sweep"] != "never"))

COLUMNS_OF_A_TERMINAL = 79

# --- Command line, which needs no GPU ---------------------------------------------------------

# Every program gets these ...
BAD_ARGUMENTS = [
    [""], ["0"], ["4096", "4096"], ["--bogus"], ["--kernel", "bogus"], ["--seed"],
    ["--talk", "17"], ["64", "--talk", "32"], ["--rounds", "0"], ["--describe", "--bogus"],
    ["--describe", "--kernel", "bogus"],
]
# ... and one with --talk and one without all the rest: the parser is the same.
MORE_BAD_ARGUMENTS = [
    ["abc"], ["33"], ["-32"], ["9223372036854775808"], ["1e3"], ["12abc"], ["+32"], [" 32"],
    ["32.0"], ["--csv", "--csv"], ["--seed", "-1"], ["--seed", "one"], ["--device", "-1"],
    ["--device", ""], ["--kernel"], ["--kernel", ""], ["--talk"], ["--talk", "0"],
    ["--talk", "32", "64"], ["--rounds"], ["--rounds", "100"], ["--rounds", "1.5"],
]


def name_of(arguments):
    return " ".join(arguments) or "empty"


@each_program
@pytest.mark.parametrize("arguments", BAD_ARGUMENTS, ids=name_of)
def test_bad_arguments_end_with_one_line_before_cuda_is_touched(backend, program, arguments):
    refuse(backend, program, arguments)


@pytest.mark.parametrize("program", ["1_matmul_basic", "6_gating_fused"])
@pytest.mark.parametrize("arguments", MORE_BAD_ARGUMENTS, ids=name_of)
def test_more_bad_arguments(backend, program, arguments):
    refuse(backend, program, arguments)


def refuse(backend, program, arguments):
    done = backend.run(program, *arguments, env=NO_GPU)
    assert done.returncode == USAGE
    assert done.stdout == ""
    assert_one_line(done.stderr, program)
    assert len(done.stderr) < 250


@each_with_n
def test_a_bad_size_is_answered_with_what_is_accepted(backend, program):
    accepted = "a whole number from 1 up" if any_shape(program) else "a multiple of 32 from 32 up"
    assert accepted in backend.run(program, "0", env=NO_GPU).stderr


@each_program
def test_talk_is_for_the_programs_that_declare_it(backend, program):
    done = backend.run(program, "--talk", "32", "--describe", env=NO_GPU)
    assert done.returncode == (VERIFIED if takes_talk(program) else USAGE)


@each_program
def test_help(backend, program):
    done = backend.run(program, "--help", env=NO_GPU)
    assert done.returncode == VERIFIED
    assert done.stderr == ""
    assert done.stdout.startswith(program + ": ")
    assert_fits_a_terminal(done.stdout)
    words = done.stdout.replace(",", " ").split()
    about = describe(program)
    assert all(option["name"] in words for option in about["options"])
    assert all(value in words for option in about["options"] for value in option.get("values", []))
    assert all(kernel in words for kernel in kernels(program))
    assert backend.run(program, "-h", env=NO_GPU).stdout == done.stdout


@each_program
def test_an_unknown_kernel_is_answered_with_the_known_ones(backend, program):
    message = backend.run(program, "--kernel", "bogus", env=NO_GPU).stderr
    assert all(name in message for name in kernels(program))


@each_with_n
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


@each_with_n
def test_every_size_is_verified(live_n, program):
    live, n = live_n
    rows = verified_rows(live.run(program, n, "--once", "--csv"), program)
    assert_untimed(rows)
    if one_size(program):
        assert {(row["shape"], row["n"]) for row in rows} == {("square", str(n))}
        return
    square = [int(row["n"]) for row in rows if row["shape"] == "square"]
    assert max(square) == n and min(square) == min(n, 1024)
    if takes_talk(program):
        talk = [int(row["n"]) for row in rows if row["shape"] == "talk"]
        assert max(talk) == max(32, n // 8 // 16 * 16) and min(talk) == 32


@each_with_talk
def test_every_talk_size_is_verified(live_s, program):
    live, s = live_s
    rows = verified_rows(live.run(program, "--talk", s, "--once", "--csv"), program)
    assert_untimed(rows)
    assert {row["shape"] for row in rows} == {"talk"}
    assert max(int(row["n"]) for row in rows) == s


@each_with_n
def test_each_kernel_can_be_run_alone(live, program):
    for contender in describe(program)["contenders"]:
        options = ["--kernel", contender["kernel"], "--once", "--csv"]
        done = live.run(program, 64, *options)
        if contender["only"] == "talk":
            assert done.returncode == USAGE
            assert_one_line(done.stderr, program)
            assert "--talk" in done.stderr
            done = live.run(program, "--talk", 16, *options)
        if contender["needs"] and done.returncode == SKIPPED:
            assert_one_line(done.stderr, program)
            assert contender["needs"] in done.stderr and done.stdout == ""
            continue
        rows = verified_rows(done, program)
        assert {row["kernel"] for row in rows} == {contender["kernel"]}


@each_of_one_size
def test_the_seed_decides_the_data(live, program):
    # In the last type, so that every program rounds: x + b is exact in fp32.
    dtype = ["--dtype", describe(program)["dtypes"][-1]] if takes(program, "--dtype") else []

    def errors(seed):
        done = live.run(program, 64, "--once", "--csv", "--seed", seed, *dtype)
        rows = verified_rows(done, program)
        return [row["error_of_bound"] for row in rows]

    assert errors(0) != errors(2**63 - 1)
    if program != "bonus_matmul_A_stationary":  # its sums depend on the order of the blocks
        assert errors(7) == errors(7)


# --- Figures ----------------------------------------------------------------------------------


@each_with_n
@pytest.mark.parametrize("options", [[], ["--hot"]], ids=["cold", "hot"])
def test_figures_agree_with_each_other(live, program, options):
    done = live.run(program, live.timed_size, "--csv", *options)
    for row in verified_rows(done, program):
        problem = problem_of(row)
        assert row["least_bytes"] == str(problem["least_bytes"])
        ms = float(row["median_ms"])
        assert ms > 0
        if row["tflops"]:
            expected = problem["flops"] / ms / 1e9
            assert float(row["tflops"]) == pytest.approx(expected, rel=2e-3, abs=1e-9)
        else:  # a copy
            assert row["role"] == "yardstick" and problem["memory_bound"]
        # GB/s is for what is bound by memory, and says nothing of a GPU on the simulator.
        assert bool(row["gb_per_s"]) == (problem["memory_bound"] and live.name == "gpu")
        if row["gb_per_s"]:
            expected = problem["least_bytes"] / ms / 1e6
            assert float(row["gb_per_s"]) == pytest.approx(expected, rel=2e-3, abs=1e-9)


def assert_fits_a_terminal(text):
    assert not [line for line in text.splitlines() if len(line) > COLUMNS_OF_A_TERMINAL]


def assert_for_people(done, program):
    """What a run for people printed, as lines, after checking what holds for all of them."""
    assert done.returncode == VERIFIED and done.stderr == ""
    assert_fits_a_terminal(done.stdout)
    assert not re.search(r"\b(inf|nan)\b|[ \t]$|\033", done.stdout, re.IGNORECASE | re.MULTILINE)
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{program} on ")
    return lines


ROW = re.compile(r"  (?P<kernel>\w+) +(?P<noisy>~?)(?P<ms>[\d.]+) ms +(?P<rate>[\d.]+)"
                 r"(?: +(?P<percent>[\d.]+)%)?(?: +(?P<speedup>[\d.]+)x)? +verified")
ROW_OF_THE_SIMULATOR = re.compile(r"  (?P<kernel>\w+) +\(CPU\) (?P<ms>[\d.]+) ms"
                                  r"(?: +\(CPU\) (?P<rate><?[\d.]+))? +verified")


def figures_of(live, lines):
    """The rows of a table for people, by kernel; the first names the columns."""
    pattern = ROW if live.name == "gpu" else ROW_OF_THE_SIMULATOR
    rows = [pattern.fullmatch(line) for line in lines]
    head = next(line for line, row in zip(lines, rows[1:]) if row)
    return head, {row["kernel"]: row.groupdict() for row in rows if row}


RUNS = [(program, ()) for program in programs(one_size, takes_n)]
RUNS += [(program, ("--talk", "32")) for program in programs(one_size, takes_talk)]


@pytest.mark.parametrize("program, size", RUNS, ids=lambda value: value if isinstance(value, str)
                         else " ".join(value) or "square")
def test_people_get_a_row_for_each_kernel(live, program, size):
    size = size or (str(live.timed_size),)
    lines = assert_for_people(live.run(program, *size), program)
    assert size[-1] in " ".join(lines[:2])
    head, rows = figures_of(live, lines)
    [shape] = {problem["shape"] for problem in describe(program, *size)["problems"]}
    contenders = [c for c in describe(program)["contenders"] if c["only"] in (None, shape)]
    records = {c["kernel"] for c in contenders if c["role"] == "record"}
    assert len(records & set(rows)) == bool(records)  # the fastest that can run here
    absent = {c["kernel"] for c in contenders if c["needs"]} - set(rows)
    assert list(rows) == [c["kernel"] for c in contenders
                          if c["kernel"] not in absent and c["kernel"] not in records - set(rows)]
    skipped = re.findall(r"^  (\S+) +skipped: .+$", "\n".join(lines), re.MULTILINE)
    assert set(skipped) == absent - records
    for c in contenders:
        if c["kernel"] in records & set(rows):
            assert f"  {c['kernel']}: see {c['program']}" in lines
    memory_bound = describe(program, *size)["problems"][0]["memory_bound"]
    copies = [c["kernel"] for c in contenders if c["role"] == "yardstick" and memory_bound]

    if live.name == "cpu":
        assert "not a GPU" in " ".join(lines[:2])
        assert not re.search(r"%|GB/s|speed-up|\dx\b", "\n".join(lines))
        assert head.split() == ["time", "TFLOP/s"]
        assert "DEMO_COUNT=1" in lines[-1] and "(CPU)" in lines[-2]
        assert [name for name, row in rows.items() if not row["rate"]] == copies
        return
    assert head.split()[:2] == ["time", "GB/s" if memory_bound else "TFLOP/s"]
    assert head.endswith("speed-up") == (len(contenders) > 1)
    assert ("of copy" in head) == bool(copies)
    times = {name: float(row["ms"]) for name, row in rows.items()}
    first = next(iter(times.values()))
    for name, row in rows.items():
        assert bool(row["speedup"]) == (name not in copies and len(contenders) > 1)
        if row["speedup"]:
            assert float(row["speedup"]) == pytest.approx(first / times[name], rel=6e-3)
        if copies:
            part = 100 * times[copies[0]] / times[name]
            assert float(row["percent"]) == pytest.approx(part, rel=6e-3, abs=0.6)
    noisy = any(row["noisy"] for row in rows.values())
    assert noisy == any(line.startswith("  ~ noisy") for line in lines)


@each_of_one_size
def test_rounds_measure_more_often(live, program):
    """Every kernel gets that many turns, and --verbose says how many samples those gave."""
    def samples(rounds):
        done = live.run(program, live.timed_size, "--verbose", "--rounds", rounds, timeout=300)
        lines = assert_for_people(done, program)
        found = re.findall(r"^      (\d+) samples, spread [\d.]+%;", "\n".join(lines), re.MULTILINE)
        assert len(found) == sum(line.endswith("  verified") for line in lines)
        return [int(count) for count in found]

    one, three = samples(1), samples(3)
    assert min(one) >= 3 and all(more > few for few, more in zip(one, three))
    if live.name == "cpu":
        assert set(one) == {3} and set(three) == {9}


@each_of_one_size
def test_verbose_tells_launches_and_bytes(live, program):
    done = live.run(program, live.timed_size, "--verbose", "--once")
    lines = assert_for_people(done, program)
    details = [line.strip() for line in lines if line.startswith("      ")]
    rows = verified_rows(live.run(program, live.timed_size, "--csv", "--once"), program)
    text = " ".join(details)
    for row in rows:
        if row["role"] != "library":  # which chooses by time, anew in each run
            one = row["launches"] == "1"
            assert f"{row['launches']} launch{'' if one else 'es'}" in text
    assert text.count(" moved") == sum(row["moved_bytes"] != "" for row in rows)
    assert "sample" not in text


@each_with_n
@pytest.mark.parametrize("options", [["--once"], ["--verbose"], ["--hot", "--verbose", "--once"]],
                         ids=" ".join)
def test_no_line_is_too_long(live, program, options):
    assert_for_people(live.run(program, live.timed_size, *options), program)


def table_lines(lines):
    """The lines of the tables of --sweep: (size, the columns' names, the cells, the verdict)."""
    found, head = [], []
    for line in lines[1:]:
        row = re.fullmatch(r"  ([NS] = \d+|\d+ x \d+) +(\S.*)  (\w+)", line)
        if row:
            found.append((row[1], head, row[2].split(), row[3]))
        elif "ms" in line.split():
            head = re.sub(r"\bx ", "x_", line.replace("(CPU) ms", "ms")).split()[1:]
    return found


@each_with_tables
def test_a_sweep_prints_a_line_for_each_size(live, program):
    always = not one_size(program)
    options = [live.timed_size] if always else ["--sweep"]
    rows = verified_rows(live.run(program, *options, "--csv", timeout=300), program)
    sizes = list(dict.fromkeys(
        {"square": f"N = {row['n']}", "talk": f"S = {row['n']}"}.get(row["shape"], row["shape"])
        for row in rows))
    lines = assert_for_people(live.run(program, *options, timeout=300), program)
    table = table_lines(lines)
    assert [size.replace(" x ", "x") for size, *_ in table] == sizes and len(sizes) > 1
    for size, head, cells, verdict in table:
        assert verdict == "ok" and len(cells) == len(head)
        times = dict(zip(head, cells))
        ratios = [times.pop(name) for name in head if name.startswith("x_")]
        assert set(times) <= set(kernels(program))
        assert all(float(ms) > 0 for ms in times.values())
        assert bool(ratios) == (live.name == "gpu")
        assert all(re.fullmatch(r"[\d.]+x", ratio) for ratio in ratios)
    if not always:
        shapes = [f"{rows}x{cols}" for rows, cols in describe(program)["shapes"]]
        assert sizes == shapes[:len(sizes)] and (live.name == "cpu" or sizes == shapes)

    untimed = table_lines(assert_for_people(live.run(program, *options, "--once"), program))
    assert [size for size, *_ in untimed] == [size for size, *_ in table]
    assert all(set(cells) == {"-"} for _, _, cells, _ in untimed)


@pytest.mark.parametrize("program", ["5_gating_unfused", "6_gating_fused"])
def test_fusion_saves_launches_memory_and_bytes(live, program):
    for size in (["64"], ["--talk", "16"]):
        rows = verified_rows(live.run(program, *size, "--once", "--csv"), program)
        by_kernel = {row["kernel"]: row for row in rows}
        six, library = by_kernel["six_kernels"], by_kernel["library_best"]
        assert (six["role"], library["role"]) == ("chain", "library")
        assert six["launches"] == "6"
        assert library["launches"] in ("2", "3")  # one packed gemm or two, and one kernel more
        assert int(six["moved_bytes"]) > int(library["moved_bytes"]) > int(six["least_bytes"])
        assert int(six["temp_bytes"]) > 0
        fused = [row for row in rows if row["role"] == "ours"]
        assert bool(fused) == (program == "6_gating_fused")
        for row in fused:
            assert (row["launches"], row["temp_bytes"]) == ("1", "0")
            assert row["moved_bytes"] == row["least_bytes"]


def test_lesson_1_tells_of_its_grid_and_copies(live):
    n = live.timed_size
    text = live.run("1_matmul_basic", n).stdout
    assert f"grid: ({n // 32} x {n // 32}) blocks of (32 x 32) threads" in text
    assert re.search(r"to the device [\d.]+ ms", text)


@each_with_n
def test_the_first_line_appears_within_two_seconds(live, program):
    arguments = ["--once"] if one_size(program) else ["64", "--once"]
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
    [(p, a) for p in programs(one_size, takes_n) for a in TOO_LARGE]
    + [(p, a) for p in programs(one_size, takes_talk) for a in TOO_LARGE_TALK],
    ids=lambda value: value if isinstance(value, str) else " ".join(value))
def test_too_little_memory_names_the_largest_size_that_fits(live, program, arguments):
    name = "S" if "--talk" in arguments else "N"
    step = describe(program)["talk" if name == "S" else "sizes"]["multiple"]
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


@each_with_n
def test_a_gpu_that_is_not_there_is_a_usage_error(live, program):
    for index in ("99", "4294967296"):
        done = live.run(program, "64", "--once", "--device", index)
        assert done.returncode == USAGE
        assert done.stdout == ""
        assert_one_line(done.stderr, program)
