"""scripts/step.sh: a debugger's session over a kernel. Most of it on the simulator, with gdb."""

import functools
import math
import os
import random
import re
import shutil
import subprocess
import sys

import pytest

from fakes import copy_folders
from suite import ROOT, SKIPPED, USAGE, assert_one_line, build_lock, scons
from terminal import CTRL_C, CTRL_D, on_a_terminal

pytestmark = pytest.mark.full

SCRIPT = ROOT / "scripts/step.sh"
WALKS = sorted((ROOT / "scripts/step/walks").iterdir())
WALK = ROOT / "scripts/step/walks/2_matmul_sharedmem.txt"
RING = ROOT / "scripts/step/walks/bonus_matmul_hopper.txt"
FAILED_COMMAND = 3
STEPPED = ["1_matmul_basic", "2_matmul_sharedmem", "3_matmul_tensorcore", "6_gating_fused",
           "7_gelu", "8_softmax", "bonus_matmul_A_stationary", "bonus_matmul_register_tiled",
           "bonus_matmul_hopper", "bonus_softmax_rows", "bonus_tile"]


def on_cpu(test):
    """A test that needs gdb and the programs."""
    missing = pytest.mark.skipif(not shutil.which("gdb"), reason="gdb is not installed")
    return missing(pytest.mark.usefixtures("built")(test))


@pytest.fixture(scope="module")
def built():
    """The programs that are stepped through here, built in one go."""
    done = scons("debug=1", *[f"cpu/{name}" for name in STEPPED])
    assert done.returncode == 0, done.stdout + done.stderr


def step(*arguments, **options):
    return subprocess.run([SCRIPT, *map(str, arguments)], capture_output=True, text=True,
                          timeout=300, **{"stdin": subprocess.DEVNULL, **options})


def walk(tmp_path, program, *commands, options=(), status=0):
    """What each command of a walk on the simulator says, after what is said at its beginning."""
    file = tmp_path / "walk.txt"
    file.write_text("\n".join(commands) + "\n")
    done = step("--cpu", "--no-build", "--batch", file, program, *options)
    assert done.returncode == status, done.stdout + done.stderr
    said = re.split(r"^\(step\) (.*)\n", done.stdout, flags=re.MULTILINE)
    assert said[1::2] == list(commands)[:len(said) // 2]
    return [said[0]] + said[2::2]


def line_of(said):
    """The line that an arrow points to, of what a stop says."""
    [number] = re.findall(r"^=> +(\d+)  ", said, re.MULTILINE)
    return int(number)


def lanes_of(who):
    """{(warp, lane): what `who` says of it}; there may be but one =>, the selected thread's."""
    def expand(text):
        for part in text.split(","):
            first, _, last = part.partition("-")
            yield from range(int(first), int(last or first) + 1)

    head, *rows = who.splitlines()
    assert who.count("=>") == 1
    result, warps = {}, []
    for row in rows:
        name, lanes, place = re.fullmatch(
            r"(?:=>|  ) (?:warps? ([\d,-]+)|) +lanes? ([\d,-]+) +(.*)", row).groups()
        warps = list(expand(name)) if name else warps
        for warp in warps:
            for lane in expand(lanes):
                assert (warp, lane) not in result
                result[warp, lane] = place
    assert f"{len(result)} threads in {len({w for w, _ in result})} warp" in head
    return result


# --- The walk that docs/tools.md shows ------------------------------------------------------------


def shown_in_the_documents():
    text = (ROOT / "docs/tools.md").read_text(encoding="utf-8")
    block = re.search(r"    \$ scripts/step.sh --cpu --batch \S+ 2\n((?:    .*\n|\n(?=    ))+)",
                      text)[1]
    return re.sub("^    ", "", block, flags=re.MULTILINE)


@on_cpu
def test_the_walk_prints_what_the_documents_show():
    with build_lock():
        done = step("--cpu", "--batch", WALK, "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout == shown_in_the_documents()


def without_warps(text):
    """A walk's output without what differs on a GPU: the program's first line, where warps are."""
    return re.sub(r"^(=>|  ) .*\blanes? \d.*\n", "", text.partition("\n")[2], flags=re.MULTILINE)


def test_the_walk_prints_the_same_on_a_gpu():
    if subprocess.run("nvidia-smi -L && command -v cuda-gdb", shell=True,
                      capture_output=True).returncode != 0:
        pytest.skip("no GPU or no cuda-gdb here")
    done = step("--batch", WALK, "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout != shown_in_the_documents()
    assert without_warps(done.stdout) == without_warps(shown_in_the_documents())


# --- The commands ---------------------------------------------------------------------------------

# How many elements of a tile are not those of its matrix, for block (0,0) and its first tiles.
WRONG = ("python wrong = lambda name: sum(float(gdb.parse_and_eval('tile_' + name)[r][c]) != "
         "float(gdb.parse_and_eval(name)[r * 64 + c]) for r in range(32) for c in range(32))")


@on_cpu
def test_a_tile_is_complete_behind_the_barrier_and_not_before(tmp_path):
    said = walk(tmp_path, 2, WRONG, "thread 3 7", "python print(wrong('A'))", "next-barrier",
                "python print(wrong('A'), wrong('B'))", "tile tile_A",
                "python print([round(float(gdb.parse_and_eval('A')[r * 64 + c]), 3) "
                "for r in (0, 6, 31) for c in (0, 6, 31)])")
    assert int(said[3]) > 900 and said[5] == "0 0\n"
    rows = {line.split()[0]: line.split()[1:] for line in said[6].splitlines()[2:]}
    assert list(rows) == [*"0123456", "...", "30", "31"]
    assert str([float(rows[r][i]) for r in ("0", "6", "31") for i in (0, 6, -1)]) == said[7].strip()


@on_cpu
def test_who_knows_every_thread(tmp_path):
    said = walk(tmp_path, 2, "who", "thread 31 31", "next", "who", "next-barrier", "who",
                "thread 4 1", "who", "up", "who", "down")  # down: who has left the frame selected
    start, at_its_second_line, behind, elsewhere = (lanes_of(said[i]) for i in (1, 4, 6, 8))
    for lanes in (start, at_its_second_line, behind, elsewhere):
        assert sorted(lanes) == [(warp, lane) for warp in range(32) for lane in range(32)]
    assert {place for key, place in start.items() if key != (0, 0)} == {"not begun yet"}
    assert at_its_second_line[31, 31].startswith("38 ")
    assert at_its_second_line[0, 0] == start[0, 0] != "not begun yet"
    # The last to come lets the first one go on, and so the last to go on is (31,31) itself.
    assert behind[31, 31].startswith("47 ")
    assert {behind[0, 0], behind[31, 30]} == {"48   __syncthreads();  (waits)"}
    assert elsewhere[1, 4].startswith("48 ")


@on_cpu
def test_stepping_stays_in_its_thread_at_barriers_too(tmp_path):
    """`next` over a barrier: by a thread that runs up to it, and by one that waits there."""
    text = (ROOT / "src/2_matmul_sharedmem.cu").read_text().splitlines()
    first = text.index("    const int x = threadIdx.x, y = threadIdx.y;") + 1
    lines = [first + offset for offset in (1, 2, 4, 5, 6, 7, 8, 10, 11, 5)]
    said = walk(tmp_path, 2, "thread 5 1", *["next"] * 10, "print threadIdx", "thread 9 0", "next",
                "print threadIdx", "print t", "next")
    assert [line_of(text) for text in said[2:12]] == lines
    assert "{x = 5, y = 1, z = 0}" in said[12]
    waits_at = first + 8  # for the tiles that (5,1) has yet to load
    assert said[13].startswith("block (0,0), thread (9,0) in 2_matmul_sharedmem.cu\n")
    assert (line_of(said[13]), line_of(said[14])) == (waits_at, waits_at + 2)
    assert "{x = 9, y = 0, z = 0}" in said[15]
    assert line_of(said[17]) == waits_at + 3


@on_cpu
def test_blocks_have_their_own_coordinates_and_tiles(tmp_path):
    said = walk(tmp_path, 2, "thread 2 3", "block 1 0", "print blockIdx", "next", "next", "next",
                "print col", "print row", "next-barrier", "print tile_B[3][2] == B[3 * N + 34]",
                "print tile_B[3][2] == B[3 * N + 2]", "block 1 1", "print blockIdx", "who",
                "block 0 1", status=FAILED_COMMAND)
    assert said[2].startswith("block (1,0), thread (2,3) in ") and line_of(said[2]) == 37
    assert said[3] == "$1 = {x = 1, y = 0, z = 0}\n"
    assert [text.split(" = ")[1].strip() for text in said[7:9] + said[10:12]] == [
        "34", "3", "true", "false"]
    assert said[12].startswith("block (1,1), thread (2,3) in ") and line_of(said[12]) == 37
    # (0,0) began, and (2,3) was then gone to; what they did in another block is forgotten.
    lanes = lanes_of(said[14])
    assert lanes[0, 0].startswith("37 ") and lanes[3, 2].startswith("37 ")
    assert {lanes[key] for key in lanes if key not in ((0, 0), (3, 2))} == {"not begun yet"}
    assert said[15] == "block (0,1) is over: on the CPU, blocks run one after the other\n"


@on_cpu
@pytest.mark.parametrize("program, options", [
    ("2_matmul_sharedmem", ("256",)), ("3_matmul_tensorcore", ("--kernel", "wmma_tiled"))])
def test_going_anywhere_changes_no_result(tmp_path, program, options):
    draw = random.Random(program)
    commands = []
    for _ in range(30):
        thread = (f"thread {draw.randrange(32)} {draw.randrange(32)}" if program[0] == "2" else
                  f"thread {draw.randrange(128)}")
        commands += draw.choice([[thread], [thread, "next"], ["next", "next"], [thread, "step"],
                                 [thread, "next-barrier"], [thread, thread, "who"]])
    # Whoever has left the kernel cannot be gone to: hence few barriers, of many tiles.
    for i in [i for i, command in enumerate(commands) if command == "next-barrier"][2:]:
        commands[i] = "who"
    said = walk(tmp_path, program, *commands, "continue", options=options)
    assert re.search(r" verified\n(.*\n)*the kernel is over\n$", said[-1])


@on_cpu
def test_who_was_looked_at_goes_on_once(tmp_path):
    """Behind its last barrier a thread that may go on is looked at, and then leaves the kernel."""
    said = walk(tmp_path, 2, "thread 5 1", "next-barrier", "next-barrier", "thread 9 9", "next",
                "next", "thread 20 20", "thread 9 9", "next", "continue", options=("32",))
    assert (line_of(said[6]), line_of(said[9])) == (50, 51)
    assert re.search(r" verified\nthe kernel is over\n$", said[-1])


@on_cpu
def test_where_there_is_no_barrier(tmp_path):
    said = walk(tmp_path, 1, "thread 3", "next-barrier", "print threadIdx", "next-barrier")
    assert re.fullmatch(r"no barrier follows: this is the kernel's end\n"
                        r"block \(0,0\), thread \(3,0\) in .*\n"
                        r"(   .*\n)*=> +\d+  }\n(   .*\n)*", said[2])
    assert "{x = 3, y = 0, z = 0}" in said[3]
    assert re.search(r" verified\n(.*\n)*the kernel is over\n$", said[4])


@on_cpu
def test_halves_are_numbers(tmp_path):
    said = walk(tmp_path, 3, "next-barrier", "tile stages[0].A",
                "python import struct; print([round(x, 3) for x in struct.unpack('<7e', "
                "gdb.selected_inferior().read_memory(int(gdb.parse_and_eval('A')), 14))])",
                "tile A 2 4", options=("--kernel", "wmma_tiled"))
    first = said[2].splitlines()[2].split()
    assert first[0] == "0" and str([float(x) for x in first[1:8]]) == said[3].strip()
    assert said[4].startswith("A: 2 x 4 of half\n")
    assert said[4].splitlines()[2].split() == first[:5]


@on_cpu
def test_values_of_tile_kernels_are_tiles(tmp_path):
    _, *_, shown, matrix, elements, lane, end = walk(
        tmp_path, "bonus_tile", "next", "next", "next", "print v", "tile v", "tile in", "who",
        "continue", options=(20, "--kernel", "gelu_tile"))
    first = re.fullmatch(r"\$1 = 1 x 1024 of float: {(.*), \.\.\.}\n", shown)[1].split(", ")
    head, columns, row = matrix.splitlines()
    assert head == "v: 1024 of float, all but the first 7 and the last 2 left out"
    assert columns.split() == [*map(str, range(7)), "...", "1022", "1023"]
    assert row.split() == ["0", *first[:7], "...", "0.000", "0.000"]  # beyond 20 x 20
    assert elements.splitlines()[0].startswith("in: 1024 of __half, ")
    assert elements.splitlines()[2] == row
    assert len(lanes_of(lane)) == 1 and " verified" in end


@on_cpu
@pytest.mark.parametrize("program, options, line", [
    ("1_matmul_basic", (), "const size_t row"),
    ("3_matmul_tensorcore", (), "const int warp"),
    ("7_gelu", ("--kernel", "fused"), "const size_t i"),
    ("8_softmax", ("--kernel", "fused", "100"), None),  # its data: a kernel in include/demo
    ("bonus_matmul_A_stationary", (), "const int x"),
    ("bonus_matmul_register_tiled", ("--kernel", "warp_tiled"), None),
])
def test_programs_stop_in_their_first_kernel(tmp_path, program, options, line):
    start, who, _, after, end = walk(tmp_path, program, "who", "next", "thread 7", "continue",
                               options=options)
    first = re.search(r"\nblock \(0,0\), thread \(0,0\) in (?:.*\n)+=> +(\d+)  +(.*)\n", start)
    text = (ROOT / "src" / f"{program}.cu").read_text().splitlines()
    assert text[int(first[1]) - 1].strip() == first[2]
    assert line is None or first[2].strip().startswith(line)
    kernel = [i for i in range(int(first[1])) if text[i].startswith("__global__ ")][-1]
    assert "}" not in text[kernel:int(first[1])]
    assert lanes_of(who)[0, 0].startswith(first[1])
    assert f"block (0,0), thread (7,0) in {program}.cu\n" in after
    assert " verified" in end


@on_cpu
def test_a_session_for_people():
    commands = "thread 5 1\nbreak 47\ncontinue\nnext\nhelp who\nnext-barrier 3\nquit\n"
    done = step("--cpu", "--no-build", "2", stdin=None, input=commands)
    assert done.returncode == 0
    banner, _, place = done.stdout.partition("(step)")[0].partition("continue, quit\n")
    for short, name in zip(SHORT_FORMS, ("thread", "block", "tile", "next-barrier", "who")):
        assert re.search(rf"^  {short} +{name} ", banner, re.MULTILINE)
    assert place.startswith("block (0,0), thread (0,0) in ") and line_of(place) == 37
    # A breakpoint stops another thread, and that is said.
    assert "(step) Continuing." in done.stdout
    if newer_gdb():
        assert re.search(r"\nblock \(0,0\), thread \(0,0\) in .*\n(   .*\n)+=> +47 .*\n(   .*\n)+"
                         r"\(step\) => +48 ", done.stdout)
    assert "who: where the block's warps are, and what they wait for." in done.stdout
    assert done.stderr == "next-barrier takes no arguments\n"


SHORT_FORMS = {"t": "thread 5 1", "b": "block 1", "ti": "tile tile_A", "nb": "next-barrier",
               "w": "who"}


@functools.lru_cache(maxsize=None)
def newer_gdb():
    """Whether it can keep from saying itself where it stops."""
    said = subprocess.run(["gdb", "-nx", "-batch", "-ex", "help set suppress-cli-notifications"],
                          capture_output=True, text=True)
    return "Undefined" not in said.stderr


@on_cpu
def test_a_stop_shows_the_lines_around_it_once(tmp_path):
    source = (ROOT / "src/2_matmul_sharedmem.cu").read_text().splitlines()
    start, first, second, other, last = walk(tmp_path, 2, "next", "next", "thread 1",
                                             "next-barrier")
    begin = source.index("    const int x = threadIdx.x, y = threadIdx.y;") + 1
    for said, line in ((start, begin), (last, begin + 10)):
        shown = re.findall(r"^(=>|  ) +(\d+)(?:  (.*))?$", said, re.MULTILINE)
        assert [int(number) for _, number, _ in shown] == [*range(line - 3, line + 4)]
        assert [number for arrow, number, _ in shown if arrow == "=>"] == [str(line)]
        indent = min(len(source[int(n) - 1]) - len(source[int(n) - 1].lstrip()) for _, n, _ in shown
                     if source[int(n) - 1])
        assert [text for *_, text in shown] == [source[int(n) - 1][indent:] for _, n, _ in shown]
    # What is in view is not shown again; who else comes by says so.
    assert (first, second) == tuple(f"=>   {i}  {source[i - 1].strip()}\n"
                                    for i in (begin + 1, begin + 2))
    assert other == ("block (0,0), thread (1,0) in 2_matmul_sharedmem.cu\n"
                     f"=>   {begin}  {source[begin - 1].strip()}\n")


@on_cpu
def test_a_thread_that_has_left_the_kernel_says_so(tmp_path):
    *_, said = walk(tmp_path, 1, "next-barrier", "next")
    assert said == "block (0,0), thread (0,0) has left the kernel\n"


@on_cpu
def test_what_is_printed_fits_a_screen(tmp_path):
    """A screen of 24 lines of 80 columns: arrays are cut, and floats have %g's six digits."""
    *_, variables, array, one = walk(tmp_path, 2, "next-barrier", "info locals", "print tile_A",
                                     "print tile_A[3][4]")
    assert 1000 < len(variables) < 80 * 24 and array.rpartition(") ")[2].strip() in variables
    assert len(array) < 900 and array.count("...") == 9  # 8 of 32 rows, 8 numbers of each
    number = one.split(" = ")[1].strip()
    assert number in array and re.fullmatch(r"-?0\.[1-9]\d{,5}", number)
    *_, fragments = walk(tmp_path, 3, "next-barrier", "info locals",
                         options=("--kernel", "wmma_tiled"))
    assert 100 < len(fragments) < 80 * 24 and "static" not in fragments


@on_cpu
def test_a_backtrace_is_the_programs(tmp_path):
    """In a thread that runs, in one that waits, and in a function that the kernel calls."""
    said = walk(tmp_path, 2, "bt", "thread 5 1", "next-barrier", "thread 9 0", "bt")
    for text in (said[1], said[5]):
        assert re.fullmatch(r"#\d +matmul_sharedmem\(.*\) at src/2_matmul_sharedmem.cu:\d+\n", text)
    called = walk(tmp_path, 8, "tbreak 54", "continue", "step", "bt",
                  options=("--kernel", "fused"))[4]
    assert [re.match(r"#\d +(?:0x\w+ in )?([\w:]+)", line)[1] for line in called.splitlines()] == [
        "softmax::merge_block", "softmax::fused"]
    assert "simulator" not in called


# --- Walks ----------------------------------------------------------------------------------------


def told(file):
    """A walk's command, as its first lines say it; its narration; its commands."""
    lines = file.read_text().splitlines()
    command = " ".join(line[2:].strip() for line in lines if line.startswith("##"))
    return (command.split(" docs/")[0].split(), [line for line in lines if re.match("#[^#]", line)],
            [line for line in lines if line and line[0] != "#"])


@functools.lru_cache(maxsize=None)
def walked(file):
    """What a walk prints: {its n-th command: what that says}, and all."""
    command, narration, commands = told(file)
    command[command.index("--walk")] = "--batch"
    assert command[0] == "scripts/step.sh" and ROOT / command[command.index("--batch") + 1] == file
    done = step(*command[1:], "--no-build", cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    said = re.split(r"^\(step\) (.*)\n", done.stdout, flags=re.MULTILINE)
    assert said[1::2] == commands
    assert re.findall(r"^#.*$", done.stdout, re.MULTILINE) == [
        line for line in done.stdout.splitlines() if line in narration] == narration
    return [re.sub(r"\n(# .*\n)+\Z", "", part) for part in said[2::2]]


@on_cpu
@pytest.mark.parametrize("file", WALKS, ids=lambda file: file.stem)
def test_a_walk_comes_to_its_end(file):
    said = walked(file)
    assert re.search(r" verified\n(.*\n)*the kernel is over\n$", said[-1])
    assert not any(re.search("^No |not defined|has left the kernel", text) for text in said)
    stops = re.findall(r"\n\n#", "\n" + file.read_text())
    assert 3 <= len(stops) <= 13
    for line in told(file)[1] + told(file)[2]:
        assert len(line) <= 76


def values(file):
    """What a walk's prints say."""
    return [text.split(" = ", 1)[1].split("\n")[0] for text in walked(file) if text[0] == "$"]


def walk_of(program):
    return ROOT / f"scripts/step/walks/{program}.txt"


@on_cpu
def test_what_the_walks_tell_is_true():
    grid, block, row, col, in_A, in_B, next_A, next_B, total, stored = values(
        walk_of("1_matmul_basic"))
    assert (grid, block) == ("{x = 2, y = 2, z = 1}", "{x = 32, y = 32, z = 1}")
    assert (row, col) == ("2", "37")
    assert (in_A, in_B, next_A, next_B) == ("128", "37", "128", "38") and total == stored

    warp, row, col, sums, a, b, once, whole, fp32, fp16 = values(walk_of("3_matmul_tensorcore"))
    assert (warp, row, col) == ("1", "0", "16") and sums == "{0 <repeats 8 times>}"
    assert [text.count(",") for text in (a, b, once, whole)] == [7] * 4 and once != whole
    assert float(fp16) == pytest.approx(float(fp32), rel=2**-11)

    row, col, b1, b2, x, w1, w2, v1, v2, *ends = map(float, values(walk_of("6_gating_fused")))
    assert (row, col) == (33, 5) and v1 == pytest.approx(b1 + x * w1, rel=1e-4)
    assert v2 == pytest.approx(b2 + x * w2, rel=1e-4)
    assert len(ends) == 2 and ends != [v1, v2]

    threads, one, other, own, warp, of_warp, pairs, of_lane, of_row, total, before, after = values(
        walk_of("8_softmax"))
    assert threads == "256" and float(own) == max(float(one), float(other)) and warp == "2"
    maxima = [float(text) for text in re.findall(r"max = (-?[\d.]+)", pairs)]
    assert len(maxima) == 8 and maxima[2] == float(of_warp) and maxima[6] == float(of_lane)
    assert float(of_row) == max(maxima) and before == "nan"
    result = math.exp(float(one) - float(of_row)) / float(total)
    assert float(after) == pytest.approx(result, rel=1e-3)


def walk_on_a_terminal(tmp_path, commands, typed):
    """What is shown before each line that somebody types, and at the end; the exit status."""
    (tmp_path / "walk.txt").write_text("\n".join(commands) + "\n")
    return on_a_terminal(
        [SCRIPT, "--cpu", "--no-build", "--walk", tmp_path / "walk.txt", "2"], typed,
        r"\(step\) (\r\n\x1b\[2m.*\x1b\[0m\x1b\[A\r\(step\) )?")


THREE = ["# One.", "print N", "next", "## Not for the room.", "# Two.", "print x"]


@on_cpu
def test_a_walk_without_a_keyboard_runs_through_from_any_command(tmp_path):
    (tmp_path / "walk.txt").write_text("\n".join(THREE) + "\n")
    done = step("--cpu", "--no-build", "--walk", tmp_path / "walk.txt", "--from", "3", "2",
                env={**os.environ, "COLUMNS": "40"})
    assert done.returncode == 0 and re.match(
        r".*\nblock \(0,0\), thread \(0,0\) in .*\n(.*\n)*=>   38 .* \.\.\.\n.*\n(.*\n)*\n"
        r"# Two.\n\(step\) print x\n\$2 = 0\n$", done.stdout), done.stdout
    assert re.search(r"^     35  __shared__ float tile_B\[kTi \.\.\.$", done.stdout, re.MULTILINE)


@on_cpu
def test_enter_runs_the_walks_next_command(tmp_path):
    parts, status = walk_on_a_terminal(tmp_path, [*THREE, "continue"],
                                       ["", "print 6 * 7", "nonsense", "", "", ""])
    assert status == 0 and "\x1b[2mEnter, 1 of 4: print N\x1b[0m" in parts[0]  # gray
    assert "Not for the room" not in "".join(parts)
    parts = [re.sub(r"\n\x1b\[2m.*\x1b\[0m\x1b\[A\r\(step\) |\x1b\[\d*[AJKm]|\r", "",
                    part.replace("\r\n", "\n")) for part in parts]
    assert "\n# One.\n(step) " in parts[0] and "$1" not in parts[0]
    assert "(step) print N\n$1 = 64\n" in parts[1]
    assert "print 6 * 7\n$2 = 42\n" in parts[2]
    assert 'Undefined command: "nonsense"' in parts[3]
    assert "(step) next\n=>   38  " in parts[4] and "\n# Two.\n(step) " in parts[4]
    assert "$3 = " in parts[5] and " verified\nthe kernel is over\n" in parts[6]


@on_cpu
def test_after_a_walk_the_debugger_goes_on(tmp_path):
    parts, status = walk_on_a_terminal(tmp_path, THREE, ["", "", "", "thread 1", "nb", "quit"])
    assert status == 0 and "the walk is over, and the kernel is not" in parts[3]
    assert "block (0,0), thread (1,0) in" in parts[4] and "=>   47  " in parts[5]


@on_cpu
@pytest.mark.parametrize("key, expected", [(CTRL_C, 130), (CTRL_D, 0)])
def test_a_walk_can_be_left(tmp_path, key, expected):
    parts, status = walk_on_a_terminal(tmp_path, THREE, ["", key])
    assert status == expected and "=>   38  " not in parts[-1]


# --- Hopper ---------------------------------------------------------------------------------------


def waits_of(who):
    """{warps and lanes as `who` names them: what they wait for}"""
    found, warps, lanes = {}, "", ""
    for row in who.splitlines()[1:]:
        named = re.match(r"(?:=>|  ) (?:warps? ([\d,-]+)|) +lanes? ([\d,-]+) ", row)
        if named:
            warps, lanes = named[1] or warps, named[2]
        else:
            found[warps, lanes] = " ".join(found.get((warps, lanes), "").split() + row.split())
    return found


@on_cpu
def test_the_walk_around_the_ring():
    """What `who` says of producer and consumers, at the moments that the walk stops at."""
    said, commands = walked(RING), told(RING)[2]
    printed = [text.split(" = ")[1].strip() for text in said if text.startswith("$")]
    whos = [waits_of(text) for text, name in zip(said, commands) if name == "who"]
    assert printed == [str(4 * 49152), str(4 * 49152 + 4 * 8), "0", "1"]
    full, empty = (f"the mbarrier at byte {byte} of dynamic shared memory" for byte in printed[:2])
    assert whos == [
        {("8", "0"): f"phase 0 (parity 0) of {empty} has 0 of 8 arrivals"},
        {("0-3", "0-31"): f"phase 1 (parity 1) of {full} has 0 of 1 arrivals",
         ("8", "0"): f"phase 0 (parity 0) of {empty} has 5 of 8 arrivals"},
        *({("0-6", "0-31"): f"phase 1 (parity 1) of {full} has 1 of 1 arrivals and lacks {lacking}"}
          for lacking in ("49152 bytes", "32768 bytes"))]
    assert "  warp_specialized  verified\n" in said[-1]


@on_cpu
def test_registers_are_waited_for(tmp_path):
    said = walk(tmp_path, "bonus_matmul_hopper", "thread 256", "next-barrier", "who",
                options=("64", "--kernel", "warp_specialized"))
    assert waits_of(said[3]) == {("0-7", "0-31"): "a warp that has 168 registers a thread wants "
                                                  "232, and the block has 0 to give"}


@on_cpu
def test_the_blocks_of_a_cluster_run_together(tmp_path):
    """From block to block and back. A stage is free when the warps of both have freed it."""
    at_4 = "tbreak matmul_hopper.cuh:133 if threadIdx.x == 128 && t == 4"
    said = walk(tmp_path, "bonus_matmul_hopper", at_4, "continue", "block 1", "who", "thread 129",
                "next", "block 0", "who", options=("320", "--kernel", "multicast"))
    assert line_of(said[2]) == 133
    assert [re.search(r"block \((\d),0\), thread \((\d+),0\) in ", said[i]).groups()
            for i in (2, 3, 5, 7)] == [("0", "128"), ("1", "128"), ("1", "129"), ("0", "129")]
    for block, who in ((1, said[4]), (0, said[8])):
        assert who.startswith(f"block ({block},0): 384 threads")
        assert waits_of(who)["8", "0"] == ("phase 0 (parity 0) of the mbarrier at byte 196640 of "
                                           "dynamic shared memory has 5 of 16 arrivals")


@on_cpu
def test_clusters_run_one_after_the_other(tmp_path):
    said = walk(tmp_path, "bonus_softmax_rows", "next", "block 1", "print blockIdx.x", "block 0",
                "block 251", "who", "thread 7", "block 250", "print threadIdx.x", "block 1",
                options=("256", "--kernel", "by_cluster"), status=FAILED_COMMAND)
    first = line_of(said[0])
    assert said[2].startswith("block (1,0), thread (0,0) in ") and said[3] == "$1 = 1\n"
    assert said[4].startswith("block (0,0), thread (0,0) in ") and line_of(said[4]) != first
    assert said[5].startswith("block (251,0), thread (0,0) in ")
    assert line_of(said[2]) == line_of(said[5]) == first
    assert {place for key, place in lanes_of(said[6]).items() if key != (0, 0)} == {"not begun yet"}
    assert said[8].startswith("block (250,0), thread (7,0) in ") and said[9] == "$2 = 7\n"
    assert said[10] == "block (1,0) is over: on the CPU, blocks run one after the other\n"


# --- What is wrong --------------------------------------------------------------------------------


FAILING = {
    "thread 32 0": "thread (32,0): the block has 32 x 32 x 1",
    "thread a b": "thread: up to three numbers are expected: thread X [Y [Z]]",
    "block 0 2": "block (0,2): the grid has 2 x 2 x 1",
    "b 47": "block (47,0): the grid has 2 x 2 x 1; a breakpoint is `br 47`",
    "tile nothing": 'tile: No symbol "nothing" in current context.',
    "tile sum": "tile: sum is float, not an array; for a pointer: tile NAME ROWS COLUMNS",
    "tile A": "tile: A is const float *, not an array; for a pointer: tile NAME ROWS COLUMNS",
    "tile": "tile: the name of an array is expected: tile NAME",
    "who now": "who takes no arguments",
    "nonsense": 'Undefined command: "nonsense".  Try "help".',
}


@on_cpu
def test_a_command_that_fails_says_why():
    done = step("--cpu", "--no-build", "2", stdin=None, input="\n".join([*FAILING, "quit", ""]))
    assert done.returncode == 0
    assert done.stderr.splitlines() == list(FAILING.values())


@on_cpu
@on_cpu
def test_a_debugger_stops_twice_in_run():
    """Once for the dry run, once for what is printed."""
    said = subprocess.run(
        ["gdb", "-nx", "-batch", "-ex", "break run(demo::Session&)", "-ex", "ignore 1 99", "-ex",
         "run 64", "-ex", "info breakpoints", "cpu/debug/2_matmul_sharedmem"], cwd=ROOT,
        capture_output=True, text=True, timeout=300, check=True).stdout
    assert "verified" in said and "already hit 2 times" in said, said


@pytest.mark.parametrize("command", ["thread 32 0", "nonsense"])  # one of ours, one of gdb's
def test_a_walk_ends_at_the_first_command_that_fails(tmp_path, command):
    result = walk(tmp_path, 2, "print N", command, "print N", status=FAILED_COMMAND)
    assert result[1:] == ["$1 = 64\n", FAILING[command] + "\n"]


@on_cpu
def test_the_program_refuses_its_own_command_line():
    done = step("--cpu", "--no-build", "2", "64", "--kernel", "none")
    assert done.returncode == USAGE and done.stdout == ""
    assert_one_line(done.stderr, "2_matmul_sharedmem")


@on_cpu
def test_a_program_that_cannot_run_here(tmp_path):
    """Its reason is the one line, and its exit status step.sh's."""
    copy_folders(tmp_path, "scripts", "src")
    program = tmp_path / "cpu/debug/bonus_matmul_hopper"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "bonus_matmul_hopper: needs a thing" >&2\nexit 77\n')
    program.chmod(0o755)
    done = subprocess.run([tmp_path / "scripts/step.sh", "--cpu", "--no-build", "--batch", WALK,
                           program.name], capture_output=True, text=True)
    assert done.returncode == SKIPPED and done.stdout == ""
    assert_one_line(done.stderr, "bonus_matmul_hopper")


def test_without_gdb(tmp_path):
    for name in ("bash", "dirname", "readlink", "id", "nvidia-smi"):
        if shutil.which(name):
            (tmp_path / name).symlink_to(shutil.which(name))
    (tmp_path / "python3").symlink_to(sys.executable)  # ours, wherever it is
    done = step("--cpu", "--no-build", "2", env={**os.environ, "PATH": str(tmp_path)})
    assert done.returncode == SKIPPED and done.stdout == ""
    assert_one_line(done.stderr, "step.sh")
    assert "apt-get install gdb" in done.stderr
