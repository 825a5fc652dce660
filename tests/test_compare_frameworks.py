"""scripts/compare_frameworks.py, without PyTorch: a module of canned times stands in for it."""

import csv
import fractions
import importlib.machinery
import json
import re
import shutil
import subprocess
import sys
import time
import types

import pytest

import compare_frameworks
from fakes import copy_folders, script
from frameworks import load_page, splitmix64
from shared import measurements, table
from suite import (
    FAILED,
    ROOT,
    SKIPPED,
    USAGE,
    VERIFIED,
    WRONG,
    assert_one_line,
    declared,
    describe,
)

NAME = "compare_frameworks.py"
SCRIPT = ROOT / "scripts" / NAME


# --- Command line -----------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [
    ["--bogus"], ["4096"], ["--operations", "bogus"], ["--operations", ""], ["--operations"],
    ["--operations", "timing"], ["--sizes", "33"], ["--sizes", "64,"], ["--talk", "17"],
    ["--shapes", "4096"], ["--shapes", "0x8"], ["--dtype", "fp64"], ["--rounds", "0"],
    ["--table", "nowhere.csv"],
    ["--table", str(ROOT / "results/nvidia-h200.csv")],
], ids=" ".join)
def test_bad_arguments_end_with_one_line(arguments):
    done = subprocess.run([sys.executable, str(SCRIPT)] + arguments, capture_output=True, text=True)
    assert done.returncode == USAGE
    assert done.stdout == ""
    assert_one_line(done.stderr, NAME)


def pretend(monkeypatch, *modules):
    """Makes find_spec find these of torch and triton, and not the others."""
    for name in ("torch", "triton"):
        module = types.ModuleType(name) if name in modules else None
        if module:
            module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("there, named", [((), "PyTorch"), (("torch",), "Triton"),
                                          (("torch", "triton"), "cannot be loaded")],
                         ids=["no-torch", "no-triton", "broken"])
def test_without_the_frameworks_it_says_so_in_one_line(monkeypatch, capsys, there, named):
    pretend(monkeypatch, *there)
    for name in [name for name in sys.modules if re.match(r"frameworks\.|torch_demo", name)]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("data", "timing", "verification"):  # which would keep the torch of this test
        monkeypatch.setitem(sys.modules, f"frameworks.{name}", None)
    assert compare_frameworks.main([]) == SKIPPED
    said = capsys.readouterr()
    assert said.out == ""
    assert_one_line(said.err, NAME)
    assert named in said.err


def test_without_a_gpu_it_says_so_in_one_line(monkeypatch, capsys):
    install(monkeypatch, FakeFrameworks({}, gpu=None))
    assert compare_frameworks.main([]) == SKIPPED
    said = capsys.readouterr()
    assert said.out == ""
    assert_one_line(said.err, NAME)
    assert "no NVIDIA GPU" in said.err


# --- A whole run, with canned times -----------------------------------------------------------

# A fake program answers --describe with a file, in which it sets n to the size that it was given,
# and otherwise prints the rows of its --kernel.
FAKE_PROGRAM = """#!/bin/sh
here=$(dirname "$0")
size=$(echo "$*" | grep -o '[0-9][0-9]*' | head -n 1)
for argument; do
    if [ "$argument" = --describe ]; then
        sed "s/\\"n\\": [0-9]*/\\"n\\": ${size:-0}/" "$here/about.json"
        exit
    fi
    kernel=$argument
done
echo "ours $kernel" >>"$here/calls"
echo "$*" >>"$here/commands"
%s
"""
ROWS = """echo %s
grep "7_gelu,$kernel," "$here/rows.csv"
""" % ",".join(measurements.REQUIRED)


def contender(kernel, role, dtypes=("fp32",)):
    return {"kernel": kernel, "role": role, "dtypes": list(dtypes), "only": None, "needs": None}


CONTENDERS = [contender("chain", "chain"), contender("fused", "ours"),
              contender("fused_fast", "ours"), contender("rival", "library"),
              contender("a_copy", "yardstick"), contender("other", "ours", ["fp16"])]
TIMES = {"chain": 0.1, "fused": 2.0, "fused_fast": 1.0, "rival": 0.2, "a_copy": 0.3, "other": 0.1}
LEAST_BYTES = 2 * 16384 * 16384 * 4


def description(n=16384, shape="16384x16384", contenders=CONTENDERS, **problem):
    return {"program": "7_gelu", "sweep": "never", "sizes": {"multiple": 1, "measured": []},
            "talk": None, "shapes": [[16384, 16384]], "variants": [], "dtypes": ["fp32"],
            "options": [{"name": "--dtype"}], "contenders": contenders,
            "problems": [{"shape": shape, "n": n, "dtype": "fp32", "flops": 9 * n * n,
                          "least_bytes": LEAST_BYTES, "memory_bound": True,
                          "contenders": [c["kernel"] for c in contenders], "inputs": [],
                          **problem}]}


class FakeFrameworks(types.ModuleType):
    """frameworks.case: `times` has for each peer the ms of each round, or what verifying raises."""

    class Wrong(Exception):
        pass

    def __init__(self, times, gpu=("Fake, GPU", "90"), calls=None, alive=True):
        super().__init__("frameworks.case")
        times = {name: iter(ms) if isinstance(ms, list) else ms for name, ms in times.items()}

        class PeersOfCase:
            def __init__(self, page, problem):
                self.peers = times

            def is_rival(self, name):
                return name != "copy"

            def verify(self, name):
                if callable(times[name]):
                    times[name]()

            def measure(self, name):
                if calls:
                    with calls.open("a") as file:
                        print(name, file=file)
                return next(times[name])

        self.PeersOfCase = PeersOfCase
        self.gpu = lambda: gpu
        self.versions = lambda: {"pytorch": "2.x", "triton": "3.x"}
        self.free = lambda: None
        self.is_alive = lambda: alive


def install(monkeypatch, fake):
    pretend(monkeypatch, "torch", "triton")
    monkeypatch.setitem(sys.modules, "frameworks.case", fake)


@pytest.fixture
def compare(monkeypatch, capsys, tmp_path):
    """Runs the script with one page, a fake program of its own and canned times of theirs."""
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/shared.py").write_text("no page, so never loaded")
    monkeypatch.setattr(compare_frameworks, "PAGES", tmp_path / "pages")

    def run(times, program=ROWS, arguments=(), about=None, ours=TIMES,
            page="SHAPES = ((16384, 16384),)\nOPTIONS = ('--option', 'this')", alive=True):
        for name in ("calls", "commands"):
            (tmp_path / name).write_text("")
        (tmp_path / "pages/7_gelu.py").write_text(page)
        about = about or description()
        (tmp_path / "about.json").write_text(json.dumps(about))
        roles = {c["kernel"]: c["role"] for c in about["contenders"]}
        (tmp_path / "rows.csv").write_text("".join(
            f"7_gelu,{kernel},Fake,90,fp32,square,8,{ms},0.1,,1,yes,{roles.get(kernel, 'ours')}\n"
            for kernel, ms in ours.items()))
        install(monkeypatch, FakeFrameworks(times, calls=tmp_path / "calls", alive=alive))
        if program is not None:
            path = tmp_path / "7_gelu"
            path.write_text(FAKE_PROGRAM % program)
            path.chmod(0o755)
        status = compare_frameworks.main([*arguments, "--programs", str(tmp_path),
                                          "--csv", str(tmp_path / "new/results.csv")])
        said = capsys.readouterr()
        return types.SimpleNamespace(
            status=status, out=said.out, err=said.err,
            calls=(tmp_path / "calls").read_text().splitlines(),
            commands=(tmp_path / "commands").read_text().splitlines())

    run.file = tmp_path / "new/results.csv"
    run.measured = lambda: [(row["shape"], row["contender"], row["median_ms"])
                            for row in measurements.read(run.file).rows]
    return run


def cells(text):
    """The last line of a printed table, by its head."""
    head, _, *lines = [re.split(r"\s{2,}", line) for line in text.split("\n\n")[-1].splitlines()]
    return dict(zip(head, lines[-1]))


def test_medians_ratios_and_their_range_over_the_rounds(compare):
    done = compare({"eager": [9], "library": [1.2, 1.2, 1.1], "compile": [1.19, 1.3, 1.6],
                    "copy": [0.9, 0.9, 0.9]})
    assert (done.status, done.err) == (VERIFIED, "")
    least = LEAST_BYTES / 1e6  # GB/s of 1 ms
    line = cells(done.out)
    assert line["operation"] == "7_gelu" and line["our kernel"] == "fused_fast"
    assert line["ours"] == f"{least:.0f} 90%"
    assert line["library"] == f"{least / 1.2:.0f} 75%"
    assert line["copy"] == f"{least / 0.9:.0f} 100%"
    # The best of theirs has the best median: the best first round does not count.
    assert line["best of theirs"] == "library"
    assert line["ours / theirs"] == "1.20x"
    assert line["rounds"] == "1.10-1.20"


def test_our_program_gets_size_type_and_options_and_each_kernel_alone(compare):
    done = compare({"library": [1, 1, 1], "copy": [1, 1, 1]})
    common = "--rows 16384 --cols 16384 --option this --dtype fp32 --csv --kernel "
    assert done.commands == [common + kernel for kernel in
                             ["fused", "fused_fast", "fused_fast", "fused_fast"]]


def test_ours_is_the_fastest_of_our_role_and_nothing_else_runs(compare):
    done = compare({"library": [1, 1, 1], "copy": [1, 1, 1]})
    assert cells(done.out)["our kernel"] == "fused_fast"
    assert {call for call in done.calls if call.startswith("ours")} == {
        "ours fused", "ours fused_fast"}  # no chain, no library, no copy, no kernel of fp16

    recorded = description(contenders=CONTENDERS + [contender("of_another", "record")])
    done = compare({"library": [1, 1, 1], "copy": [1, 1, 1]}, about=recorded,
                   ours={**TIMES, "of_another": 0.5}, arguments=["--fresh"])
    assert cells(done.out)["our kernel"] == "of_another"


def test_a_program_of_library_calls_alone_is_compared_by_them(compare):
    control = description(contenders=[contender("rival", "library"),
                                      contender("a_copy", "yardstick")])
    done = compare({"library": [1, 1, 1], "copy": [1, 1, 1]}, about=control)
    assert cells(done.out)["our kernel"] == "rival"


def test_a_kernel_that_this_gpu_cannot_run_leaves_the_others(compare):
    refuse = "if [ $kernel = fused_fast ]; then echo '7_gelu: no such GPU' >&2; exit 77; fi\n"
    done = compare({"library": [1, 1, 1], "copy": [1, 1, 1]}, refuse + ROWS)
    assert (done.status, done.err) == (VERIFIED, "")
    assert cells(done.out)["our kernel"] == "fused"


def test_contenders_take_turns_and_every_second_round_is_reversed(compare):
    done = compare({"library": [1, 1, 1], "triton": [1, 1, 1], "copy": [1, 1, 1]})
    forward = ["ours fused_fast", "library", "triton", "copy"]
    assert done.calls == ["ours fused"] + forward + forward[::-1] + forward


def test_what_is_much_slower_than_the_best_of_theirs_has_one_round(compare):
    done = compare({"eager": [1.2], "library": [1, 1, 1], "compile": [1.05, 1.05, 1.05],
                    "copy": [0.1, 0.1, 0.1]})  # a copy is no rival of theirs
    assert (done.status, done.err) == (VERIFIED, "")
    rows = {row["contender"]: row["rounds"] for row in measurements.read(compare.file).rows}
    assert rows == {"ours": "3", "eager": "1", "library": "3", "compile": "3", "copy": "3"}


def test_sizes_that_are_given_replace_all_that_the_pages_say(compare):
    page = "SIZES = (64, 96, 128)\nTALK = (16,)"
    about = description(shape="square", n=64)
    done = compare({"library": [1] * 99, "copy": [1] * 99}, page=page, about=about,
                   arguments=["--rounds", "1"])
    sizes = ["64", "96", "128", "--talk 16"]
    assert list(dict.fromkeys(line.split(" --dtype")[0] for line in done.commands)) == sizes
    done = compare({"library": [1] * 99, "copy": [1] * 99}, page=page, about=about,
                   arguments=["--rounds", "1", "--fresh", "--talk", "32,48"])
    assert {line.split(" --dtype")[0] for line in done.commands} == {"--talk 32", "--talk 48"}


def test_a_page_may_name_whole_command_lines(compare):
    page = "RUNS = ('64 --fast', '96')\nTILE = ('7_gelu', 'in_tiles')"
    about = description(shape="square", n=64, contenders=WITH_TILE)
    done = compare({"library": [1] * 99, "copy": [1] * 99}, page=page, about=about,
                   ours={**TIMES, "in_tiles": 1}, arguments=["--rounds", "1"])
    runs = list(dict.fromkeys(line.split(" --dtype")[0] for line in done.commands))
    assert runs == ["64 --fast", "96"]
    assert "64 --fast --dtype fp32 --csv --kernel in_tiles" in done.commands


def test_nothing_to_compare_is_a_usage_error(compare):
    for arguments in (["--sizes", "4096"], ["--dtype", "bf16"]):
        done = compare({}, arguments=["--operations", "7", *arguments])
        assert done.status == USAGE and done.out == ""
        assert_one_line(done.err, NAME)


# --- CUDA Tile C++ ----------------------------------------------------------------------------

TILE_PAGE = "SHAPES = ((16384, 16384), (8, 8))\nTILE = ('7_gelu', 'in_tiles', 'for_the_talk')"
WITH_TILE = CONTENDERS + [contender("in_tiles", "ours")]


def test_the_tile_kernel_has_a_column_and_is_neither_ours_nor_theirs(compare):
    about = description(contenders=WITH_TILE)
    done = compare({"library": [2, 2, 2], "copy": [1, 1, 1]}, page=TILE_PAGE, about=about,
                   ours={**TIMES, "in_tiles": 0.5}, arguments=["--shapes", "16384x16384"])
    assert (done.status, done.err) == (VERIFIED, "")
    line = cells(done.out)
    assert line["our kernel"] == "fused_fast" and line["best of theirs"] == "library"
    assert line["tile"] == f"{LEAST_BYTES / 0.5e6:.0f} 200%" and line["ours / theirs"] == "2.00x"
    [row] = [row for row in measurements.read(compare.file).rows if row["contender"] == "tile"]
    assert (row["kernel"], row["role"], row["rounds"]) == ("in_tiles", "yardstick", "3")
    forward = ["ours fused_fast", "library", "copy", "ours in_tiles"]  # it takes turns
    assert done.calls == ["ours fused"] + forward + forward[::-1] + forward


def test_the_tile_kernel_may_be_another_programs(compare, tmp_path):
    page = TILE_PAGE.replace("7_gelu", "tiles")
    about = description(contenders=WITH_TILE)
    shape = ["--shapes", "16384x16384"]
    done = compare({"library": [1, 1, 1], "copy": [1, 1, 1]}, page=page, about=about,
                   arguments=shape)
    assert done.status == FAILED and cells(done.out)["tile"] == "failed"
    assert_one_line(done.err, NAME)
    assert "tiles" in done.err and "not built" in done.err

    shutil.copy(tmp_path / "7_gelu", tmp_path / "tiles")
    done = compare({"library": [1, 1, 1], "copy": [1, 1, 1]}, page=page + "\nOPTIONS = ('--fast',)",
                   about=about, ours={**TIMES, "in_tiles": 1}, arguments=shape + ["--fresh"])
    assert (done.status, done.err) == (VERIFIED, "")
    assert cells(done.out)["tile"].endswith("100%")
    assert [line for line in done.commands if line.endswith("in_tiles")] == 3 * [
        "--rows 16384 --cols 16384 --dtype fp32 --csv --kernel in_tiles"]  # options are 7_gelu's


def test_without_the_tile_compiler_the_cell_is_empty_and_the_reason_said_once(compare):
    refuse = "if [ $kernel = in_tiles ]; then echo '7_gelu: no tile compiler' >&2; exit 77; fi\n"
    done = compare({"library": [1] * 6, "copy": [1] * 6}, refuse + ROWS, page=TILE_PAGE,
                   about=description(shape="8x8", contenders=WITH_TILE))
    assert done.status == VERIFIED and "[2/2]" in done.out
    assert_one_line(done.err, NAME)
    assert "tile: " in done.err and "no tile compiler" in done.err
    assert "tile" not in cells(done.out)
    assert {contender for _, contender, _ in compare.measured()} == {"ours", "library", "copy"}


def test_a_tile_kernel_with_other_data_is_not_compared(compare):
    def array(name, seed):
        return {"name": name, "dtype": "fp32", "shape": [16384, 16384], "fill": {"seed": seed}}

    for others, status in (([array("a", 1), array("b", 2)], VERIFIED), ([array("x", 2)], FAILED)):
        about = description(inputs=[array("x", 1)])
        [problem] = about["problems"]
        about["contenders"] = WITH_TILE
        about["problems"].append({**problem, "contenders": ["in_tiles"], "inputs": others})
        done = compare({"library": [1, 1, 1], "copy": [1, 1, 1]}, page=TILE_PAGE, about=about,
                       ours={**TIMES, "in_tiles": 1},
                       arguments=["--shapes", "16384x16384", "--fresh"])
        assert done.status == status
        assert ("other data" in done.err) == ("ours in_tiles" not in done.calls) == bool(status)


# --- The CSV ----------------------------------------------------------------------------------


def test_the_csv_holds_every_contender_and_prints_the_same_table(compare, capsys):
    done = compare({"library": [1.05, 1.2, 1.1], "copy": [0.9, 0.9, 0.9]})
    lines = compare.file.read_text().splitlines()
    about = [line for line in lines if line.startswith("#")]
    for name in ("GPU: Fake, GPU", "driver: ", "toolkit: ", "pytorch: 2.x", "triton: 3.x",
                 "date: ", "suite: ", "protocol: 3"):
        assert any(line.startswith("# " + name) for line in about), name
    rows = {row["contender"]: row for row in csv.DictReader(lines[len(about):])}
    assert list(rows) == ["ours", "library", "copy"]
    assert [row["role"] for row in rows.values()] == ["ours", "yardstick", "yardstick"]
    assert rows["ours"]["kernel"] == "fused_fast" and rows["ours"]["against"] == "library"
    assert float(rows["ours"]["ratio"]) == pytest.approx(1.1)
    assert [float(rows["library"][c]) for c in ("median_ms", "low_ms", "high_ms", "rounds")] == [
        1.1, 1.05, 1.2, 3]
    # Flops and bytes are the program's. A copy computes nothing.
    assert float(rows["library"]["tflops"]) == pytest.approx(9 * 16384**2 / 1.1e9, rel=1e-4)
    assert rows["copy"]["tflops"] == "" and float(rows["copy"]["gb_per_s"]) > 0
    assert measurements.read(compare.file).gpu == "Fake, GPU"  # the other scripts read it too

    assert compare_frameworks.main(["--table", str(compare.file)]) == VERIFIED
    assert capsys.readouterr().out == done.out.split("\n\n")[-1]


def test_where_arithmetic_is_the_limit_the_unit_is_tflops(compare):
    about = description(shape="square", memory_bound=False)
    done = compare({"library": [2, 2, 2]}, about=about)
    line = cells(done.out)
    assert line["unit"] == "TFLOP/s" and line["shape"] == "N=16384" and "copy" not in line
    assert line["library"] == table.number(9 * 16384**2 / 2e9)
    assert {row["gb_per_s"] for row in measurements.read(compare.file).rows} == {None}


def at(shape, ms, compare, *arguments, **more):
    about = description(shape=shape, n=int(shape.split("x")[0]))
    return compare({"library": [ms] * 3, "copy": [1] * 3}, about=about,
                   arguments=["--shapes", shape, *arguments], **more)


def test_an_interrupted_run_goes_on_where_it_was(compare):
    assert at("8x8", 2, compare).status == VERIFIED
    assert at("16x16", 3, compare).calls  # a new case is measured, and the old one kept
    again = at("8x8", 4, compare)
    assert again.calls == [] and "measured before" in again.out
    assert cells(again.out)["ours / theirs"] == "2.00x"  # the table shows it all the same
    assert compare.measured() == [  # in the order of the sizes
        ("8x8", "ours", 1), ("8x8", "library", 2), ("8x8", "copy", 1),
        ("16x16", "ours", 1), ("16x16", "library", 3), ("16x16", "copy", 1)]


def test_a_case_is_measured_again_on_demand(compare):
    at("8x8", 2, compare)
    assert at("8x8", 3, compare, "--fresh").calls
    assert ("8x8", "library", 3) in compare.measured()
    about = description(shape="8x8", n=8)
    assert compare({"library": [5] * 5, "copy": [1] * 5}, about=about,
                   arguments=["--shapes", "8x8", "--rounds", "5"]).calls  # more rounds than it has
    assert ("8x8", "library", 5) in compare.measured()


def test_a_case_of_another_version_of_the_suite_is_kept_until_measured_again(compare):
    at("8x8", 2, compare)
    text = compare.file.read_text()
    suite = re.search("# suite: (.*)", text)[1]
    compare.file.write_text(text.replace(suite, "older"))
    at("16x16", 3, compare)
    assert {shape for shape, _, _ in compare.measured()} == {"8x8", "16x16"}
    assert "older, " + suite in compare_frameworks.markdown(compare.file)
    assert at("8x8", 4, compare).calls
    assert ("8x8", "library", 4) in compare.measured()
    assert "older" not in compare.file.read_text()


@pytest.mark.parametrize("line", ["pytorch: 2.x", "triton: 3.x"])
def test_a_case_of_other_software_is_kept_and_says_so(compare, line):
    """Figures are compared within a case, and a case is measured with one version of each."""
    at("8x8", 2, compare)
    text = compare.file.read_text()
    name, _, version = line.partition(": ")
    compare.file.write_text(text.replace(f"# {line}", f"# {line}1").replace(version, version + "1"))
    at("16x16", 3, compare)
    assert {shape for shape, _, _ in compare.measured()} == {"8x8", "16x16"}
    assert f"{version}1" in compare_frameworks.markdown(compare.file)
    assert at("8x8", 4, compare).calls  # it is not what measuring would give now
    assert f"{version}1" not in compare.file.read_text()


@pytest.mark.parametrize("line", ["GPU: Fake, GPU", "protocol: 3"])
def test_figures_that_are_not_comparable_are_dropped(compare, line):
    at("8x8", 2, compare)
    compare.file.write_text(compare.file.read_text().replace(f"# {line}", f"# {line}1"))
    at("16x16", 3, compare)
    assert {shape for shape, _, _ in compare.measured()} == {"16x16"}


def test_a_case_without_a_figure_of_ours_is_measured_again(compare):
    at("8x8", 2, compare, program="exit 3")
    assert at("8x8", 2, compare).calls


def test_a_csv_that_cannot_be_written_is_said_before_anything_runs(compare, tmp_path):
    (tmp_path / "new").write_text("a file, not a folder")
    done = compare({"library": [2, 2, 2], "copy": [1, 1, 1]})
    assert done.status == FAILED
    assert_one_line(done.err, NAME)
    assert done.calls == []


# --- What goes wrong --------------------------------------------------------------------------


def raise_wrong():
    raise FakeFrameworks.Wrong("7 elements\nare off")


def raise_error():
    raise MemoryError("no room")


def test_a_wrong_peer_is_shown_and_not_timed(compare):
    done = compare({"library": raise_wrong, "compile": [2, 2, 2], "copy": [1, 1, 1]})
    assert done.status == WRONG
    assert_one_line(done.err, NAME)
    assert "library: 7 elements are off" in done.err
    line = cells(done.out)
    assert line["library"] == "wrong" and line["best of theirs"] == "compile"
    assert "library" not in done.calls


def test_a_peer_that_fails_does_not_stop_the_others(compare):
    done = compare({"library": raise_error, "compile": [2, 2, 2], "copy": [1, 1, 1]})
    assert done.status == FAILED
    assert "MemoryError: no room" in done.err
    assert cells(done.out)["library"] == "failed"
    assert cells(done.out)["ours / theirs"] == "2.00x"


def test_a_peer_that_fails_in_a_later_round_has_no_figure(compare):
    done = compare({"library": [1.9], "compile": [2, 2, 2], "copy": [1, 1, 1]})
    assert done.status == FAILED
    assert cells(done.out)["library"] == "failed"
    assert cells(done.out)["best of theirs"] == "compile"


def test_after_an_error_that_ends_the_gpu_for_pytorch_the_rest_is_left(compare):
    about = description(shape="8x8", n=8)
    done = compare({"library": raise_error, "copy": [1] * 9}, about=about, alive=False,
                   arguments=["--shapes", "8x8,16x16"])
    assert done.status == FAILED and "start again" in done.err
    assert "[1/2]" in done.out and "[2/2]" not in done.out
    assert compare.file.exists()


def test_a_step_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(compare_frameworks, "theirs", FakeFrameworks({}))

    def stubborn():
        try:
            time.sleep(30)
        except Exception:  # as compilers do
            pass

    start = time.monotonic()
    with pytest.raises(compare_frameworks.Failure, match="not done after"):
        with compare_frameworks.step(0.1):
            stubborn()
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("program, status, shown, reason", [
    ("echo '7_gelu: too little memory' >&2; exit 3", FAILED, "missing", "too little memory"),
    (ROWS + "\necho '7_gelu: fused: wrong' >&2; exit 1", WRONG, "wrong", "fused: wrong"),
    ("echo '7_gelu: no code for this GPU' >&2; exit 77", VERIFIED, "missing", "no code"),
    ("exit 2", FAILED, "missing", "exit status 2"),
    ("kill -9 $$", FAILED, "missing", "exit status -9"),
    ("echo nonsense; echo nonsense", FAILED, "missing", "something else"),
    ("true", FAILED, "missing", "no fp32 kernel"),
], ids=["error", "wrong", "skipped", "usage", "killed", "nonsense", "nothing"])
def test_ours_missing_is_shown_with_the_reason(compare, program, status, shown, reason):
    done = compare({"library": [2, 2, 2], "copy": [1, 1, 1]}, program)
    assert done.status == status
    assert_one_line(done.err, NAME)
    assert reason in done.err
    line = cells(done.out)
    assert line["ours"] == shown and line["ours / theirs"] == "-"
    assert line["library"].endswith("50%")  # theirs are there all the same


def test_a_program_that_is_not_built_is_said_in_one_line(compare):
    done = compare({"library": [2, 2, 2], "copy": [1, 1, 1]}, program=None)
    assert done.status == FAILED
    assert_one_line(done.err, NAME)
    assert "7_gelu" in done.err and "not built" in done.err


# --- The data: bit for bit as our programs make it ---------------------------------------------


def bits_in_python(seed, i):
    """demo::random_bits, in Python's integers."""
    mask = (1 << 64) - 1
    z = ((seed + 1) * 0xD1342543DE82EF95 + (i + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


INDICES = [0, 1, 2, 3, 1000, 2**24 - 1, 2**24, 16384 * 16384 - 1, 2**33 + 7, 2**62]


@pytest.mark.parametrize("seed", [0, 1, 2, 7, 2**32 + 5, 2**63 - 1])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_random_bits_are_our_programs(library, seed):
    arrays = pytest.importorskip(library)
    index = (arrays.tensor if library == "torch" else arrays.array)(INDICES, dtype=arrays.int64)
    bits = splitmix64.random_bits(seed, index).tolist()
    assert [value % 2**64 for value in bits] == [bits_in_python(seed, i) for i in INDICES]
    steps = splitmix64.random_steps(seed, index).tolist()
    assert steps == [(bits_in_python(seed, i) >> 40) - 2**23 for i in INDICES]


def described(dtype, shape, then=None, scale=1.0, seed=3, hard=None, offset=0.0):
    return {"name": "x", "dtype": dtype, "shape": shape,
            "fill": {"kind": "uniform", "seed": seed, "low": offset - scale,
                     "high": offset + scale, "then": then, "hard": hard}}


def test_inputs_are_scaled_and_rounded_as_our_programs_do(monkeypatch):
    torch = pytest.importorskip("torch")
    numpy = pytest.importorskip("numpy")
    from frameworks import data

    monkeypatch.setattr(data, "CHUNK", 100)  # so that there are several
    uniform = numpy.array([(bits_in_python(3, i) >> 40) * 2.0**-23 - 1 for i in range(35 * 9)],
                          dtype=numpy.float32)
    scale = numpy.float32((3 / 128) ** 0.5)
    scaled = scale * uniform
    made = data.make_input(described("fp32", [35, 9], scale=float(scale)), "cpu")
    assert made.shape == (35, 9) and made.flatten().numpy().tobytes() == scaled.tobytes()
    made = data.make_input(described("fp16", [35, 9], scale=float(scale)), "cpu")
    assert made.flatten().numpy().tobytes() == scaled.astype(numpy.float16).tobytes()
    made = data.make_input(described("bf16", [35, 9]), "cpu")
    assert torch.equal(made.flatten(), torch.from_numpy(uniform).bfloat16())

    bits = uniform.view(numpy.uint32)
    made = data.make_input(described("tf32", [315], "rounded to TF32"), "cpu")
    rounded = (bits + numpy.uint32(0x1000)) & numpy.uint32(0xFFFFE000)
    assert made.numpy().tobytes() == rounded.tobytes()

    rows = uniform.reshape(35, 9).copy()
    rows[0::2] += numpy.float32(100)
    rows[1::2] -= numpy.float32(100)
    made = data.make_input(described("fp16", [35, 9], "offset by rows"), "cpu")
    assert made.numpy().tobytes() == rows.astype(numpy.float16).tobytes()
    kinds = [{"scale": 3, "offset": 0.7, "step": 0, "peak": 0},
             {"scale": 200, "offset": 0, "step": 200, "peak": 0},
             {"scale": 1, "offset": 0, "step": 0, "peak": 120}]
    hard = {"rows": [1, 3, 5], "every": 2, "kinds": kinds}
    made = data.make_input(described("fp16", [35, 9], "offset by rows", hard=hard), "cpu")
    u = uniform.reshape(35, 9).astype(numpy.float64)
    rows[1] = 3 * u[1] + 0.7
    rows[3] = 200 * numpy.rint(u[3])
    rows[5] = u[5]
    rows[5][bits_in_python(3, -6) % 9] = 120
    assert made.numpy().tobytes() == rows.astype(numpy.float16).tobytes()
    # Of more than two dimensions, and not around 0: attention's.
    shifted = (scale * uniform.astype(numpy.float64) + 0.75).astype(numpy.float32).reshape(35, 9)
    shifted[1::2][:3] = rows[1::2][:3]
    made = data.make_input(described("fp32", [5, 7, 9], scale=float(scale), offset=0.75, hard=hard),
                           "cpu")
    assert made.shape == (5, 7, 9) and made.numpy().tobytes() == shifted.tobytes()

    half = uniform[:96].astype(numpy.float16).reshape(3, 32)
    half[:, ::16] = 32 + (numpy.floor(16 * half[:, ::16].astype(numpy.float32)) + 0.5) / 16
    made = data.make_input(described("fp16", [3, 32], "counting from 32"), "cpu")
    assert made.numpy().tobytes() == half.tobytes()
    made, one = data.make_input(described("fp16", [2, 32, 32], "passing on"), "cpu"), torch.eye(32)
    assert (made[:, ::16] == one[::16]).all() and (made[:, :, ::16] == one[:, ::16]).all()

    with pytest.raises(ValueError):
        data.make_input({**described("fp16", [4]), "fill": {"kind": "zeros", "low": 0, "high": 0,
                                                            "then": None, "hard": None}}, "cpu")


def test_ids_are_our_programs():
    """As random_id() and zipf_id() of error_bounds.hpp make them."""
    torch = pytest.importorskip("torch")
    from frameworks import data

    bits = [bits_in_python(3, i) >> 32 for i in range(35 * 26)]
    made = data.make_input({"name": "ids", "dtype": "uint32", "shape": [35, 26],
                            "fill": {"kind": "ids", "seed": 3, "then": None}}, "cpu")
    assert made.dtype == torch.int64 and made.shape == (35, 26) and made.flatten().tolist() == bits
    made = data.make_input({"name": "ids", "dtype": "uint32", "shape": [35 * 26],
                            "fill": {"kind": "ids", "seed": 3, "then": "zipf"}}, "cpu").tolist()
    for u, k in zip(bits, made):  # 1 - u / 2^32 (1405349 / 2^21), to the power of -20
        exact = (1 - fractions.Fraction(u * 1405349, 2**53)) ** -20
        assert abs(k - (exact - 1)) <= 1 + exact * fractions.Fraction(1, 2**46)
    assert 0 in made and max(made) > 10**6


# --- Theirs, where PyTorch and Triton are ------------------------------------------------------


def problems():
    """(a program and its options, its data type) of all that is compared."""
    for program in [*compare_frameworks.compared_programs(), "10_attention --causal"]:
        about = declared(program.split()[0])
        for dtype in about["dtypes"] if about else ["not built"]:
            if dtype != "tf32":
                yield program, dtype


@pytest.mark.parametrize("program, dtype", list(problems()))
def test_the_reference_takes_their_results_and_no_wrong_ones(program, dtype):
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from frameworks import data, verification
    from frameworks.case import PeersOfCase

    program, *options = program.split()
    about = describe(program)
    options += compare_frameworks.dtype_arguments(about, dtype)
    problem = next(problem for problem in describe(program, "96", *options)["problems"]
                   if problem["dtype"] == dtype)
    case = PeersOfCase(load_page(program), {**problem, "memory_bound": False})
    case.inputs = data.make_inputs(problem, "cpu")
    assert case.is_rival("library")
    for name in ("eager", "library"):  # the others compile
        if name in case.peers:
            case.verify(name)
    output = case.peers["library"].run(*case.prepared["library"])
    for damage in (lambda x: x * 1.05, lambda x: x.roll(1, dims=-2), torch.zeros_like,
                   lambda x: x.index_fill(-2, torch.tensor([3]), float("nan")),
                   lambda x: x.double(), lambda x: x[1:]):
        with pytest.raises(verification.Wrong):
            verification.check(problem, case.inputs, damage(output), case.expected)


# --- results/README.md ------------------------------------------------------------------------


def test_the_tables_come_from_results_frameworks(compare, tmp_path):
    compare({"library": [1.05, 1.2, 1.1], "copy": [0.9, 0.9, 0.9]})
    project = tmp_path / "project"
    copy_folders(project, "scripts")
    (project / "results/frameworks").mkdir(parents=True)
    shutil.copy(tmp_path / "new/results.csv", project / "results/frameworks/fake.csv")
    shutil.copy(tmp_path / "new/results.csv", project / "results/fake.csv")
    readme = project / "results/README.md"
    readme.write_text("a\n<!-- results:begin -->\n<!-- results:end -->\nb\n")

    def update(*arguments):
        return script("update_docs.py", *arguments, root=project)

    done = update()
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "update_docs.py")

    readme.write_text(readme.read_text() + "<!-- grid:begin -->\n<!-- grid:end -->\n" +
                      "<!-- frameworks:begin -->\nold\n<!-- frameworks:end -->\nc\n")
    assert update("--check").returncode == 1
    assert update().returncode == VERIFIED
    part = readme.read_text().split("<!-- frameworks:begin -->")[1]
    assert "old" not in part and part.endswith("<!-- frameworks:end -->\nc\n")
    assert re.search(r"^\| 7_gelu \| 16384x16384 \| fp32 \| fused_fast \|.* 1\.10x \|", part, re.M)
    assert update("--check").returncode == VERIFIED
