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

gating = demo.load_page("6_gating_fused")


def measured(timed):
    """The median of each contender's rounds, in ms, of those that can be timed."""
    rounds = {name: [] for name in {**UNFUSED, **FUSED} if not timed.peers[name].why_not}
    for i in range(ROUNDS):
        for name in list(rounds)[::-1 if i % 2 else 1]:
            rounds[name].append(timed.samples(name)[0])
    return {name: median(map(median, each)) for name, each in rounds.items() if all(each)}


def show(label, timed, with_head):
    ms = measured(timed)
    cells = {title: alone.significant(ms[name]) if name in ms else "-"
             for name, title in {**UNFUSED, **FUSED}.items()}
    fused, unfused = ([ms[name] for name in names if name in ms] for names in (FUSED, UNFUSED))
    if "eager" in ms and fused and not demo.INTERPRETED:
        cells["x eager"] = alone.significant(ms["eager"] / min(fused), 3) + "x"
        cells["x best"] = alone.significant(min(unfused) / min(fused), 3) + "x"
    if with_head:
        print(f"  {'ms':9}" + "".join(f"{title:>{len(title) + 3}}" for title in cells))
    print(f"  {label:9}" + "".join(f"{text:>{len(title) + 3}}" for title, text in cells.items()),
          ("ok", "WRONG", "", "failed")[timed.status], flush=True)


def benchmark(page, n, s):
    alone.print_head(page, "fp16, fp32 sums")
    first, n = (64, n or 64) if demo.INTERPRETED else (1024, n or 16384)
    talk = [(None, 32 << i) for i in range(20) if 32 << i <= (s or max(32, n // 8))]
    square = [] if s else [(first << i, None) for i in range(20) if first << i <= n]
    statuses = []
    for N, S in talk + square:
        timed = alone.Timed(gating, gating.problem(N, S))
        show(f"S = {S}" if S else f"N = {N}", timed, (N, S) in (talk[:1] + square[:1]))
        statuses.append(timed.status)
    return 1 if 1 in statuses else max(statuses)


if __name__ == "__main__":
    demo.run(benchmark)
