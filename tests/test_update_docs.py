"""update_docs.py: what it writes between the markers of the documents, and nothing else."""

import json
import os
import re
import shutil

import pytest

from fakes import copy_folders, row, script, write_csv
from suite import FAILED, PROGRAMS, ROOT, USAGE, VERIFIED, WRONG, assert_one_line, describe

DOCUMENTS = ["README.md", "results/README.md", "docs/outputs.md", "docs/lecture.md",
             "docs/chapters/04-shared_memory.md", "docs/chapters/16-tiles.md"]


def table_of(text, *names):
    """{program: its cells} of the tables of these names in a README's text, in its order."""
    rows = {}
    for name in names or ("lessons", "bonuses"):
        part = text.partition(f"<!-- {name}:begin -->")[2].partition(f"<!-- {name}:end -->")[0]
        for program, cells in re.findall(r"^\| `(?:\./)?(\w+)`(?: and `--talk 1024`)? \| (.*) \|$",
                                         part, re.MULTILINE):
            rows[program] = cells.split(" | ")
    return rows


class Project:
    """A copy of the documents and of what they are made from, with programs that do no more than
    describe themselves."""

    def __init__(self, root):
        self.root = root
        copy_folders(root, "scripts", "src", "docs", "results")
        for file in ("README.md", "CITATION.cff"):
            shutil.copy(ROOT / file, root / file)
        (root / "cpu").mkdir()
        for name in PROGRAMS:
            self.build(root / "cpu" / name, f"about {name}")

    @staticmethod
    def build(path, summary, seconds_ago=0):
        """A program that says so of itself."""
        about = dict.fromkeys("sweep sizes talk shapes dtypes options".split(), None)
        about.update(program=path.name, summary=summary, options=[], problems=[])
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(about)}\nEND\n")
        path.chmod(0o755)
        built = path.stat().st_mtime - seconds_ago
        os.utime(path, (built, built))

    def update(self, *arguments):
        return script("update_docs.py", *arguments, root=self.root)

    def read(self, name):
        return (self.root / name).read_text(encoding="utf-8")

    def rows(self, *names):
        return table_of(self.read("README.md"), *names)

    def change(self, name, old, new):
        text = self.read(name)
        assert old in text
        (self.root / name).write_text(text.replace(old, new, 1), encoding="utf-8")

    def documents(self):
        return {name: self.read(name) for name in DOCUMENTS}


@pytest.fixture
def project(tmp_path):
    project = Project(tmp_path)
    assert project.update().returncode == VERIFIED
    return project


@pytest.mark.parametrize("address, link", [
    ("https://github.com/a/b.git",
     "https://colab.research.google.com/github/a/b/blob/main/docs/colab.ipynb"),
    ("https://example.org/name", "docs/colab.ipynb"),
])
def test_the_address_is_written_once(project, address, link):
    text = re.sub("\nrepository-code:.*", "", project.read("CITATION.cff"))
    for field, written, said in (("", "", "`repository-code`"),
                                 (f"repository-code: {address}", address, f"]({link}).")):
        (project.root / "CITATION.cff").write_text(text + field)
        assert project.update().returncode == VERIFIED
        assert said in project.read("README.md")
        assert rf'get(\"DEMO_REPOSITORY\", \"{written}\")' in project.read("docs/colab.ipynb")
    project.change("CITATION.cff", address, address + "/elsewhere")
    assert project.update("--check").returncode == WRONG


def test_bad_arguments_end_with_one_line():
    done = script("update_docs.py", "--bogus")
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "update_docs.py")


@pytest.mark.full
def test_it_writes_between_the_markers_alone(tmp_path):
    project = Project(tmp_path)
    before = project.documents()
    done = project.update()
    assert (done.returncode, done.stdout, done.stderr) == (VERIFIED, "", "")
    after = project.documents()
    assert before["README.md"] != after["README.md"]  # its programs say something else

    def outside(text):
        text = re.sub(r"<!-- (\w+):begin -->.*?<!-- \1:end -->", "", text, flags=re.DOTALL)
        text = re.sub(r"^```cpp\n.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
        return re.sub(r"#L\d+-L\d+", "", text)

    assert {name: outside(text) for name, text in before.items()} == {
        name: outside(text) for name, text in after.items()}
    assert project.update("--check").returncode == VERIFIED
    assert project.update().returncode == VERIFIED
    assert project.documents() == after  # once more changes nothing


@pytest.mark.full
@pytest.mark.parametrize("change", ["summary", "results", "lines", "quote", "minutes", "exercise",
                                    "output"])
def test_check_notices_what_is_out_of_date_and_changes_nothing(project, change):
    if change == "summary":
        project.build(project.root / "cpu/2_matmul_sharedmem", "another idea")
    elif change == "results":
        project.change("results/nvidia-h200.csv", ",8.654,", ",8.765,")
    elif change == "lines":
        project.change("src/1_matmul_basic.cu", "#include", "\n#include")
    elif change == "quote":
        project.change("src/bonus_tile.cu", "sum = ct::mma(", "sum = ct::mma( ")
    elif change == "minutes":
        project.change("docs/lecture.md", "**Minutes** 10. **Program** `1_", "**Minutes** 11. "
                       "**Program** `1_")
    elif change == "exercise":  # one less: README says how many
        project.change("docs/exercises.md", "### 2. Swap", "## 2. Swap")
    else:
        project.change("results/outputs/simulator/1_matmul_basic.txt", "verified", "VERIFIED")
    before = project.documents()
    done = project.update("--check")
    assert done.returncode == WRONG
    assert_one_line(done.stderr, "update_docs.py")
    assert project.documents() == before
    assert project.update().returncode == VERIFIED
    assert project.documents() != before
    assert project.update("--check").returncode == VERIFIED


@pytest.mark.full
@pytest.mark.parametrize("damage", ["markers", "broken", "headline", "function", "quote"])
def test_it_refuses_what_it_cannot_do(project, damage):
    if damage == "markers":
        project.change("README.md", "<!-- bonuses:end -->", "")
    elif damage == "broken":
        (project.root / "results/b.csv").write_text("nonsense\n")
    elif damage == "headline":
        project.change("results/nvidia-h200.csv", "2_matmul_sharedmem,matmul_sharedmem,NVIDIA H200,"
                       "90,fp32,square,4096", "2_matmul_sharedmem,another,NVIDIA H200,90,fp32,"
                       "square,4096")
    elif damage == "function":
        project.change("docs/lecture.md", "[matmul_basic](", "[no_such_function](")
    else:
        project.change("docs/chapters/04-shared_memory.md", " kernel=", " kernel=no_such_")
    before = project.documents()
    done = project.update()
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "update_docs.py")
    assert project.documents() == before


@pytest.mark.full
def test_the_results_show_what_fusion_saved(project):
    def gelu(kernel, n, ms, launches, moved, **more):
        return row("7_gelu", kernel, n=n, median_ms=ms, launches=launches, moved_bytes=moved,
                   gb_per_s="100", **more)

    chain, library = {"role": "chain"}, {"role": "library"}

    write_csv(project.root / "results/fake.csv", row(),
              gelu("nine", "1024", "0.5", "9", "9000000000", **chain),
              gelu("fused", "1024", "0.3", "1", "1000000000"),
              gelu("nine", "2048", "8.0", "9", "36000000000", **chain),
              gelu("calls", "2048", "5.0", "2", "8000000000", **library),
              gelu("fused", "2048", "4.0", "1", "4000000000"),
              gelu("fused_vectorized", "2048", "2.0", "1", "4000000000"),
              gelu("faster_but_wrong", "2048", "1.0", "1", "4000000000", verified="no"),
              gelu("not_counted", "2048", "0.1", "", "4000000000"),
              gelu("copy", "2048", "1.0", "1", "4000000000", role="yardstick"))
    assert project.update().returncode == VERIFIED
    _, _, saved = project.read("results/README.md").partition("### GPU A")[2].partition(
        "What fusion saved")
    lines = [line for line in saved.partition("\n### ")[0].splitlines() if line.startswith("| `")]
    assert lines == ["| `7_gelu` | nine -> fused_vectorized | fp32 | N=2048 | 9 -> 1 "
                     "| 36.0 -> 4.00 | 8.00 -> 2.00 | 4.00x |",
                     "| `7_gelu` | calls -> fused_vectorized | fp32 | N=2048 | 2 -> 1 "
                     "| 8.00 -> 4.00 | 5.00 -> 2.00 | 2.50x |"]


@pytest.mark.full
def test_a_headline_is_what_results_holds(project):
    text = project.read("README.md")
    line = next(line for line in text.splitlines() if line.startswith("| tiles in shared memory"))
    assert "matmul_basic, 2.95 TFLOP/s | matmul_sharedmem, 8.65 TFLOP/s |" in line
    assert line.endswith("| 2.94x |")
    project.change("results/nvidia-h200.csv", "46.639023", "93.278046")
    assert project.update().returncode == VERIFIED
    assert "| 5.87x |" in project.read("README.md")
    assert "(13%) | 5.87x | 5.87x |" in project.read("docs/figures.md")


# --- The programs -------------------------------------------------------------------------------


def test_every_lesson_has_figures():
    page = (ROOT / "docs/figures.md").read_text(encoding="utf-8")
    titles = re.findall(r"\d+_\w+", "".join(re.findall("^## .*", page, re.MULTILINE)))
    assert sorted(titles) == [name for name in PROGRAMS if name[0].isdigit()]


@pytest.mark.full
def test_an_experiment_shows_its_claims_beside_their_ranges(project):
    program = project.root / "cpu/bonus_pitfalls"
    about = {**dict.fromkeys("program summary sweep talk shapes dtypes options".split()),
             "summary": "", "program": "bonus_pitfalls", "sizes": {"measured": [64]},
             "problems": [{"contenders": ["right", "wrong"], "expected": {"wrong": [1.5, 2]}}]}
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(about)}\nEND\n")
    write_csv(project.root / "results/gpu-a.csv", *(
        row("bonus_pitfalls", kernel, n="64", median_ms=ms, role=role)
        for kernel, ms, role in [("right", "3.0", "library"), ("wrong", "2.0", "mistake")]))
    assert project.update().returncode == VERIFIED
    page = project.read("docs/experiments/pitfalls.md")
    assert "| GPU A | N = 64 | range |\n" in page and "| `wrong` | 1.5x | 1.5 to 2 |\n" in page
    assert "wrong" not in project.read("results/README.md").partition("### GPU A")[2]


@pytest.mark.full
def test_an_experiment_has_tables_of_its_own(project):
    write_csv(project.root / "results/gpu-a.csv", row("2_matmul_sharedmem", "tiles"), *(
        row("bonus_waves", kernel, dtype="fp16", n=n, median_ms=ms, predicted_ms=predicted)
        for n, kernel, ms, predicted in [("256", "late", "1.1", "1.0"), ("256", "other", "0.9", ""),
                                         ("512", "late", "2.0", "1.9")]),
        row("bonus_memory", "strided", dtype="uint32", shape="strides", n="8", figure="77",
            unit="GB/s", gb_per_s="1"))
    assert project.update().returncode == VERIFIED
    text = project.read("results/README.md").partition("### GPU A")[2].partition("\n### ")[0]
    assert "by N:\n\n| N | predicted, ms | late, ms | other, ms |\n" in text
    assert "\n| 256 | 1.00 | 1.10 | 0.900 |\n| 512 | 1.90 | 2.00 | - |\n" in text
    assert "`bonus_memory`, uint32, strides, by N:\n\n| N | strided, GB/s |\n" in text
    assert text.count("late") == 1 and "GB/s of the least" not in text


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_row_has_the_programs_summary(program):
    summary = describe(program)["summary"]
    row = table_of((ROOT / "README.md").read_text(encoding="utf-8"))[program]
    assert row[0].replace("\\", "") == summary
    assert not re.search(r"[`\n]", summary), "--help prints it too"


def test_the_rows_are_in_the_order_of_the_course(project):
    assert list(project.rows("lessons")) == sorted(project.rows("lessons"),
                                                   key=lambda name: int(name.split("_")[0]))
    assert all(name.startswith("bonus_") for name in project.rows("bonuses"))


@pytest.mark.full
def test_what_markdown_would_take_for_its_own_is_shown_as_it_is(project):
    project.build(project.root / "cpu/2_matmul_sharedmem", "a * b, x[4*S*S] | f<T>")
    assert project.update().returncode == VERIFIED
    assert r"| a * b, x[4\*S\*S] \| f\<T> |" in project.read("README.md")


@pytest.mark.full
def test_a_new_program_gets_a_row(project):
    (project.root / "src/bonus_new.cu").touch()
    project.build(project.root / "cpu/bonus_new", "what is new")
    assert project.update("--check").returncode == WRONG
    assert project.update().returncode == VERIFIED
    assert project.rows()["bonus_new"] == ["what is new"]


def test_a_program_that_is_not_built_is_named(project):
    (project.root / "cpu/7_gelu").unlink()
    done = project.update()
    assert done.returncode == FAILED
    assert_one_line(done.stderr, "update_docs.py")
    assert "7_gelu" in done.stderr


@pytest.mark.full
def test_a_document_that_cannot_be_written_or_read_is_named(project):
    project.build(project.root / "cpu/2_matmul_sharedmem", "another idea")
    (project.root / "README.md.new").mkdir()  # where the new text is written first
    before = project.documents()
    done = project.update()
    assert (done.returncode, project.documents()) == (FAILED, before)
    assert_one_line(done.stderr, "update_docs.py")
    assert "README.md: " in done.stderr
    (project.root / "docs/tools.md").write_bytes(b"\xff\xfe")
    done = project.update()
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "update_docs.py")
    assert "tools.md: not a text file" in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("seconds_ago, told", [(100, "simulator"), (-100, "GPU")])
def test_the_latest_build_says_it(project, seconds_ago, told):
    project.build(project.root / "cpu/2_matmul_sharedmem", "simulator")
    project.build(project.root / "2_matmul_sharedmem", "GPU", seconds_ago)
    assert project.update().returncode == VERIFIED
    assert project.rows()["2_matmul_sharedmem"][0] == told


# --- This tree ----------------------------------------------------------------------------------


def test_the_documents_are_up_to_date():
    done = script("update_docs.py", "--check")
    if done.returncode == FAILED:
        pytest.skip(done.stderr.strip())  # not all programs are built
    assert done.returncode == 0, done.stderr
