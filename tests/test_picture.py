"""picture.py: README's picture is what results/ says, and can be read where README is."""

import re
import xml.etree.ElementTree

import pytest

import browser
from fakes import copy_folders, script
from suite import ROOT, USAGE, WRONG, assert_one_line

import picture
import plot
import table

PATHS = [ROOT / f"docs/pictures/ladder-{theme.name}.svg" for theme in plot.THEMES]


def test_bad_arguments_end_with_one_line():
    done = script("picture.py", "--bogus")
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "picture.py")


def test_the_picture_is_what_the_results_say():
    done = script("picture.py", "--check")
    assert done.returncode == 0, done.stderr


def test_another_picture_is_noticed_and_drawn_anew(tmp_path):
    copy_folders(tmp_path, "scripts", "results", "docs/pictures", "include/demo")
    path = tmp_path / "docs/pictures/ladder-dark.svg"
    path.write_text("<svg/>")
    done = script("picture.py", "--check", root=tmp_path)
    assert done.returncode == WRONG
    assert_one_line(done.stderr, "picture.py")
    assert "ladder-dark.svg" in done.stderr
    assert script("picture.py", root=tmp_path).returncode == 0
    assert path.read_text() == PATHS[1].read_text()


def test_results_without_a_program_are_named_in_one_line(tmp_path):
    copy_folders(tmp_path, "scripts", "include/demo")
    (tmp_path / "results").mkdir()
    lines = (ROOT / "results/nvidia-h200.csv").read_text().splitlines()
    (tmp_path / "results/nvidia-h200.csv").write_text("\n".join(
        line for line in lines if not re.match("2_|# rows", line)))
    done = script("picture.py", root=tmp_path)
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "picture.py")
    assert "program 2" in done.stderr


def test_bars_are_as_long_as_their_figures_say():
    rows = table.read(picture.RESULTS).rows
    shown = picture.ladder(rows) + picture.gating(rows, "square", picture.N) + picture.gating(
        rows, "talk", picture.S)
    assert len(shown) == 12
    root = xml.etree.ElementTree.parse(PATHS[0]).getroot()
    widths = [float(bar.get("width")) for bar in root.iter("{http://www.w3.org/2000/svg}rect")][1:]
    longest = max(row["tflops"] for row in shown)
    for row, width in zip(shown, widths):
        assert width == pytest.approx(picture.PANEL * row["tflops"] / longest, abs=0.1)


@pytest.mark.skipif(not browser.CHROMIUM, reason="Chromium is not installed")
def test_it_can_be_read_on_a_screen_and_on_a_phone(tmp_path):
    with browser.page(tmp_path / "profile") as page:
        for path in PATHS:
            for width in (1280, 390):
                (tmp_path / "page.html").write_text(
                    '<meta name="viewport" content="width=device-width"><body style="margin: 0">'
                    + path.read_text().replace("<svg ", "<svg style='width: 100%; height: auto' "))
                page.open(tmp_path / "page.html", width)
                texts = page.evaluate("""[...document.querySelectorAll('text')].map(text => {
                    const box = text.getBoundingClientRect();
                    return [box.left, box.top, box.right, box.bottom, text.textContent]; })""")
                assert len(texts) == 12 * 2 + 5
                scale = page.evaluate("document.querySelector('svg').getScreenCTM().a")
                assert picture.TEXT * scale >= 10  # pixels
                for i, (left, top, right, bottom, text) in enumerate(texts):
                    assert left >= 0 and right <= width, text
                    for a, b, c, d, other in texts[:i]:
                        apart = right <= a or c <= left or bottom <= b or d <= top
                        assert apart, f"{text} and {other} overlap"
