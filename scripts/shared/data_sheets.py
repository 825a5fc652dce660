"""What GPUs have and can do at most, by their data sheets. A figure above that is more likely a
mistake in measuring than a record."""

import functools
import re

from shared.command_line import PROJECT

COLUMNS = ("capability", "SMs", "fp32", "tf32", "fp16", "bf16", "GB/s")


@functools.lru_cache(maxsize=None)
def sheets():
    """{GPU: {"capability": compute capability times ten, "SMs": their number, data type: TFLOP/s,
    "GB/s": bandwidth}}, from the file that the programs read, too."""
    text = (PROJECT / "src/demo/data_sheets.inc").read_text(encoding="utf-8")
    lines = re.findall(r'^DATA_SHEET\("([^"]+)", (.+)\)$', text, re.MULTILINE)
    found = {}
    for gpu, figures in lines:
        values = zip(COLUMNS, map(float, figures.split(",")))
        found[gpu] = {column: value for column, value in values if value}  # 0: lacking or unknown
    return found


def peak(gpu, row):
    """What the data sheet allows a row: GB/s where memory is the limit, else TFLOP/s of its type;
    None where nobody looked that up."""
    one = sheets().get(gpu, {}).get("GB/s" if row["gb_per_s"] is not None else row["dtype"])
    return one and one * gpus_of(row)


def gpus_of(row):
    """How many GPUs a row is of: shapes such as g2 and h16384g2 say so."""
    shape = re.fullmatch(r"(?:h\d+)?g(\d+)", row["shape"])
    return int(shape[1]) if shape else 1


# These use symmetry, z_i z_j = z_j z_i, and do half of the counted operations, so they may exceed
# the peak.
SYMMETRIC = {"bonus_dlrm"}


def doubt(gpu, row):
    """Why a row's figure cannot be right; empty where it can be, or where nobody knows the GPU."""
    known, gpus = sheets().get(gpu, {}), gpus_of(row)
    if row.get("figure"):
        return ""  # it is no rate of the whole GPU, or a cache's
    counted = 2 if row.get("program") in SYMMETRIC else 1  # for each operation that is needed
    for column, peak, unit, most in (("tflops", row["dtype"], "TFLOP/s", counted),
                                     ("gb_per_s", "GB/s", "GB/s", 1)):
        if row[column] is not None and row[column] > most * gpus * known.get(peak, float("inf")):
            return f"{row[column]:.5g} {unit} is above the datasheet's {known[peak]:g}"
    return ""
