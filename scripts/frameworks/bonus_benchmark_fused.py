"""The careful benchmark of gating: PyTorch call by call, compiled, and one kernel in Triton.

    python3 scripts/frameworks/bonus_benchmark_fused.py 4096         N to 4096, S to N / 8 = 512
    python3 scripts/frameworks/bonus_benchmark_fused.py --talk 1024  the talk's shape alone

Sizes double, from 32 and from 1024 on. Every contender of 6_gating_fused.py is verified, and timed
in three rounds of turns, the second in reverse order: in its turn it runs alone, with a cold cache
before each launch. A line has the medians of the rounds, and the fastest kernel in Triton against
eager and against the best of PyTorch. N is a multiple of 32, by default 16384, on CPUs 64.
"""

from statistics import median

import torch_demo as demo
from torch_demo import alone

ROUNDS = 3
PYTORCH, TRITON = ("eager", "library", "compile", "packed"), ("triton", "triton tma")

gating = demo.load_page("6_gating_fused")


def measured(timed):
    """The median of each contender's rounds, in ms, of those that can be timed."""
    rounds = {name: [] for name in PYTORCH + TRITON if not timed.peers[name].why_not}
    for i in range(ROUNDS):
        for name in list(rounds)[::-1] if i % 2 else list(rounds):
            samples, why_not = timed.samples(name)
            if samples:
                rounds[name].append(median(samples))
            else:
                del rounds[name]
                alone.say(f"{name}: {why_not}")
    return {name: median(each) for name, each in rounds.items()}


def show(label, ms, verdict, with_head):
    texts = {name.replace("triton tma", "tma"):
             alone.significant(ms[name], 3) if name in ms else "-" for name in PYTORCH + TRITON}
    in_triton = min((ms[name] for name in TRITON if name in ms), default=None)
    if in_triton and "eager" in ms and not demo.INTERPRETED:
        best = min(ms[name] for name in PYTORCH if name in ms)
        texts["x eager"] = alone.significant(ms["eager"] / in_triton, 3) + "x"
        texts["x best"] = alone.significant(best / in_triton, 3) + "x"
    if with_head:
        print(f"  {'ms':9}" + "".join(f"{title:>8}" for title in texts))
    print(f"  {label:9}" + "".join(f"{text:>8}" for text in texts.values()), verdict, flush=True)


def benchmark(page, n, s):
    alone.print_head(page, "fp16, fp32 sums")
    first, n = (64, n or 64) if demo.INTERPRETED else (1024, n or 16384)
    talk = [(None, 32 << i) for i in range(20) if 32 << i <= (s or n // 8)] or [(None, s or 32)]
    square = [(first << i, None) for i in range(20) if first << i <= n] or [(n, None)]
    statuses = []
    for N, S in talk + ([] if s else square):
        timed = alone.Timed(gating, gating.problem(N, S))
        ms = measured(timed)
        verdict = {alone.WRONG: "WRONG", alone.FAILED: "failed"}.get(timed.status, "ok")
        show(f"S = {S}" if S else f"N = {N}", ms, verdict, (N, S) in (talk[0], square[0]))
        statuses.append(timed.status)
    return alone.WRONG if alone.WRONG in statuses else max(statuses)


if __name__ == "__main__":
    demo.run(benchmark)
