"""Every mutant (a program with one bug: MUTANTS of its page) is rejected, and the kernels beside
the broken one are not."""

import functools
import itertools
import os
import random
import re

import pytest

import suite
from pages import KINDS, NEEDED, SRC, kernel_headers, of_page, why_not
from suite import CPU, FAILED, PROGRAMS, ROOT, SKIPPED, WRONG, describe, needs, read_rows, run

# What a GPU says of a kernel that it had to end.
FAULT = "cudaError(LaunchFailure|IllegalAddress|IllegalInstruction|MisalignedAddress)"
MUTANTS = [(program, mutant) for program in suite.QUICK or PROGRAMS
           for mutant in of_page(program, "MUTANTS")]


@pytest.fixture
def few_multiprocessors(live):
    """Two cores, with which the simulator has four multiprocessors, as on any machine with so few.
    With many, each block would have a single tile, and nothing to do wrong after it."""
    cores = os.sched_getaffinity(0)
    if live is CPU:
        os.sched_setaffinity(0, random.sample(sorted(cores), min(2, len(cores))))
    yield
    os.sched_setaffinity(0, cores)


@pytest.mark.usefixtures("few_multiprocessors")
@pytest.mark.parametrize("program, mutant", MUTANTS, ids=[mutant.name for _, mutant in MUTANTS])
def test_a_mutant_is_rejected(live, program, mutant):
    sizes = live.sizes_for(mutant)
    if not sizes:
        pytest.skip("shows only at sizes that take too long here")
    bundle = live.mutants / program
    if not bundle.exists():
        pytest.skip(f"{bundle.relative_to(ROOT)} is not built")
    once = [] if mutant.timed else ["--once"]
    kernels = set(mutant.kernels.split())
    rejected = {}
    schedules = live.schedules + live.block_schedules if mutant.race else live.schedules[:1]
    for size, schedule in itertools.product(sizes, schedules):
        done = run(bundle, mutant.name, *size, "--csv", *once, env={"DEMO_SCHEDULE": schedule})
        if done.returncode == SKIPPED and live.may_skip(program):
            pytest.skip(done.stderr.strip())
        if mutant.stops and done.returncode == FAILED:
            assert mutant.stops in done.stderr if live is CPU else re.search(FAULT, done.stderr)
            rejected[size, schedule] = True
            continue
        assert done.returncode in (0, WRONG), done.stderr
        rows = read_rows(done.stdout)
        assert {row["program"] for row in rows} == {program}
        if rows[0]["sm"] and int(rows[0]["sm"]) < mutant.oldest_sm:
            pytest.skip(f"has no effect before sm_{mutant.oldest_sm}")
        expected = {c["kernel"] for c in describe(program, *size)["contenders"]
                    if c["kernel"] in kernels and c["only"] in (None, rows[0]["shape"])}
        assert expected or not kernels, f"{size}: none of the broken kernels runs"
        lacking = expected & set(needs(program)) - {row["kernel"] for row in rows}
        if lacking:
            pytest.skip("; ".join(needs(program)[kernel] for kernel in sorted(lacking)))
        wrong = {row["kernel"] for row in rows if row["verified"] == "no"}
        assert wrong <= expected, f"{size}: other kernels are called wrong"
        assert (done.returncode == WRONG) == bool(wrong)
        # One line about each wrong kernel.
        assert len(done.stderr.splitlines()) == len(wrong)
        rejected[size, schedule] = wrong == expected
        if mutant.race and wrong == expected:
            break

    enough = any if mutant.race else all
    assert enough(rejected.values()), f"accepted although {mutant.reason}: {rejected}"


def with_shared(program):
    """The program, and those with which it shares kernels: not merely what kernels are made of."""
    headers = {name for name in kernel_headers(program)
               if "__global__" in (SRC / name).read_text("utf-8")}
    return {other for other in PROGRAMS if other == program or headers & set(kernel_headers(other))}


def own_kernels(program):
    """Those of its kernels that are broken here: neither yardsticks, which are measured for
    comparison (a copy, or what another program is about), nor the library's, nor those at home
    elsewhere. Of programs that run a kernel, its home is one whose file defines it, else the one
    that teaches it (a lesson before a bonus), and else the one with the fewest headers."""
    source = (SRC / f"{program}.cu").read_text("utf-8")

    def at_home(kernel):
        return re.search(rf"\bvoid\s[^;{{}}]*?\b{kernel}\(", source) or program == min(
            (c["role"] == "record", name.startswith("bonus_"), len(kernel_headers(name)), name)
            for name in with_shared(program) for c in describe(name)["contenders"]
            if c["kernel"] == kernel)[-1]

    return [c["kernel"] for c in describe(program)["contenders"]
            if c["role"] not in ("yardstick", "limit", "library", "mistake")
            and at_home(c["kernel"])]


@functools.lru_cache(maxsize=None)
def contenders(program):
    """{kernel: contender}: of the usual run, and of those of its mutants. They may be of another
    shape, with kernels of its own."""
    runs = {run for mutant in of_page(program, "MUTANTS") for run in mutant.runs + mutant.cpu_runs}
    return {c["kernel"]: c for run in ("", *sorted(runs))
            for c in describe(program, *run.split())["contenders"]}


def adds_a_bias(program, kernel):
    """Whether some input has fewer dimensions than the output, so that it is broadcast."""
    return any(len(operand["shape"]) < len(problem["outputs"][0]["shape"])
               for problem in describe(program)["problems"] if kernel in problem["contenders"]
               for operand in problem["inputs"])


def cell(program, kernel, kind):
    """The mutants of this kind that break the kernel; or why there can be none."""
    mutants = [m.name for m in of_page(program, "MUTANTS") if m.kind_of(kernel) == kind]
    if mutants:
        return " ".join(mutants)
    if kind == "bias" and not adds_a_bias(program, kernel):
        return "has no operand that is broadcast"
    return why_not(program, kernel, kind)


@pytest.mark.full
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_kernel_has_every_usual_mistake(program):
    """But those that it cannot have: its text or its inputs show that, or its page says why."""
    said = of_page(program, "NOT_APPLICABLE", {})
    cells = {(kernel, kind): cell(program, kernel, kind)
             for kernel in own_kernels(program) for kind in KINDS}
    empty = {place for place, text in cells.items() if not text}
    assert empty == {(kernel, kind) for kind in said for kernel in said[kind]}, (
        "neither a mutant nor a reason, or a reason and no need of one")
    assert all(reason for reasons in said.values() for reason in reasons.values())


@pytest.mark.full
def test_what_a_kernels_text_rules_out():
    """By way of all that the kernel calls: by_block's shared memory is merge_block()'s."""
    assert all(why_not("7_gelu", "fused", kind) for kind in NEEDED)
    assert not any(why_not("2_matmul_sharedmem", "matmul_sharedmem", kind)
                   for kind in NEEDED if kind != "zeroing")
    assert why_not("bonus_softmax_rows", "by_warp", "stale")
    assert not why_not("bonus_softmax_rows", "by_block", "stale")
    assert not why_not("bonus_gating_talk", "fused_talk_hopper", "zeroing")
    assert why_not("bonus_gating_talk", "fused_talk_mma", "zeroing")
    assert not why_not("6_gating_fused", "fused_talk_tile", "accumulator")


def test_kinds_are_known():
    for _, mutant in MUTANTS:
        kinds = [mutant.kind_of(kernel) for kernel in mutant.kernels.split()]
        assert set(kinds) <= {"", *KINDS}, mutant.name
        if isinstance(mutant.kind, dict):
            assert set(mutant.kind) <= set(mutant.kernels.split()), mutant.name


@pytest.mark.full
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_kernel_is_broken_by_some_mutant(program):
    """The library's as well, which lesson 4 is about."""
    known = contenders(program)
    own = {kernel for kernel in known if known[kernel]["role"] not in ("yardstick", "limit")}
    broken = {name: {kernel for mutant in of_page(name, "MUTANTS")
                     for kernel in mutant.kernels.split()} for name in with_shared(program)}
    assert own <= set().union(*broken.values())
    assert broken[program] <= known.keys()


def test_every_mutant_has_a_name_of_its_own():
    names = [mutant.name for _, mutant in MUTANTS]
    assert len(set(names)) == len(names) > 0
