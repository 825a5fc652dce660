"""Where files of the same kind of GPU disagree. Ratios of all files to one are in comparison.py."""

import statistics

from shared.measurements import key, noisy, rate, shown
from shared.table import short_titles, size

ALIKE_PCT = 3.0  # two runs of one GPU, or of two of one kind, lie within it
WORST = 5  # of the rows that do not, so many are shown
FACTS = ("toolkit", "driver", "suite", "power limit")  # beside the protocol


def differences(tables, baseline=0, wanted=lambda row: True):
    """Lines about how the files were measured, where they differ in it. Then about those of the
    same kind of GPU: who is slower than another as a whole, and how far each agrees with the
    baseline, or where that is another GPU's, with the first of its kind."""
    names = short_titles(tables)
    steady = [{key(row): row for row in shown(results.rows) if not noisy(row) and wanted(row)}
              for results in tables]
    alike = {}
    for i in [baseline, *range(len(tables))]:
        alike.setdefault(tables[i].gpu, {})[i] = steady[i]
    lines = []
    for fact in FACTS:  # a file of several runs names the others in brackets
        seen = [results.about.get(fact, "unknown").partition(" (")[0] for results in tables]
        if len({*seen} - {"unknown"}) > 1:
            each = (f"{value} ({name})" for value, name in zip(seen, names))
            lines.append(f"{fact}: {', '.join(each)}")
    for group in alike.values():
        for i in sorted(group):
            lines += _slower(i, group, names)
        (first, its_rows), *others = group.items()
        for i, rows in others:
            lines += _apart(f"{names[first]} -> {names[i]}", its_rows, rows)
    return lines


def _change(row, to):
    """Of a figure, in percent."""
    return 100 * (rate(row)[0] / rate(to)[0] - 1)


def _slower(i, group, names):
    """A line, where a GPU is slower than another of its kind by the median of what both have."""
    behind = []
    for j, rows in group.items():
        changes = [_change(row, rows[at]) for at, row in group[i].items() if at in rows]
        if changes and statistics.median(changes) < -ALIKE_PCT:
            behind.append((statistics.median(changes), j, len(changes)))
    if not behind:
        return []
    change, most, count = min(behind)
    line = (f"{names[i]} is {-change:.1f}% slower than {names[most]}, by the median of {count} "
            "results")
    others = f", and over {ALIKE_PCT:.0f}% slower than {len(behind) - 1} more of its kind"
    return [line + others * (len(behind) > 1)]


def _apart(what, first, other):
    """How many steady rows of two files agree, and what differed between those that do not: the
    worst of them."""
    common = [(row, other[at]) for at, row in first.items() if at in other]
    if not common:
        return []
    far = [(_change(b, a), a, b) for a, b in common if abs(_change(b, a)) > ALIKE_PCT]
    far.sort(key=lambda some: -abs(some[0]))
    lines = []
    for change, a, b in far[:WORST]:
        seen = [
            f"{what} {a[name]:.0f} -> {b[name]:.0f} {unit}"
            for name, what, unit in (("sm_mhz", "SM clock", "MHz"), ("power_w", "power", "W"),
                                     ("temperature_c", "temperature", "C"))
            if a[name] is not None and b[name] is not None
        ]
        if a["throttled"] != b["throttled"]:
            seen.append(f"throttled: {a['throttled'] or 'no'} -> {b['throttled'] or 'no'}")
        row = f"{a['program']} {a['kernel']} {a['dtype']} {size(a)}"
        lines.append(f"  {row}: {change:+.1f}%; " + ("; ".join(seen) or "clocks were not sampled"))
    if len(far) > WORST:
        lines.append(f"  and {len(far) - WORST} more, by less")
    count = f"{len(common) - len(far)} of {len(common)} steady results within {ALIKE_PCT:.0f}%"
    return [f"{what}: {count}" + (", but" if far else "")] + lines
