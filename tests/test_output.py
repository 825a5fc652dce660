"""What programs print, for people and for scripts, and what they say where they cannot run."""

import re
import subprocess
import time

import pytest

import suite
from pages import of_page
from suite import CPU, FAILED, GPU, NO_GPU, PROGRAMS, SKIPPED, USAGE, VERIFIED, assert_one_line, run

each_with_n = pytest.mark.parametrize("program", suite.programs(suite.takes_n))
each_of_one_size = pytest.mark.parametrize("program", suite.programs(suite.one_size, suite.takes_n))
each_with_tables = pytest.mark.parametrize(
    "program", suite.programs(lambda program: suite.describe(program)["sweep"] != "never"))

COLUMNS_OF_A_TERMINAL = 79


def assert_fits_a_terminal(text):
    assert not [line for line in text.splitlines() if len(line) > COLUMNS_OF_A_TERMINAL]

# --- What --help says ---------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS)
def test_help(backend, program):
    done = backend.run(program, "--help", env=NO_GPU)
    assert done.returncode == VERIFIED
    assert done.stderr == ""
    assert done.stdout.startswith(program + ": ")
    assert_fits_a_terminal(done.stdout)
    shown = done.stdout.replace(",", " ").split()
    about = suite.describe(program)
    assert all(option["name"] in shown for option in about["options"])
    assert all(value in shown for option in about["options"] for value in option.get("values", []))
    assert all(kernel in shown for kernel in suite.kernels(program))
    assert backend.run(program, "-h", env=NO_GPU).stdout == done.stdout


def small_size(live, program):
    """N where only what is printed matters: on the simulator little, since it prints the same."""
    return live.size_of(program) if live is GPU else min(32, live.size_of(program))


# --- Figures ------------------------------------------------------------------------------------


@pytest.mark.full
@each_with_n
@pytest.mark.parametrize("options", [[], ["--hot"]], ids=["cold", "hot"])
def test_figures_agree_with_each_other(live, program, options):
    done = live.run(program, small_size(live, program), "--csv", *options)
    for row in suite.verified_rows(done, program):
        problem = suite.problem_of(live, row)
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


def assert_for_people(done, program):
    """What a run for people printed, as lines, after checking what holds for all of them."""
    assert done.returncode == VERIFIED and done.stderr == ""
    assert_fits_a_terminal(done.stdout)
    assert not re.search(r"\b(inf|nan)\b|[ \t]$|\033", done.stdout, re.IGNORECASE | re.MULTILINE)
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{program} on ")
    return lines


ROW = re.compile(r"  (?P<kernel>\w+) +(?P<noisy>~?)(?P<ms>[\d.]+) ms +(?P<rate>[\d.]+)"
                 r"(?: +(?P<percent>[\d.]+)%)?(?: +(?P<speedup>[\d.]+)x)? +(?:verified|rejected)")
ROW_OF_THE_SIMULATOR = re.compile(r"  (?P<kernel>\w+) +\(CPU\) (?P<ms>[\d.]+) ms"
                                  r"(?: +\(CPU\) (?P<rate><?[\d.]+))? +(?:verified|rejected)")


def figures_of(live, lines):
    """The rows of a table for people, by kernel; the first names the columns."""
    pattern = ROW if live.name == "gpu" else ROW_OF_THE_SIMULATOR
    rows = [pattern.fullmatch(line) for line in lines]
    head = next(line for line, row in zip(lines, rows[1:]) if row)
    return head, {row["kernel"]: row.groupdict() for row in rows if row}


RUNS = [(program, ())
        for program in suite.programs(suite.one_size, suite.takes_n, suite.one_comparison)]
RUNS += [(program, ("--talk", "32"))
         for program in suite.programs(suite.one_size, suite.takes_talk)]


@pytest.mark.parametrize("program, size", RUNS, ids=suite.words)
def test_people_get_a_row_for_each_kernel(live, program, size):
    size = size or (str(small_size(live, program)),)
    lines = assert_for_people(live.run(program, *size), program)
    assert size[-1] in " ".join(lines[:2])
    head, rows = figures_of(live, lines)
    [shape] = {problem["shape"] for problem in suite.describe(program, *size)["problems"]}
    contenders = [c for c in suite.describe(program)["contenders"] if c["only"] in (None, shape)]
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
    memory_bound = suite.describe(program, *size)["problems"][0]["memory_bound"]
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


def counts_lines(program):
    """Whether kernels of ours for several operations stand in one table."""
    return not suite.one_comparison(program) and any(c["role"] == "ours"
                                               for c in suite.describe(program)["contenders"])


@pytest.mark.parametrize("program", suite.programs(counts_lines))
def test_several_comparisons_stand_below_each_other(live, program):
    """Each kernel of ours, what it is compared with, and how many lines the kernel has."""
    lines = assert_for_people(live.run(program, live.size_of(program)), program)
    roles = {c["kernel"]: c["role"] for c in suite.describe(program)["contenders"]}
    skipped = re.findall(r"^  (\w+) +skipped: ", "\n".join(lines), re.MULTILINE)
    pattern = ROW if live.name == "gpu" else ROW_OF_THE_SIMULATOR
    rows = [row["kernel"] for row in map(pattern.fullmatch, lines) if row]
    ours = [kernel for kernel, role in roles.items() if role == "ours" and kernel not in skipped]
    assert rows[::2] == ours and not set(rows[1::2]) & set(ours)
    assert re.findall(r"^  (\w+): \d+ lines$", "\n".join(lines), re.MULTILINE) == ours


@pytest.mark.full
@each_of_one_size
@pytest.mark.parametrize("backend", [CPU, pytest.param(GPU, marks=pytest.mark.timed)],
                         ids=lambda backend: backend.name)
def test_rounds_measure_more_often(live, program):
    """Every kernel gets that many turns, and --verbose says how many samples those gave."""
    def samples(rounds):
        done = live.run(program, small_size(live, program), "--verbose", "--rounds", rounds,
                        timeout=300)
        lines = assert_for_people(done, program)
        found = re.findall(r"^      (\d+) samples, spread [\d.]+%;", "\n".join(lines), re.MULTILINE)
        assert len(found) == sum(line.endswith(("  verified", "  rejected")) for line in lines)
        return [int(count) for count in found]

    if live is CPU:  # three of each round
        assert set(samples(2)) == {6}
        return
    one, three = samples(1), samples(3)
    assert min(one) >= 3 and all(more > few for few, more in zip(one, three))


@pytest.mark.full
@each_of_one_size
def test_verbose_tells_launches_and_bytes(live, program):
    n = small_size(live, program)
    done = live.run(program, n, "--verbose", "--once")
    lines = assert_for_people(done, program)
    details = [line.strip() for line in lines if line.startswith("      ")]
    rows = suite.verified_rows(live.run(program, n, "--csv", "--once"), program)
    text = " ".join(details)
    for row in rows:
        if row["role"] != "library":  # which chooses by time, anew in each run
            one = row["launches"] == "1"
            assert f"{row['launches']} launch{'' if one else 'es'}" in text
    assert text.count(" moved") == sum(row["moved_bytes"] != "" for row in rows)
    assert "sample" not in text


def table_lines(lines, facts=()):
    """The lines of the tables of --sweep: (size, the columns' names, the cells, the verdict). A
    head has the unit in front, or facts; then the units are on a line of their own."""
    found, head = [], []
    for line in lines[1:]:
        row = re.fullmatch(r"  ([NS] = \d+|\d+ x \d+) +(\S.*)  (\w+)", line)
        if row:
            found.append((row[1], head, row[2].split(), row[3]))
        elif "ms" in line.split():
            head = re.sub(r"\bx ", "x_", line.replace("(CPU) ms", "ms")).split()[1:]
        elif set(facts) & set(line.split()):
            head = line.split()
    return found


@pytest.mark.full
@each_with_tables
def test_a_sweep_prints_a_line_for_each_size(live, program):
    always = not suite.one_size(program)
    options = [live.size_of(program)] if always else ["--sweep"]
    rows = suite.verified_rows(live.run(program, *options, "--csv", timeout=300), program)
    sizes = list(dict.fromkeys(
        {"square": f"N = {row['n']}", "talk": f"S = {row['n']}"}.get(row["shape"], row["shape"])
        for row in rows))
    lines = assert_for_people(live.run(program, *options, timeout=300), program)
    facts = set(of_page(program, "FACTS"))
    table = table_lines(lines, facts)
    assert [size.replace(" x ", "x") for size, *_ in table] == sizes and len(sizes) > 1
    roles = {c["role"] for c in suite.describe(program)["contenders"]}
    for size, head, cells, verdict in table:
        assert verdict == "ok" and len(cells) == len(head)
        times = dict(zip(head, cells))
        ratios = [times.pop(name) for name in head if name.startswith("x_")]
        assert facts <= set(head)
        assert {name for name in times if name not in facts} <= set(suite.kernels(program))
        assert all(float(times[name].rstrip("!")) > 0 for name in set(times) - facts)
        assert bool(ratios) == (live.name == "gpu" and bool(roles & {"chain", "library"}))
        assert all(re.fullmatch(r"[\d.]+x", ratio) for ratio in ratios)
    if not always:
        shapes = [f"{rows}x{cols}" for rows, cols in suite.describe(program)["shapes"]]
        assert sizes == shapes[:len(sizes)] and (live.name == "cpu" or sizes == shapes)

    said = assert_for_people(live.run(program, *options, "--once"), program)
    untimed = table_lines(said, facts)
    assert [size for size, *_ in untimed] == [size for size, *_ in table]
    assert all({cell for name, cell in zip(head, cells) if name not in facts} == {"-"}
               for _, head, cells, _ in untimed)


@pytest.mark.parametrize("program, arguments", suite.runs_of("PRINTS"), ids=suite.words)
def test_what_only_this_program_prints(live, program, arguments):
    text = live.run(program, *arguments).stdout
    for pattern in of_page(program, "PRINTS")[" ".join(arguments)]:
        assert re.search(pattern, text), text


@pytest.mark.timed
@each_with_n
def test_the_first_line_appears_within_two_seconds(live, program):
    arguments = ["--once"] if suite.one_size(program) else ["64", "--once"]
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

TOO_LARGE = [["1073741824"], ["4294967296"],
             ["9223372036854775776"]]  # the last two wrap in 64 bits
TOO_LARGE_TALK = [["--talk", "1048576"], ["--talk", "9223372036854775792"]]


@pytest.mark.parametrize(
    "program, arguments",
    [(p, a) for p in suite.programs(suite.takes_n) for a in TOO_LARGE]
    + [(p, a) for p in suite.programs(suite.takes_talk) for a in TOO_LARGE_TALK],
    ids=suite.words)
def test_too_little_memory_names_the_largest_size_that_fits(live, program, arguments):
    name = "S" if "--talk" in arguments else "N"
    step = suite.describe(program)["talk" if name == "S" else "sizes"]["multiple"]
    done = live.run(program, *arguments)
    assert done.returncode == FAILED
    assert done.stdout == ""
    assert_one_line(done.stderr, program)
    match = re.search(
        rf"{name} = {arguments[-1]} needs [\d.]+ [KMGTPE]iB of (GPU|host) memory, but "
        rf"[\d.]+ [KMGT]iB are free; the largest {name} that fits is (\d+)", done.stderr)
    assert match, done.stderr
    largest = int(match[2])
    assert 0 < largest < int(arguments[-1]) and largest % step == 0

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


@each_with_n
def test_without_a_gpu_a_program_is_skipped_and_says_why(program):
    done = GPU.run(program, "32", env=NO_GPU)
    assert (done.returncode, done.stdout) == (SKIPPED, "")
    assert_one_line(done.stderr, program)


@each_of_one_size  # a sweep's lines have no room for it
def test_what_this_gpu_lacks_is_named(live, program):
    """The simulator lacks nothing."""
    done = run(live.folder / program, small_size(live, program), "--once")
    if done.returncode == SKIPPED and live.may_skip(program):
        assert done.stdout == ""
        assert_one_line(done.stderr, program)
        assert any(reason in done.stderr for reason in suite.needs(program).values())
        return
    assert done.returncode == VERIFIED, done.stderr
    skipped = re.findall(r"^  (\w+) +skipped: (.*)$", done.stdout, re.MULTILINE)
    assert dict(skipped).items() <= (suite.needs(program) if live is GPU else {}).items()
