"""Ours beside the library's best at many sizes: what documents and pictures make of it."""

import sys
import xml.etree.ElementTree

import pytest

from fakes import copy_folders, script, write_grid, write_measured
from suite import ROOT

import grid
import picture
import plot
import table

sys.path.append(str(ROOT / "scripts/docs"))
import tables  # noqa: E402

HOPPER, TILED = "bonus_matmul_hopper", "bonus_matmul_register_tiled"
RATES = {(HOPPER, "fp16", 512): (96, 100), (HOPPER, "fp16", 1056): (94, 100),
         (HOPPER, "fp16", 2048): (96, 100), (HOPPER, "fp16", 16384): (110, 100),
         (TILED, "fp32", 1024): (49.9, 50), (TILED, "fp32", 8192): (51, 50)}


def test_ratios_are_summed_up(tmp_path):
    fp16, fp32 = grid.of_products(table.read(write_grid(tmp_path / "a.csv", RATES)))
    assert (fp16.program, fp16.dtype, fp16.against) == (HOPPER, "fp16", "cublas")
    assert fp16.short == {1056: pytest.approx(0.94), 2048: pytest.approx(0.96)}
    assert fp16.lowest == 1056
    assert fp16.mean == pytest.approx((0.96 * 0.94 * 0.96 * 1.1) ** 0.25)
    assert fp32.short == {1024: pytest.approx(0.998)}


def test_a_file_without_the_library_is_refused(tmp_path):
    path = write_measured(tmp_path / "a.csv")
    alone = table.read(path)._replace(
        rows=[row for row in table.read(path).rows if row["program"] == "1_matmul_basic"])
    with pytest.raises(table.TableError, match="no kernel of ours beside"):
        grid.of_products(alone)


def test_gating_is_beside_the_best_of_theirs():
    results = table.read(ROOT / "results/frameworks/nvidia-h200.csv")
    by_pointers, with_all = grid.of_gating(grid.FOLDER / "nvidia-h200.csv")
    assert grid.of_gating(grid.FOLDER / "another.csv") == []
    rates = {row["contender"]: row["tflops"] for row in results.rows
             if row["program"] == "6_gating_fused" and row["n"] == 4096}
    ours, theirs = rates.pop("ours"), [rates[name] for name in rates if name != "tile"]
    assert with_all.pairs[4096] == (ours, max(theirs))
    assert by_pointers.pairs[4096].theirs <= max(theirs)
    assert list(by_pointers.pairs) == sorted(by_pointers.pairs)
    low, enough = grid.Pair(1.01, 1), grid.Pair(1.02, 1)
    assert by_pointers._replace(pairs={512: low, 4096: enough}).short == {512: low.ratio}


@pytest.fixture
def project(tmp_path):
    copy_folders(tmp_path, "scripts", "results", "docs/pictures", "include/demo")
    write_grid(tmp_path / "results/grid/nvidia-h200.csv", RATES)
    return tmp_path


def test_the_picture_has_a_dot_for_each_ratio(project):
    assert script("picture.py", "--check", root=project).returncode == 1
    assert script("picture.py", root=project).returncode == 0
    assert script("picture.py", "--check", root=project).returncode == 0
    path = project / f"docs/pictures/grid-nvidia-h200-{plot.THEMES[0].name}.svg"
    dots = [dot for dot in xml.etree.ElementTree.parse(path).getroot().iter()
            if dot.tag.endswith("circle")]
    x, y = ([float(dot.get(name)) for dot in dots] for name in ("cx", "cy"))
    assert x[:4] == sorted(x[:4]) and len(dots) > len(RATES)  # and gating's
    assert y[1] > y[0] == y[2] > y[3]
    assert (y[1] - y[0]) / (y[0] - y[3]) == pytest.approx(2 / 14, abs=0.01)


def of_waves(kernel, dtype, n, ms, predicted_ms=None, **more):
    return {"kernel": kernel, "dtype": dtype, "n": n, "shape": "square", "median_ms": ms,
            "predicted_ms": predicted_ms, "figure": None, "gpu": "GPU A", "tflops": 100 / ms,
            "gb_per_s": None, **more}


def test_an_experiments_picture_has_measured_and_predicted():
    rows = [of_waves("stairs", "fp32", n, ms, ms) for n, ms in [(1, 0.2), (132, 0.2), (133, 0.4)]]
    rows += [of_waves("teeth", "fp16", n, ms, 1) for n, ms in [(1024, 1.0), (1280, 0.5)]]
    rows += [of_waves("others", "fp16", n, 0.25) for n in (1024, 1280)]
    rows.append(of_waves("sizes", "fp32", 64, 1, shape="block_sizes"))
    root = xml.etree.ElementTree.fromstring(picture.draw_waves(rows, plot.THEMES[0]))
    dots = [float(dot.get("cy")) for dot in root.iter() if dot.tag.endswith("circle")]
    first, second, third, slow, fast, *others = dots  # y grows downwards
    assert first == second > third and len(others) == 2
    assert slow > fast > others[0] == others[1]
    dashed = [line for line in root.iter() if line.get("stroke-dasharray")]
    assert len(dashed) == 2 and len({point.split(",")[1] for point in
                                     dashed[1].get("points").split()}) == 1


def test_the_documents_have_a_table(tmp_path):
    text = tables.sizes_of(write_grid(tmp_path / "nvidia-h200.csv", RATES))
    row = "| fp16 | cublas | 4 | 0.988 | 0.940 at 1056 | 1056 (0.940), 2048 (0.960) |"
    assert f"| `{HOPPER}` {row}" in text
    assert "| 16384 | 110 | 100 | 1.100 | - | - | - |" in text
    assert text.count("<picture>") == 1 and text.count("`6_gating_fused`") == 2
    text = tables.sizes_of(write_grid(tmp_path / "another.csv", RATES))
    assert "grid-another-light.svg" in text and "gating" not in text
