"""Every mutant (see mutants.py) is rejected, and the kernels beside the broken one are not."""

import itertools

import pytest

from mutants import MUTANTS
from suite import (FAILED, GPU, HOPPER, HOPPER_KERNELS, MATRIX, PROGRAMS, ROOT, SKIPPED, WRONG,
                   kernels_of, read_rows, run)


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
        if mutant.program in HOPPER and done.returncode == SKIPPED:
            pytest.skip(done.stderr.strip())
        if mutant.out_of_bounds and done.returncode == FAILED:  # the CPU lane sees the access
            rejected[size, schedule] = "past the end of buffer" in done.stderr
            continue
        assert done.returncode in (0, WRONG), done.stderr
        rows = read_rows(done.stdout)
        if rows[0]["sm"] and int(rows[0]["sm"]) < mutant.oldest_sm:
            pytest.skip(f"has no effect before sm_{mutant.oldest_sm}")
        if rows[0]["sm"] != "90" and HOPPER_KERNELS & set(mutant.kernels):
            pytest.skip("needs a GPU of compute capability 9.0")
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
    source = (ROOT / "src" / f"{mutant.program}.cu").read_text()
    for old, new in mutant.edits:
        assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times"
        source = source.replace(old, new)


def test_every_program_has_mutants_of_its_own():
    covered = {mutant.program for mutant in MUTANTS}
    # The benchmark measures the kernels of the gating programs, and has none itself.
    assert covered == set(PROGRAMS) - {"bonus_benchmark_fused"}


@pytest.mark.parametrize("program", sorted({mutant.program for mutant in MUTANTS}))
def test_every_kernel_is_broken_by_some_mutant(program):
    broken = {name for m in MUTANTS if m.program == program for name in m.kernels}
    borrowed = {**{name: {"copy"} for name in MATRIX},
                "3_matmul_tensorcore": {"cublas_fp16"},  # measured for comparison
                "6_gating_fused": {"six_kernels", "library_best", "copy"},
                "bonus_matmul_hopper": {"cublas", "cublaslt_best"},
                "bonus_matmul_register_tiled": {"cublas_fp32"}}.get(program, set())
    assert broken == set(kernels_of(GPU, program)) - borrowed
