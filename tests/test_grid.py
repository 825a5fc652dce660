"""Ours beside the library's best at many sizes: what documents and pictures make of it."""

import pytest

from docs import tables
from fakes import write_grid, write_measured
from shared import grid, measurements
from suite import ROOT

HOPPER, TILED = "bonus_matmul_hopper", "bonus_matmul_register_tiled"
RATES = {(HOPPER, "fp16", 512): (96, 100), (HOPPER, "fp16", 1056): (94, 100),
         (HOPPER, "fp16", 2048): (96, 100), (HOPPER, "fp16", 16384): (110, 100),
         (TILED, "fp32", 1024): (49.9, 50), (TILED, "fp32", 8192): (51, 50)}


def test_ratios_are_summed_up(tmp_path):
    fp16, fp32 = grid.of_products(measurements.read(write_grid(tmp_path / "a.csv", RATES)))
    assert (fp16.program, fp16.dtype, fp16.against) == (HOPPER, "fp16", "cublas")
    assert fp16.short == {1056: pytest.approx(0.94), 2048: pytest.approx(0.96)}
    assert fp16.lowest == 1056
    assert fp16.mean == pytest.approx((0.96 * 0.94 * 0.96 * 1.1) ** 0.25)
    assert fp32.short == {1024: pytest.approx(0.998)}


def test_a_file_without_the_library_is_refused(tmp_path):
    path = write_measured(tmp_path / "a.csv")
    alone = measurements.read(path)._replace(
        rows=[row for row in measurements.read(path).rows if row["program"] == "1_matmul_basic"])
    with pytest.raises(measurements.TableError, match="no kernel of ours beside"):
        grid.of_products(alone)


def test_gating_is_beside_the_best_of_theirs():
    results = measurements.read(ROOT / "results/frameworks/nvidia-h200.csv")
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


def test_the_documents_have_a_table(tmp_path):
    text = tables.sizes_of(write_grid(tmp_path / "nvidia-h200.csv", RATES))
    row = "| fp16 | cublas | 4 | 0.988 | 0.940 at 1056 | 1056 (0.940), 2048 (0.960) |"
    assert f"| `{HOPPER}` {row}" in text
    assert "| 16384 | 110 | 100 | 1.100 | - | - | - |" in text
    assert text.count("<picture>") == 1 and text.count("`6_gating_fused`") == 2
    text = tables.sizes_of(write_grid(tmp_path / "another.csv", RATES))
    assert "grid-another-light.svg" in text and "gating" not in text
