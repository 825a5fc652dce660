"""Mutants made by rule (generated_mutants.py): each is rejected on the simulator in some order of
the threads, or its program's page says why it does no harm. For scripts/test.sh --all alone."""

import subprocess

import pytest

from generated_mutants import generated
from pages import of_page
from suite import CPU, EVERYTHING, PROGRAMS, ROOT, any_shape, run, takes_n, takes_talk

pytestmark = pytest.mark.full

MUTANTS = [(program, mutant) for program in PROGRAMS if EVERYTHING
           for mutant in generated(program, PROGRAMS)]


def runs(program):
    """Command lines that together come to every kernel, and to edges of its tiles."""
    return ([["96"], ["160"]] * takes_n(program) + [["--talk", "16"]] * takes_talk(program)
            + [["--rows", "5", "--cols", cols, "--dtype", "fp16"] for cols in ("7", "1032", "9001")
               if any_shape(program)]
            + [arguments.split() for arguments in of_page(program, "ANY_ORDER")])


def is_rejected(program, mutant):
    """Whether some run ends badly, or not at all."""
    for arguments in runs(program):
        for schedule in CPU.schedules:
            try:
                done = run(ROOT / "cpu/generated" / program, mutant.name, *arguments, "--once",
                           timeout=60, env={"DEMO_SCHEDULE": schedule})
            except subprocess.TimeoutExpired:
                return True
            if done.returncode != 0:
                return True
    return False


@pytest.mark.parametrize("program, mutant", MUTANTS,
                         ids=[f"{program}-{mutant.name}" for program, mutant in MUTANTS])
def test_a_mutant_made_by_rule_is_rejected(program, mutant):
    harmless = of_page(program, "HARMLESS", {})
    if f"{mutant.rule}: {mutant.line}" not in harmless:
        assert is_rejected(program, mutant), f"{mutant.rule}: {mutant.line}"


def test_what_is_harmless_is_there():
    """No entry outlives its line."""
    for program in PROGRAMS:
        lines = {f"{mutant.rule}: {mutant.line}" for mutant in generated(program, PROGRAMS)}
        assert set(of_page(program, "HARMLESS", {})) <= lines
