"""scripts/step.sh: a debugger's session over a kernel. Most of it on the simulator, with gdb."""

import os
import random
import re
import shutil
import subprocess
import sys

import pytest

from fakes import copy_folders
from suite import ROOT, SKIPPED, USAGE, assert_one_line, build_lock, scons

SCRIPT = ROOT / "scripts/step.sh"
WALK = ROOT / "scripts/step/walks/2_matmul_sharedmem.txt"
RING = ROOT / "scripts/step/walks/bonus_matmul_hopper.txt"
FAILED_COMMAND = 3
STEPPED = ["1_matmul_basic", "2_matmul_sharedmem", "3_matmul_tensorcore", "7_gelu", "8_softmax",
           "bonus_matmul_A_stationary", "bonus_matmul_register_tiled", "bonus_matmul_hopper",
           "bonus_softmax_rows", "bonus_tile"]


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
    block = re.search(r"    \$ scripts/step.sh --cpu --batch \S+ 2\n((?:    .*\n)+)", text)[1]
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
                "for r in (0, 7, 31) for c in (0, 7, 31)])")
    assert int(said[3]) > 900 and said[5] == "0 0\n"
    rows = {line.split()[0]: line.split()[1:] for line in said[6].splitlines()[2:]}
    assert list(rows) == [*"01234567", "...", "29", "30", "31"]
    assert str([float(rows[r][i]) for r in ("0", "7", "31") for i in (0, 7, -1)]) == said[7].strip()


@on_cpu
def test_who_knows_every_thread(tmp_path):
    said = walk(tmp_path, 2, "who", "thread 31 31", "next", "who", "next-barrier", "who",
                "thread 4 1", "who")
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
    assert [int(text.split("\t")[0]) for text in said[2:12]] == lines
    assert "{x = 5, y = 1, z = 0}" in said[12]
    waits_at = first + 8  # for the tiles that (5,1) has yet to load
    assert said[13].startswith(f"block (0,0), thread (9,0)\n{waits_at}\t")
    assert said[14].startswith(f"{waits_at + 2}\t")
    assert "{x = 9, y = 0, z = 0}" in said[15]
    assert said[17].startswith(f"{waits_at + 3}\t")


@on_cpu
def test_blocks_have_their_own_coordinates_and_tiles(tmp_path):
    said = walk(tmp_path, 2, "thread 2 3", "block 1 0", "print blockIdx", "next", "next", "next",
                "print col", "print row", "next-barrier", "print tile_B[3][2] == B[3 * N + 34]",
                "print tile_B[3][2] == B[3 * N + 2]", "block 1 1", "print blockIdx", "who",
                "block 0 1", status=FAILED_COMMAND)
    assert said[2].startswith("block (1,0), thread (2,3)\n37\t")
    assert said[3] == "$1 = {x = 1, y = 0, z = 0}\n"
    assert [text.split(" = ")[1].strip() for text in said[7:9] + said[10:12]] == [
        "34", "3", "true", "false"]
    assert said[12].startswith("block (1,1), thread (2,3)\n37\t")
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
    assert said[6].startswith("50\t") and said[9].startswith("51\t}")
    assert re.search(r" verified\nthe kernel is over\n$", said[-1])


@on_cpu
def test_where_there_is_no_barrier(tmp_path):
    said = walk(tmp_path, 1, "thread 3", "next-barrier", "print threadIdx", "next-barrier")
    assert re.fullmatch(r"no barrier follows: this is the kernel's end\n"
                        r"block \(0,0\), thread \(3,0\)\n\d+\t}\n", said[2])
    assert "{x = 3, y = 0, z = 0}" in said[3]
    assert re.search(r" verified\n(.*\n)*the kernel is over\n$", said[4])


@on_cpu
def test_halves_are_numbers(tmp_path):
    said = walk(tmp_path, 3, "next-barrier", "tile stages[0].A",
                "python print([round(x, 3) for x in struct.unpack('<8e', "
                "gdb.selected_inferior().read_memory(int(gdb.parse_and_eval('A')), 16))])",
                "tile A 2 4", options=("--kernel", "wmma_tiled"))
    first = said[2].splitlines()[2].split()
    assert first[0] == "0" and str([float(x) for x in first[1:9]]) == said[3].strip()
    assert said[4].startswith("A: 2 x 4 of half\n")
    assert said[4].splitlines()[2].split() == first[:5]


@on_cpu
def test_values_of_tile_kernels_are_tiles(tmp_path):
    _, *_, shown, matrix, elements, lane, end = walk(
        tmp_path, "bonus_tile", "next", "next", "next", "print v", "tile v", "tile in", "who",
        "continue", options=(20, "--kernel", "gelu_tile"))
    first = re.fullmatch(r"\$1 = 1 x 1024 of float: {(.*), \.\.\.}\n", shown)[1].split(", ")
    head, columns, row = matrix.splitlines()
    assert head == "v: 1024 of float, all but the first 8 and the last 3 left out"
    assert columns.split() == [*map(str, range(8)), "...", "1021", "1022", "1023"]
    assert row.split() == ["0", *first, "...", "0.000", "0.000", "0.000"]  # beyond 20 x 20
    assert elements.splitlines()[0].startswith("in: 1024 of __half, ")
    assert elements.splitlines()[2] == row
    assert len(lanes_of(lane)) == 1 and " verified" in end


@on_cpu
@pytest.mark.parametrize("program, options, line", [
    ("1_matmul_basic", (), "const size_t row"),
    ("3_matmul_tensorcore", (), "const int warp"),
    ("7_gelu", ("--kernel", "fused"), "const size_t i"),
    ("8_softmax", ("100",), None),  # whose data is prepared by a kernel in include/demo
    ("bonus_matmul_A_stationary", (), "const int x"),
    ("bonus_matmul_register_tiled", ("--kernel", "warp_tiled"), None),
])
def test_programs_stop_in_their_first_kernel(tmp_path, program, options, line):
    start, who, *_, end = walk(tmp_path, program, "who", "next", "thread 7", "continue",
                               options=options)
    first = re.search(r"\nblock \(0,0\), thread \(0,0\)\n(\d+)\t(.*)\n$", start)
    text = (ROOT / "src" / f"{program}.cu").read_text().splitlines()
    assert text[int(first[1]) - 1] == first[2]
    assert line is None or first[2].strip().startswith(line)
    kernel = [i for i in range(int(first[1])) if text[i].startswith("__global__ ")][-1]
    assert "}" not in text[kernel:int(first[1])]
    assert lanes_of(who)[0, 0].startswith(first[1])
    assert " verified" in end


@on_cpu
def test_a_session_for_people():
    commands = "thread 5 1\nbreak 47\ncontinue\nnext\nhelp who\nnext-barrier 3\nquit\n"
    done = step("--cpu", "--no-build", "2", stdin=None, input=commands)
    assert done.returncode == 0
    banner = done.stdout.partition("(step)")[0].splitlines()[-8:]
    for name, said in zip(("thread", "block", "tile", "next-barrier", "who"), banner):
        assert said.startswith(f"  {name} ")
    assert banner[-2] == "block (0,0), thread (0,0)" and banner[-1].startswith("37\t")
    # A breakpoint stops another thread, and that is said.
    assert "(step) Continuing." in done.stdout
    assert re.search(r"\n47\t.*\nblock \(0,0\), thread \(0,0\)\n\(step\) 48\t", done.stdout)
    assert "who: where every warp of this block is, and what it waits for." in done.stdout
    assert done.stderr == "next-barrier takes no arguments\n"


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
def test_the_walk_around_the_ring(tmp_path):
    """What `who` says of producer and consumers, at the moments that the walk stops at."""
    commands = [line for line in RING.read_text().splitlines() if line and line[0] != "#"]
    said = walk(tmp_path, "bonus_matmul_hopper", *commands,
                options=("320", "--kernel", "warp_specialized"))[1:]
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
    at_4 = "tbreak matmul_hopper.cuh:119 if threadIdx.x == 128 && t == 4"
    said = walk(tmp_path, "bonus_matmul_hopper", at_4, "continue", "block 1", "who", "thread 129",
                "next", "block 0", "who", options=("320", "--kernel", "multicast"))
    assert said[2].startswith("block (0,0), thread (128,0)\n119\t")
    assert said[3].startswith("block (1,0), thread (128,0)\n")
    assert said[5].startswith("block (1,0), thread (129,0)\n")
    assert said[7].startswith("block (0,0), thread (129,0)\n")
    for block, who in ((1, said[4]), (0, said[8])):
        assert who.startswith(f"block ({block},0): 384 threads")
        assert waits_of(who)["8", "0"] == ("phase 0 (parity 0) of the mbarrier at byte 196640 of "
                                           "dynamic shared memory has 5 of 16 arrivals")


@on_cpu
def test_clusters_run_one_after_the_other(tmp_path):
    said = walk(tmp_path, "bonus_softmax_rows", "next", "block 1", "print blockIdx.x", "block 0",
                "block 251", "who", "thread 7", "block 250", "print threadIdx.x", "block 1",
                options=("256", "--kernel", "by_cluster_twice"), status=FAILED_COMMAND)
    first = said[0].splitlines()[-1]
    assert said[2] == f"block (1,0), thread (0,0)\n{first}\n" and said[3] == "$1 = 1\n"
    assert said[4].startswith("block (0,0), thread (0,0)\n") and first not in said[4]
    assert said[5] == f"block (251,0), thread (0,0)\n{first}\n"
    assert {place for key, place in lanes_of(said[6]).items() if key != (0, 0)} == {"not begun yet"}
    assert said[8].startswith("block (250,0), thread (7,0)\n") and said[9] == "$2 = 7\n"
    assert said[10] == "block (1,0) is over: on the CPU, blocks run one after the other\n"


# --- What is wrong --------------------------------------------------------------------------------


FAILING = {
    "thread 32 0": "thread (32,0): the block has 32 x 32 x 1",
    "thread a b": "thread: up to three numbers are expected: thread X [Y [Z]]",
    "block 0 2": "block (0,2): the grid has 2 x 2 x 1",
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
@pytest.mark.parametrize("command", ["thread 32 0", "nonsense"])  # one of ours, one of gdb's
def test_a_walk_ends_at_the_first_command_that_fails(tmp_path, command):
    result = walk(tmp_path, 2, "print N", command, "print N", status=FAILED_COMMAND)
    assert result[1:] == ["$1 = 64\n", FAILING[command] + "\n"]


@pytest.mark.parametrize("arguments", [
    (), ("bonus",), ("2", "64", "64"), ("--nonsense", "2"), ("2", "--kernel"),
    ("--batch", "/no/such/file", "2"), ("--batch", "/", "2"),
])
def test_usage_errors(arguments):
    done = step(*arguments)
    assert done.returncode == USAGE and done.stdout == ""
    assert_one_line(done.stderr, "step.sh")


@on_cpu
@pytest.mark.parametrize("arguments", [("33",), ("64", "--kernel", "none"), ("x",)])
def test_the_program_refuses_its_own_command_line(arguments):
    done = step("--cpu", "--no-build", "2", *arguments)
    assert done.returncode == USAGE and done.stdout == ""
    assert_one_line(done.stderr, "2_matmul_sharedmem")


@on_cpu
def test_a_walk_in_another_encoding_and_environment(tmp_path):
    (tmp_path / "walk.txt").write_bytes(b"# f\xfcr\nprint N\n")
    done = step("--cpu", "--no-build", "--batch", tmp_path / "walk.txt", 2,
                env={**os.environ, "DEMO_COUNT": "1", "DEMO_SCHEDULE": "reverse"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("(step) print N\n$1 = 64\n")


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
