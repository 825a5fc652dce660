"""Right results: of every program, at every size, shape and type, in any order of its threads, and
under the host compiler's sanitizers. What needs other checks stands on the programs' pages."""

import pytest

import suite
from pages import in_one, of_page, sanitized
from suite import CPU, EVERYTHING, GPU, PROGRAMS, ROOT, SKIPPED, TIMES, describe, run, verified_rows


def a_few(live, program):
    """N of runs that show something at any size."""
    return str(min(32, live.size_of(program)))


each_with_n = pytest.mark.parametrize("program", suite.programs(suite.takes_n))


def assert_untimed(rows):
    assert all(row[name] == "" for row in rows for name in TIMES), "--once times nothing"


# --- Sizes and shapes ---------------------------------------------------------------------------


@each_with_n
def test_every_size_is_verified(live_n, program):
    live, n = live_n
    if live is CPU and n > of_page(program, "LARGEST", n):
        pytest.skip("takes too long here")
    rows = verified_rows(live.run(program, n, "--once", "--csv"), program)
    assert_untimed(rows)
    if suite.one_size(program):
        assert {(row["shape"], row["n"]) for row in rows} == {("square", str(n))}
        return
    square = [int(row["n"]) for row in rows if row["shape"] == "square"]
    assert max(square) <= n
    if suite.takes_talk(program):
        assert max(square) == n and min(square) == min(n, 1024)
        talk = [int(row["n"]) for row in rows if row["shape"] == "talk"]
        assert max(talk) == max(32, n // 8 // 16 * 16) and min(talk) == 32


@pytest.mark.parametrize("program", suite.programs(suite.takes_talk))
def test_every_talk_size_is_verified(live_s, program):
    live, s = live_s
    rows = verified_rows(live.run(program, "--talk", s, "--once", "--csv"), program)
    assert_untimed(rows)
    assert {row["shape"] for row in rows} == {"talk"}
    assert max(int(row["n"]) for row in rows) == s


SHAPES = [(1, 1), (7, 7), (33, 33), (128, 512), (250, 7), (3, 1023), (5, 1000), (2, 1025),
          (300, 1), (1, 4099), (37, 1028), (3, 257), (2, 511), (5, 7), (5, 1032)]
LARGE = [(5, 16384), (24, 20000), (3, 131072), (2, 1048576), (3, 100003), (20000, 40), (2500, 1026),
         (120, 16384), (700, 9001), (300, 20001), (2, 300001), (2**24 + 84, 3)]


@pytest.mark.parametrize("program, dtype", [
    (program, dtype) for program in suite.programs(suite.any_shape)
    for dtype in (suite.declared(program) or {"dtypes": ["fp32"]})["dtypes"]])
@pytest.mark.parametrize("rows, cols", SHAPES[::5] if suite.QUICK else SHAPES + LARGE)
def test_every_shape_is_verified(live, program, dtype, rows, cols):
    if live is CPU and (rows > 10000 or rows * cols > 2000000):
        pytest.skip("takes too long here")
    done = live.run(program, "--rows", rows, "--cols", cols, "--dtype", dtype, "--once", "--csv")
    for row in verified_rows(done, program):
        assert (row["shape"], row["n"], row["dtype"]) == (f"{rows}x{cols}", str(rows), dtype)


@pytest.mark.parametrize("program, arguments", suite.runs_of("RUNS"), ids=suite.words)
def test_what_only_this_program_has_is_verified(live, program, arguments):
    verified_rows(live.run(program, *arguments, "--csv"), program)


@pytest.mark.full
@each_with_n
def test_each_kernel_can_be_run_alone(live, program):
    for contender in describe(program)["contenders"]:
        size = ["--talk", "16"] if contender["only"] == "talk" else [a_few(live, program)]
        done = live.run(program, *size, "--kernel", contender["kernel"], "--once", "--csv")
        if contender["needs"] and done.returncode == SKIPPED and live is GPU:
            assert contender["needs"] in done.stderr and done.stdout == ""
            continue
        rows = verified_rows(done, program)
        assert {row["kernel"] for row in rows} == {contender["kernel"]}


@pytest.mark.full
@pytest.mark.parametrize("program", suite.programs(suite.one_size, suite.takes_n))
def test_the_seed_decides_the_data(live, program):
    # In the last type, so that every program rounds: x + b is exact in fp32.
    dtype = ["--dtype", describe(program)["dtypes"][-1]] if suite.takes(program, "--dtype") else []

    def errors(seed):
        done = live.run(program, a_few(live, program), "--once", "--csv", "--seed", seed, *dtype)
        rows = verified_rows(done, program)
        exact = all(float(row["error_of_bound"]) == 0 for row in rows)  # numbers are only moved
        return {row["kernel"]: row["output_hash" if exact else "error_of_bound"] for row in rows}

    first, second = errors(0), errors(0)
    assert first != errors(2**63 - 1)
    for contender in describe(program)["contenders"]:
        if contender["repeatable"]:
            assert first.get(contender["kernel"]) == second.get(contender["kernel"])


@pytest.mark.full
def test_special_values():
    """On the simulator; on a GPU test_device.py runs them."""
    done = run(ROOT / "build/cpu/release/tests/test_special_values", "--gtest_brief=1", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[  PASSED  ]" in done.stdout


# --- On the simulator: in other orders of the threads, and under the sanitizers -----------------

ONE_SIZE = [(program, (str(CPU.size_of(program)),)) for program in suite.programs(suite.takes_n)]
ONE_SIZE += [(program, ("--talk", "16")) for program in suite.programs(suite.takes_talk)]
ONE_SIZE += [(program, ("--rows", "5", "--cols", "1032", "--dtype", "fp16"))
             for program in suite.programs(suite.any_shape)]
MORE_SIZES = [(program, (str(n),)) for program in suite.programs(suite.takes_n) for n in CPU.sizes
              if n != CPU.size_of(program) and n <= of_page(program, "LARGEST", n)]
each_run = pytest.mark.parametrize(
    "program, arguments", ONE_SIZE + suite.runs_of("ANY_ORDER") + MORE_SIZES * EVERYTHING,
    ids=suite.words)


@pytest.mark.full
@each_run
@pytest.mark.parametrize("schedule", CPU.schedules[1:])
def test_verified_in_any_order(program, arguments, schedule):
    done = CPU.run(program, *arguments, "--once", "--csv", env={"DEMO_SCHEDULE": schedule})
    verified_rows(done, program)


@pytest.mark.full
@pytest.mark.parametrize("program, arguments", [
    (program, arguments) for program, arguments in ONE_SIZE
    if "--rows" not in arguments and program in suite.programs(suite.one_size)], ids=suite.words)
def test_the_sanitizers_find_nothing(program, arguments):
    [bundle] = [target for target, names in sanitized(PROGRAMS).items() if program in names]
    done = run(ROOT / bundle, in_one(program), *arguments, "--once", "--csv", timeout=300)
    assert "Sanitizer" not in done.stderr and "runtime error" not in done.stderr
    verified_rows(done, program)


# --- What kernels move --------------------------------------------------------------------------


@pytest.mark.parametrize("program, arguments", suite.runs_of("TRAFFIC"), ids=suite.words)
def test_traffic_is_that_counted_by_hand(live, program, arguments):
    by_hand = of_page(program, "TRAFFIC")[" ".join(arguments)]
    by_hand = by_hand.get(live.name, by_hand)
    found = {row["kernel"]: tuple(int(row[name] or 0) for name in ("launches", "moved_bytes",
                                                                   "temp_bytes"))
             for row in verified_rows(live.run(program, *arguments, "--once", "--csv"), program)}
    assert {kernel: found[kernel] for kernel in by_hand} == by_hand


def has_chain(program):
    return "chain" in [contender["role"] for contender in describe(program)["contenders"]]


@pytest.mark.full
@pytest.mark.parametrize("program", suite.programs(suite.one_size, has_chain))
def test_fusion_saves_launches_memory_and_bytes(live, program):
    """A kernel of ours takes one launch, keeps nothing and moves what must be moved; a library's
    calls, and what takes several kernels of ours, lie between that and the chain's."""
    size = [a_few(live, program)] if suite.takes_n(program) else ["--talk", "16"]
    rows = verified_rows(live.run(program, *size, "--once", "--csv"), program)
    [chain] = [row for row in rows if row["role"] == "chain"]
    assert int(chain["temp_bytes"]) > 0
    for row in rows:
        moved, launches = int(row["moved_bytes"]), int(row["launches"])
        if row["role"] == "yardstick":
            continue  # a gemm alone is only a part
        assert moved >= int(row["least_bytes"])
        if row["role"] in ("ours", "record") and launches == 1:
            assert row["temp_bytes"] == "0"
            assert moved == int(row["least_bytes"])
        elif row["role"] in ("ours", "record", "library"):
            assert 1 < launches < int(chain["launches"])
            assert int(row["least_bytes"]) < moved < int(chain["moved_bytes"])
