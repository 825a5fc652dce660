"""What the tests of bonus_async need besides what it declares (see tests/pages.py)."""

from pages import Mutant, launch_once

ROWS, COPIES = "one_by_one graph dependent read_each", "pageable pinned overlapped"
SHOW = "33 --show copies"
BOTH = dict(sizes=(33,), runs=(SHOW,), cpu_runs=(SHOW,))

MUTANTS = [
    Mutant("async_left_out", f"{ROWS} {COPIES}",
           "one row is not computed, or the last number of each copy",
           [("    const float* const from = row", "    if (row == 32) return;\n"
             "    const float* const from = row"),
            ("if (i >= size) return;", "if (i + 1 >= size) return;")], **BOTH, kind="grid"),
    Mutant("async_of_another", "read_each overlapped",
           "the host reads a value of the first row each time; chunks are cut off",
           [("&rows[row * kRow], one", "&rows[0], one"),
            ("size * (c + 1) / chunks", "size / chunks * (c + 1)")], **BOTH),
    Mutant("async_only_once", COPIES,
           "the host has the matrix of the first launch alone",
           [launch_once("DEMO_CHECK(cudaMemcpy(host, x,")],
           sizes=(), runs=(SHOW,), cpu_runs=(SHOW,), timed=True),
    Mutant("async_too_early", "dependent",
           "a kernel reads the row before while that is still computed",
           [("hopper::griddepcontrol_wait();", "")], sizes=(), runs=("1000",), race=True,
           oldest_sm=90, kind="fence"),
]
IN_ORDER = "each launch begins when the one before has ended"
NOT_APPLICABLE = {"fence": {"one_by_one": IN_ORDER, "graph": IN_ORDER, "read_each": IN_ORDER}}

RUNS = ("1 --once", "300 --once", "1 --show copies --once", "100 --show copies --once")
OPERATIONS = {"16": 16 * 1024}
REFUSED = ("--show", "--show both", "0")
