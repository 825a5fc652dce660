"""Ours beside the best of the library at every size of a grid, as results/grid/ has it of matrix
products, and results/frameworks/ of gating."""

import statistics
from typing import Dict, NamedTuple

from shared import measurements, programs
from shared.command_line import PROJECT

FOLDER = PROJECT / "results/grid"
GATING = "6"  # its program's number
BY_DESCRIPTORS = "triton tma"  # Triton's kernel that has a line of its own


class Pair(NamedTuple):
    """TFLOP/s at one size."""

    ours: float
    theirs: float

    @property
    def ratio(self):
        return self.ours / self.theirs


class Series(NamedTuple):
    """One program in one data type."""

    program: str
    dtype: str
    against: str
    pairs: Dict[int, Pair]  # by N

    @property
    def name(self):
        """In two words."""
        return f"{self.program.split('_')[1]} {self.dtype}"

    @property
    def mean(self):
        """The geometric mean of the ratios."""
        return statistics.geometric_mean(pair.ratio for pair in self.pairs.values())

    @property
    def lowest(self):
        """The N of the lowest ratio."""
        return min(self.pairs, key=lambda n: self.pairs[n].ratio)

    @property
    def short(self):
        """{N: ratio} where it is below its floor."""
        return {n: pair.ratio for n, pair in self.pairs.items() if pair.ratio < self.floor(n)}

    def floor(self, n):
        """The ratio that is aimed at, at least."""
        if self.program.startswith(f"{GATING}_"):
            return 1.02
        return 1 if self.dtype == "fp32" else 0.95 if n < 2048 else 0.97


def of_products(results):
    """[Series] of a file in results/grid/. Raises measurements.TableError where there is none."""
    rows = measurements.shown(results.rows)
    series = [of_kernels(*at, measurements.groups(some, "n"))
              for at, some in measurements.groups(rows, "program", "dtype").items()]
    found = [each for each in series if each.pairs]
    if not found:
        raise measurements.TableError(
            f"{results.path}: no kernel of ours beside one of the library's")
    return found


def of_kernels(program, dtype, rows_of):
    pairs, theirs = {}, []
    for (n,), rows in sorted(rows_of.items()):
        own = [row for row in rows if row["role"] in measurements.OWN]
        others = [row for row in rows if row["role"] not in measurements.OWN]
        if own and others:
            pairs[n] = Pair(*(max(row["tflops"] for row in some) for some in (own, others)))
            theirs += [row["kernel"] for row in others]
    return Series(program, dtype, ", ".join(dict.fromkeys(theirs)), pairs)


def of_gating(file):
    """[Series] of the same GPU's file in results/frameworks/: against all of theirs but Triton by
    descriptors, and against all; none where gating is not there."""
    beside = PROJECT / "results/frameworks" / file.name
    if not beside.exists():
        return []
    results = measurements.read(beside)
    program = programs.named(GATING, [row["program"] for row in results.rows])
    rates_of = {}  # {N: {contender: TFLOP/s}}
    for row in measurements.shown(results.rows):
        if row["program"] == program and row["shape"] == "square":
            rates_of.setdefault(row["n"], {})[row["contender"]] = row["tflops"]
    found = []
    for without, against in ([BY_DESCRIPTORS], "PyTorch, Triton"), ([], "with descriptors, too"):
        pairs = {}
        for n, rates in sorted(rates_of.items()):
            others = [rates[name] for name in rates if name not in ("ours", "tile", *without)]
            if others and "ours" in rates:
                pairs[n] = Pair(rates["ours"], max(others))
        found += [Series(program, "fp16", against, pairs)] * bool(pairs)
    return found


def picture(file):
    """What the pictures of a file in results/grid/ are called."""
    return f"grid-{file.stem}"
