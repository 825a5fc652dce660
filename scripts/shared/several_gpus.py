"""A layer on several GPUs, as results/gpus/ has it: bonus_gating_gpus, by compare_gpus.sh."""

import re
from typing import Dict, NamedTuple

from shared import measurements
from shared.command_line import PROJECT

FOLDER = PROJECT / "results/gpus"
PROGRAM = "bonus_gating_gpus"
FIRST = "one_gpu"  # what the others are compared with


class Layer(NamedTuple):
    """One size on so many GPUs."""

    n: int
    hidden: int
    gpus: int
    ms: Dict[str, float]  # by kernel

    def speed_up(self, kernel):
        return self.ms[FIRST] / self.ms[kernel]


def layers(results):
    """[Layer] of a file, without those on a single GPU."""
    found = {}
    for row in measurements.shown(results.rows):
        shape = re.fullmatch(r"(?:h(\d+))?g(\d+)", row["shape"])
        if row["program"] == PROGRAM and shape and int(shape[2]) > 1:
            at = row["n"], int(shape[1] or 4 * row["n"]), int(shape[2])
            found.setdefault(at, Layer(*at, {})).ms[row["kernel"]] = row["median_ms"]
    return [layer for layer in found.values() if FIRST in layer.ms and len(layer.ms) > 1]


def measured():
    """[(Results, its layers)] of the files that have some."""
    every = [measurements.read(file) for file in sorted(FOLDER.glob("*.csv"))]
    return [(results, layers(results)) for results in every if layers(results)]


def picture(results):
    """The name of a file's picture, without its theme."""
    return f"gpus-{results.path.stem}"
