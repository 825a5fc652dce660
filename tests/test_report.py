"""report.sh: that all is there, that nothing is fetched, and how it takes what goes wrong."""

import re

import pytest

import browser
from fakes import PLOTS, STOPPED, python_with_matplotlib, row, script, write_csv, write_measured
from suite import FAILED, USAGE, assert_one_line


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


def test_report_holds_all_it_shows(report):
    text = report.read_text(encoding="utf-8")
    assert not re.search(r"https?://|src|@import|url\((?!#)|href=\"(?!#)", text)
    assert "&lt;H200&gt;" in text and "<H200>" not in text
    assert "out of &lt;memory&gt;" in text and "1755 MHz" in text
    assert "measured by different protocols, so not comparable: 1, 2" in text
    assert text.count("<figure>") == 2 + len(PLOTS) and "0.400x" in text
    ids = re.findall(' id="(.*?)"', text)
    assert len(ids) == len(set(ids)) and {*re.findall('href="#(.*?)"', text)} <= {*ids}


@pytest.mark.skipif(not browser.CHROMIUM, reason="Chromium is not installed")
def test_report_fits_any_screen_and_folds(report, tmp_path):
    with browser.page(tmp_path / "profile") as page:
        page.open(report, 390)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.open(report, 1920, height=1080)
        assert page.evaluate("document.documentElement.scrollHeight") < 12 * 1080
        assert page.evaluate("getComputedStyle(document.body).fontSize") == "24px"
        assert page.pdf().count(b"/Type /Page\n") > 5  # all parts are printed
        assert page.evaluate("""(() => {
            filter.value = "GELU";
            filter.dispatchEvent(new Event("input"));
            return [...document.querySelectorAll("details:not([hidden])")].map(
                part => part.lastChild.id);
        })()""")[0] == "7_gelu"
