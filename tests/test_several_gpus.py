"""What docs/bonuses/gating_gpus.md has of a layer on several GPUs: its table."""

from docs import tables
from fakes import CLOCKS, measured, write_csv
from shared import measurements, several_gpus
from suite import COLUMNS

MS = {("square", 4096): {"one_gpu": 2.0, "fused": 2.1},
      ("g2", 4096): {"one_gpu": 2.0, "fused": 1.25, "row_split": 1.0},
      ("h16384g2", 16384): {"one_gpu": 30.0, "fused": 20.0, "row_split": 15.0}}


def test_the_table_has_a_row_for_each_size_on_several_gpus(tmp_path):
    results = measurements.read(write_csv(tmp_path / "gpu-a.csv", *(
        measured(several_gpus.PROGRAM, kernel, "fp16", n, ms, 24 * n**3, shape=shape)
        for (shape, n), times in MS.items() for kernel, ms in times.items()),
        comments=["GPU: GPU A"], columns=COLUMNS + CLOCKS))
    text = tables.several_of(results, several_gpus.layers(results))
    assert "| ms, GPU A | `one_gpu` | `fused` | `row_split` |" in text
    assert "| 2 GPUs: N = 4096, H = 16384 | 2 | 1.25 (1.60x) | 1 (2.00x) |" in text
    assert "| 2 GPUs: N = 16384, H = 16384 | 30 | 20 (1.50x) | 15 (2.00x) |" in text
    assert text.count("2 GPUs") == 2 and "gpus-gpu-a-light.svg" in text
