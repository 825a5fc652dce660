"""docs/exercises.md and scripts/exercise.sh: each solution is right and prints what is promised;
the program as it comes, and wrong answers, are not right."""

import re
import shutil
import subprocess

import pytest

import judging
from exercises import FACTS, QUICK, SOLVED, bundle_of, edits_of, name_of, numberless, slips
from fakes import copy_folders, copy_tree, script
from pages import in_one, kernel_headers, owner
from shared.exercises import FOLDER, read, read_patch, with_edits
from suite import CPU, PROGRAMS, ROOT, USAGE, VERIFIED, WRONG, assert_one_line, build_lock, run
from test_style import CLANG_FORMAT, linted

EXERCISES = read()

by_number = pytest.mark.parametrize("exercise", SOLVED, ids=name_of)
all_numbers = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda each: str(each.number))


def lanes(some):
    """Parameters of tests: those of other exercises than QUICK are left to --full."""
    return [pytest.param(each, slip, id=name_of(each, slip), marks=[] if each.number in QUICK
                         else pytest.mark.full) for each, slip in some]


# --- The page and its patches ---------------------------------------------------------------------


def test_every_block_was_understood():
    text = (ROOT / "docs/exercises.md").read_text(encoding="utf-8")
    assert text.count("```console") == sum(bool(each.promise) for each in EXERCISES)
    assert all(each.program and each.promise and each.outcome for each in SOLVED)


@all_numbers
def test_the_outcome_is_folded_and_the_command_is_not(exercise):
    assert exercise.text.count("\n<details><summary>Outcome</summary>\n\n") == 1
    assert exercise.text.count("\n\n</details>\n") == 1
    assert not exercise.promise or exercise.promise not in exercise.question
    if exercise.program:
        assert f"`{' '.join(exercise.command)}`" in " ".join(exercise.question.split())


def test_every_patch_is_one_exercises_solution():
    patches = sorted(path.name for path in FOLDER.glob("*.patch"))
    assert patches == sorted(each.patch for each in SOLVED)
    for each in SOLVED:
        assert each.patch.startswith(f"{each.number:02d}-")


@pytest.mark.full
@by_number
def test_a_patch_changes_one_file_of_its_program(exercise):
    file = read_patch(exercise.patch).file
    own = [f"{exercise.program}.cu"] + [header for header in kernel_headers(exercise.program)
                                        if owner(header, PROGRAMS) == exercise.program]
    assert file in [f"src/{name}" for name in own]


@by_number
def test_git_takes_the_patch(exercise):
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    done = subprocess.run(["git", "apply", "--check", FOLDER / exercise.patch], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.full
@linted
@by_number
def test_clang_format_would_change_nothing_of_a_solution(exercise):
    file = ROOT / read_patch(exercise.patch).file
    text = with_edits(exercise.patch, edits_of(exercise), file.read_text(encoding="utf-8"))
    done = subprocess.run([CLANG_FORMAT, f"--assume-filename={file}"], input=text,
                          capture_output=True, text=True)
    assert done.stdout == text
    assert max(map(len, text.splitlines())) <= 100


# --- What is right --------------------------------------------------------------------------------


def judged(exercise, name):
    """What exercise.sh says of a program of texts(), by its name; of the one as it comes, where it
    has none. The program bears its own name wherever it is built."""
    known = FACTS[exercise.number]
    program, bundle = CPU.folder / exercise.program, bundle_of(exercise)
    runs = [CPU.folder / "exercises" / bundle, name or in_one(exercise.program)]
    if bundle != "counting" and not name:
        runs = [program]

    def run_words(words):
        at = words.index(f"cpu/{exercise.program}")
        env = dict(word.split("=") for word in words[:at])
        done = run(*runs, *words[at + 1:], *["--once"] * ("DEMO_COUNT=1" in words), env=env,
                   called=program)
        return done.returncode, numberless(done.stdout + done.stderr)

    verdict = judging.judge(exercise, known, run_words)
    return verdict, "\n".join(verdict.lines), run_words


@pytest.mark.parametrize("exercise, _", lanes((each, None) for each in SOLVED))
def test_a_solution_is_right_and_prints_what_is_promised(exercise, _):
    verdict, lines, run_words = judged(exercise, name_of(exercise))
    assert verdict.right, lines
    printed = run_words(exercise.command)[1]
    assert judging.prints(printed, exercise.promise), printed
    if exercise.outcome == "Still verified":
        assert re.search(r"^  \w+ .*\b(verified|ok)$", printed, re.MULTILINE)


@pytest.mark.parametrize("exercise, _", lanes((each, None) for each in SOLVED))
def test_the_program_as_it_comes_is_not_right(exercise, _):
    verdict, lines, run_words = judged(exercise, "")
    assert not verdict.right, lines
    assert not judging.prints(run_words(exercise.command)[1], exercise.promise)
    for count in FACTS[exercise.number].counts:
        assert f"{count.before:>14,}{count.solved:>14,}{count.before:>14,}" in lines


@pytest.mark.parametrize("exercise, slip", lanes(
    (each, slip) for each in SOLVED for slip in slips(each)))
def test_a_wrong_answer_is_told(exercise, slip):
    verdict, lines, _ = judged(exercise, name_of(exercise, slip))
    assert not verdict.right and verdict.slip == slip.said, f"{lines}\n{verdict.slip}"


@all_numbers
def test_what_is_known_of_an_exercise(exercise):
    known = FACTS[exercise.number]
    assert 2 <= len(known.hints) <= 3 and len(known.slips) >= 1
    if exercise.patch:
        return
    assert judging.judge_value(known, known.answer).right
    for slip in known.slips:
        verdict = judging.judge_value(known, slip.value)
        assert not verdict.right and verdict.slip == slip.said


def test_ten_exercises_know_three_wrong_answers():
    assert sum(len(known.slips) >= 3 for known in FACTS.values()) >= 10


@pytest.mark.full
@pytest.mark.parametrize(
    "exercise", [each for each in EXERCISES if each.program and not each.patch],
    ids=lambda each: str(each.number))
def test_what_is_to_be_predicted_is_printed(exercise):
    done = run(CPU.folder / exercise.program, *exercise.command[1:])
    assert done.returncode == VERIFIED
    assert judging.prints(done.stdout, exercise.promise), done.stdout


@pytest.mark.full
@pytest.mark.parametrize(
    "exercise", [each for each in EXERCISES if each.command and not each.program],
    ids=lambda each: str(each.number))
def test_a_script_prints_what_is_promised(exercise):
    if "step.sh" in exercise.command[0] and not shutil.which("gdb"):
        pytest.skip("gdb is not installed")
    with build_lock():
        done = subprocess.run(exercise.command, cwd=ROOT, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)
    assert done.returncode == 0 and judging.prints(done.stdout, exercise.promise), done.stderr


# --- The command ----------------------------------------------------------------------------------


@pytest.mark.full
def test_an_exercise_from_start_to_done(tmp_path):
    copy_tree(tmp_path)
    if (ROOT / ".venv").exists():
        (tmp_path / ".venv").symlink_to(ROOT / ".venv")

    def exercise(arguments, status, *said):
        """What exercise.sh prints with these arguments."""
        done = script("exercise.sh", *arguments.split(), root=tmp_path)
        printed = done.stdout + done.stderr
        assert done.returncode == status and all(part in printed for part in said), printed
        return done.stdout

    file = "build/exercises/09/2_matmul_sharedmem.cu"
    exercise("9", VERIFIED, "9. A 16 x 16 tile", f"--start     makes {file}")
    exercise("9 --check", USAGE, "exercise.sh: nothing to check")
    exercise("9 --start", VERIFIED, file)
    exercise("9 --check", WRONG, f"{file} is as it came")
    source = tmp_path / file
    text = source.read_text()
    source.write_text(text.replace("kTile = 32", "kTile = 8"))
    exercise("9 --check", WRONG, "524,288", FACTS[9].slips[0].said[:40])
    source.write_text(text.replace("kTile = 32", "kTile = "))
    exercise("9 --check", WRONG, f"{file}:", "it does not compile")
    source.write_text(text.replace("kTile = 32", "kTile = 16"))
    assert "9 " not in exercise("", VERIFIED).partition("done")[0].splitlines()[-1]
    exercise("9 --check", VERIFIED, "Exercise 9: right.", "262,144")
    exercise("", VERIFIED, "1 of ")
    exercise("9 --start", USAGE, "has changes")
    exercise("9 --check --here", WRONG, "Exercise 9: not right yet.", "131,072")
    for hint in FACTS[9].hints:
        exercise("9 --hint", VERIFIED, hint[:40])
    assert exercise("9 --solution", VERIFIED) == (FOLDER / "09-smaller-tile.patch").read_text()


@pytest.mark.parametrize("arguments, status, said", [
    ("", VERIFIED, "  9  A 16 x 16 tile "), ("18 --answer 5", VERIFIED, "18: right"),
    ("18 --answer 3", WRONG, "read x twice"), ("18 --answer x", USAGE, "no number"),
    ("18 --check", USAGE, "--answer"), ("6 --answer 3", USAGE, "--check"), ("99", USAGE, "99"),
    ("--hint", USAGE, "NUMBER"), ("6 --here", USAGE, "--check"), ("18 --solution", VERIFIED, "5")])
def test_what_is_answered_without_a_build(arguments, status, said, tmp_path):
    copy_folders(tmp_path, "docs", "scripts")
    done = script("exercise.sh", *arguments.split(), root=tmp_path)
    assert done.returncode == status and said in done.stdout + done.stderr
    if status == USAGE:
        assert_one_line(done.stderr, "exercise.sh")
