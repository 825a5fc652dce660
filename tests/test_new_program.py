"""A program is two files: with those of tests/data/new_program, and nothing else edited, a copy of
the tree has one program more, which is built, described, listed, compared, plotted and tested. On
the simulator."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from fakes import python_with_matplotlib
from shared import programs
from suite import PROGRAMS, ROOT, WRONG, own_files, read_rows, scons

pytestmark = pytest.mark.full

NAME = "bonus_example"
EXAMPLE = ROOT / "tests/data/new_program"
TWO_FILES = {f"src/{NAME}.cu": EXAMPLE / f"{NAME}.cu",
             f"tests/programs/{NAME}.py": EXAMPLE / f"{NAME}.py"}
MADE = {"build", "cpu", ".sconsign.dblite", ".sconf_temp", "__pycache__"}  # and nobody's to edit


def contents(root):
    """{path: content} of the files that somebody wrote."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*")
            if path.is_file() and not MADE & set(path.relative_to(root).parts)}


class Tree:
    """A copy of this tree, with what is built of the simulator, so that one program takes seconds;
    then the two files."""

    def __init__(self, root, files):
        self.root = root
        self.program = root / "cpu" / NAME
        for file in files:
            self.copy(ROOT / file, file)
        self.before = contents(root)
        for file in [".sconsign.dblite", *(ROOT / "build/cpu/release").glob("*.o"),
                     *(ROOT / "build/cpu/release").glob("src/demo/*.o"),
                     *(ROOT / "build/cpu/release").glob("**/first.hpp*"),
                     *(ROOT / "build/cpu/release/conf").glob("*")]:
            self.copy(ROOT / file, (ROOT / file).relative_to(ROOT))
        (root / "cpu").mkdir()
        for name in PROGRAMS:
            if (ROOT / "cpu" / name).exists():
                (root / "cpu" / name).symlink_to(ROOT / "cpu" / name)
        for file, source in TWO_FILES.items():
            self.copy(source, file)

    def copy(self, source, file):
        (self.root / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, self.root / file)

    def command(self, *words):
        return subprocess.run([str(word) for word in words], cwd=self.root, capture_output=True,
                              text=True, timeout=300, stdin=subprocess.DEVNULL)

    def must(self, *words):
        """What a command that goes well prints."""
        done = self.command(*words)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr
        return done.stdout

    def pytest(self, *arguments):
        """{test: what came of it}"""
        lines = self.must(sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider",
                          "--color=no", *arguments)
        return dict(re.findall(r"^(\S+::.*\S) (PASSED|SKIPPED)\b", lines, re.MULTILINE))

    def rows(self):
        """{program: its idea}, of README's table."""
        text = (self.root / "README.md").read_text(encoding="utf-8")
        part = text.partition("<!-- bonuses:begin -->")[2].partition("<!-- bonuses:end -->")[0]
        return dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", part, re.MULTILINE))


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    if not (ROOT / ".sconsign.dblite").exists() or not (ROOT / "build/cpu/release").exists():
        pytest.skip("the simulator is not built: scons cpu")
    tree = Tree(tmp_path_factory.mktemp("new") / "tree", own_files())
    built = scons(f"cpu/{NAME}", cwd=tree.root)
    assert built.returncode == 0 and tree.program.exists(), built.stdout + built.stderr
    return tree


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("size", [("64",), ("--rows", "37", "--cols", "1003")], ids=" ".join)
def test_it_is_verified(tree, size, dtype):
    rows = read_rows(tree.must(tree.program, *size, "--dtype", dtype, "--csv", "--once"))
    assert [(row["kernel"], row["dtype"], row["verified"]) for row in rows] == [
        ("chain", dtype, "yes"), ("fused", dtype, "yes")]
    assert all(0 < float(row["error_of_bound"]) < 1 for row in rows)


def test_it_is_described_and_listed(tree):
    about = json.loads(tree.must(tree.program, "--describe"))
    assert about["program"] == NAME and about["summary"] in (EXAMPLE / f"{NAME}.cu").read_text()
    assert {c["kernel"]: c["role"] for c in about["contenders"]} == {
        "chain": "chain", "fused": "ours"}
    listed = tree.must("env", "PYTHONPATH=scripts", sys.executable, "-c",
                       "from shared import programs; print(*programs.listed())").split()
    assert sorted(listed) == sorted([*PROGRAMS, NAME])
    assert programs.runs_to_show(programs.describe(tree.program), 33, 16) == [("N=33", "33")]
    runs = programs.runs_to_measure(programs.describe(tree.program))
    assert "4096 --dtype fp16" in [run.arguments for run in runs]


def test_it_has_a_row_in_the_readme(tree):
    missing = [name for name in PROGRAMS if not (tree.root / "cpu" / name).exists()]
    if missing:
        pytest.skip("not built for the simulator: " + " ".join(missing))
    before = tree.rows()
    update = [sys.executable, "scripts/update_docs.py"]
    assert tree.command(*update, "--check").returncode == WRONG
    tree.must(*update)
    assert tree.rows()[NAME] in (EXAMPLE / f"{NAME}.cu").read_text()
    assert set(tree.rows()) - set(before) == {NAME}
    tree.must(*update, "--check")


@pytest.fixture(scope="module")
def measured(tree, tmp_path_factory):
    """A file of its rows at two sizes, as if a GPU's: the simulator's figures are not compared."""
    first, second = (tree.must(tree.program, n, "--csv") for n in (32, 65))
    file = tmp_path_factory.mktemp("measured") / "a.csv"
    rows = first + second.partition("\n")[2]
    file.write_text(rows.replace('"CPU simulation",,', "GPU A,90,"))
    return file


def test_it_is_compared(tree, measured):
    printed = tree.must("scripts/compare_gpus.sh", "--table", measured)
    for n in (32, 65):
        assert re.search(rf"^{NAME} N={n}, .*\n  chain +fp32 .*\n  fused +fp32 ", printed, re.M)


def test_it_is_plotted(tree, measured, tmp_path):
    tree.must(python_with_matplotlib(), "scripts/plot.py", "--out", tmp_path, measured)
    drawn = (tmp_path / f"curves-{NAME}-fp32-light.svg").read_text()
    assert "chain" in drawn and "fused" in drawn


def test_the_tests_of_every_program_take_it(tree):
    """Those of README too, where its row could be written."""
    chosen = NAME if NAME in tree.rows() else f"{NAME} and not readme"
    outcomes = tree.pytest("tests", "-k", chosen, "--ignore=tests/test_mutants.py")
    assert any(NAME in test and outcome == "PASSED" for test, outcome in outcomes.items())


def test_its_mutants_are_rejected(tree):
    built = scons(f"cpu/mutants/{NAME}", cwd=tree.root)
    assert built.returncode == 0, built.stdout + built.stderr
    outcomes = tree.pytest("tests/test_mutants.py", "-k", "example")
    mutants = re.findall(r'Mutant\("(\w+)"', (EXAMPLE / f"{NAME}.py").read_text())
    assert mutants
    for mutant in mutants:
        assert any("cpu" in test and mutant in test and outcome == "PASSED"
                   for test, outcome in outcomes.items()), f"{mutant}: {outcomes}"


def test_nothing_else_was_edited(tree):
    """README's table is written by a script, and is all of README that has changed."""
    after = contents(tree.root)
    changed = {file for file in after.keys() | tree.before.keys()
               if after.get(file) != tree.before.get(file)}
    assert changed - {"README.md"} == set(TWO_FILES)
    old, new = (re.sub(rb"<!-- bonuses:begin -->.*<!-- bonuses:end -->", b"", files["README.md"],
                       flags=re.DOTALL) for files in (tree.before, after))
    assert old == new
