"""scripts/inspect.sh: its figures and counts against the compiler's own and the driver's, source
lines above their instructions, loops, occupancy, and what it says where something is missing."""

import argparse
import ctypes
import functools
import json
import re
import shutil
import subprocess

import pytest

import browser
import instructions
import launches
import machine_code
from fakes import script
from machine_code import command_line, cuda_toolkit
from suite import ROOT, SKIPPED, USAGE, assert_one_line, toolkit

SHARED, TILED, HOPPER = "2_matmul_sharedmem", "bonus_matmul_register_tiled", "bonus_gating_hopper"
GATING = "6_gating_fused"  # has tile kernels, too
SOURCE = (ROOT / f"src/{SHARED}.cu").read_text().splitlines()


@functools.lru_cache(maxsize=None)
def arch():
    return "90a" if toolkit().builds_for("90a") else str(toolkit().architectures()[-1])


def inspect(*arguments):
    """Runs it for one architecture, whatever GPU is here."""
    toolkit()
    return script("inspect.sh", *arguments, "--arch", arch(), cwd="/")


@functools.lru_cache(maxsize=None)
def shown(*arguments):
    """What it prints; called once for each list of arguments."""
    done = inspect(*arguments)
    assert done.returncode == 0, done.stderr
    assert "\033" not in done.stdout  # a pipe gets no colors
    return done.stdout


def needs_nvdisasm():
    if not toolkit().tool("nvdisasm"):
        pytest.skip("nvdisasm is not installed")


def cells(text, row):
    """The values of a table's row, by how the row begins."""
    line = next(line for line in text.splitlines() if line.startswith(row + "  "))
    return re.split(r"\s{2,}", line[len(row):].strip())


def groups(listing):
    """A listing as (source line, [instruction, ...]) pairs, without addresses and marks."""
    found = []
    for line in listing.split("\n\n")[1].splitlines():
        if not line.startswith(" "):
            found.append((line, []))
        elif not line.strip().endswith(":"):
            found[-1][1].append(re.sub(r"^[| ]*([0-9a-f]{4,} )? *(@\S+ +)?", "", line))
    return found


def line_with(text):
    """How a listing names the only line of the source that has this text."""
    numbers = [i for i, line in enumerate(SOURCE, 1) if text in line]
    assert len(numbers) == 1, text
    return f"{SHARED}.cu:{numbers[0]}  {SOURCE[numbers[0] - 1].strip()}"


PRODUCT = "sum += tile_A[y][k] * tile_B[k][x]"
FIRST_BARRIER, SECOND_BARRIER = "__syncthreads();  // the", "__syncthreads();  // nobody"


def simulators_blocks(program=SHARED):
    """What the simulator launches, where what counts is built; else the test is skipped."""
    for path in (ROOT / "cpu" / program, ROOT / "cpu/count" / program):
        if not path.exists():
            pytest.skip(f"{path.relative_to(ROOT)} is not built")
    return launches.launched(ROOT / "cpu" / program)


# --- Counts and figures, against what others say ---


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    """PTX and ptxas's notes of 2_matmul_sharedmem, from nvcc alone."""
    folder = tmp_path_factory.mktemp("by_hand")
    done = subprocess.run(
        [toolkit().nvcc, "-std=c++20", f"-I{ROOT}/include", f"-I{ROOT}/src", "--keep",
         f"--keep-dir={folder}", f"-arch=sm_{arch()}", "-Xptxas=-v", "-cubin", "-o",
         folder / "cubin", ROOT / f"src/{SHARED}.cu"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return (folder / f"{SHARED}.ptx").read_text(), done.stderr


@pytest.mark.full
def test_counts_of_ptx_are_those_of_a_search_in_it(by_hand):
    whole = re.search(r"\.entry _Z16matmul_sharedmem.*?\n}", by_hand[0], re.DOTALL)[0]
    head, loop = re.search(r"(\$L__BB0_\d+):((?:(?!\$L__BB0_\d+:).)*bra\s+\1;)", whole,
                           re.DOTALL).groups()
    text = shown("2", "matmul_sharedmem", "--ptx")
    for row, pattern in [("global loads  ld.global.f32 (4 bytes)", r"\bld\.global\.(nc\.)?f32\b"),
                         ("global stores  st.global.f32 (4 bytes)", r"\bst\.global\.f32\b"),
                         ("shared loads  ld.shared.f32 (4 bytes)", r"\bld\.shared\.f32\b"),
                         ("shared stores  st.shared.f32 (4 bytes)", r"\bst\.shared\.f32\b"),
                         ("arithmetic  fma.f32", r"\bfma\.rn\.f32\b"),
                         ("barriers  bar.sync", r"\bbar\.sync\b")]:
        assert cells(text, row) == [str(len(re.findall(pattern, part))) for part in (whole, loop)]
    every = r"^\s+(@\S+ +)?[a-z][\w.:]*\s.*;$|^\s+ret;$"
    assert cells(text, "instructions") == [str(len(re.findall(every, part, re.MULTILINE)))
                                           for part in (whole, loop)]
    # What the source says: 2 x 32 loads of tiles for 32 multiply-adds, of 2 elements loaded.
    assert cells(text, "arithmetic  fma.f32") == ["32", "32"]
    assert cells(text, "shared loads  ld.shared.f32 (4 bytes)") == ["64", "64"]
    assert cells(text, "global stores  st.global.f32 (4 bytes)") == ["1", "0"]


@pytest.mark.full
def test_figures_are_those_of_ptxas(by_hand):
    said = re.search(r"Compiling entry function '_Z16matmul_sharedmem.*?(\d+) bytes stack.*?"
                     r"(\d+) bytes spill.*?Used (\d+) registers.*?(\d+) bytes smem", by_hand[1],
                     re.DOTALL)
    stack, spilled, registers, shared = said.groups()
    assert shared == str(2 * 32 * 32 * 4)
    text = shown("2", "--ptx")
    assert cells(text, "matmul_sharedmem")[:4] == [registers, spilled, stack, shared]
    text = shown("2", "matmul", "--ptx", "--block", "256")
    assert cells(text, "registers a thread") == [registers]
    assert cells(text, "shared memory, bytes") == [shared]
    assert cells(text, "threads a block") == ["256"]


@pytest.mark.full
@pytest.mark.parametrize("blackwell", ["100", "120"])
@pytest.mark.parametrize("program", ["8_softmax", "bonus_norm"])
def test_rows_that_fill_the_registers_are_not_spilled(program, blackwell):
    if not toolkit().builds_for(blackwell):
        pytest.skip(f"CUDA {toolkit().version} does not build for {blackwell}")
    done = script("inspect.sh", program, "--all", "--ptx", "--arch", blackwell)
    spilled = re.findall(r"^(\w+<.*?>) +\d+ +(\d+) ", done.stdout, re.MULTILINE)
    assert sum(kernel.startswith("by_block<") for kernel, _ in spilled) >= 6, done.stderr
    assert [kernel for kernel, stored in spilled if stored != "0"] == []


@pytest.mark.full
def test_a_block_that_the_source_does_not_state_is_the_simulators():
    simulators_blocks()
    limits = machine_code.LIMITS[int(arch().rstrip("a"))]
    text = shown("2", "matmul", "--ptx")
    assert cells(text, "threads a block") == ["1024"]  # dim3 block(kTile, kTile)
    assert "as the simulator launched them" in text and "unknown" not in text
    registers, shared = (int(cells(text, row)[0])
                         for row in ("registers a thread", "shared memory, bytes"))
    blocks, limit = machine_code.occupancy(limits, 1024, registers, shared)
    assert cells(text, "blocks an SM") == [f"{blocks}, by {limit}"]
    assert cells(text, "warps an SM")[0].startswith(f"{32 * blocks} of {limits.warps}, ")
    text = shown("2", "matmul", "--ptx", "--block", "512")
    blocks, limit = machine_code.occupancy(limits, 512, registers, shared)
    assert cells(text, "threads a block") == ["512"]
    assert cells(text, "blocks an SM") == [f"{blocks}, by {limit}"]
    # What the source states counts, whatever the command line says; dynamic memory is told to it.
    text = shown(TILED, "warp_tiled<3>", "--ptx", "--block", "32")
    assert cells(text, "threads a block") == ["256"]
    assert cells(text, "shared memory, bytes") == ["0 + dynamic"]
    text = shown(TILED, "warp_tiled<3>", "--ptx", "--shared", "999999")
    assert cells(text, "shared memory, bytes") == ["999999"]
    assert cells(text, "blocks an SM") == ["0, by shared memory"]


@pytest.mark.full
def test_a_table_has_the_programs_own_kernels():
    text = shown(SHARED, "--ptx")
    assert "reference_products" not in text
    others = int(re.search(r"^(\d+) kernels from other files", text, re.MULTILINE)[1])
    everything = shown(SHARED, "--ptx", "--all")
    assert "reference_products" in everything and "fill_elements" in everything
    rows, all_rows = (len(each.split("\n\n")[1].splitlines()) for each in (text, everything))
    assert all_rows == rows + others
    tiled = shown(TILED, "--ptx")
    rows = {line.split("  ")[0]: re.split(r"\s{2,}", line) for line in tiled.splitlines()}
    assert {"block_tiled", "register_tiled", "vectorized", "warp_tiled<2>",
            "warp_tiled<3>"} <= set(rows)
    assert rows["block_tiled"][4:6] == ["4096", "512"]  # bytes shared, threads by __launch_bounds__
    assert rows["warp_tiled<3>"][4:6] == ["0+", "256"]  # dynamic
    # The fast one feeds its multiply-adds by wider loads, and fewer.
    assert cells(shown(TILED, "vectorized", "--ptx"), "shared loads  ld.shared.v4.f32 (16 bytes)")


# --- Listings ---


@pytest.mark.full
@pytest.mark.parametrize("form, product, load, barrier", [
    ("--ptx", r"fma\.rn\.f32", r"ld\.shared\.f32", r"bar\.sync"), ("--sass", "FFMA", "LDS", "BAR")])
def test_a_listing_has_each_source_line_above_its_instructions(form, product, load, barrier):
    if form == "--sass":
        needs_nvdisasm()
    text = shown("2", "matmul_sharedmem", form)
    below = {}
    for line, group in groups(text):
        below.setdefault(line, []).extend(group)

    def lines_with(pattern):
        return {line for line, code in below.items() if any(re.match(pattern, c) for c in code)}

    assert lines_with(product) == {line_with(PRODUCT)}
    assert lines_with(load) == {line_with(PRODUCT)}
    assert lines_with(barrier) == {line_with(FIRST_BARRIER), line_with(SECOND_BARRIER)}
    assert lines_with("st.global|STG") == {line_with("C[row * N + col] = sum;")}
    assert sum(bool(re.match(product, code)) for code in below[line_with(PRODUCT)]) == 32
    # The loop's instructions are marked, and nothing else.
    marked = [line for line in text.splitlines() if line.startswith("  | ")]
    assert [str(len(marked))] == cells(text, "instructions")[1:]


@pytest.mark.full
def test_counts_of_machine_code_are_those_of_a_search_in_it():
    needs_nvdisasm()
    text = shown("2", "matmul_sharedmem", "--sass")
    done = subprocess.run(
        [toolkit().tool("nvdisasm"), "-c", machine_code.CACHE / f"{SHARED}.{arch()}/program.cubin"],
        capture_output=True, text=True)
    code = re.search(r"^\.text\._Z16matmul_sharedmem.*?(?=^//-----|\Z)", done.stdout,
                     re.DOTALL | re.MULTILINE)[0]
    # What fills the last bytes, a branch to itself and what is behind it, is not the kernel's.
    code = re.split(r"(\.L_x_\d+):\s+/\*[0-9a-f]+\*/\s+BRA `\(\1\)", code)[0]
    assert cells(text, "instructions")[0] == str(len(re.findall(r"/\*[0-9a-f]{4,}\*/", code)))
    for row, pattern in [("global loads  LDG.32", r" LDG\.E(\.CONSTANT)? "),
                         ("shared loads  LDS.32", r" LDS "), ("shared stores  STS.32", r" STS "),
                         ("arithmetic  FFMA", r" FFMA "), ("barriers  BAR.SYNC", r" BAR\.SYNC")]:
        assert cells(text, row)[0] == str(len(re.findall(pattern, code))), row
    assert "local memory" not in text


@pytest.mark.full
def test_hoppers_kernel_multiplies_on_tensor_cores_and_spills_nothing():
    if arch() != "90a":
        pytest.skip("this toolkit does not compile for 90a")
    sass = bool(toolkit().tool("nvdisasm"))
    text = shown(HOPPER, "fused_panels")
    row = r"^tensor cores  (HGMMA\.64x256x16\S*|wgmma\.mma_async\.m64n256k16) +(\d+) +(\d+)$"
    kind, whole, loop = re.search(row, text, re.MULTILINE).groups()
    assert kind.startswith("HGMMA" if sass else "wgmma")
    assert 4 == int(loop) <= int(whole)  # steps of 16 in a tile 64 deep
    assert "local memory" not in text and cells(text, "spilled, bytes") == ["0"]
    assert re.search(r"^async copies  (UTMALDG|cp\.async\.bulk\.tensor)\.2d", text,
                     re.MULTILINE | re.IGNORECASE)
    # Wrappers of PTX lie in a header: the line that calls stands above theirs.
    assert re.search(r"^\w+_hopper\.cuh?:\d+  .*\n  ptx_hopper\.cuh:\d+  .*\n(    [.$]\S+:\n)?"
                     r"  [| ] .*(WARPGROUP|wgmma)", text, re.MULTILINE)


@pytest.mark.full
def test_tile_kernels_have_machine_code_alone():
    needs_nvdisasm()
    tile, missing = machine_code.tile_compiler(toolkit(), GATING, arch())
    if not tile:
        pytest.skip(missing)
    table = shown(GATING)
    done = subprocess.run(
        [toolkit().tool("cuobjdump") or pytest.skip("cuobjdump is not installed"),
         "--dump-resource-usage", machine_code.CACHE / f"{GATING}.{arch()}/program.tiles"],
        capture_output=True, text=True)
    own = dict(re.findall(r"Function (\S+?):\s*(.*)", done.stdout))
    names = {"fused_tile<128, 128, 8>": "fused_tileILi128ELi128E", "fused_talk_tile":
             "fused_talk_tile", "fused_tile<128, 64, 4>": "fused_tileILi128ELi64E"}
    for name, part in names.items():
        [said] = [text for symbol, text in own.items() if part in symbol]
        registers, stack, shared = re.match(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", said).groups()
        assert cells(table, name)[:4] == [registers, stack, stack, shared]
        assert int(cells(table, name)[4]) % 32 == 0  # threads of a block
    text = shown(GATING, "fused_tile<128, 128, 8>")
    of_products = [code for line, code in groups(text) if "= ct::mma(a, " in line]
    assert len(of_products) > 1 and any("MMA" in one for code in of_products for one in code)
    mma = re.search(r"^tensor cores  \S*MMA\S* +(\d+) +(\d+)$", text, re.MULTILINE)
    assert mma and 0 < int(mma[2]) <= int(mma[1])

    assert "fused_wmma" in shown(GATING, "--ptx") and "fused_tile" not in shown(GATING, "--ptx")
    assert shown(GATING, "--ptx").endswith(machine_code.NO_PTX + "\n")
    assert machine_code.NO_PTX in shown(GATING, "fused_talk_tile", "--both")
    done = inspect(GATING, "fused_talk_tile", "--ptx")
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "inspect.sh")
    assert machine_code.NO_PTX in done.stderr


@pytest.mark.parametrize("program, arch, tile, says", [
    (GATING, "90a", "0", "without its tile kernels: TILE=0 "),
    (GATING, "75", "", "without its tile kernels"), (SHARED, "90a", "0", "")])
def test_missing_tile_kernels_are_missed(monkeypatch, capsys, program, arch, tile, says):
    monkeypatch.setenv("TILE", tile)
    compiler, missing = machine_code.tile_compiler(toolkit(), program, arch)
    assert compiler is None and missing.startswith(says) and bool(missing) == bool(says)
    options = argparse.Namespace(block=None, shared=None)
    machine_code.show_program(machine_code.Show(options, arch, False), program, [], False, missing)
    assert capsys.readouterr().out.endswith(f"{missing}\n")


def test_a_line_of_a_header_stands_below_the_line_that_calls_it(capsys):
    program, header = str(ROOT / f"src/{SHARED}.cu"), str(ROOT / "include/demo.cuh")
    toolkits = str(ROOT / ".venv/lib/python3/site-packages/nvidia/cu13/include/cuda_fp16.hpp")
    frames = [((program, 47),), ((header, 1), (program, 47)), ((header, 2), (program, 47)),
              ((program, 47),), ((header, 2), (program, 45)), ((program, 48),), (),
              ((toolkits, 3), (f"{ROOT}2/include/demo.cuh", 4), (header, 2), (program, 48))]
    code = tuple(instructions.Instruction("", "", f"op{i}", "", source, ())
                 for i, source in enumerate(frames))
    kernel = machine_code.Kernel("f", "f", None, 0, False, code, None)
    options = argparse.Namespace(block=None, shared=None)
    machine_code.show_listing(machine_code.Show(options, "90a", False), kernel)
    lines = [re.sub("  .*", "", line) if line[0] != " " else line.strip().split("  ")[0]
             for line in capsys.readouterr().out.splitlines()[2:-1]]
    one, other, last = (f"{SHARED}.cu:{number}" for number in (47, 45, 48))
    assert lines == [one, "op0", "demo.cuh:1", "op1", "demo.cuh:2", "op2", one, "op3",
                     other, "demo.cuh:2", "op4", last, "op5", "(no source line)", "op6",
                     last, "demo.cuh:2", "op7"]


# --- Blocks ---


def test_blocks_of_two_sizes_are_believed_where_they_are_the_same(tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.write_text("#!/bin/sh\n"
                    'case "$*" in *--describe*) echo "$ABOUT"; exit ;; esac\n'
                    "echo head\necho\n"
                    'echo "same: (4 x 4) blocks of (32 x 8) threads, one launch"\n'
                    "size=$1; [ $1 != --rows ] || size=$4\n"
                    'echo "scaled<float, 2>: (1 x 1) blocks of ($size x 1) threads, one launch"\n'
                    'echo "of_three: (1 x 1) blocks of (4 x 4 x 4) threads, one launch"\n'
                    'echo "instance<$size>: (1 x 1) blocks of (32 x 1) threads, one launch"\n'
                    '[ $size = 128 ] || [ $size = 8192 ] || exit $STATUS\n'
                    'echo "of_one_size: (1 x 1) blocks of (32 x 1) threads, one launch"\n')
    path.chmod(0o755)
    about = {key: None for key in "program sweep sizes talk dtypes options".split()}
    for shapes in (None, [[2, 2]]):
        monkeypatch.setenv("ABOUT", json.dumps({**about, "shapes": shapes}))
        monkeypatch.setenv("STATUS", "0")
        small, large = (256, 8192) if shapes else (64, 128)
        assert launches.launched(path) == {
            "same": 256, "scaled<float,2>": 0, "of_three": 64, "of_one_size": 0,
            f"instance<{small}>": 32, f"instance<{large}>": 32}
        monkeypatch.setenv("STATUS", "3")
        with pytest.raises(machine_code.Stop, match="ended with 3"):
            launches.launched(path)


def test_an_instance_has_the_block_of_the_others():
    known = {"a<1>": 128, "a<2>": 128, "b<1>": 64, "b<2>": 32, "c": 0}
    assert [launches.of(name, known) for name in ("a<1>", "a<3>", "b<2>", "b<3>", "c", "d")] == [
        128, 128, 32, 0, 0, 0]


def test_a_block_that_depends_on_the_size_stays_unknown():
    """online of 8_softmax has as many threads as the row's warps, up to 512; its launch bound says
    so. The others have 256 whatever the row is."""
    blocks = simulators_blocks("8_softmax")
    named = {name.split("<")[0]: threads for name, threads in blocks.items()}
    assert named["fused"] == named["row_max"] == 256 and named["online"] == 0


@pytest.mark.full
def test_the_simulator_is_asked_for_what_is_shown_alone(monkeypatch):
    asked = []
    monkeypatch.setattr(launches, "blocks", lambda program: asked.append(program) or {})
    for arguments in (["warp_tiled<3>"], ["--diff", "warp_tiled<3>", "warp_tiled<2>"]):
        assert machine_code.main([TILED, *arguments, "--ptx", "--arch", arch()]) == 0
    assert asked == []  # the source states their blocks
    assert machine_code.main([TILED, "--all", "--ptx", "--arch", arch()]) == 0
    assert machine_code.main([SHARED, "--ptx", "--arch", arch()]) == 0
    assert asked == [TILED, SHARED]


def test_a_block_takes_gxx_to_count(monkeypatch, capfd):
    if not shutil.which("clang++"):
        pytest.skip("clang++ is not installed")
    monkeypatch.setenv("CXX", "clang++")
    assert launches.blocks(SHARED) == {}
    assert "takes g++, not clang++" in capfd.readouterr().err


@pytest.mark.full
def test_a_run_that_fails_is_not_kept(monkeypatch, capsys):
    simulators_blocks()
    monkeypatch.setattr(launches, "LIMIT_S", 0)
    kept = ROOT / f"build/inspect/{SHARED}.launches"
    kept.unlink(missing_ok=True)
    assert launches.blocks(SHARED) == {} and not kept.exists()
    said = capsys.readouterr().err
    assert "took more than 0 s" in said and "not known" in said
    monkeypatch.undo()
    assert launches.blocks(SHARED)["matmul_sharedmem"] == 1024 and kept.exists()


def test_without_the_simulator_a_block_is_unknown(monkeypatch, capfd):
    monkeypatch.setattr(launches, "BUILD", "exit 3")
    assert launches.blocks(SHARED) == {}
    assert "not known" in capfd.readouterr().err
    limits = argparse.Namespace(block=None, shared=None)
    kernel = machine_code.Kernel("f", "f", machine_code.Resources(32, 0, 0, 0), 0, False, (), None)
    figures = dict(machine_code.Show(limits, "90a", False).figures(kernel))
    assert figures["threads a block"] == figures["blocks an SM"] == "unknown"
    assert figures["warps an SM"].startswith("up to ")


# --- The page ---


@pytest.fixture(scope="module")
def html():
    """The page of 2_matmul_sharedmem, and its text."""
    assert inspect("2", "--html", "--block", "1024").stdout == f"build/inspect/{SHARED}.html\n"
    path = ROOT / f"build/inspect/{SHARED}.html"
    return path, path.read_text(encoding="utf-8")


@pytest.mark.full
def test_the_page_has_all_lines_and_instructions(html):
    text = html[1]
    assert not re.search(r"https?://|<link|src=|@import", text)  # one file, offline
    numbers = [int(n) for n in re.findall(r'class="row line[^>]*><span class="at">(\d+)<', text)]
    first = next(i for i, line in enumerate(SOURCE, 1) if line.startswith("__global__"))
    last = next(i for i, line in enumerate(SOURCE, 1) if i > first and line == "}")
    assert numbers == [*range(first, last + 1)]
    listed = shown("2", "matmul_sharedmem")
    code = [line[4:].strip() for line in listed.split("\n\n")[1].splitlines()
            if line.startswith(("  | ", "    ")) and not line.strip().endswith(":")]
    rows = re.findall(r'class="row code([^"]*)"[^>]*><span class="at">(\w*)</span><span>([^<]*)<',
                      text)
    assert [" ".join(f"{at} {line}".split()) for _, at, line in rows] == [
        " ".join(line.split()).replace("&", "&amp;") for line in code]
    kinds = {"LDG": "global", "STG": "global", "ld.global": "global", "LDS": "shared",
             "STS": "shared", "FFMA": "arithmetic", "fma": "arithmetic", "BAR": "control",
             "EXIT": "control", "BRA": "control", "ret": "control", "bar.sync": "control"}
    for names, _, line in rows:
        opcode = re.sub("@!?U?P\\d+ ", "", line).split(" ")[0]
        for start, kind in kinds.items():
            if re.match(rf"{re.escape(start)}\\b", opcode):
                assert kind in names.split(), line


@pytest.mark.full
@pytest.mark.skipif(not browser.CHROMIUM, reason="Chromium is not installed")
def test_keys_zoom_the_page_and_go_to_lines(html, tmp_path):
    with browser.page(tmp_path / "profile") as page:
        page.open(html[0], 1920, height=1080)
        state = """(() => [parseFloat(getComputedStyle(document.querySelector(".pane")).fontSize),
            document.querySelectorAll(".line.on").length, document.querySelectorAll(".code.on")
            .length > 0, document.querySelector(".line.on .at")?.textContent])()"""

        def press(*keys):
            for key in keys:
                page.evaluate(f"dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}'}}))")
            return page.evaluate(state)

        first = press("j")
        assert first[1:3] == [1, True] and press("ArrowDown")[3] > first[3] == press("k")[3]
        assert press(*["+"] * 20)[0] == 40 and press(*["-"] * 20)[0] == 12


# --- Two kernels side by side ---


@pytest.mark.full
def test_diff_puts_two_kernels_side_by_side():
    text = shown(TILED, "--ptx", "--diff", "block_tiled", "vectorized")
    assert text.splitlines()[2].split() == ["block_tiled", "vectorized"]
    one, other = (shown(TILED, name, "--ptx") for name in ("block_tiled", "vectorized"))
    for row in ("registers a thread", "shared memory, bytes", "blocks an SM", "instructions",
                "arithmetic  fma.f32"):
        assert cells(text, row) == cells(one, row) + cells(other, row)
    assert cells(text, "barriers  cp.async.commit_group")[:2] == ["0", "0"]


# --- What goes wrong, and colors ---


@pytest.mark.full
@pytest.mark.parametrize("arguments, says", [
    (["2", "bogus"], "no kernel 'bogus'"),
    ([TILED, "warp"], "'warp' fits 2 kernels: name one whole, such as 'warp_tiled<3>'"),
    (["2", "--diff", "matmul_sharedmem", "bogus"], "no kernel 'bogus'"),
])
def test_an_unknown_kernel_ends_with_the_names(arguments, says):
    shown(arguments[0], "--ptx")  # compiles
    done = inspect(*arguments, "--ptx")
    assert done.returncode == USAGE and done.stdout == ""
    assert_one_line(done.stderr, "inspect.sh")
    assert says in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("wanted", ["77", "70", "86b", "75a", "sm_86", "086", "", "a"])
def test_an_unknown_architecture_ends_with_those_of_nvcc(wanted):
    toolkit()
    done = script("inspect.sh", "2", "--arch", wanted)
    assert done.returncode == USAGE and done.stdout == ""
    assert_one_line(done.stderr, "inspect.sh")
    assert str(toolkit().architectures()[-1]) in done.stderr


def test_without_nvcc_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(cuda_toolkit, "_candidates", lambda: [])
    assert machine_code.main(["2"]) == SKIPPED
    out, err = capsys.readouterr()
    assert_one_line(err, "inspect.sh")
    assert out == "" and "install the CUDA Toolkit" in err


@pytest.mark.full
def test_without_nvdisasm_it_names_the_package_and_shows_ptx(monkeypatch, capsys):
    shown("2", "--ptx")  # compiles
    asked = []  # of setup.sh
    monkeypatch.setattr(command_line, "set_up", lambda _, commands: asked.append(commands))
    monkeypatch.setattr(cuda_toolkit.Toolkit, "tool", lambda self, name: None)
    for form in ("--sass", "--both"):
        assert machine_code.main(["2", "matmul", form, "--arch", arch()]) == SKIPPED
        out, err = capsys.readouterr()
        assert_one_line(err, "inspect.sh")
        release = toolkit().version.split(".")
        assert out == "" and f"cuda-nvdisasm-{release[0]}-{release[1]}" in err
    assert machine_code.main(["2", "matmul", "--arch", arch()]) == 0
    out, err = capsys.readouterr()
    assert_one_line(err, "inspect.sh")
    assert "fma.rn.f32" in out
    assert len(asked) == 3 and all("nvidia-cuda-nvdisasm" in commands for commands in asked)
    shown("2", "--ptx")
    assert len(asked) == 3


@pytest.mark.full
def test_a_kernel_without_code_for_an_architecture_is_named(tmp_path):
    source = tmp_path / "hopper.cu"
    source.write_text('#include "hopper.cuh"\n'
                      "__global__ void feeds() { hopper::wgmma_fence(); }\n"
                      "__global__ void adds(float* x) { *x += 1; }\n")
    old = str(next(a for a in toolkit().architectures() if a >= 75))
    compiled = machine_code.compile_source(toolkit(), source, old, tmp_path)
    options = argparse.Namespace(block=None, shared=None)
    notes = machine_code.Show(options, old, False).notes(
        machine_code.read_kernels(compiled, None)).splitlines()
    notes = [note for note in notes if note.startswith(f"no code for sm_{old}")]
    assert len(notes) == 1 and notes[0].endswith("feeds")


# --- Kinds of instructions, and loops ---


@pytest.mark.parametrize("opcode, operands, expected", [
    ("LDG.E.128.CONSTANT", "R4, desc[UR4][R2.64]", "LDG.128"),
    ("LDG.E.U16", "R4, desc[UR4][R2.64]", "LDG.U16"), ("STG.E", "desc[UR4][R2.64], R5", "STG.32"),
    ("LDGSTS.E.BYPASS.LTC128B.128", "[R1], desc[UR4][R2.64]", "LDGSTS.128"),
    ("LDS.U.64", "R2, [R5]", "LDS.64"), ("LDSM.16.MT88.4", "R8, [R9]", "LDSM.x4"),
    ("LDL.LU", "R5, [R1+0x4]", "LDL.32"), ("STL.64", "[R1], R2", "STL.64"),
    ("HMMA.16816.F32", "R4, R8, R12, R4", "HMMA.16816.F32"),
    ("HFMA2.MMA", "R8, -RZ, RZ, 0, 0", None), ("HFMA2.MMA", "R8, R9, R10, R11", "HFMA2"),
    ("HADD2.F32", "R3, -RZ, R2.H0_H0", None), ("FADD", "R3, R2, R4", "FADD"),
    ("FFMA.FTZ", "R1, R2, R3, R1", "FFMA"), ("MUFU.EX2", "R1, R2", "MUFU.EX2"),
    ("REDG.E.ADD.F32", "desc[UR4][R2.64], R5", "REDG"), ("REDUX.SUM", "UR4, R2", "REDUX"),
    ("IMAD.MOV.U32", "R1, RZ, RZ, R2", None), ("BRA", ".L_x_1", None),
    ("ld.global.nc.v4.f32", "{%f1, %f2, %f3, %f4}, [%rd1]", "ld.global.v4.f32 (16 bytes)"),
    ("ld.global.L1::no_allocate.v2.u64", "{%rd1, %rd2}, [%rd3]", "ld.global.v2.u64 (16 bytes)"),
    ("ld.shared.u16", "%rs1, [%r1]", "ld.shared.u16 (2 bytes)"),
    ("st.local.f32", "[%rd1], %f1", "st.local.f32 (4 bytes)"),
    ("ld.param.u64", "%rd1, [p]", None),
    ("cp.async.cg.shared.global", "[%r1], [%rd1], 16", "cp.async (16 bytes)"),
    ("cp.async.wait_group", "1", "cp.async.wait_group"),
    ("cp.async.bulk.commit_group", "", "cp.async.commit_group"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "{}", "mma.m16n8k16"),
    ("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32", "{}", "wmma.mma.m16n16k16"),
    ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16", "{}", "wmma.load.shared"),
    ("red.global.add.f32", "[%rd1], %f1", "red.global"), ("add.s32", "%r1, %r2, 1", None),
    ("fma.rn.f16x2", "%r1, %r2, %r3, %r4", "fma.f16x2"),
])
def test_instructions_are_told_apart(opcode, operands, expected):
    kind = instructions.classify(instructions.Instruction("", "", opcode, operands, (), ()))
    assert (kind and kind[1]) == expected
    local = re.match(r"LDL|STL|st\.local", opcode) is not None
    assert (kind is not None and kind[0] == instructions.LOCAL) == local


def read(body):
    return list(machine_code.read_ptx_body("{\n" + body + "\n}", {}))


def test_the_main_loop_is_the_innermost_one_with_the_work():
    code = read("""
        mov.f32 %f1, 0f00000000;
    $outer:
        ld.global.f32 %f2, [%rd1];
    $inner:
        fma.rn.f32 %f1, %f2, %f2, %f1;
        @%p1 bra $cold;
    $back:
        add.s32 %r1, %r1, 1;
        @%p2 bra $inner;
        fma.rn.f32 %f1, %f2, %f2, %f1;
    $spin:
        mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1], %r2;
        @!%p3 bra $spin;
        @%p4 bra $outer;
        st.global.f32 [%rd1], %f1;
        ret;
    $cold:  // far from the loop, and of it
        mov.u32 %r3, %r4;
        bra $back;""")
    loops = sorted(map(sorted, instructions.loops(code)))
    assert loops == [[1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13], [2, 3, 4, 5, 12, 13], [7, 8]]
    assert sorted(instructions.main_loop(code)) == [2, 3, 4, 5, 12, 13]


def test_a_computed_jump_leaves_no_loop_that_is_sure():
    code = read("""
    $a: fma.rn.f32 %f1, %f2, %f2, %f1;
        @%p1 bra $a;
    $targets: .branchtargets $a, $b;
        brx.idx %r1, $targets;
    $b: ret;""")
    assert [one.labels for one in code] == [("$a",), (), (), ("$b",)]
    assert instructions.loops(code) == [] and instructions.main_loop(code) == set()


def test_a_loop_on_tensor_cores_goes_before_arithmetic_and_no_loop_is_none():
    code = read("""
    $a: fma.rn.f32 %f1, %f2, %f2, %f1;
        fma.rn.f32 %f1, %f2, %f2, %f1;
        @%p1 bra $a;
    $b: {
        .reg .pred p;
        setp.ne.b32 p, %r1, 0;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,
            %f2}, %rd1, %rd2, p, 1, 1, 0, 1;
        }
        @%p1 bra $b;
        ret;""")
    assert [one.opcode.split(".")[0] for one in code] == [
        "fma", "fma", "bra", "setp", "wgmma", "bra", "ret"]
    assert sorted(instructions.main_loop(code)) == [3, 4, 5]
    assert instructions.main_loop(code[:2]) == set()


# --- Occupancy ---

HEADERS_OCCUPANCY = r"""
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cuda_occupancy.h>
int main(int, char** argv) {
    const int capability = atoi(argv[1]), warps = atoi(argv[2]), shared = atoi(argv[3]) * 1024;
    const int reserved = capability == 75 ? 0 : 1024;
    cudaOccDeviceProp gpu;
    gpu.computeMajor = capability / 10, gpu.computeMinor = capability % 10;
    gpu.maxThreadsPerBlock = 1024, gpu.maxThreadsPerMultiprocessor = 32 * warps;
    gpu.regsPerBlock = gpu.regsPerMultiprocessor = 65536, gpu.warpSize = 32, gpu.numSms = 1;
    gpu.sharedMemPerBlock = 49152, gpu.sharedMemPerMultiprocessor = shared;
    gpu.sharedMemPerBlockOptin = shared - reserved, gpu.reservedSharedMemPerBlock = reserved;
    cudaOccFuncAttributes kernel;
    kernel.maxThreadsPerBlock = 1024, kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    cudaOccDeviceState state;
    state.cacheConfig = CACHE_PREFER_SHARED, state.carveoutConfig = 100;
    for (int threads = 32; threads <= 1024; threads += 96)
        for (int registers = 16; registers <= 255; registers += 24)
            for (int bytes = 0; bytes <= shared - reserved; bytes += 1331) {
                kernel.numRegs = registers, kernel.sharedSizeBytes = 0;
                kernel.maxDynamicSharedSizeBytes = shared - reserved;
                cudaOccResult result;
                if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &gpu, &kernel, &state, threads,
                                                            bytes))
                    return 1;
                printf("%d %d %d %d\n", threads, registers, bytes,
                       result.activeBlocksPerMultiprocessor);
            }
}
"""


@pytest.mark.full
def test_occupancy_is_that_of_the_toolkits_header(tmp_path):
    """Its rules and numbers of blocks; it takes the warps and the shared memory from us."""
    source = tmp_path / "occupancy.cpp"
    source.write_text(HEADERS_OCCUPANCY)
    includes = [f"-I{folder}" for folder in toolkit().include_dirs()]
    done = subprocess.run(["g++", "-O2", *includes, "-o", tmp_path / "occupancy", source],
                          capture_output=True, text=True)
    if "cuda_occupancy.h" in done.stderr:
        pytest.skip("this toolkit has no cuda_occupancy.h")
    assert done.returncode == 0, done.stderr
    newest = toolkit().architectures()[-1]
    for capability, limits in machine_code.LIMITS.items():
        if capability > newest:
            continue
        done = subprocess.run([tmp_path / "occupancy", str(capability), str(limits.warps),
                               str(limits.shared)], capture_output=True, text=True)
        assert done.returncode == 0, capability
        lines = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
        assert len(lines) > 1000
        wrong = [line for line in lines
                 if machine_code.occupancy(limits, *line[:3])[0] != line[3]]
        assert not wrong, (capability, wrong[:3])


def test_the_driver_says_the_same():
    """Registers, shared memory and occupancy of every kernel, on the GPU that is here."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        pytest.skip("no NVIDIA driver here")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0):
        pytest.skip("no GPU here")
    major, minor = ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
    capability = 10 * major.value + minor.value
    target = cuda_toolkit.target(capability)
    if capability not in machine_code.LIMITS or not toolkit().builds_for(target):
        pytest.skip(f"nothing is known of compute capability {capability} here")
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    for program in (SHARED, TILED):
        compiled = machine_code.compile_program(toolkit(), program, target)
        module = ctypes.c_void_p()
        assert cuda.cuModuleLoadData(ctypes.byref(module), compiled.cubin.read_bytes()) == 0
        for kernel in machine_code.read_kernels(compiled, None):
            function, value = ctypes.c_void_p(), ctypes.c_int()
            assert cuda.cuModuleGetFunction(ctypes.byref(function), module,
                                            kernel.symbol.encode()) == 0
            for attribute, expected in ((1, kernel.resources.shared),
                                        (3, kernel.resources.stack),
                                        (4, kernel.resources.registers)):
                assert cuda.cuFuncGetAttribute(ctypes.byref(value), attribute, function) == 0
                assert value.value == expected, (kernel.name, attribute)
            threads = kernel.threads or 1024
            assert cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                ctypes.byref(value), function, threads, ctypes.c_size_t(0)) == 0
            blocks, _ = machine_code.occupancy(machine_code.LIMITS[capability], threads,
                                               kernel.resources.registers, kernel.resources.shared)
            assert value.value == blocks, kernel.name
    cuda.cuDevicePrimaryCtxRelease(device)
