"""What the tests of bonus_waves need besides what it declares (see tests/pages.py)."""

from pages import Mutant, launch_once

FACTS = ("blocks/SM", "waves", "predicted")
GELU = "33 --show block_sizes"  # one line, of blocks of 32 threads

MUTANTS = [  # each breaks both kernels; with one block there is one line that can be wrong
    Mutant("waves_left_out", "fixed_work gelu",
           "a step is left out, or the cube",
           [("step < kFmas;", "step < kFmas - 1;"), ("(v + 0.044715f * v * v * v);", "v;")],
           sizes=(1,), runs=(GELU,), cpu_runs=(GELU,)),
    Mutant("waves_too_few", "fixed_work gelu",
           "each block's last thread is missing, or the last block",
           [("fixed_work<<<N, kThreads,", "fixed_work<<<N, kThreads - 1,"),
            ("blocks = (size + N - 1) / N;", "blocks = (size - 1) / N;")],
           sizes=(1,), runs=(GELU,), cpu_runs=(GELU,), kind="grid"),
    Mutant("waves_only_once", "fixed_work gelu",
           "only the first launch computes",
           [launch_once("fixed_work<<<N"), launch_once("gelu<<<blocks")],
           sizes=(1,), runs=(GELU,), cpu_runs=(GELU,), timed=True),
]
RUNS = ("5 --once", "9999 --once", "300 --show saw_tooth --once", "5 --show saw_tooth --once",
        "1 --show block_sizes --once", "4096 --show block_sizes --once")
PRINTS = {"16": (r"blocks/SM +waves +predicted +fixed_work\n  N = 1 +1 +1 +",)}
REFUSED = ("--show", "--show waves", "0")


def unused(*_):
    """The saw-tooth's kernels are other programs': nothing here compiles them again."""
    return [("            saw_tooth<Wide>(session, N);\n", "            ;\n"),
            ("{ saw_tooth<T>(session, N); }", "{}")]
