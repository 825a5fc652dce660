"""Whether an experiment measured what it expects of its rows: `expected` in --describe, and the
times that it predicts."""

import math

GPUS = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")  # whose ranges they are


def left(problems, rows, gpu):
    """Texts: which rows left their range, or took another time than predicted. `problems`: of
    --describe."""
    found = [f"{row['kernel']} took {row['median_ms']:.4g} ms at N = {row['n']}, not "
             f"{row['predicted_ms']:.4g} ms" for row in rows
             if gpu in GPUS and row.get("as_predicted") == "no"]
    for problem in problems:
        ms = {row["kernel"]: row["median_ms"] for row in rows if row["median_ms"] and
              (row["n"], row["dtype"]) == (problem["n"], problem["dtype"])}
        first = ms.get(problem["contenders"][0])
        for kernel, (least, most) in problem.get("expected", {}).items():
            if gpu not in GPUS:  # there it says: faster than the first row, slower, or nothing
                least, most = 1 if least >= 1 else 0, 1 if most <= 1 else math.inf
            if not first or kernel not in ms:
                found.append(f"{kernel} has no time")
            elif not least <= first / ms[kernel] <= most:
                found.append(f"{kernel} has {first / ms[kernel]:.3g}x the first row's speed, not "
                             f"{least:g}x to {most:g}x")
    return found
