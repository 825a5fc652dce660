"""Counting what kernels touch: DEMO_COUNT=1 on the simulator, and ncu on a GPU."""

import os
import re
import shutil
import subprocess

import pytest

import side_by_side
import suite
from fakes import copy_folders, script
from pages import accesses, boxes, of_page
from suite import CPU, ROOT, SKIPPED, USAGE, VERIFIED, WRONG, assert_one_line, run, scons

COUNT = {"DEMO_COUNT": "1"}
COMPARED = ["1_matmul_basic", "2_matmul_sharedmem", "bonus_matmul_A_stationary"]

KIND = ("(?:global|shared) (?:loads|stores|atomics)|(?:bulk|tile) (?:loads|stores)|wgmma|"
        "barriers")
ROW = re.compile(rf"    ({KIND}) +([\d,]+) +([\d,]+)(?: +([\d,]+))?(?: +([\d,]+) +[\d.]+)?"
                 r"(?: +([\d,]+))? *")
NUMBERS = ("threads", "requests", "bytes", "sectors", "conflicts")


class Table:
    """One kernel's table: whole["global loads"]["sectors"], lines[43]["global loads"][...]."""

    def __init__(self, text):
        self.title, columns, *rows = text.splitlines()
        assert len(self.title) <= 100
        title = r"(.+): \((\d+ x \d+)\) blocks of \((\d+ x \d+)\) threads, one launch"
        self.kernel, self.grid, self.block = re.fullmatch(title, self.title).groups()
        assert columns.split() == ["threads", "requests", "bytes", "sectors", "/request",
                                   "conflicts"]
        self.whole, self.lines, self.sources = {}, {}, {}
        into = self.whole
        for row in rows:
            assert len(row) <= 100, row
            line = re.match(r"  (?:line |(src/\w+/\S+:))(\d+): (.*)", row)
            if line:
                place = line[1] + line[2] if line[1] else int(line[2])
                into = self.lines[place] = {}
                self.sources[place] = line[3]
                continue
            fields = ROW.fullmatch(row)
            assert fields, row
            values = [int(f.replace(",", "")) if f else 0 for f in fields.groups()[1:]]
            # The last number is conflicts of shared memory: it alone has no sectors.
            assert fields[1] not in into
            into[fields[1]] = dict(zip(NUMBERS, values))

    def check_sums(self):
        """What the lines have is what the whole has."""
        for kind, numbers in self.whole.items():
            for name in NUMBERS:
                of_lines = sum(line[kind][name] for line in self.lines.values() if kind in line)
                assert of_lines == numbers[name], (kind, name)


def tables(done):
    """What a program printed before the tables, and those by kernel."""
    assert done.returncode == VERIFIED, done.stderr
    first, *rest = done.stdout.split("\n\n")
    found = {table.kernel: table for table in map(Table, rest)}
    assert len(found) == len(rest), "a kernel has two tables"
    return first, found


def counted_run(program, *arguments, schedule="forward"):
    """Runs a program that counts, and skips the test where g++ did not build that."""
    done = run(program, *arguments, env={**COUNT, "DEMO_SCHEDULE": schedule})
    if done.returncode == SKIPPED and "DEMO_COUNT=1 needs" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stderr) == (VERIFIED, "")
    return done


def count(program, *arguments, **options):
    """The tables of one of the suite's programs, by kernel."""
    found = tables(counted_run(CPU.folder / program, *arguments, **options))[1]
    for table in found.values():
        table.check_sums()
    return found


# --- The programs, against closed forms -----------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("program, arguments", suite.runs_of("COUNTS"), ids=suite.words)
def test_counts_are_those_of_the_closed_form(program, arguments):
    """And no other kernel is counted: not those of the harness, which check and fill."""
    by_hand = of_page(program, "COUNTS")[" ".join(arguments)]
    done = counted_run(CPU.folder / program, *arguments)
    if not by_hand:
        assert done.stdout.endswith("\n\nnothing to count: no kernel of the program's own ran\n")
        return
    found = tables(done)[1]
    for table in found.values():
        table.check_sums()
    assert {table.title: table.whole for table in found.values()} == by_hand


@pytest.mark.full
@pytest.mark.parametrize("program, arguments", [
    (program, arguments) for program, arguments in suite.runs_of("COUNTS")
    if arguments == suite.runs_of("COUNTS")[0][1]], ids=suite.words)
@pytest.mark.parametrize("schedule", CPU.schedules[1:])
def test_counts_are_the_same_in_any_order(program, arguments, schedule):
    found = count(program, *arguments, schedule=schedule)
    assert {table.title: table.whole
            for table in found.values()} == of_page(program, "COUNTS")[" ".join(arguments)]


def test_a_line_has_its_own_counts():
    table = count("2_matmul_sharedmem", 64)["matmul_sharedmem"]
    source = (ROOT / "src/2_matmul_sharedmem.cu").read_text().splitlines()
    for line, text in table.sources.items():
        assert text and source[line - 1].strip().startswith(text.replace(" ...", ""))
    [inner] = [table.lines[line] for line, text in table.sources.items() if "sum +=" in text]
    assert inner == {"shared loads": table.whole["shared loads"]}


def test_the_tiled_kernel_loads_a_32nd():
    naive = count("1_matmul_basic", 128)["matmul_basic"].whole["global loads"]
    shared = count("2_matmul_sharedmem", 128)["matmul_sharedmem"].whole["global loads"]
    for name in ("threads", "requests"):
        assert naive[name] == 32 * shared[name]
    # A sector serves 8 neighbours, but also 32 lanes that want the same: 5 for two loads, not 8.
    assert naive["sectors"] == 20 * shared["sectors"]


def test_the_documents_show_copies_by_tma():
    text = (ROOT / "docs/tools.md").read_text(encoding="utf-8")
    command = "    $ DEMO_COUNT=1 cpu/bonus_matmul_hopper 256 --kernel multicast\n    [...]\n"
    shown = text.partition(command)[2].partition("    [...]\n")[0].replace("\n    ", "\n")
    printed = counted_run(CPU.folder / "bonus_matmul_hopper", 256, "--kernel", "multicast").stdout
    assert shown and shown.strip() in printed


@pytest.mark.parametrize("program", ["1_matmul_basic", "2_matmul_sharedmem"])
def test_the_documents_show_what_is_printed(program):
    text = (ROOT / "docs/tools.md").read_text(encoding="utf-8")
    block = re.search(rf"^    \$ DEMO_COUNT=1 cpu/{program} 256\n((?:    (?!\$).*\n|\n)+)", text,
                      re.MULTILINE)[1]
    shown = [line[4:] for line in block.rstrip().split("\n")]
    printed = counted_run(CPU.folder / program, 256).stdout.rstrip().split("\n")
    timed = re.compile("  copies: ")  # these two figures are the machine's
    assert [line for line in shown if not timed.match(line)] == [
        line for line in printed if not timed.match(line)]


# --- Patterns -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counts():
    """Builds tests/simulator/counts.cu, both ways, and returns the program."""
    built = scons("cpu/tests")
    assert built.returncode == 0, built.stdout + built.stderr
    return ROOT / "build/cpu/release/tests/counts"


def one_table(program, case):
    first, found = tables(counted_run(program, case))
    assert first == "cudaSuccess"
    [table] = found.values()
    table.check_sums()
    return table


GLOBAL = {  # of one warp's loads: sectors, bytes of each, distinct addresses
    "stride_1": (4, 4, 32),
    "stride_2": (8, 4, 32),
    "stride_32": (32, 4, 32),
    "broadcast": (1, 4, 1),
    "offset_1": (5, 4, 32),
    "halves": (2, 2, 32),
    "float4": (16, 16, 32),
    "vector_arithmetic": (16, 16, 32),
    "hinted": (4, 4, 32),
}


@pytest.mark.full
@pytest.mark.parametrize("case", GLOBAL)
def test_coalescing(counts, case):
    sectors, size, distinct = GLOBAL[case]
    table = one_table(counts, case)
    assert table.whole == {"global loads": accesses(32, size, sectors=sectors, distinct=distinct),
                           "global stores": accesses(32, size, sectors=size)}
    assert len(table.lines) == 2, "a header's function is the calling line's"


SHARED = {  # conflicts of the loads, bytes of each
    "rows": (0, 4),
    "columns": (31, 4),
    "padded_columns": (0, 4),
    "every_other": (1, 4),
    "same_word": (0, 4),
    "doubles": (0, 8),
    "double_columns": (2 * 15, 8),
    "float4_row": (0, 16),
    "every_other_float4": (4, 16),
}


@pytest.mark.full
@pytest.mark.parametrize("case", SHARED)
def test_bank_conflicts(counts, case):
    conflicts, size = SHARED[case]
    assert one_table(counts, case).whole == {
        "global stores": accesses(32, size, sectors=size),
        "shared loads": accesses(32, size, conflicts=conflicts,
                                distinct=1 if case == "same_word" else 32),
        "shared stores": accesses(32 * 32, size),
        "barriers": accesses(32, 0),
    }


OTHERS = {
    # Six blocks of 8 x 5 threads: a whole warp and one of 8 each. All rows load the same.
    "blocks": {"global loads": accesses(240, 4, requests=12, sectors=12, distinct=12 * 8),
               "global stores": accesses(240, 4, requests=12, sectors=12, distinct=12 * 8)},
    # No instruction has 12 bytes: three of 4, in steps of 12, so every sector is touched thrice.
    "float3": {"global loads": accesses(96, 4, sectors=36),
               "global stores": accesses(96, 4, sectors=36)},
    "read_modify_write": {"global loads": accesses(32, 4, sectors=4),
                          "global stores": accesses(32, 4, sectors=4)},
    "half_the_warp": {"global loads": accesses(16, 4, requests=1, sectors=2),
                      "global stores": accesses(16, 4, requests=1, sectors=2)},
    # Lane l loads l times; the longest way is the warp's.
    "triangle": {"global loads": accesses(31 * 32 // 2, 4, requests=31, sectors=31,
                                         distinct=31),
                 "global stores": accesses(32, 4, sectors=4)},
    "registers": {"global loads": accesses(4 * 32, 4, sectors=16),
                  "global stores": accesses(32, 4, sectors=4)},
    # Sums in one place are added one after the other, each a trip with its sector.
    "one_sum": {"global atomics": accesses(64, 4, sectors=64, distinct=2)},
    "sums_of_pairs": {"global atomics": accesses(64, 4, sectors=2 * 2 * 2, distinct=32)},
    "many_sums": {"global atomics": accesses(256, 4, sectors=4 * 2 * 4)},
    "dynamic": {"global stores": accesses(128, 4, sectors=16),
                "shared loads": accesses(128, 4),
                "shared stores": accesses(128, 4)},
    "shared_sum": {"global stores": accesses(1, 4, requests=1, sectors=1),
                   "shared loads": accesses(1, 4, requests=1),
                   "shared stores": accesses(1, 4, requests=1),
                   "shared atomics": accesses(64, 4, distinct=2),
                   "barriers": accesses(128, 0)},
    "async_copy": {"global loads": accesses(32, 16, sectors=16),
                   "global stores": accesses(32, 4, sectors=4),
                   "shared loads": accesses(32, 4),
                   "shared stores": accesses(32, 16),
                   "barriers": accesses(32, 0)},
    # A tile of 16 rows of 32 bytes; one of 1 KiB.
    "wmma_tile": {"global loads": accesses(32, 16, sectors=16),
                  "global stores": accesses(64, 16, sectors=32)},
    # Rows 128 bytes apart lie in the same banks: each of the four matrices takes 8 passes.
    "matrices": {"global stores": accesses(32, 4, sectors=4),
                 "shared loads": accesses(32, 16, conflicts=4 * 7)},
    "padded_matrices": {"global stores": accesses(32, 4, sectors=4),
                        "shared loads": accesses(32, 16)},
    # The same of stmatrix, where a swizzle leads each row's 16 bytes to banks of their own.
    "stored_matrices": {"shared stores": accesses(32, 16, conflicts=4 * 7)},
    "swizzled_matrices": {"shared stores": accesses(32, 16)},
    # Outside of the matrix nothing is read or written: 16 rows of 128 bytes, 8 of 64.
    "boxes": {"bulk loads": boxes(2, 16 * 128 + 8 * 64, sectors=16 * 4 + 8 * 2),
              "bulk stores": boxes(2, 16 * 128 + 8 * 64, sectors=16 * 4 + 8 * 2)},
    "multicast": {"bulk loads": boxes(1, 16 * 128, sectors=16 * 4)},
    "neighbors": {"global stores": accesses(64, 4, sectors=8),
                  "shared loads": accesses(64, 4),
                  "shared stores": accesses(64, 4)},
    "bulk_copy": {"bulk loads": boxes(1, 64, sectors=3)},
    "warpgroups": {"wgmma": accesses(128, 0), "barriers": accesses(128, 0)},
    # A sector that two rows share counts once.
    "tiles": {"tile loads": boxes(2, 10 * 16, sectors=5),
              "tile stores": boxes(2, 10 * 32, sectors=10)},
    "twice": {"global loads": accesses(32, 4, sectors=4),
              "global stores": accesses(32, 4, sectors=4)},
}


@pytest.mark.full
@pytest.mark.parametrize("case", OTHERS)
def test_other_accesses(counts, case):
    assert one_table(counts, case).whole == OTHERS[case]


@pytest.mark.full
def test_kernels_are_named_without_namespaces(counts):
    assert one_table(counts, "registers").kernel == "registers<Values<4> >"


@pytest.mark.full
def test_no_table_without_a_launch(counts):
    assert counted_run(counts, "nothing").stdout == "cudaSuccess\n"


@pytest.mark.full
def test_without_addr2line(counts):
    counted_run(counts, "stride_1")  # skips where that cannot count
    done = run(counts, "stride_1", env={**COUNT, "PATH": "/nowhere"})
    assert (done.returncode, done.stderr) == (VERIFIED, "")
    assert "    global loads                 32" in done.stdout
    assert done.stdout.endswith("addr2line, of binutils, is missing)\n")


# --- The switch -----------------------------------------------------------------------------------


@pytest.mark.parametrize("env", [{}, {"DEMO_COUNT": "0"}])
def test_no_table_unless_asked(env):
    done = run(CPU.folder / "2_matmul_sharedmem", 32, "--once", env=env)
    assert done.returncode == VERIFIED
    assert re.fullmatch(r"2_matmul_sharedmem on .*\n  matmul_sharedmem +verified\n", done.stdout)


def test_the_table_follows_the_usual_output():
    """Which --once, given or not, makes short."""
    usual = run(CPU.folder / "2_matmul_sharedmem", 32, "--once").stdout
    for once in [], ["--once"]:
        done = counted_run(CPU.folder / "2_matmul_sharedmem", 32, *once)
        assert tables(done)[0] + "\n" == usual


@pytest.mark.parametrize("value", ["", "2", "yes", "1 "])
def test_bad_value(value):
    done = run(CPU.folder / "2_matmul_sharedmem", 32, env={"DEMO_COUNT": value})
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "2_matmul_sharedmem")
    assert "DEMO_COUNT takes" in done.stderr


@pytest.mark.parametrize("program, arguments", [("debug/2_matmul_sharedmem", []),
                                                ("2_matmul_sharedmem", ["--csv"])])
def test_builds_and_output_that_counting_is_not_for(program, arguments):
    done = run(CPU.folder / program, 32, *arguments, env=COUNT)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "2_matmul_sharedmem")


def test_the_command_line_is_still_checked():
    count("2_matmul_sharedmem", 32)  # skips where that cannot count
    done = run(CPU.folder / "2_matmul_sharedmem", 33, env=COUNT)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert "33" in done.stderr


def test_without_the_build_that_counts(tmp_path):
    program = tmp_path / "2_matmul_sharedmem"
    if not (CPU.folder / program.name).exists():
        pytest.skip("cpu/2_matmul_sharedmem is not built")
    shutil.copy(CPU.folder / program.name, program)
    done = subprocess.run([program, "32"], capture_output=True, text=True,
                          env={**os.environ, **COUNT})
    assert (done.returncode, done.stdout) == (SKIPPED, "")
    assert_one_line(done.stderr, program.name)
    assert "scripts/count.sh 2_matmul_sharedmem builds it" in done.stderr


# --- Side by side ---------------------------------------------------------------------------------


def parts(text):
    """What comes before the table; {kind: its rows, as words}; the sentences after."""
    before, *kinds, sentences = text.rstrip("\n").split("\n\n")
    rows = [[re.split(r"\s{2,}", line.strip()) for line in kind.split("\n")] for kind in kinds]
    return before, {head[0]: (head[1:], *rest) for head, *rest in rows}, sentences


def without_gpu(*arguments):
    count("1_matmul_basic", 32)  # skips where it is not built
    done = count_script("--no-build", *arguments)
    if "counting on the simulator" not in done.stderr:
        pytest.skip("there is a GPU here")
    return done


def test_two_programs_stand_in_one_table():
    done = without_gpu("1", "2", 128)
    assert done.returncode == VERIFIED and max(map(len, done.stdout.splitlines())) <= 79
    before, kinds, sentence = parts(done.stdout)
    assert before.splitlines() == [
        line for program, kernel in (("1_matmul_basic", "matmul_basic"),
                                     ("2_matmul_sharedmem", "matmul_sharedmem"))
        for line in (f"{program} on CPU simulation (not a GPU): N = 128, fp32",
                     f"  {kernel}: (4 x 4) blocks of (32 x 32) threads")]
    first = count("1_matmul_basic", 128)["matmul_basic"].whole
    second = count("2_matmul_sharedmem", 128)["matmul_sharedmem"].whole
    assert list(kinds) == list(dict.fromkeys([*first, *second]))
    for kind, (columns, one, other, *ratios) in kinds.items():
        assert other == ["2 matmul_sharedmem", *(f"{second[kind][each]:,}" for each in columns)]
        if kind not in first:
            assert one == ["1 matmul_basic", "none"] and not ratios
            continue
        assert one == ["1 matmul_basic", *(f"{first[kind][each]:,}" for each in columns)]
        assert ratios[0] == [f"{first[kind][each] / second[kind][each]:.3g}x fewer"
                             if first[kind][each] > second[kind][each] else "the same"
                             for each in columns]
    assert kinds["global loads"][3][:2] == ["32x fewer"] * 2
    assert sentence == ("1 matmul_basic loads from global memory 32 times as often as 2\n"
                        "matmul_sharedmem.")


def test_the_documents_show_two_programs_side_by_side():
    text = (ROOT / "docs/tools.md").read_text(encoding="utf-8")
    shown = re.search(r"    \$ scripts/count.sh 1 2 256\n((?:    .*\n|\n(?=    ))+)", text)[1]
    assert re.sub("^    ", "", shown, flags=re.MULTILINE) == without_gpu("1", "2", 256).stdout


@pytest.mark.full
def test_the_kernels_of_one_program_stand_in_one_table():
    done = without_gpu("--together", "bonus_matmul_hopper", 128)
    assert done.returncode == VERIFIED and max(map(len, done.stdout.splitlines())) <= 79
    _, kinds, _ = parts(done.stdout)
    wgmma, tma, same = kinds["global stores"][1:4]
    assert wgmma == ["wgmma<__half>", "8,192", "256", "32,768", "2,048"]
    assert tma == ["tma<__half>", *wgmma[1:]] and same == ["the same"] * 4
    assert ["multicast<__half>", "8,192", "256", "131,072", "0"] in kinds["shared stores"]
    assert ["2x more"] * 3 in kinds["shared stores"]


def test_a_program_that_refuses_ends_the_comparison():
    done = without_gpu("1", "2", 32, "--kernel", "none")
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert "1_matmul_basic: " in done.stderr


def test_a_wrong_result_is_shown_and_ends_the_comparison(tmp_path):
    copy_folders(tmp_path, "scripts", "src")
    for name, status in (("1_matmul_basic", 0), ("2_matmul_sharedmem", 1)):
        path = tmp_path / "cpu" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {name} is WRONG\nexit {status}\n")
        path.chmod(0o755)
    done = script("count.sh", "--no-build", "1", "2", root=tmp_path)
    if "counting on the simulator" not in done.stderr:
        pytest.skip("there is a GPU here")
    assert (done.returncode, done.stdout) == (WRONG, "2_matmul_sharedmem is WRONG\n")


HEAD = ("x on a GPU\n  x  verified\n\n{}: (8 x 8) blocks of (32 x 32) threads, one launch\n"
        "                            threads      requests\n")


@pytest.mark.parametrize("one, other, rows", [
    ((2 * 2**36, 2**32, 8, 8), (2 * 2**31, 2**31, 8, 8),  # N = 4096
     [["1 k", "1.374e+11", "4,294,967,296", "8", "8"],
      ["2 k", "4,294,967,296", "2,147,483,648", "8", "8"],
      ["32x fewer", "2x fewer", "the same", "the same"]]),
    ((1, 1, 10, 10), (3000, 1001, 1, 7),
     [["1 k", "1", "1", "10", "10"], ["2 k", "3,000", "1,001", "1", "7"],
      ["3,000x more", "1,001x more", "10x fewer", "1.43x fewer"]]),
])
def test_large_numbers_and_ratios_fit(capsys, one, other, rows):
    row = "    global loads    {:15,}{:14,}{:17,}{:14,}     1.00\n"
    side_by_side.show([(program, HEAD.format("k") + row.format(*numbers))
                       for program, numbers in (("1_a", one), ("2_b", other))])
    printed = capsys.readouterr().out
    assert parts(printed)[1]["global loads"][1:] == tuple(rows)
    assert max(map(len, printed.splitlines())) <= 79


# --- On a GPU -------------------------------------------------------------------------------------


def count_script(*arguments, env=None):
    return script("count.sh", *arguments, env=env, cwd="/")


@pytest.mark.full
@pytest.mark.parametrize("program", COMPARED)
def test_ncu_agrees(program):
    """The simulator's counts against the hardware's, of a GPU whose counters may be read."""
    measured = count_script("--no-build", program, 256)
    if measured.returncode == SKIPPED or "counting on the simulator" in measured.stderr:
        pytest.skip(measured.stderr.strip())
    assert measured.stderr == ""
    [gpu], [cpu] = (found.values() for found in (tables(measured)[1], count(program, 256)))
    assert (gpu.kernel, gpu.grid, gpu.block) == (cpu.kernel, cpu.grid, cpu.block)
    assert gpu.whole.keys() == cpu.whole.keys()
    for kind, here in cpu.whole.items():
        there = gpu.whole[kind]
        for name in ("bytes", "sectors", "conflicts"):
            assert there[name] == pytest.approx(here[name], rel=0.05), (kind, name)
        # nvcc reads four neighbours in shared memory at once, so those loads are fewer.
        if kind != "shared loads":
            assert (there["threads"], there["requests"]) == (here["threads"], here["requests"])
        else:
            assert here["requests"] / 4 <= there["requests"] <= here["requests"]


@pytest.mark.parametrize("name", ["2_matmul_sharedmem", "2"])
def test_script_without_gpu(name):
    count("2_matmul_sharedmem", 32)  # skips where it is not built
    done = count_script("--no-build", name, 32)
    if "counting on the simulator" not in done.stderr:
        pytest.skip("there is a GPU here")
    assert done.returncode == VERIFIED
    assert done.stdout == counted_run(CPU.folder / "2_matmul_sharedmem", 32).stdout


@pytest.mark.full
def test_script_with_another_compiler(tmp_path):
    """Where the program is still to be built."""
    copy_folders(tmp_path, "scripts", "src")
    (tmp_path / "clang++").write_text(
        "#!/bin/sh\necho '#define __clang__ 1'\necho '#define __cpp_lib_bit_cast 201806L'\n")
    (tmp_path / "clang++").chmod(0o755)
    done = script("count.sh", "2", 32, root=tmp_path, env={"CXX": str(tmp_path / "clang++")})
    if "counting on the simulator" not in done.stderr:
        pytest.skip("there is a GPU here")
    assert (done.returncode, done.stdout) == (SKIPPED, "")
    assert "takes g++" in done.stderr


# A machine with a GPU, and an ncu that does what its user is shown here. $1 is its answer to a run.
FAKE_NCU = """#!/usr/bin/env bash
case " $* " in
    *" --query-metrics "*) echo "l1tex__t_sectors_pipe_lsu_mem_global_op_ld  Counter  sector" ;;
    *" --page raw "*) cat "$FAKE/raw.csv" ;;
    *" --page source "*) cat "$FAKE/sass.csv" ;;
    *)
        while (($# > 1)); do
            case $1 in
                --log-file) log=$2 ;;
                --export) report=$2 ;;
            esac
            shift
        done
        cat "$FAKE/log" >"$log"
        [[ ! -e $FAKE/raw.csv ]] || touch "$report.ncu-rep"
        echo "what the program printed"
        exit 9 # whatever the program's was
        ;;
esac
"""


@pytest.fixture
def fake_ncu(tmp_path):
    if not (ROOT / "2_matmul_sharedmem").exists():
        pytest.skip("2_matmul_sharedmem is not built")
    for name, text in [("ncu", FAKE_NCU), ("nvidia-smi", "#!/bin/sh\necho 'GPU 0: A GPU'\n")]:
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "FAKE": str(tmp_path)}

    def run_it(log, programs=("2",), **files):
        (tmp_path / "log").write_text(log)
        for name, text in files.items():
            (tmp_path / f"{name}.csv").write_text(text)
        return count_script("--no-build", *programs, 64, env=env)

    return run_it


@pytest.mark.parametrize("programs", [("2",), ("2", "2")], ids=len)
def test_where_counters_are_refused_the_simulator_counts(fake_ncu, programs):
    count("2_matmul_sharedmem", 64)  # skips where it is not built
    done = fake_ncu("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", programs)
    assert done.returncode == VERIFIED, done.stderr
    assert_one_line(done.stderr, "count.sh")
    assert "ERR_NVGPUCTRPERM" in done.stderr and "counting on the simulator" in done.stderr
    assert "CPU simulation" in done.stdout and "what the program printed" not in done.stdout


def test_nothing_counted(fake_ncu):
    done = fake_ncu("==WARNING== No kernels were profiled.\n")
    assert done.returncode == SKIPPED
    assert_one_line(done.stderr, "count.sh")


@pytest.mark.full
@pytest.mark.parametrize("status", [1, 2, 3, 77])
def test_the_program_fails_under_ncu(fake_ncu, status):
    said = f"==WARNING== The application returned an error code ({status}).\n"
    done = fake_ncu(said)
    assert done.returncode == status
    both = fake_ncu(said, programs=("2", "2"))  # what the first has printed is shown
    assert (both.returncode, both.stdout) == (status, done.stdout)


@pytest.mark.full
def test_ncu_table(fake_ncu):
    raw = ('==PROF== note\n"ID","Kernel Name","Block Size","Grid Size",'
           '"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",'
           '"smsp__sass_data_bytes_mem_global_op_ld.sum"\n'
           '"","","","","sector","byte"\n'
           '"0","void demo::fill<float>(T1 *)","(256, 1, 1)","(4, 1, 1)","7","7"\n'
           '"1","void space::k<float, 2>(const T1 *)","(32, 32, 1)","(2, 2, 1)","1,536","4,096"\n'
           '"2","void space::k<float, 2>(const T1 *)","(32, 32, 1)","(9, 9, 1)","9","9"\n')
    head = ('"Kernel Name","{}"\n"Address","Source","Instructions Executed",'
            '"Predicated-On Thread Instructions Executed","L1 Wavefronts Shared Excessive"\n')
    kernel = head.format("void space::k<float, (int)2>(const T1 *)")
    sass = (head.format("void demo::fill<float>(T1 *)") + '"0x0","STG.E [R2], R3","7","7","0"\n' +
            kernel + '"0x00","LDG.E R2, [R2]","100","3200","0"\n'
            '"0x10","@P0 LDG.E R2, [R2]","28","5","0"\n"0x20","@!PT LDS RZ, [RZ]","4","0","0"\n'
            '"0x30","LDS.64 R2, [R2]","4","128","120"\n"0x40","FFMA R1, R2","9","9","0"\n'
            '"0x50","BAR.SYNC.DEFER_BLOCKING 0x0","64","2048","0"\n' +
            kernel + '"0x0","LDG.E R2, [R2]","9","9","0"\n')
    done = fake_ncu("", raw=raw, sass=sass)
    first, found = tables(done)
    assert first == "what the program printed"
    [table] = found.values()
    assert (table.kernel, table.grid, table.block) == ("k<float, 2>", "2 x 2", "32 x 32")
    assert table.whole == {
        "global loads": {"threads": 3205, "requests": 128, "bytes": 4096, "sectors": 1536,
                         "conflicts": 0},
        "shared loads": {"threads": 128, "requests": 4, "bytes": 0, "sectors": 0,
                         "conflicts": 120},
        "barriers": {"threads": 2048, "requests": 64, "bytes": 0, "sectors": 0, "conflicts": 0},
    }
    both = fake_ncu("", programs=("2", "2"), raw=raw, sass=sass)
    assert both.returncode == VERIFIED and "\nk<float, 2> loads from global memory as often" in (
        both.stdout)
    assert parts(both.stdout)[1]["global loads"][1:3] == (
        ["k<float, 2>", "3,205", "128", "4,096", "1,536"],) * 2
