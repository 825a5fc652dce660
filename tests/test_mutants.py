"""Every mutant (see mutants.py) is rejected, and the kernels beside the broken one are not."""

import itertools

import pytest

from mutants import MUTANTS, kernel_headers, source_of
from suite import (FAILED, PROGRAMS, ROOT, SKIPPED, WRONG, describe, needs, read_rows, run,
                   runs_anywhere)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_rejected(live, mutant):
    program = live.mutants / mutant.name
    if not live.mutants.exists():
        pytest.skip(f"{live.mutants.relative_to(ROOT)}/ is not built")
    sizes = live.sizes_for(mutant)
    if not sizes:
        pytest.skip("cannot run here, or shows only at sizes that take too long")
    once = [] if mutant.timed else ["--once"]
    rejected = {}
    schedules = live.schedules if mutant.race else live.schedules[:1]
    for size, schedule in itertools.product(sizes, schedules):
        done = run(program, *size, "--csv", *once, env={"DEMO_SCHEDULE": schedule})
        if done.returncode == SKIPPED and not runs_anywhere(mutant.program):
            pytest.skip(done.stderr.strip())
        if mutant.out_of_bounds and done.returncode == FAILED:  # the simulator sees the access
            rejected[size, schedule] = "past the end of buffer" in done.stderr
            continue
        assert done.returncode in (0, WRONG), done.stderr
        rows = read_rows(done.stdout)
        if rows[0]["sm"] and int(rows[0]["sm"]) < mutant.oldest_sm:
            pytest.skip(f"has no effect before sm_{mutant.oldest_sm}")
        lacking = set(mutant.kernels) & set(needs(mutant.program)) - {row["kernel"] for row in rows}
        if lacking:
            pytest.skip("; ".join(needs(mutant.program)[kernel] for kernel in sorted(lacking)))
        wrong = {row["kernel"] for row in rows if row["verified"] == "no"}
        assert wrong <= set(mutant.kernels), f"{size}: other kernels are called wrong"
        assert (done.returncode == WRONG) == bool(wrong)
        # One line about each wrong kernel.
        assert len(done.stderr.splitlines()) == len(wrong)
        rejected[size, schedule] = wrong == set(mutant.kernels)

    enough = any if mutant.race else all
    assert enough(rejected.values()), f"accepted although {mutant.reason}: {rejected}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutants_edits_fit_the_source(mutant):
    source = source_of(mutant.program)
    for old, new in mutant.edits:
        assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times"
        source = source.replace(old, new)


def with_shared(program):
    """The program, and those with which it shares kernels."""
    headers = set(kernel_headers(program))
    return {other for other in PROGRAMS if other == program or headers & set(kernel_headers(other))}


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_kernel_is_broken_by_some_mutant(program):
    """But yardsticks, which are measured for comparison: a copy, or what another program is about.
    A kernel that several programs run is broken in one of them."""
    roles = {c["kernel"]: c["role"] for c in describe(program)["contenders"]}
    broken = {name: {kernel for mutant in MUTANTS if mutant.program == name
                     for kernel in mutant.kernels} for name in with_shared(program)}
    assert {kernel for kernel, role in roles.items() if role != "yardstick"} <= set().union(
        *broken.values())
    assert broken[program] <= {kernel for kernel, role in roles.items() if role != "yardstick"}
