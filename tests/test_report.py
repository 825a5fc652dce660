"""report.sh: that all is there, that nothing is fetched, and how it takes what goes wrong. The page
is opened in a real browser."""

import re
import subprocess

import pytest

import browser
from fakes import (PLOTS, STOPPED, python_with_matplotlib, row, script, write_csv,
                   write_measured)
from suite import FAILED, ROOT, USAGE, assert_one_line


@pytest.fixture(scope="module")
def python():
    return python_with_matplotlib()


@pytest.mark.parametrize("arguments", [[], ["--bogus", "x.csv"], ["--out"]],
                         ids=lambda arguments: " ".join(arguments) or "none")
def test_bad_arguments_end_with_one_line(arguments):
    done = script("report.sh", *arguments)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "report.sh")


def test_a_broken_file_is_named_in_one_line(tmp_path):
    (tmp_path / "b.csv").write_text("hello\n")
    done = script("report.sh", "--out", tmp_path / "x", write_measured(tmp_path / "a.csv"),
                  tmp_path / "b.csv")
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "report.sh")
    assert "b.csv" in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("out", ["", "file/report.html"])
def test_what_cannot_be_written_is_named_in_one_line(python, tmp_path, out):
    (tmp_path / "file").touch()
    done = script("report.sh", "--out", tmp_path / out, write_csv(tmp_path / "a.csv", row()))
    assert done.returncode == FAILED
    assert_one_line(done.stderr, "report.sh")


@pytest.fixture(scope="module")
def report(python, tmp_path_factory):
    """The report of two GPUs."""
    folder = tmp_path_factory.mktemp("report")
    a = write_measured(folder / "a.csv", "NVIDIA <H200>", extra=[STOPPED])
    b = write_measured(folder / "b.csv", "NVIDIA A100-SXM4-80GB", 0.4, protocol=2)
    done = script("report.sh", "--out", folder / "report.html", a, b)
    assert done.returncode == 0, done.stderr
    return folder / "report.html"


@pytest.mark.skipif(not browser.CHROMIUM, reason="Chromium is not installed")
def test_no_column_of_three_gpus_is_out_of_sight(python, tmp_path):
    """Of all that the H200 has, beside two GPUs with longer names; at N = 8192, to the second."""
    results = ROOT / "results/nvidia-h200.csv"
    files = [results, tmp_path / "b.csv", tmp_path / "c.csv"]
    for file, gpu in zip(files[1:], ("NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4070 Ti SUPER")):
        file.write_text(results.read_text().replace("NVIDIA H200", gpu))
    code = ("import sys; sys.path.insert(0, sys.argv[1]); import html_report, plot, table\n"
            "plot.plots = lambda tables, n: []\n"  # which take seconds
            "print(html_report.document(table.read_all("report.sh", sys.argv[2:]), 8192, 1))")
    done = subprocess.run([python, "-c", code, str(ROOT / "scripts/report"), *map(str, files)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (tmp_path / "report.html").write_text(done.stdout)
    with browser.page(tmp_path / "profile") as page:
        for width in (1280, 390):
            page.open(tmp_path / "report.html", width)
            right = page.evaluate("""Math.max(...[...document.querySelectorAll('td, th')].map(
                cell => cell.getBoundingClientRect().right))""")
            assert 300 < right <= width
            assert "ratio to A100-SXM4-80GB" in page.evaluate("document.body.textContent")


def test_report_holds_all_it_shows(report):
    text = report.read_text(encoding="utf-8")
    links = re.findall(r'(?:src|srcset|href)="([^"]{0,40})', text)
    assert links and all(link.startswith(("data:image/svg+xml;base64,", "#")) for link in links)
    assert not re.search(r"https?://|<script|@import|url\(", re.sub(r"base64,[^\"]*", "", text))
    assert "NVIDIA &lt;H200&gt;" in text and "<H200>" not in text
    assert "out of &lt;memory&gt;" in text and "1755 MHz" in text
    assert "measured by different protocols, so not comparable: 1, 2" in text


@pytest.mark.skipif(not browser.CHROMIUM, reason="Chromium is not installed")
def test_report_in_a_browser(report, tmp_path):
    plots = 4 + len(PLOTS)
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
                return box.height > 0 && box.right <= innerWidth; })""")
            captions = page.evaluate(
                "[...document.querySelectorAll('caption')].map(caption => caption.innerText)")
            assert captions[:3] == ["In short, at N = 4096", "The best kernel of each program",
                                    "All kernels"] and len(captions) == 3 + 2 * 4 + 1
            tops = page.evaluate("""['table tr:last-child td', 'img', '#best', '#kernels'].map(
                what => document.querySelector(what).getBoundingClientRect().top)""")
            assert tops == sorted(tops) and tops[0] < 800  # the answer is on the first screen
            words = page.evaluate("document.body.innerText")
            assert "NVIDIA <H200>" in words and "0.400x" in words and "missing" in words
            shown = page.evaluate("document.images[0].currentSrc")
            sources = page.evaluate("[document.images[0].src,"
                                    " document.querySelector('source').srcset]")
            assert shown == sources[dark]
        assert page.pdf().startswith(b"%PDF")
