"""update_readme.py: it writes the README's tables, between the markers alone: that of the programs
from what each says of itself, the others from results/."""

import glob
import json
import os
import re
import shutil

import pytest

from fakes import copy_folders, row, script, write_csv
from suite import FAILED, PROGRAMS, ROOT, USAGE, VERIFIED, WRONG, assert_one_line, describe

# --- Results ------------------------------------------------------------------------------------


@pytest.fixture
def readme(tmp_path):
    """A project with a README and one file of results. Returns its root."""
    copy_folders(tmp_path, "scripts")
    (tmp_path / "results").mkdir()
    write_csv(tmp_path / "results/h200.csv", row(tflops="3.210"),
              row("6_gating_fused", "fused_tiled", dtype="fp16", shape="talk", n="1024",
                  tflops="345.0", gb_per_s="4100"),
              comments=["GPU: NVIDIA H200", "driver: 580", "toolkit: 13.0", "date: 2026-01-01"])
    (tmp_path / "README.md").write_text(
        "# Title\nbefore\n<!-- results:begin -->\nold\n<!-- results:end -->\nafter\n")
    return tmp_path


def test_bad_arguments_end_with_one_line():
    done = script("update_readme.py", "--bogus")
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "update_readme.py")


def test_update_readme_writes_between_the_markers_alone(readme):
    assert script("update_readme.py", "--check", root=readme).returncode == 1
    assert script("update_readme.py", root=readme).returncode == 0
    text = (readme / "README.md").read_text()
    assert text.startswith("# Title\nbefore\n<!-- results:begin -->\n")
    assert text.endswith("\n<!-- results:end -->\nafter\n")
    assert "old" not in text
    assert "NVIDIA H200" in text and "3.21" in text and "345" in text and "4100" in text
    assert script("update_readme.py", "--check", root=readme).returncode == 0
    assert script("update_readme.py", root=readme).returncode == 0
    assert (readme / "README.md").read_text() == text  # once more changes nothing


def test_update_readme_shows_what_fusion_saved(readme):
    def gelu(kernel, n, ms, launches, moved, **more):
        return row("7_gelu", kernel, n=n, median_ms=ms, launches=launches, moved_bytes=moved,
                   gb_per_s="100", **more)

    chain, library = {"role": "chain"}, {"role": "library"}

    write_csv(readme / "results/h200.csv", row(),
              gelu("nine", "1024", "0.5", "9", "9000000000", **chain),
              gelu("fused", "1024", "0.3", "1", "1000000000"),
              gelu("nine", "2048", "8.0", "9", "36000000000", **chain),
              gelu("calls", "2048", "5.0", "2", "8000000000", **library),
              gelu("fused", "2048", "4.0", "1", "4000000000"),
              gelu("fused_vectorized", "2048", "2.0", "1", "4000000000"),
              gelu("faster_but_wrong", "2048", "1.0", "1", "4000000000", verified="no"),
              gelu("not_counted", "2048", "0.1", "", "4000000000"),
              gelu("copy", "2048", "1.0", "1", "4000000000", role="yardstick"))
    assert script("update_readme.py", root=readme).returncode == 0
    _, _, saved = (readme / "README.md").read_text().partition("What fusion saved")
    lines = [line for line in saved.splitlines() if line.startswith("| `")]
    assert lines == ["| `7_gelu` | nine -> fused_vectorized | fp32 | N=2048 | 9 -> 1 "
                     "| 36.0 -> 4.00 | 8.00 -> 2.00 | 4.00x |",
                     "| `7_gelu` | calls -> fused_vectorized | fp32 | N=2048 | 2 -> 1 "
                     "| 8.00 -> 4.00 | 5.00 -> 2.00 | 2.50x |"]


def test_update_readme_check_notices_new_results_and_changes_nothing(readme):
    script("update_readme.py", root=readme)
    before = (readme / "README.md").read_text()
    write_csv(readme / "results/h200.csv", row(tflops="9.870"))
    done = script("update_readme.py", "--check", root=readme)
    assert done.returncode == 1
    assert_one_line(done.stderr, "update_readme.py")
    assert (readme / "README.md").read_text() == before


@pytest.mark.parametrize("damage", ["markers", "results", "broken"])
def test_update_readme_refuses_what_it_cannot_do(readme, damage):
    if damage == "markers":
        (readme / "README.md").write_text("# Title\n")
    elif damage == "results":
        shutil.rmtree(readme / "results")
    else:
        (readme / "results/b.csv").write_text("nonsense\n")
    before = (readme / "README.md").read_text()
    done = script("update_readme.py", root=readme)
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "update_readme.py")
    assert (readme / "README.md").read_text() == before


def test_this_readme_shows_what_results_holds():
    if not glob.glob(str(ROOT / "results/*.csv")):
        pytest.skip("results/ holds no measurements yet")
    done = script("update_readme.py", "--check")
    if done.returncode == FAILED:
        pytest.skip(done.stderr.strip())  # not all programs are built
    assert done.returncode == 0, done.stderr


# --- The programs -------------------------------------------------------------------------------


def table_of(text):
    """{program: its idea} of the table in a README's text, in its order."""
    part = text.partition("<!-- programs:begin -->")[2].partition("<!-- programs:end -->")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", part, re.MULTILINE))


def this_readme():
    return table_of((ROOT / "README.md").read_text(encoding="utf-8"))


def test_every_program_has_a_row():
    assert sorted(this_readme()) == PROGRAMS


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_row_is_the_programs_summary(program):
    summary = describe(program)["summary"]
    assert this_readme()[program].replace("\\", "") == summary
    assert not re.search(r"[`\n]", summary), "--help prints it too"


class Project:
    """A copy of the scripts, with a README and programs that describe themselves."""

    SUMMARIES = {"2_second": "the second, of two", "10_tenth": "a * b, x[4*S*S] | f<T>",
                 "bonus_first": "what comes last"}
    README = ("# Title\n<!-- programs:begin -->\nold\n<!-- programs:end -->\nbetween\n"
              "<!-- results:begin -->\n<!-- results:end -->\nafter\n")

    def __init__(self, root):
        self.root, self.readme = root, root / "README.md"
        copy_folders(root, "scripts")
        for folder in ("src", "cpu", "results"):
            (root / folder).mkdir()
        write_csv(root / "results/a.csv", row("2_second"), comments=["GPU: GPU A"])
        self.readme.write_text(self.README)
        for name, summary in self.SUMMARIES.items():
            (root / f"src/{name}.cu").touch()
            self.build(root / "cpu" / name, summary)

    @staticmethod
    def build(path, summary, seconds_ago=0):
        """A program that says so of itself."""
        about = dict.fromkeys("sweep sizes talk shapes dtypes options".split(), None)
        about.update(program=path.name, summary=summary)
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(about)}\nEND\n")
        path.chmod(0o755)
        built = path.stat().st_mtime - seconds_ago
        os.utime(path, (built, built))

    def update(self, *arguments):
        return script("update_readme.py", *arguments, root=self.root)

    def rows(self):
        return table_of(self.readme.read_text())


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def test_the_table_is_written_in_the_order_of_the_talk(project):
    done = project.update()
    assert (done.returncode, done.stdout, done.stderr) == (VERIFIED, "", "")
    assert list(project.rows().items()) == [
        ("2_second", "the second, of two"), ("10_tenth", r"a * b, x[4\*S\*S] \| f\<T>"),
        ("bonus_first", "what comes last")]
    text = project.readme.read_text()
    assert text.startswith(
        "# Title\n<!-- programs:begin -->\n\n| program | the idea |\n|---|---|\n| `2_second` | ")
    assert "\n<!-- programs:end -->\nbetween\n" in text and "old" not in text
    assert project.update("--check").returncode == VERIFIED
    assert project.update().returncode == VERIFIED
    assert project.readme.read_text() == text  # once more changes nothing


def test_check_notices_a_changed_summary_and_changes_nothing(project):
    project.update()
    before = project.readme.read_text()
    project.build(project.root / "cpu/2_second", "another idea")
    done = project.update("--check")
    assert done.returncode == WRONG
    assert_one_line(done.stderr, "update_readme.py")
    assert project.readme.read_text() == before
    assert project.update().returncode == VERIFIED
    assert project.rows()["2_second"] == "another idea"
    assert project.update("--check").returncode == VERIFIED


def test_a_new_program_gets_a_row(project):
    project.update()
    (project.root / "src/bonus_new.cu").touch()
    project.build(project.root / "cpu/bonus_new", "what is new")
    assert project.update("--check").returncode == WRONG
    assert project.update().returncode == VERIFIED
    assert project.rows()["bonus_new"] == "what is new"


@pytest.mark.parametrize("seconds_ago, told", [(100, "simulator"), (-100, "GPU")])
def test_the_latest_build_says_it(project, seconds_ago, told):
    project.build(project.root / "cpu/2_second", "simulator")
    project.build(project.root / "2_second", "GPU", seconds_ago)
    assert project.update().returncode == VERIFIED
    assert project.rows()["2_second"] == told


@pytest.mark.parametrize("arguments", [(), ("--check",)], ids=["write", "check"])
@pytest.mark.parametrize("damage", ["not built", "says nothing"])
def test_all_programs_must_be_built(project, damage, arguments):
    if damage == "not built":
        (project.root / "cpu/10_tenth").unlink()
    else:
        (project.root / "cpu/10_tenth").write_text("#!/bin/sh\nexit 1\n")
    done = project.update(*arguments)
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert_one_line(done.stderr, "update_readme.py")
    assert "10_tenth" in done.stderr and "2_second" not in done.stderr
    assert project.readme.read_text() == project.README


def test_the_markers_must_be_there(project):
    project.readme.write_text(project.README.replace("programs:end", "programs:stop"))
    before = project.readme.read_text()
    done = project.update()
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "update_readme.py")
    assert "programs:end" in done.stderr
    assert project.readme.read_text() == before


def test_without_programs_their_part_stays(project):
    shutil.rmtree(project.root / "src")
    assert project.update().returncode == VERIFIED
    text = project.readme.read_text()
    assert "<!-- programs:begin -->\nold\n<!-- programs:end -->" in text
    assert "GPU A" in text
