"""What the tests of 4_matmul_cublas need besides what it declares (see tests/pages.py)."""

from pages import Mutant, launch_once

MUTANTS = [
    Mutant("cublas_tf32_as_fp32", "cublas_fp32",
           "TF32 passes itself off as fp32",
           [('"fp32", CUBLAS_COMPUTE_32F)', '"fp32", CUBLAS_COMPUTE_32F_FAST_TF32)')],
           sizes=(1024, 4096), cpu_sizes=(160,), oldest_sm=80),
    Mutant("cublas_dropped_k", "cublas_fp32 cublas_tf32 cublas_fp16 cublas_bf16",
           "the last k is left out",
           [("n, n, n,  ", "n, n, n - 1,  ")]),
    Mutant("cublas_swapped", "cublas_fp32 cublas_tf32 cublas_fp16 cublas_bf16",
           "B A instead of A B",
           [("A, type, n,", "B, type, n,"), ("&alpha, B, type", "&alpha, A, type")]),
    Mutant("cublas_stale", "cublas_fp32 cublas_tf32 cublas_fp16 cublas_bf16",
           "only the first call computes",
           [launch_once("gemm<T>(cublas, compute")], timed=True),
]

OPERATIONS = {"64": 2 * 64**3}
COUNTS = {"32 --kernel cublas_fp32": {}}  # no kernel of the program's own
