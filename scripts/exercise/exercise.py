#!/usr/bin/env python3
"""The exercises of docs/exercises.md, with a GPU or without. Without NUMBER: which there are, and
which are done. With NUMBER alone: what to do.

An answer is right by what the program does and counts, however it is written: --check builds what
--start laid out in build/exercises/NN/, verifies and counts on the simulator, and on a GPU shows
the times as it came, of yours, and of the solution. Where a number is asked for, --answer takes it.
What is done stands in build/exercises/done.
"""

import argparse
import csv
import os
import re
import subprocess
import textwrap

import judging
from shared import command_line, exercises
from shared.command_line import OK, PROJECT, SKIPPED, USAGE, WRONG, Stop

BUILDS = PROJECT / "build/exercises"


def noted(name):
    """The numbers in a file of build/exercises: `done`, or `hints`, a number for each given."""
    path = BUILDS / name
    return [int(line) for line in path.read_text().split()] if path.is_file() else []


def note(name, number):
    BUILDS.mkdir(parents=True, exist_ok=True)
    with (BUILDS / name).open("a") as file:
        print(number, file=file)


def show_list(known):
    done, lesson = set(noted("done")), ""
    for each in known:
        if each.lesson != lesson:
            lesson = each.lesson
            print(lesson)
        print(f"  {each.number:>2}  {each.title:44}{each.minutes:>3} min"
              + "  done" * (each.number in done))
    print(f"{len(done)} of {len(known)} are done. scripts/exercise.sh NUMBER says what to do.")


def show(exercise):
    """What to do, as the page has it; what a link leads to stands in brackets."""
    def link(match):
        place = re.sub(r"#L(\d+)", r":\1", match[2]).replace("-L", "-")
        return f"{match[1]} ({os.path.normpath(f'docs/{place}')})"

    way = f"scripts/exercise.sh {exercise.number}"
    print(f"{exercise.number}. {exercise.title}\n")
    print(re.sub(r"\[([^]]+)\]\(([^)]+)\)", link, exercise.question).strip() + "\n")
    if exercise.patch:
        print(f"{way} --start     makes {edited(exercise)}, to be edited\n"
              f"{way} --check     builds it, runs it, and judges")
    else:
        print(f"{way} --answer NUMBER")
    print(f"{way} --hint")


def hint(exercise, known):
    given = noted("hints").count(exercise.number)
    note("hints", exercise.number)
    print(textwrap.fill(known.hints[min(given, len(known.hints) - 1)], 79))
    if given + 1 >= len(known.hints):
        print(f"That was the last hint: scripts/exercise.sh {exercise.number} --solution")


def show_solution(exercise, known):
    if exercise.patch:
        print((exercises.FOLDER / exercise.patch).read_text("utf-8"), end="")
    else:
        print(f"{known.answer:,g}: docs/exercises.md, exercise {exercise.number}, Outcome")


# --- What is laid out -----------------------------------------------------------------------------


def folder_of(exercise):
    return BUILDS / f"{exercise.number:02}"


def edited(exercise):
    """The file that is to be edited, as seen from the repository's root."""
    file = exercises.read_patch(exercise.patch).file
    return (folder_of(exercise) / file.partition("/")[2]).relative_to(PROJECT)


def lay_out(exercise, folder, solved=False):
    """Writes the program, and what is to be edited, into a folder. Raises Stop where there are
    changes in the way."""
    patch = exercises.read_patch(exercise.patch)
    for name in {f"src/{exercise.program}.cu", patch.file}:
        file, text = folder / name.partition("/")[2], (PROJECT / name).read_text("utf-8")
        if solved and name == patch.file:
            text = exercises.with_edits(patch.name, patch.edits, text)
        if folder == folder_of(exercise) and file.exists() and file.read_text("utf-8") != text:
            raise Stop(f"{file.relative_to(PROJECT)} has changes: remove it to begin again", USAGE)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


# --- What is right --------------------------------------------------------------------------------


def build(ensure, *programs):
    """Builds programs. Ends the script where one does not compile."""
    names = " ".join(str(program.relative_to(PROJECT)) for program in programs)
    command_line.set_up("exercise.sh", f"{ensure}; ensure_scons; alone run_scons {names} >&2 || "
                        f"die {WRONG} 'it does not compile: see above'")


def simulate(exercise, folder, words):
    """Runs a command's words with what lies in a folder, whose sources are then called as in src/.
    Returns the exit status and what was printed."""
    at = words.index(f"cpu/{exercise.program}")
    counted = ["--once"] * ("DEMO_COUNT=1" in words)
    done = subprocess.run([folder / words[at], *words[at + 1:], *counted], cwd=PROJECT,
                          env={**os.environ, **dict(word.split("=") for word in words[:at])},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace")
    return done.returncode, done.stdout.replace(f"{folder.relative_to(PROJECT)}/", "src/")


def show_times(exercise, folders):
    """On the GPU: the median of each kernel's runs, for {title: where it lies}."""
    name, *arguments = exercise.timed
    build("ensure_cuda", *(folder / name for folder in folders.values()))
    found = {}
    for title, folder in folders.items():
        done = subprocess.run([folder / name, *arguments, "--csv"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        if done.returncode:
            raise Stop(f"{title}, on the GPU: {done.stderr.strip()}", done.returncode)
        for row in csv.DictReader(done.stdout.splitlines()):
            found.setdefault(row["kernel"], {})[title] = f"{float(row['median_ms']):.4g} ms"
    for kernel, times in [(f"./{' '.join(exercise.timed)}", {}), *found.items()]:
        print(f"  {kernel:32}" + "".join(f"{times.get(title, title):>14}" for title in folders))


def has_gpu():
    return command_line.output("bash", "-c", "source scripts/setup.sh; has_gpu --builds")[0]


def check(exercise, known, here):
    folder = PROJECT if here else folder_of(exercise)
    if not here and not (folder / f"{exercise.program}.cu").exists():
        raise Stop(f"nothing is laid out: scripts/exercise.sh {exercise.number} --start", USAGE)
    original = PROJECT / exercises.read_patch(exercise.patch).file
    if not here and (PROJECT / edited(exercise)).read_text("utf-8") == original.read_text("utf-8"):
        raise Stop(f"{edited(exercise)} is as it came: edit it first", WRONG)
    build("ensure_counting_compiler", folder / f"cpu/{exercise.program}",
          *[folder / f"cpu/count/{exercise.program}"] * exercises.counting(exercise, known))
    verdict = judging.judge(exercise, known, lambda words: simulate(exercise, folder, words))
    tell(exercise, verdict)
    if verdict.right and exercise.timed and has_gpu():
        folders = {"yours": folder}
        if not here:
            folders.update({"the solution": folder / "solved", "as it came": folder / "before"})
            lay_out(exercise, folder / "solved", solved=True)
            lay_out(exercise, folder / "before")
        show_times(exercise, folders)
    return OK if verdict.right else WRONG


def tell(exercise, verdict):
    print(f"Exercise {exercise.number}: {'right' if verdict.right else 'not right yet'}.")
    for line in verdict.lines:
        print(line)
    if verdict.right:
        print(f"Why: docs/exercises.md, exercise {exercise.number}, Outcome")
        if exercise.number not in noted("done"):
            note("done", exercise.number)
        return OK
    print(textwrap.fill(verdict.slip, 79) if verdict.slip else
          f"For a hint: scripts/exercise.sh {exercise.number} --hint")
    return WRONG


# --- The command line -----------------------------------------------------------------------------


def a_number(text):
    """What --answer takes: 270,336, 10.5x and 7% are numbers."""
    found = re.fullmatch(r"([\d,]*\.?\d+) ?[%x]?", text)
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is no number")
    return float(found[1].replace(",", ""))


def parse_arguments(arguments):
    parser = command_line.Parser(
        prog="exercise.sh", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit status: 0 right; 1 wrong, or it does not compile; 2 usage; 3 an error; 77 "
               "needs what is not here.")
    parser.add_argument("number", metavar="NUMBER", nargs="?", type=command_line.number(0, 999))
    way = parser.add_mutually_exclusive_group()
    for name, says in (("start", "lay out what is to be edited"), ("check", "judge it"),
                       ("hint", "the next hint"), ("solution", "the solution")):
        way.add_argument(f"--{name}", dest="way", action="store_const", const=name, help=says)
    way.add_argument("--answer", metavar="VALUE", type=a_number, help="judge a number")
    parser.add_argument("--here", action="store_true", help="with --check: judge what src/ holds")
    options = parser.parse_args(arguments)
    if options.here and options.way != "check":
        parser.error("--here goes with --check")
    if options.number is None and (options.way or options.answer is not None):
        parser.error("an exercise's NUMBER is expected")
    return options


@command_line.reporting("exercise.sh")
def main(arguments):
    options = parse_arguments(arguments)
    known = exercises.read()
    if options.number is None:
        return show_list(known)
    exercise = next((each for each in known if each.number == options.number), None)
    if not exercise:
        raise Stop(f"there is no exercise {options.number}: without a number all are listed", USAGE)
    known = exercises.facts()[exercise.number]
    if options.answer is not None:
        if exercise.patch:
            raise Stop(f"exercise {exercise.number} asks for no number: --check judges it", USAGE)
        if known.gpu and not has_gpu():
            raise Stop(f"exercise {exercise.number} needs a GPU", SKIPPED)
        return tell(exercise, judging.judge_value(known, options.answer))
    if options.way in ("start", "check") and not exercise.patch:
        raise Stop(f"exercise {exercise.number} asks for a number: --answer VALUE", USAGE)
    if options.way == "start":
        lay_out(exercise, folder_of(exercise))
        print(f"Edit {edited(exercise)}")
    elif options.way == "check":
        return check(exercise, known, options.here)
    elif options.way:
        {"hint": hint, "solution": show_solution}[options.way](exercise, known)
    else:
        show(exercise)
    return OK


if __name__ == "__main__":
    command_line.run(main)
