"""What keeps the source fit for a projector and a lecture."""

import re

import pytest

from fakes import script
from suite import PROGRAMS, ROOT

CLANG_FORMAT = ROOT / ".venv/bin/clang-format"
linted = pytest.mark.skipif(not CLANG_FORMAT.exists(), reason="no linters: test.sh installs them")


@linted
def test_the_linters_find_nothing():
    done = script("lint.sh")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_begins_with_its_idea(program):
    source = (ROOT / "src" / f"{program}.cu").read_text(encoding="utf-8")
    header = re.match(r"(//[^\n]*\n)+", source)
    assert header and len(header[0].splitlines()) >= 5
    number = program.split("_")[0]
    kinds = ("// Bonus: ", "// Experiment: ") if number == "bonus" else f"// {number}: "
    assert header[0].startswith(kinds)
