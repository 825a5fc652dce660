"""plot.py: that all is drawn, by the right rows, and how it takes what goes wrong."""

import subprocess

import pytest

from fakes import (PLOTTED, STOPPED, measured, python_with_matplotlib, row, script, write_csv,
                   write_measured)
from suite import FAILED, ROOT, USAGE, assert_one_line

import plot
import table


@pytest.fixture(scope="module")
def python():
    return python_with_matplotlib()


@pytest.mark.parametrize("arguments", [[], ["--bogus", "x.csv"], ["--size", "many", "x.csv"]],
                         ids=lambda arguments: " ".join(arguments) or "none")
def test_bad_arguments_end_with_one_line(arguments):
    done = script("plot.py", *arguments)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "plot.py")


def test_a_broken_file_is_named_in_one_line(tmp_path):
    (tmp_path / "b.csv").write_text("hello\n")
    done = script("plot.py", "--out", tmp_path / "x", write_measured(tmp_path / "a.csv"),
                  tmp_path / "b.csv")
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "plot.py")
    assert "b.csv" in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("out", ["file", "file/folder"])
def test_what_cannot_be_written_is_named_in_one_line(python, tmp_path, out):
    (tmp_path / "file").touch()
    done = script("plot.py", "--out", tmp_path / out, write_csv(tmp_path / "a.csv", row()),
                  python=python)
    assert done.returncode == FAILED
    assert_one_line(done.stderr, "plot.py")


def test_plot_draws_every_plot_for_light_and_dark(python, tmp_path):
    file = write_measured(tmp_path / "a.csv", extra=[STOPPED])
    done = script("plot.py", "--out", tmp_path / "plots", file, python=python)
    assert done.returncode == 0, done.stderr
    names = ["roofline-a", "bars-compute", "bars-memory"] + [f"curves-{p}" for p in PLOTTED]
    expected = {f"{name}-{theme}.{form}" for name in names for theme in ("light", "dark")
                for form in ("png", "svg")}
    files = {path.name: path for path in (tmp_path / "plots").iterdir()}
    assert set(files) == expected
    for name, path in files.items():
        content = path.read_bytes()
        if name.endswith(".png"):
            assert content.startswith(b"\x89PNG") and int.from_bytes(content[16:20], "big") > 1000
        else:
            assert b"<svg" in content and b"http-equiv" not in content
    light, dark = (files[f"bars-compute-{theme}.svg"].read_bytes() for theme in ("light", "dark"))
    assert light != dark


def test_plot_gives_the_same_bytes_again(python, tmp_path):
    file = write_measured(tmp_path / "a.csv")
    for folder in ("one", "two"):
        code = ("import sys; sys.path.insert(0, sys.argv[1]); import plot, table; "
                "bars = plot.bars(table.read_all([sys.argv[2]]), 4096, 'tflops', plot.THEMES[0]); "
                "plot.save(bars, sys.argv[3], 'svg')")
        subprocess.run([python, "-c", code, str(ROOT / "scripts"), str(file),
                        str(tmp_path / folder)], check=True)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


# What follows draws nothing, so it needs no matplotlib.

def test_roofline_places_programs_by_their_own_count_of_bytes(tmp_path):
    results = table.read(write_measured(tmp_path / "a.csv"))
    placed = plot.placed(plot.at_size(results.rows, 4096))
    points = {name: (row, start) for name, row, start in placed}
    assert set(points) == {"1 matmul basic", "", "5 six kernels", "5 six kernels, talk",
                           "6 gating fused", "6 gating fused, talk", "7 gelu"}
    gelu, chain = points["7 gelu"]
    assert (gelu["kernel"], chain["kernel"]) == ("fused", "chain")
    assert plot.intensity(gelu) == pytest.approx(9 / 8)
    assert plot.intensity(chain) == pytest.approx(9 / 84)
    assert plot.intensity(points["1 matmul basic"][0]) == pytest.approx(4096 / 6)  # the least bytes
    fused, unfused = points["6 gating fused"]
    assert fused["kernel"] == "fused"
    assert unfused is points["5 six kernels"][0]  # one point for what both programs run
    assert points["1 matmul basic"][1] is None
    bandwidth, peaks = plot.roofs(plot.shown(results.rows))
    assert bandwidth == pytest.approx(4200) and peaks == {"fp32": 50, "fp16": 700}


def test_roofs_are_the_librarys_and_a_copys(tmp_path):
    gelu = dict(memory=True, least=4e9)
    rows = table.read(write_measured(tmp_path / "a.csv", extra=[
        measured("3_matmul_tensorcore", "gemm", "bf16", 4096, 1, 500e9, role="yardstick"),
        measured("3_matmul_tensorcore", "mine", "bf16", 4096, 1, 600e9),
        measured("7_gelu", "library", "fp64", 4096, 1, 9e9, role="library", **gelu),
        measured("7_gelu", "faster_copy", "fp16", 4096, 0.9, 0, role="yardstick", **gelu)])).rows
    bandwidth, peaks = plot.roofs(plot.shown(rows))
    assert bandwidth == pytest.approx(4e9 / 0.9 / 1e6)
    assert peaks == {"fp32": 50, "fp16": 700, "bf16": 500}


@pytest.mark.parametrize("roles, best", [
    (["ours", "chain", "library", "yardstick", "record"], ["ours", "record"]),
    (["chain", "library", "yardstick"], ["library"]), (["chain", "yardstick"], ["chain"]),
    (["yardstick"], ["yardstick"]),
])
def test_a_programs_own_kernels_are_told_by_their_roles(roles, best):
    assert [row["role"] for row in plot.own_kernels([{"role": role} for role in roles])] == best


def test_a_chain_is_never_a_programs_best_kernel(python, tmp_path):
    """Also where it is the fastest of all."""
    paths = [write_measured(tmp_path / f"{gpu}.csv", gpu, chain_rate=900) for gpu in "AB"]
    code = ("import sys; sys.path.insert(0, sys.argv[1]); import plot, table\n"
            "tables, theme = table.read_all(sys.argv[2:]), plot.THEMES[0]\n"
            "for figure in (plot.bars(tables, 4096, 'tflops', theme),\n"
            "               plot.curves(tables, '6_gating_fused', theme)):\n"
            "    for ax in figure.figure.axes:\n"
            "        print([text.get_text() for text in ax.texts],\n"
            "              [round(max(line.get_ydata())) for line in ax.lines])\n")
    done = subprocess.run([python, "-c", code, str(ROOT / "scripts"), *map(str, paths)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    bars, *panels = done.stdout.splitlines()
    assert bars.count("'fused'") == 2 and bars.count("'1.11x'") == 2  # 720 to the library's 650
    assert bars.count("'six_kernels'") == 2  # 5 has nothing else
    assert "[720, 720]" in panels[0] and "900" not in done.stdout


def test_curves_of_memory_bound_work_are_in_gb_per_s(python, tmp_path):
    code = ("import sys; sys.path.insert(0, sys.argv[1]); import plot, table\n"
            "for program in ('7_gelu', '6_gating_fused'):\n"
            "    figure = plot.curves(table.read_all(sys.argv[2:]), program, plot.THEMES[0])\n"
            "    print(figure.figure.texts[1].get_text())\n"
            "    for ax in figure.figure.axes:\n"
            "        print(ax.get_title(loc='left'), [round(line.get_ydata()[-1])\n"
            "                                         for line in ax.lines])\n")
    done = subprocess.run([python, "-c", code, str(ROOT / "scripts"),
                           str(write_measured(tmp_path / "a.csv"))], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    by_size = "by size; the band is the middle half of the samples"
    assert done.stdout.splitlines() == [
        f"GPU A, GB/s {by_size}", "fp32, GB/s [400, 4200, 4200]",
        f"GPU A, TFLOP/s and GB/s {by_size}", "fp16, TFLOP/s [720, 560, 650]",
        "fp16, GB/s [3984]"]


def test_the_usual_size_is_4096_or_what_most_programs_have(tmp_path):
    a = table.read(write_measured(tmp_path / "a.csv"))
    assert plot.usual_size([a]) == 4096
    small = a._replace(rows=[row for row in a.rows if row["n"] != 4096])
    assert plot.usual_size([small]) == 2048


@pytest.mark.parametrize("wanted, expected", [
    ([], []),
    ([5], [5]),
    ([10, 50, 90], [10, 50, 90]),
    ([50, 50], [45, 55]),
    ([50, 52, 54], [42, 52, 62]),
    ([0, 1], [0, 10]),
    ([99, 100], [90, 100]),
    ([20, 20, 31, 80], [13.666667, 23.666667, 33.666667, 80]),
])
def test_labels_are_spread_out_near_their_lines(wanted, expected):
    assert plot.spread_out(wanted, 10, 0, 100) == pytest.approx(expected)


@pytest.mark.parametrize("size", ["96", "0"])
def test_a_size_that_no_file_has_is_refused(tmp_path, size):
    done = script("plot.py", "--size", size, write_measured(tmp_path / "a.csv"))
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "plot.py")


def test_a_file_that_does_not_count_launches_and_bytes_is_drawn(tmp_path):
    rows = table.read(write_measured(tmp_path / "a.csv", extra=[
        measured("8_softmax", "chain", "fp32", 4096, 2, 9e9, launches="", role="chain"),
        measured("8_softmax", "fused", "fp32", 4096, 1, 9e9, moved=50),
        measured("9_bias_relu", "chain", "fp32", 4096, 2, 9e9, moved=100, launches=2,
                 role="chain"),  # fused in fp16 alone
        measured("9_bias_relu", "fused", "fp16", 4096, 1, 9e9)])).rows
    points = {name: (row["kernel"], start) for name, row, start in plot.placed(rows)}
    assert points["8 softmax"] == points["9 bias relu"] == ("fused", None)
    saved = [line[:2] for line in table.fusion(rows)[1]]
    assert saved == [["6_gating_fused", "six_kernels -> fused"],
                     ["6_gating_fused", "library_best -> fused"], ["7_gelu", "chain -> fused"]]
