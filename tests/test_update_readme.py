"""update_readme.py: it writes the README's tables from results/, between the markers alone."""

import glob
import shutil

import pytest

from fakes import copy_folders, row, script, write_csv
from suite import ROOT, USAGE, assert_one_line


@pytest.fixture
def readme(tmp_path):
    """A project with a README and one file of results. Returns its root."""
    copy_folders(tmp_path, "scripts")
    (tmp_path / "results").mkdir()
    write_csv(tmp_path / "results/h200.csv", row(tflops="3.210"),
              row("6_gating_fused", "fused_tiled", dtype="fp16", shape="talk", n="1024",
                  tflops="345.0", gb_per_s="4100"),
              comments=["GPU: NVIDIA H200", "driver: 580", "toolkit: 13.0", "date: 2026-01-01"])
    (tmp_path / "README.md").write_text(
        "# Title\nbefore\n<!-- results:begin -->\nold\n<!-- results:end -->\nafter\n")
    return tmp_path


def test_bad_arguments_end_with_one_line():
    done = script("update_readme.py", "--bogus")
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "update_readme.py")


def test_update_readme_writes_between_the_markers_alone(readme):
    assert script("update_readme.py", "--check", root=readme).returncode == 1
    assert script("update_readme.py", root=readme).returncode == 0
    text = (readme / "README.md").read_text()
    assert text.startswith("# Title\nbefore\n<!-- results:begin -->\n")
    assert text.endswith("\n<!-- results:end -->\nafter\n")
    assert "old" not in text
    assert "NVIDIA H200" in text and "3.21" in text and "345" in text and "4100" in text
    assert script("update_readme.py", "--check", root=readme).returncode == 0
    assert script("update_readme.py", root=readme).returncode == 0
    assert (readme / "README.md").read_text() == text  # once more changes nothing


def test_update_readme_shows_what_fusion_saved(readme):
    def gelu(kernel, n, ms, launches, moved, **more):
        return row("7_gelu", kernel, n=n, median_ms=ms, launches=launches, moved_bytes=moved,
                   gb_per_s="100", **more)

    chain, library = {"role": "chain"}, {"role": "library"}

    write_csv(readme / "results/h200.csv", row(),
              gelu("nine", "1024", "0.5", "9", "9000000000", **chain),
              gelu("fused", "1024", "0.3", "1", "1000000000"),
              gelu("nine", "2048", "8.0", "9", "36000000000", **chain),
              gelu("calls", "2048", "5.0", "2", "8000000000", **library),
              gelu("fused", "2048", "4.0", "1", "4000000000"),
              gelu("fused_vectorized", "2048", "2.0", "1", "4000000000"),
              gelu("faster_but_wrong", "2048", "1.0", "1", "4000000000", verified="no"),
              gelu("not_counted", "2048", "0.1", "", "4000000000"),
              gelu("copy", "2048", "1.0", "1", "4000000000", role="yardstick"))
    assert script("update_readme.py", root=readme).returncode == 0
    _, _, saved = (readme / "README.md").read_text().partition("What fusion saved")
    lines = [line for line in saved.splitlines() if line.startswith("| `")]
    assert lines == ["| `7_gelu` | nine -> fused_vectorized | fp32 | N=2048 | 9 -> 1 "
                     "| 36.0 -> 4.00 | 8.00 -> 2.00 | 4.00x |",
                     "| `7_gelu` | calls -> fused_vectorized | fp32 | N=2048 | 2 -> 1 "
                     "| 8.00 -> 4.00 | 5.00 -> 2.00 | 2.50x |"]


def test_update_readme_check_notices_new_results_and_changes_nothing(readme):
    script("update_readme.py", root=readme)
    before = (readme / "README.md").read_text()
    write_csv(readme / "results/h200.csv", row(tflops="9.870"))
    done = script("update_readme.py", "--check", root=readme)
    assert done.returncode == 1
    assert_one_line(done.stderr, "update_readme.py")
    assert (readme / "README.md").read_text() == before


@pytest.mark.parametrize("damage", ["markers", "results", "broken"])
def test_update_readme_refuses_what_it_cannot_do(readme, damage):
    if damage == "markers":
        (readme / "README.md").write_text("# Title\n")
    elif damage == "results":
        shutil.rmtree(readme / "results")
    else:
        (readme / "results/b.csv").write_text("nonsense\n")
    before = (readme / "README.md").read_text()
    done = script("update_readme.py", root=readme)
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "update_readme.py")
    assert (readme / "README.md").read_text() == before


def test_this_readme_shows_what_results_holds():
    if not glob.glob(str(ROOT / "results/*.csv")):
        pytest.skip("results/ holds no measurements yet")
    done = script("update_readme.py", "--check")
    assert done.returncode == 0, done.stderr
