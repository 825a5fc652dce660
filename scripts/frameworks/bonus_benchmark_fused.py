"""The careful benchmark of gating: PyTorch call by call, compiled, and one kernel in Triton.

    python3 scripts/frameworks/bonus_benchmark_fused.py 4096         N to 4096, S to N / 8 = 512
    python3 scripts/frameworks/bonus_benchmark_fused.py --talk 1024  the talk's shape alone

Every contender is verified, and timed in three rounds of turns, the second in reverse order: in its
turn it runs alone, with a cold cache before each launch. A line has the medians of the rounds.
N is a multiple of 32, by default 16384.
"""

from statistics import median

import torch_demo as demo
from torch_demo import alone

ROUNDS = 3
# The contenders of 6_gating_fused.py, as the columns call them.
UNFUSED = {"eager": "eager", "library": "library", "compile": "compile"}
FUSED = {"triton": "pointers", "triton tma": "descriptors"}
COLUMNS = {**UNFUSED, **FUSED}

gating = demo.load_page("6_gating_fused")


def measured(case):
    """The median of each contender's rounds, in ms, of those that can be timed."""
    rounds = {name: [] for name in COLUMNS if not case.peers[name].why_not}
    for i in range(ROUNDS):
        for name in list(rounds)[::-1 if i % 2 else 1]:
            rounds[name].append(case.samples(name)[0])
    return {name: median(map(median, each)) for name, each in rounds.items() if all(each)}


def cells_of(ms):
    cells = [(title, alone.significant(ms[name]) if name in ms else "-")
             for name, title in COLUMNS.items()]
    fused, unfused = ([ms[name] for name in names if name in ms] for names in (FUSED, UNFUSED))
    if fused and "eager" in ms and not demo.INTERPRETED:
        cells += [("x eager", alone.significant(ms["eager"] / min(fused), 3) + "x"),
                  ("x best", alone.significant(min(unfused) / min(fused), 3) + "x")]
    return cells


def benchmark(page, n, s):
    alone.print_head(page, "fp16, fp32 sums")
    n = n or (64 if demo.INTERPRETED else 16384)
    first = 64 if demo.INTERPRETED else 1024
    talk = [(None, 32 << i) for i in range(12) if 32 << i <= (s or max(32, n // 8))]
    square = [] if s else [(first << i, None) for i in range(20) if first << i <= n]
    status = 0
    for sizes in (talk, square):
        head = ""
        for size in sizes:
            case = alone.Timed(gating, gating.problem(*size))
            cells = cells_of(measured(case))
            title = "  ms       " + "".join(f"{name:>{len(name) + 3}}" for name, _ in cells)
            if title != head:
                print(("\n" if size[0] and size is sizes[0] else "") + title)
            head = title
            label = f"S = {size[1]}" if size[1] else f"N = {size[0]}"
            print(f"  {label:9}" + "".join(f"{text:>{len(name) + 3}}" for name, text in cells),
                  " WRONG" if case.status == 1 else " failed" if case.status else " ok", flush=True)
            status = max(status, case.status, key=lambda each: (each == 1, each))
    return status


if __name__ == "__main__":
    demo.run(benchmark)
