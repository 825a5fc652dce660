"""What the tests of bonus_pitfalls need besides what it declares (see tests/pages.py)."""

from pages import Mutant

MUTANTS = [
    Mutant("pitfalls_dropped_k", "right no_synchronization host_clock copies_included "
           "mean_with_outlier first_launch no_warm_up warm_cache half_left_out",
           "the last k is left out (of zeros that changes nothing)",
           [("int(columns), n, n, &alpha", "int(columns), n, n - 1, &alpha")], cpu_sizes=(96,)),
    Mutant("pitfalls_other_half", "half_left_out easy_data",
           "what must be rejected is right, and what must be right lacks a half",
           [("gemm(A, B, N / 2)", "gemm(A, B, N)"),
            ("gemm(easy.data(), easy.data(), N)", "gemm(easy.data(), easy.data(), N / 2)")],
           cpu_sizes=(96,)),
]

OPERATIONS = {"64": 2 * 64**3}
COUNTS = {"32 --kernel right": {}}  # no kernel of the program's own
RUNS = ("96 --data equal",)
PRINTS = {"64": (r"half_left_out .*  rejected\n", r"half_left_out +too much: \w",
                 r"host_clock +too little: \w")}
REFUSED = ("64 --data ones",)
