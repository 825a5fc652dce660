"""What the lecture has of a layer on several GPUs: its table and its picture."""

import sys
import xml.etree.ElementTree

import pytest

from fakes import CLOCKS, copy_folders, measured, script, write_csv
from suite import COLUMNS, ROOT

sys.path.insert(0, str(ROOT / "scripts/docs"))
import plot  # noqa: E402
import several_gpus  # noqa: E402
import table  # noqa: E402
import tables  # noqa: E402  scripts/docs/tables.py

MS = {("square", 4096): {"one_gpu": 2.0, "fused": 2.1},
      ("g2", 4096): {"one_gpu": 2.0, "fused": 1.25, "row_split": 1.0},
      ("h16384g2", 16384): {"one_gpu": 30.0, "fused": 20.0, "row_split": 15.0}}


@pytest.fixture
def project(tmp_path):
    copy_folders(tmp_path, "scripts", "results", "docs/pictures", "include/demo")
    folder = tmp_path / "results/gpus"
    folder.mkdir(exist_ok=True)
    write_csv(folder / "gpu-a.csv", *(
        measured(several_gpus.PROGRAM, kernel, "fp16", n, ms, 24 * n**3, shape=shape)
        for (shape, n), times in MS.items() for kernel, ms in times.items()),
        comments=["GPU: GPU A"], columns=COLUMNS + CLOCKS)
    return tmp_path


def test_the_table_has_a_row_for_each_size_on_several_gpus(project):
    results = table.read(project / "results/gpus/gpu-a.csv")
    text = tables.several_of(results, several_gpus.layers(results))
    assert "| ms, GPU A | `one_gpu` | `fused` | `row_split` |" in text
    assert "| 2 GPUs: N = 4096, H = 16384 | 2 | 1.25 (1.60x) | 1 (2.00x) |" in text
    assert "| 2 GPUs: N = 16384, H = 16384 | 30 | 20 (1.50x) | 15 (2.00x) |" in text
    assert text.count("2 GPUs") == 2 and "gpus-gpu-a-light.svg" in text


def test_bars_are_as_high_as_the_ratios(project):
    assert script("picture.py", root=project).returncode == 0
    path = project / f"docs/pictures/gpus-gpu-a-{plot.THEMES[0].name}.svg"
    bars = [float(bar.get("height")) for bar in xml.etree.ElementTree.parse(path).getroot().iter()
            if bar.tag.endswith("rect")][1:]
    assert [bar / bars[1] for bar in bars] == pytest.approx([0.8, 1, 0.75, 1], abs=0.01)
