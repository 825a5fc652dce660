"""The plots and the report: that all is there, that nothing is fetched, and how they take what goes
wrong. The page is opened in a real browser."""

import os
import re
import subprocess
import sys

import pytest

import browser
from suite import COLUMNS, FAILED, ROOT, USAGE, assert_one_line

PYTHONS = ["python3", str(ROOT / ".venv/bin/python")]
WITH_MATPLOTLIB = [python for python in PYTHONS if os.path.exists(python) or "/" not in python]
PROGRAMS = ["1_matmul_basic", "4_matmul_cublas", "5_gating_unfused", "6_gating_fused", "7_gelu"]


@pytest.fixture(scope="module")
def python():
    """A Python that has matplotlib, as the scripts look for it."""
    for name in WITH_MATPLOTLIB:
        if subprocess.run([name, "-c", "import matplotlib"], capture_output=True).returncode == 0:
            return name
    pytest.skip("matplotlib is not installed: scripts/test.sh installs it")


def row(program, kernel, dtype, n, ms, flops, moved="", least=100, launches=1, shape="square",
        memory=False, verified="yes", note="", role="ours"):
    values = {
        "program": program, "kernel": kernel, "gpu": "GPU A", "sm": "90", "dtype": dtype,
        "shape": shape, "n": n, "median_ms": ms, "spread_pct": 1.5,
        "tflops": flops / ms / 1e9 if flops else "",
        "gb_per_s": least / ms / 1e6 if memory else "", "verified": verified,
        "error_of_bound": 0.1, "launches": launches, "temp_bytes": 0, "moved_bytes": moved,
        "least_bytes": least, "role": role}
    return ",".join(str(values[name]) for name in COLUMNS) + ",1980,50,600,," + note


def write(path, gpu="GPU A", speed=1.0, extra=(), protocol=1, chain_rate=560):
    """A file with a program of each kind, at two sizes. chain_rate: the TFLOP/s of 6's chain."""
    rows = []
    for n in (2048, 4096):
        square, s = n * n, n // 4
        product, talk = 2 * n**3, 4 * 4 * s * s * 128 * 64
        rows += [
            row("1_matmul_basic", "matmul_basic", "fp32", n, product / 3e9 / speed, product,
                least=12 * square),
            row("4_matmul_cublas", "cublas_fp32", "fp32", n, product / 50e9 / speed, product,
                least=12 * square, role="library"),
            row("4_matmul_cublas", "cublas_fp16", "fp16", n, product / 700e9 / speed, product,
                least=6 * square, role="library")]
        for program, kernel, role, rate, launches, trips in [
                ("5_gating_unfused", "six_kernels", "chain", 550, 6, 15),
                ("6_gating_fused", "fused", "ours", 720, 1, 4),
                ("6_gating_fused", "six_kernels", "chain", chain_rate, 6, 15),
                ("6_gating_fused", "library_best", "library", 650, 2, 8)]:
            rows.append(row(program, kernel, "fp16", n, 2 * product / rate / 1e9 / speed,
                            2 * product, moved=2 * trips * square, least=8 * square,
                            launches=launches, role=role))
        for program, kernel, role, rate, launches, trips in [
                ("5_gating_unfused", "six_kernels", "chain", 70, 6, 5),
                ("6_gating_fused", "fused", "ours", 340, 1, 1)]:
            least = 8 * s * s * 192
            rows.append(row(program, kernel, "fp16", s, talk / rate / 1e9 / speed, talk,
                            moved=trips * least, least=least, launches=launches, shape="talk",
                            memory=True, role=role))
        for kernel, role, trips, launches in (("chain", "chain", 21, 9), ("fused", "ours", 2, 1),
                                              ("copy", "yardstick", 2, 1)):
            rows.append(row("7_gelu", kernel, "fp32", n, trips * 4 * square / 4.2e9 / speed,
                            9 * square if role != "yardstick" else 0, moved=trips * 4 * square,
                            least=8 * square, launches=launches, memory=True, role=role))
    columns = COLUMNS + "sm_mhz temperature_c power_w throttled note".split()
    about = [f"# GPU: {gpu}", f"# protocol: {protocol}", "# driver: 580.1", "# SM clock: 1755 MHz"]
    path.write_text("\n".join(about + [",".join(columns), *rows, *extra]) + "\n")
    return path


STOPPED = "8_softmax,,,,fp32,square,4096,,,,,failed,,,,,,,,,,,out of <memory>"


def script(python, name, *arguments):
    command = ["bash"] if name.endswith(".sh") else [python]
    return subprocess.run(command + [str(ROOT / "scripts" / name), *map(str, arguments)],
                          capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


# --- Plots ------------------------------------------------------------------------------------


def test_plot_draws_every_plot_for_light_and_dark(python, tmp_path):
    file = write(tmp_path / "a.csv", extra=[STOPPED])
    done = script(python, "plot.py", "--out", tmp_path / "plots", file)
    assert done.returncode == 0, done.stderr
    names = ["roofline-a", "bars-compute", "bars-memory"] + [f"curves-{p}" for p in PROGRAMS]
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
    file = write(tmp_path / "a.csv")
    for folder in ("one", "two"):
        code = ("import sys; sys.path.insert(0, sys.argv[1]); import plot, table; "
                "bars = plot.bars(table.read_all([sys.argv[2]]), 4096, 'tflops', plot.THEMES[0]); "
                "plot.save(bars, sys.argv[3], 'svg')")
        subprocess.run([python, "-c", code, str(ROOT / "scripts"), str(file),
                        str(tmp_path / folder)], check=True)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


# What follows draws nothing, so it needs no matplotlib.
sys.path.insert(0, str(ROOT / "scripts"))
import plot  # noqa: E402
import table  # noqa: E402


def test_roofline_places_programs_by_their_own_count_of_bytes(tmp_path):
    results = table.read(write(tmp_path / "a.csv"))
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
    rows = table.read(write(tmp_path / "a.csv", extra=[
        row("3_matmul_tensorcore", "gemm", "bf16", 4096, 1, 500e9, role="yardstick"),
        row("3_matmul_tensorcore", "mine", "bf16", 4096, 1, 600e9),
        row("7_gelu", "library", "fp64", 4096, 1, 9e9, role="library", **gelu),
        row("7_gelu", "faster_copy", "fp16", 4096, 0.9, 0, role="yardstick", **gelu)])).rows
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
    paths = [write(tmp_path / f"{gpu}.csv", gpu, chain_rate=900) for gpu in "AB"]
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
                           str(write(tmp_path / "a.csv"))], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    by_size = "by size; the band is the middle half of the samples"
    assert done.stdout.splitlines() == [
        f"GPU A, GB/s {by_size}", "fp32, GB/s [400, 4200, 4200]",
        f"GPU A, TFLOP/s and GB/s {by_size}", "fp16, TFLOP/s [720, 560, 650]",
        "fp16, GB/s [3984]"]


def test_the_usual_size_is_4096_or_what_most_programs_have(tmp_path):
    a = table.read(write(tmp_path / "a.csv"))
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


@pytest.mark.parametrize("name", ["plot.py", "report.sh"])
@pytest.mark.parametrize("content", ["", "hello\n", ",".join(COLUMNS) + "\n",
                                     "# rows: 9\n" + ",".join(COLUMNS) + "\n" + STOPPED[:70]])
def test_a_broken_file_is_named_in_one_line(tmp_path, name, content):
    (tmp_path / "b.csv").write_text(content)
    done = script(sys.executable, name, "--out", tmp_path / "x", write(tmp_path / "a.csv"),
                  tmp_path / "b.csv")
    assert done.returncode == USAGE
    assert_one_line(done.stderr, name)
    assert "b.csv" in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("size", ["96", "0"])
def test_a_size_that_no_file_has_is_refused(tmp_path, size):
    done = script(sys.executable, "plot.py", "--size", size, write(tmp_path / "a.csv"))
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "plot.py")


@pytest.mark.parametrize("name, out", [("plot.py", "file"), ("plot.py", "file/folder"),
                                       ("report.sh", ""), ("report.sh", "file/report.html")])
def test_what_cannot_be_written_is_named_in_one_line(python, tmp_path, name, out):
    (tmp_path / "file").touch()
    done = script(python, name, "--out", tmp_path / out, write(tmp_path / "a.csv"))
    assert done.returncode == FAILED
    assert_one_line(done.stderr, name)


def test_a_file_that_does_not_count_launches_and_bytes_is_drawn(tmp_path):
    rows = table.read(write(tmp_path / "a.csv", extra=[
        row("8_softmax", "chain", "fp32", 4096, 2, 9e9, launches="", role="chain"),
        row("8_softmax", "fused", "fp32", 4096, 1, 9e9, moved=50),
        row("9_bias_relu", "chain", "fp32", 4096, 2, 9e9, moved=100, launches=2,
            role="chain"),  # fused in fp16 alone
        row("9_bias_relu", "fused", "fp16", 4096, 1, 9e9)])).rows
    points = {name: (row["kernel"], start) for name, row, start in plot.placed(rows)}
    assert points["8 softmax"] == points["9 bias relu"] == ("fused", None)
    saved = [line[:2] for line in table.fusion(rows)[1]]
    assert saved == [["6_gating_fused", "six_kernels -> fused"],
                     ["6_gating_fused", "library_best -> fused"], ["7_gelu", "chain -> fused"]]


# --- The report -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report(python, tmp_path_factory):
    """(the report of two GPUs, what its making said)"""
    folder = tmp_path_factory.mktemp("report")
    a = write(folder / "a.csv", "NVIDIA <H200>", extra=[STOPPED])
    b = write(folder / "b.csv", "NVIDIA A100-SXM4-80GB", 0.4, protocol=2)
    done = script(python, "report.sh", "--out", folder / "report.html", a, b)
    assert done.returncode == 0, done.stderr
    return folder / "report.html"


def test_report_holds_all_it_shows(report):
    text = report.read_text(encoding="utf-8")
    links = re.findall(r'(?:src|srcset|href)="([^"]{0,40})', text)
    assert links and all(link.startswith(("data:image/svg+xml;base64,", "#")) for link in links)
    assert not re.search(r"https?://|<script|@import|url\(", re.sub(r"base64,[^\"]*", "", text))
    assert "&lt;H200&gt;" in text and "<H200>" not in text
    assert "out of &lt;memory&gt;" in text and "1755 MHz" in text
    assert "measured by different protocols, so not comparable: 1, 2" in text


@pytest.mark.skipif(not browser.CHROMIUM, reason="Chromium is not installed")
def test_report_in_a_browser(report, tmp_path):
    plots = 2 + 2 + len(PROGRAMS)
    with browser.page(tmp_path / "profile") as page:
        for width, dark in [(1280, False), (1280, True), (390, False), (390, True)]:
            page.open(report, width, dark)
            fetched = [url for url in page.requested() if not url.startswith("data:")]
            assert fetched == [report.as_uri()]
            assert page.evaluate("innerWidth") == width
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate("document.images.length") == plots
            assert page.evaluate("""[...document.images].every(image =>
                image.complete && image.naturalWidth > 300
                && image.clientWidth > innerWidth / 2)""")
            assert page.evaluate("""[...document.querySelectorAll('td')].every(cell => {
                const box = cell.getBoundingClientRect();
                return box.height > 0 && (innerWidth > 600 || box.right <= innerWidth); })""")
            captions = page.evaluate(
                "[...document.querySelectorAll('caption')].map(caption => caption.innerText)")
            assert captions[0] == "Rates" and len(captions) == 1 + 2 * 4 + 1
            words = page.evaluate("document.body.innerText")
            assert "NVIDIA <H200>" in words and "0.400x" in words and "missing" in words
            shown = page.evaluate("document.images[0].currentSrc")
            sources = page.evaluate("[document.images[0].src,"
                                    " document.querySelector('source').srcset]")
            assert shown == sources[dark]
        assert page.pdf().startswith(b"%PDF")
