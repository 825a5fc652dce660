"""What all scripts have in common: --help, where they may be called from, what they may know of the
programs."""

import ast
import re

import pytest

from fakes import TWO_GPUS, FakeMachine, script
from shared import programs
from suite import FAILED, PROGRAMS, ROOT, USAGE, assert_one_line


@pytest.fixture
def machine(tmp_path):
    return FakeMachine(tmp_path)


@pytest.mark.parametrize("name", sorted(
    path.name for path in (ROOT / "scripts").iterdir() if path.suffix in (".py", ".sh", ".sbatch")))
def test_help(name):
    done = script(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert name in done.stdout


@pytest.mark.parametrize("command", [
    ["count.sh"], ["step.sh"], ["inspect.sh"], ["compare_gpus.sh", "--programs"]], ids=" ".join)
def test_a_program_has_a_name_and_a_number(command):
    """And the same answer everywhere where there is none."""
    for word in ("99", "1_matmul", "bonus", "", "1_matmul_basic.cu"):
        done = script(*command, word)
        assert (done.returncode, done.stdout) == (USAGE, "")
        assert done.stderr == (f"{command[0]}: no program '{word}'; there are "
                               f"{' '.join(programs.listed())}\n")


@pytest.mark.parametrize("word, name", [
    ("1", "1_matmul_basic"), ("13", "13_dlrm"), ("6_gating_fused", "6_gating_fused"),
    ("bonus_matmul_mma", "bonus_matmul_mma"),
])
def test_a_program_is_found_by_either(word, name):
    assert programs.find(word) == name


def test_programs_are_listed_in_the_order_of_the_talk():
    names = programs.listed()
    assert sorted(names) == PROGRAMS and programs.lessons() == names[:len(programs.lessons())]
    numbers = [int(name.split("_")[0]) for name in programs.lessons()]
    assert numbers == sorted(numbers) and numbers[-1] >= 10
    assert all(name.startswith("bonus_") for name in names[len(numbers):])


def test_bad_arguments_of_ncu_counts_end_with_one_line():
    done = script("count/ncu_counts.py", "table", "x.csv")
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "ncu_counts.py")


@pytest.mark.parametrize("name, arguments", [
    ("run.sh", []), ("compare_gpus.sh", ["--sizes", "64"]), ("count.sh", ["10"]),
], ids=["run.sh", "compare_gpus.sh", "count.sh"])
def test_a_program_that_is_not_built_is_named(machine, name, arguments):
    machine.has(TWO_GPUS[0])
    (machine.root / "10_fake").unlink()
    done = machine.run(name, *arguments)
    assert done.returncode == FAILED
    [line] = [line for line in (done.stdout + done.stderr).splitlines() if "not built" in line]
    assert "10_fake" in line
    if name == "compare_gpus.sh":
        assert_one_line(done.stderr, name)


# --- What scripts may know of the programs -----------------------------------------------------

# Those in frameworks/ set other people's kernels beside those of one program.
SCRIPTS = sorted(path for path in (ROOT / "scripts").rglob("*.[ps][yh]")
                 if path.parent.name != "frameworks")
KERNEL_NAMES = re.compile(r"(?<![a-z])(cublas|copy|six_kernels|library_best|fused|tiled|gating)")
# The trace of a profile has copies, and copies are no kernels, nor is the copy that frameworks are
# measured with; a library is named cublas, a program bonus_gating_gpus, and a page after it.
# from_pytorch.py is an example of calling one kernel.
OTHER_MEANINGS = {"compare_frameworks.py": {"copy"}, "from_pytorch.py": {"fused"},
                  "plot.py": {"gating", "tiled"}, "profile_report.py": {"copy"},
                  "profile.sh": {"copy"}, "setup.sh": {"cublas"},
                  "cuda_toolkit.py": {"cublas"}, "several_gpus.py": {"gating"},
                  "update_docs.py": {"gating"}}


def literals(path):
    """What a script's code holds as text: Python's strings, or the words of Bash; no comments, no
    help."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        tree = ast.parse(text)
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)
                and isinstance(node.value, str) and id(node) not in prose]
    text = re.sub(r"<<'END'\n.*?\nEND\n", "\n", text, flags=re.DOTALL)
    return [re.sub(r"(^|\s)#.*", "", line) for line in text.splitlines()]


def named_kernels(path):
    """Words with which a script could tell a kernel by its name, in text that is no sentence."""
    words = [word for text in literals(path) for word in text.split()
             if path.suffix == ".sh" or " " not in text]
    found = {match[0] for match in map(KERNEL_NAMES.search, words) if match}
    return found - OTHER_MEANINGS.get(path.name, set())


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_know_kernels_by_their_roles_alone(path):
    assert not named_kernels(path)
