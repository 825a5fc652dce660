"""What the tests of bonus_matmul_types need besides what it declares (see tests/pages.py)."""

from pages import Mutant, launch_once

ALL = "fp64 fp32 tf32 bf16 fp16 int8_bt fp8_bt fp8_fast_bt"

MUTANTS = [
    Mutant("types_tf32_as_fp32", "fp32",
           "TF32 passes itself off as fp32",
           [('.dtype = "fp32"}', '.dtype = "fp32", .tf32 = true}')],
           sizes=(1024, 4096), cpu_sizes=(160,), oldest_sm=80),
    Mutant("types_dropped_k", ALL,
           "the last 32 of k are left out",
           [(".K = N", ".K = N - 32")]),
    Mutant("types_stale", ALL,
           "only the first call computes",
           [launch_once("(*gemm)();")], timed=True),
]

OPERATIONS = {"64": 2 * 64**3}
COUNTS = {"32 --kernel fp32": {}}  # no kernel of the program's own
