"""plot.py: that all is drawn, by the right rows, and how it takes what goes wrong."""

import re
import subprocess

import pytest

import fakes
import plot
from fakes import measured, python_with_matplotlib, row, script, write_csv, write_measured
from shared import measurements, one_gpu
from suite import FAILED, ROOT, USAGE, assert_one_line

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def python():
    return python_with_matplotlib()


@pytest.mark.parametrize("arguments", [[], ["--bogus", "x.csv"], ["--size", "many", "x.csv"],
                                       ["--documents", "x.csv"]],
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
    """And removes older plots, but nothing else."""
    file, out = write_measured(tmp_path / "a.csv", extra=[fakes.STOPPED]), tmp_path / "plots"
    out.mkdir()
    for name in ("curves-old-fp16-dark.png", "mine.svg"):
        (out / name).touch()
    done = script("plot.py", "--out", out, file, python=python)
    assert done.returncode == 0, done.stderr
    expected = {f"{name}-{theme}.{form}"
                for name in ["roofline-a", *fakes.PLOTS]
                for theme in ("light", "dark") for form in ("png", "svg")}
    files = {path.name: path for path in out.iterdir()}
    assert set(files) == expected | {"mine.svg"}
    for name in expected:
        content = files[name].read_bytes()
        if name.endswith(".png"):
            size = [int.from_bytes(content[i:i + 4], "big") for i in (16, 20)]
            assert content.startswith(b"\x89PNG") and size == [1920, 1080]
        else:
            assert b"<svg" in content and b"http-equiv" not in content
    light, dark = (files[f"roofline-a-{theme}.svg"].read_bytes() for theme in ("light", "dark"))
    assert light != dark


def draw(python, code, *files):
    """What Python code prints, which finds the files' plots as `plots`, by name."""
    code = ("import sys; import plot; from shared import measurements\n"
            "tables = measurements.read_all('plot.py', sys.argv[1:])\n"
            "plots = {p.name: p for p in plot.plots(tables, plot.choose_size(tables, None))}\n"
            + code)
    done = subprocess.run([python, "-c", code, *map(str, files)], cwd=ROOT / "scripts",
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_sweep(path):
    """As compare_frameworks.py writes it: a program at six shapes, of which two are as large as
    each other, and another one at two."""
    lines = []
    for program, shapes in (("10_more", [(4**i, 2 * 2**i) for i in (1, 3, 5, 7, 9)]
                             + [(16384, 16384)]), ("8_softmax", [(64, 64), (96, 96)])):
        for rows, columns in shapes:
            for contender, launch in (("ours", 2), ("eager", 8), ("compile", 3), ("script", 3),
                                      ("triton", 2), ("tile", 2), ("library", 5), ("copy", 2)):
                ms = launch / 1000 + rows * columns * 12 / 4e9
                lines.append(measured(program, contender, "fp32", rows, ms,
                                      0 if contender == "copy" else 4 * rows * columns,
                                      shape=f"{rows}x{columns}", memory=True,
                                      role="ours" if contender == "ours" else "yardstick")
                             + f",{contender}")
    text = write_measured(path).read_text().replace("power_w,throttled,note", "power_w,throttled,"
                                                    "note,contender")
    body = [line + "," * (line[0].isdigit() and "_" in line) for line in text.splitlines()]
    path.write_text("\n".join(body + lines) + "\n")
    return path


def test_times_over_many_shapes_have_a_plot(python, tmp_path):
    code = ("[name] = [name for name in plots if name.startswith('times')]\n"
            "[ax] = plots[name].draw(plot.LIGHT).figure.axes\n"
            "print(name, ax.get_xscale(), ax.get_yscale(), len(ax.lines),\n"
            "      [len(line.get_xdata()) for line in ax.lines if line.is_dashed()],\n"
            "      len({line.get_color() for line in ax.lines}),\n"
            "      [text.get_text() for text in ax.get_xticklabels()][-1].split(),\n"
            "      sorted(text.get_text().strip() for text in ax.texts))")
    said = draw(python, code, write_sweep(tmp_path / "a.csv")).split(maxsplit=6)
    assert said[:6] == ["times-10_more-fp32", "log", "log", "8", "[5]", "8"]
    assert said[6].strip() == ("['262144', 'x', '1024'] ['PyTorch eager', 'copy', 'library', "
                               "'ours', 'tile', 'torch.compile', 'torch.jit.script', 'triton']")


# --- The documents' pictures --------------------------------------------------------------------


def test_the_documents_pictures_are_what_the_results_say(python, tmp_path):
    """By their texts: another matplotlib draws the same a little differently."""
    done = script("plot.py", "--documents", "--out", tmp_path, python=python)
    assert done.returncode == 0, done.stderr
    drawn, kept = ({path.name: re.findall("<text.*?>(.*?)</text>", path.read_text())
                    for path in folder.iterdir() if not path.name.startswith("watch-")}
                   for folder in (tmp_path, ROOT / "docs/pictures"))
    assert drawn == kept


def test_results_without_a_program_are_named_in_one_line(tmp_path):
    fakes.copy_folders(tmp_path, "scripts", "src/demo")
    (tmp_path / "results").mkdir()
    lines = (ROOT / "results/nvidia-h200.csv").read_text().splitlines()
    (tmp_path / "results/nvidia-h200.csv").write_text("\n".join(
        line for line in lines if not re.match("2_|# rows", line)))
    done = script("plot.py", "--documents", root=tmp_path)
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "plot.py")
    assert "program 2" in done.stderr


def test_bars_and_lines_are_as_long_as_their_figures_say(python):
    code = ("from shared import grid, several_gpus\n"
            "panels = plot.ladder()\n"
            "axes = plot.draw_ladder('Steps', panels, plot.LIGHT).figure.axes\n"
            "for parts, ax in zip(panels, axes):\n"
            "    rates = [rate for _, rows in parts\n"
            "             for rate in [0, *(row['tflops'] for row in rows)]]\n"
            "    assert len(rates) > 6 and [bar.get_width() for bar in ax.patches] == rates\n"
            "for file in grid.FOLDER.glob('*.csv'):\n"
            "    [ax] = plot.draw_grid(file, plot.LIGHT).figure.axes\n"
            "    for series, line in zip(grid.of_products(measurements.read(file)), ax.lines):\n"
            "        ratios = [pair.ratio for pair in series.pairs.values()]\n"
            "        assert len(ratios) > 20 and list(line.get_ydata()) == ratios\n"
            "for results, layers in several_gpus.measured():\n"
            "    [ax] = plot.draw_gpus(results, layers, plot.LIGHT).figure.axes\n"
            "    assert [bar.get_height() for bar in ax.patches] == [\n"
            "        layer.speed_up(kernel) for layer in layers for kernel in layer.ms\n"
            "        if kernel != several_gpus.FIRST]\n"
            "title, charts = plot.waves(measurements.of_program('bonus_waves', plot.SHOWN.stem))\n"
            "for ax in plot.draw_charts(title, '', charts, plot.LIGHT).figure.axes:\n"
            "    print([line.get_label() for line in ax.lines if line.is_dashed()])")
    assert draw(python, code, ROOT / "results/nvidia-h200.csv") == (
        "['predicted']\n" * 2)


# What follows draws nothing, so it needs no matplotlib.

def test_roofline_places_programs_by_their_own_count_of_bytes(tmp_path):
    results = measurements.read(write_measured(tmp_path / "a.csv"))
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
    bandwidth, peaks = plot.roofs(measurements.shown(results.rows))
    assert bandwidth == pytest.approx(4200) and peaks == {"fp32": 50, "fp16": 700}


def test_roofs_are_the_librarys_and_a_copys(tmp_path):
    gelu = dict(memory=True, least=4e9)
    rows = measurements.read(write_measured(tmp_path / "a.csv", extra=[
        measured("3_matmul_tensorcore", "gemm", "bf16", 4096, 1, 500e9, role="yardstick"),
        measured("3_matmul_tensorcore", "mine", "bf16", 4096, 1, 600e9),
        measured("7_gelu", "library", "fp64", 4096, 1, 9e9, role="library", **gelu),
        measured("7_gelu", "faster_copy", "fp16", 4096, 0.9, 0, role="yardstick", **gelu)])).rows
    bandwidth, peaks = plot.roofs(measurements.shown(rows))
    assert bandwidth == pytest.approx(4e9 / 0.9 / 1e6)
    assert peaks == {"fp32": 50, "fp16": 700, "bf16": 500}


@pytest.mark.parametrize("roles, best", [
    (["ours", "chain", "library", "yardstick", "record"], ["ours", "record"]),
    (["chain", "library", "yardstick"], ["library"]), (["chain", "yardstick"], ["chain"]),
    (["yardstick"], ["yardstick"]),
])
def test_a_programs_own_kernels_are_told_by_their_roles(roles, best):
    own = measurements.own_kernels([{"role": role} for role in roles])
    assert [row["role"] for row in own] == best


def test_a_chain_is_never_a_programs_best_kernel(python, tmp_path):
    """Also where it is the fastest of all."""
    paths = [write_measured(tmp_path / f"{gpu}.csv", gpu, chain_rate=900) for gpu in "AB"]
    code = ("[ax] = plots['curves-6_gating_fused-fp16'].draw(plot.LIGHT).figure.axes\n"
            "print([round(max(line.get_ydata())) for line in ax.lines])\n")
    assert draw(python, code, *paths) == "[720, 720]\n"


def test_curves_of_memory_bound_work_are_in_gb_per_s(python, tmp_path):
    """What a kernel is compared with is dashed."""
    code = ("for name in ('7_gelu-fp32', '6_gating_fused-fp16', '6_gating_fused-fp16-talk'):\n"
            "    figure = plots['curves-' + name].draw(plot.LIGHT).figure\n"
            "    [ax] = figure.axes\n"
            "    print(figure.texts[0].get_text(), '|', ax.get_ylabel(),\n"
            "          [(round(line.get_ydata()[-1]), line.is_dashed()) for line in ax.lines])\n")
    assert draw(python, code, write_measured(tmp_path / "a.csv")).splitlines() == [
        "7 gelu: fp32, GB/s | GB/s [(400, False), (4200, False), (4200, True)]",
        "6 gating fused: fp16, TFLOP/s | TFLOP/s [(720, False), (560, False), (650, True)]",
        "6 gating fused, talk: fp16, GB/s | GB/s [(3984, False)]"]


def test_figures_of_a_programs_own_have_a_plot_for_each_unit(python, tmp_path):
    """And no data sheet's peak, where they are no rate."""
    rows = [row("bonus_memory", kernel, gpu="NVIDIA H200", dtype="uint32", n=str(n), tflops="0.000",
                gb_per_s=rate, figure=figure, unit=unit)
            for n in (16, 64, 4096)
            for kernel, rate, figure, unit in (("chase", "0.2", str(n / 10), "cycles"),
                                               ("read", "4000", "4000", "GB/s"))]
    code = ("for name in ('uint32-cycles', 'uint32'):\n"
            "    [ax] = plots['curves-bonus_memory-' + name].draw(plot.LIGHT).figure.axes\n"
            "    last = [round(float(line.get_ydata()[-1])) for line in ax.lines]\n"
            "    print(ax.get_ylabel(), last)\n")
    assert draw(python, code, write_csv(tmp_path / "a.csv", *rows)).splitlines() == [
        "cycles [410]", "GB/s [4000, 4800]"]


def test_the_data_sheets_peak_is_a_dotted_line_where_it_is_near(python, tmp_path):
    """Of the H200: 67 TFLOP/s in fp32 are far from 3, 989 in fp16 are not from 720."""
    paths = [write_measured(tmp_path / "a.csv", "NVIDIA H200"),
             write_measured(tmp_path / "b.csv", "NVIDIA A100-SXM4-80GB", 0.4)]
    code = ("for name in ('1_matmul_basic-fp32', '6_gating_fused-fp16', '7_gelu-fp32'):\n"
            "    figure = plots['curves-' + name].draw(plot.LIGHT).figure\n"
            "    [ax] = figure.axes\n"
            "    print([round(line.get_ydata()[0], 1) for line in ax.lines\n"
            "           if len(set(line.get_ydata())) == 1 and line.is_dashed()],\n"
            "          'far above' in figure.texts[1].get_text(), ax.get_ylim()[1] > 900)")
    assert draw(python, code, *paths).splitlines() == [
        "[] True False", "[989.4, 312.0] False True", "[4800.0, 2039.0] False True"]


def test_the_usual_size_is_4096_or_what_most_programs_have(tmp_path):
    a = measurements.read(write_measured(tmp_path / "a.csv"))
    assert plot.usual_size([a]) == 4096
    small = a._replace(rows=[row for row in a.rows if row["n"] != 4096])
    assert plot.usual_size([small]) == 2048


def test_every_file_of_results_can_be_drawn():
    """Also older ones, which have columns that nobody writes any more."""
    for file in (ROOT / "results").glob("**/nvidia*.csv"):
        tables = [measurements.read(file)]
        assert plot.plots(tables, plot.choose_size(tables, None)), file


@pytest.mark.parametrize("size", ["96", "0", "8192"])
def test_a_size_that_no_file_has_is_refused(tmp_path, size):
    """Also where it has the talk's shape of that size."""
    done = script("plot.py", "--size", size, write_measured(tmp_path / "a.csv"))
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "plot.py")


def test_a_file_that_does_not_count_launches_and_bytes_is_drawn(tmp_path):
    rows = measurements.read(write_measured(tmp_path / "a.csv", extra=[
        measured("8_softmax", "chain", "fp32", 4096, 2, 9e9, launches="", role="chain"),
        measured("8_softmax", "fused", "fp32", 4096, 1, 9e9, moved=50),
        measured("9_bias_relu", "chain", "fp32", 4096, 2, 9e9, moved=100, launches=2,
                 role="chain"),  # fused in fp16 alone
        measured("9_bias_relu", "fused", "fp16", 4096, 1, 9e9)])).rows
    points = {name: (row["kernel"], start) for name, row, start in plot.placed(rows)}
    assert points["8 softmax"] == points["9 bias relu"] == ("fused", None)
    saved = [line[:2] for line in one_gpu.fusion(rows)[1]]
    assert saved == [["6_gating_fused", "six_kernels -> fused"],
                     ["6_gating_fused", "library_best -> fused"], ["7_gelu", "chain -> fused"]]
