"""docs/exercises.md: each solution prints what is promised, and the program as it is does not."""

import re
import shutil
import subprocess

import pytest

import exercises
from pages import in_one, kernel_headers, owner
from suite import CPU, FAILED, PROGRAMS, ROOT, VERIFIED, WRONG, build_lock, run
from test_style import CLANG_FORMAT, linted

EXERCISES = exercises.read()
SOLVED = [each for each in EXERCISES if each.patch]
EXIT_CODES = {"Still verified": VERIFIED, "WRONG": WRONG, "An error": FAILED}

by_number = pytest.mark.parametrize("exercise", SOLVED, ids=lambda each: each.in_one)


# --- The page and its patches ---------------------------------------------------------------------


def test_every_block_was_understood():
    text = (ROOT / "docs/exercises.md").read_text(encoding="utf-8")
    assert text.count("```console") == sum(bool(each.promise) for each in EXERCISES)
    assert all(each.program and each.promise and each.outcome for each in SOLVED)


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda each: each.in_one)
def test_the_outcome_is_folded_and_the_command_is_not(exercise):
    assert exercise.text.count("\n<details><summary>Outcome</summary>\n\n") == 1
    assert exercise.text.count("\n\n</details>\n") == 1
    assert "**Run" in exercise.question
    assert not exercise.promise or exercise.promise not in exercise.question
    if exercise.program:
        assert f"`{' '.join(exercise.command)}`" in " ".join(exercise.question.split())


def test_every_patch_is_one_exercises_solution():
    patches = sorted(path.name for path in exercises.FOLDER.glob("*.patch"))
    assert patches == sorted(each.patch for each in SOLVED)
    for each in SOLVED:
        assert each.patch.startswith(f"{each.number:02d}-")


@pytest.mark.full
@by_number
def test_a_patch_changes_one_file_of_its_program(exercise):
    file = exercises.read_patch(exercise.patch).file
    own = [f"{exercise.program}.cu"] + [header for header in kernel_headers(exercise.program)
                                        if owner(header, PROGRAMS) == exercise.program]
    assert file in [f"src/{name}" for name in own]


@by_number
def test_git_takes_the_patch(exercise):
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    done = subprocess.run(["git", "apply", "--check", exercises.FOLDER / exercise.patch], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.full
@linted
@by_number
def test_clang_format_would_change_nothing_of_a_solution(exercise):
    patch = exercises.read_patch(exercise.patch)
    text = exercises.edited(patch, (ROOT / patch.file).read_text(encoding="utf-8"))
    done = subprocess.run([CLANG_FORMAT, f"--assume-filename={ROOT / patch.file}"], input=text,
                          capture_output=True, text=True)
    assert done.stdout == text
    assert max(map(len, text.splitlines())) <= 100


# --- What they print ------------------------------------------------------------------------------


def prints(done, promise):
    """Whether one of its lines has the promised text."""
    pattern = ".*".join(map(re.escape, promise.split("...")))
    return any(re.search(pattern, line) for line in (done.stdout + done.stderr).splitlines())


def run_exercise(exercise, solved):
    """Runs an exercise's command. The program bears its own name wherever it is built."""
    at = next(i for i, word in enumerate(exercise.command) if word.startswith("cpu/"))
    env = dict(word.split("=") for word in exercise.command[:at])
    arguments = exercise.command[at + 1:]
    program = CPU.folder / exercise.program
    if not solved and not exercise.counts:
        return run(program, *arguments, env=env)
    bundle = CPU.folder / "exercises" / ("counting" if exercise.counts else "plain")
    name = exercise.in_one if solved else in_one(exercise.program)
    return run(bundle, name, *arguments, *["--once"] * exercise.counts, env=env, called=program)


@pytest.mark.full
@by_number
def test_a_solution_prints_what_is_promised(exercise):
    done = run_exercise(exercise, solved=True)
    assert prints(done, exercise.promise), done.stdout + done.stderr
    assert done.returncode == EXIT_CODES[exercise.outcome], done.stderr
    if exercise.outcome == "Still verified":
        assert re.search(r"^  \w+ .*\b(verified|ok)$", done.stdout, re.MULTILINE)


@pytest.mark.full
@by_number
def test_without_it_the_program_does_not(exercise):
    done = run_exercise(exercise, solved=False)
    assert not prints(done, exercise.promise)


@pytest.mark.full
@pytest.mark.parametrize(
    "exercise", [each for each in EXERCISES if each.program and not each.patch],
    ids=lambda each: each.in_one)
def test_what_is_to_be_predicted_is_printed(exercise):
    done = run_exercise(exercise, solved=False)
    assert done.returncode == VERIFIED
    assert prints(done, exercise.promise), done.stdout


@pytest.mark.full
@pytest.mark.parametrize(
    "exercise", [each for each in EXERCISES if each.command and not each.program],
    ids=lambda each: each.in_one)
def test_a_script_prints_what_is_promised(exercise):
    if "step.sh" in exercise.command[0] and not shutil.which("gdb"):
        pytest.skip("gdb is not installed")
    with build_lock():
        done = subprocess.run(exercise.command, cwd=ROOT, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)
    assert done.returncode == 0 and prints(done, exercise.promise), done.stdout + done.stderr
