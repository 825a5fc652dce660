"""What keeps the source fit for a projector and a lecture."""

import re
import shutil
import subprocess

import pytest

from suite import PROGRAMS, ROOT

CLANG_FORMAT = 14  # other versions lay some lines out otherwise
FORMATTED = sorted(
    path for folder in ("src", "include", "simulator", "tests")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".cu", ".cuh", ".cpp", ".hpp", ".h"))


def source(program):
    return (ROOT / "src" / f"{program}.cu").read_text(encoding="utf-8")


def test_clang_format_would_change_nothing():
    if not shutil.which("clang-format"):
        pytest.skip("clang-format is not installed")
    version = subprocess.run(["clang-format", "--version"], capture_output=True, text=True).stdout
    major = int(re.search(r"version (\d+)", version)[1])
    if major != CLANG_FORMAT:
        pytest.skip(f"clang-format {major} is installed, and {CLANG_FORMAT} decides here")
    done = subprocess.run(["clang-format", "--dry-run", "--Werror"] + FORMATTED,
                          capture_output=True, text=True, cwd=ROOT)
    places = re.findall(r"^(.*?:\d+):", done.stderr, re.MULTILINE)
    assert done.returncode == 0, "run clang-format -i: " + " ".join(places[:20])


def test_no_line_is_too_long_for_the_projector():
    pages = ROOT / "tests/programs"  # they quote the source
    scripts = [path for folder in ("scripts", "tests", "simulator")
               for path in (ROOT / folder).rglob("*")
               if path.suffix in (".py", ".sh") and path.parent != pages]
    long = [f"{path.relative_to(ROOT)}:{i}" for path in FORMATTED + scripts
            for i, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if len(line) > 100]
    assert not long


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_begins_with_its_idea(program):
    header = re.match(r"(//[^\n]*\n)+", source(program))
    assert header and len(header[0].splitlines()) >= 5
    number = program.split("_")[0]
    kinds = ("// Bonus: ", "// Experiment: ") if number == "bonus" else f"// {number}: "
    assert header[0].startswith(kinds)


@pytest.mark.parametrize("path", [*sorted((ROOT / "scripts").rglob("*.sh")),
                                  *(ROOT / "scripts").glob("*.sbatch"),
                                  *(ROOT / "tests").glob("*.sh"), ROOT / ".ci/run"],
                         ids=lambda path: path.name)
def test_shell_scripts_parse(path):
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", "-x", str(path)], capture_output=True, text=True,
                              cwd=ROOT)
        assert done.returncode == 0, done.stdout
