"""README's table of programs: that it is what each program says of itself (update_readme.py)."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from suite import (COLUMNS, FAILED, PROGRAMS, ROOT, USAGE, VERIFIED, WRONG, assert_one_line,
                   describe)


def rows(text):
    """{program: its idea} of the table in a README's text, in its order."""
    part = text.partition("<!-- programs:begin -->")[2].partition("<!-- programs:end -->")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", part, re.MULTILINE))


def this_readme():
    return rows((ROOT / "README.md").read_text(encoding="utf-8"))


def test_every_program_has_a_row():
    assert sorted(this_readme()) == PROGRAMS


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_row_is_the_programs_summary(program):
    summary = describe(program)["summary"]
    assert this_readme()[program].replace("\\", "") == summary
    assert not re.search(r"[`\n]", summary), "--help prints it too"


# --- The script, with fake programs -------------------------------------------------------------


class Project:
    """A copy of the scripts, with a README and programs that describe themselves."""

    SUMMARIES = {"2_second": "the second, of two", "10_tenth": "a * b, x[4*S*S] | f<T>",
                 "bonus_first": "what comes last"}
    README = ("# Title\n<!-- programs:begin -->\nold\n<!-- programs:end -->\nbetween\n"
              "<!-- results:begin -->\n<!-- results:end -->\nafter\n")

    def __init__(self, root):
        self.root, self.readme = root, root / "README.md"
        shutil.copytree(ROOT / "scripts", root / "scripts")
        for folder in ("src", "cpu", "results"):
            (root / folder).mkdir()
        measured = {**dict.fromkeys(COLUMNS, "1"), **{
            "program": "2_second", "kernel": "k", "gpu": "GPU A", "sm": "90", "dtype": "fp32",
            "shape": "square", "gb_per_s": "", "verified": "yes", "role": "ours"}}
        (root / "results/a.csv").write_text("\n".join([
            "# GPU: GPU A", ",".join(COLUMNS), ",".join(measured[name] for name in COLUMNS), ""]))
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
        return subprocess.run([sys.executable, str(self.root / "scripts/update_readme.py"),
                               *arguments], capture_output=True, text=True, timeout=120)

    def rows(self):
        return rows(self.readme.read_text())


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
