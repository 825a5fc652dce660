"""What the tests of bonus_async need besides what it declares (see tests/pages.py)."""

from pages import Mutant, launch_once

ROWS = "one_by_one graph dependent read_each"
COPIES = "pageable pinned overlapped"
SHOW = "33 --show copies"

MUTANTS = [  # each breaks as much as it can: most of the time goes into compiling
    Mutant("async_left_out", f"{ROWS} {COPIES}",
           "the last row is not computed; the last number of each chunk is not",
           [("row * kRow + threadIdx.x] = ", "min(row, size_t(31)) * kRow + threadIdx.x] = "),
            ("if (i >= size) return;\n    float value", "if (i + 1 >= size) return;\n    float value")],
           sizes=(33,), runs=(SHOW,), cpu_runs=(SHOW,), kind="grid"),
]
