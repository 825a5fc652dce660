#!/usr/bin/env python3
"""The exercises of docs/exercises.md, with a GPU or without. Without NUMBER: which there are, and
which are done. With NUMBER alone: what to do.

An answer is right by what the program does and counts, however it is written: --check builds what
--start laid out in build/exercises/NN/, verifies and counts it on the simulator, and on a GPU shows
the times. --answer takes a number. What is done stands in build/exercises/done.
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
    return [*map(int, (BUILDS / name).read_text().split())] if (BUILDS / name).is_file() else []


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


def show(exercise, _):
    """What to do, as the page has it, and once it is done what comes of it. Commands run what is
    laid out; what a link leads to stands in brackets."""
    def link(match):
        place = re.sub(r"#L(\d+)", r":\1", match[2]).replace("-L", "-")
        return f"{match[1]} ({os.path.normpath(f'docs/{place}')})"

    way, text = f"scripts/exercise.sh {exercise.number}", exercise.question
    if exercise.number in noted("done"):
        text = re.sub("</?(details|summary)>", "", exercise.text)
    if exercise.patch:
        place = path_of(folder_of(exercise))
        text = re.sub(r"(?<=[` ])(\./|(?=cpu/))(?=\S*" + exercise.program + ")", f"{place}/", text)
    print(f"{exercise.number}. {exercise.title}\n")
    print(re.sub(r"\[([^]]+)\]\(([^)]+)\)", link, text).strip() + "\n")
    if exercise.patch:
        print(f"{way} --start     makes {place}/{edited(exercise)}, to be edited\n"
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
        print(f"{known.answer:,g}")


# --- What is laid out -----------------------------------------------------------------------------


def folder_of(exercise):
    return BUILDS / f"{exercise.number:02}"


def path_of(file):
    """As seen from the repository's root."""
    return str(file.relative_to(PROJECT))


def edited(exercise):
    """The name in the exercise's folder of the file that is to be edited."""
    return exercises.read_patch(exercise.patch).file.partition("/")[2]


def start(exercise, _):
    """Writes the program and what is to be edited into the exercise's folder, and into its before/
    and solution/ what yours is compared with."""
    patch, folder = exercises.read_patch(exercise.patch), folder_of(exercise)
    for origin in (f"src/{exercise.program}.cu", patch.file):
        name, text = origin.partition("/")[2], (PROJECT / origin).read_text("utf-8")
        if (folder / name).exists() and (folder / name).read_text("utf-8") != text:
            raise Stop(f"{path_of(folder / name)} has changes: remove it to begin again", USAGE)
        try:
            solved = exercises.with_edits("", patch.edits if origin == patch.file else (), text)
        except ValueError:
            raise Stop(f"{origin} has changes: git checkout {origin} (or --check --here)", USAGE)
        for file, content in ((name, text), (f"before/{name}", text), (f"solution/{name}", solved)):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(content, "utf-8")
    print(f"Edit {path_of(folder / edited(exercise))}")


# --- What is right --------------------------------------------------------------------------------


def build(ensure, *programs):
    """Builds programs. Ends the script where one does not compile."""
    names = " ".join(map(path_of, programs))
    command_line.set_up("exercise.sh", f"{ensure}; ensure_scons; alone run_scons {names} >&2 || "
                        f"die {WRONG} 'it does not compile: see above'")


def simulate(exercise, folder, words):
    """Runs a command's words with what lies in a folder: the exit status, and what was printed."""
    at = words.index(f"cpu/{exercise.program}")
    counted = ["--once"] * ("DEMO_COUNT=1" in words)
    done = subprocess.run([folder / words[at], *words[at + 1:], *counted], cwd=PROJECT,
                          env={**os.environ, **dict(word.split("=") for word in words[:at])},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace")
    return done.returncode, done.stdout


def show_times(exercise, folders):
    """On the GPU: the median of each kernel's runs, for {title: where it lies}."""
    name, *arguments = exercise.timed
    found = {}
    for title, folder in folders.items():
        done = subprocess.run([folder / name, *arguments, "--csv"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        if done.returncode:
            raise Stop(f"{title}, on the GPU: {done.stderr.strip()}", done.returncode)
        for row in csv.DictReader(done.stdout.splitlines()):
            found.setdefault(row["kernel"], {})[title] = f"{float(row['median_ms']):.4g} ms"
    print(f"  ./{' '.join(exercise.timed)}")
    for kernel, times in [("", {}), *found.items()]:
        print(f"  {kernel:32}" + "".join(f"{times.get(title, title):>14}" for title in folders))


def has_gpu():
    return command_line.output("bash", "-c", "source scripts/setup.sh; has_gpu --builds")[0]


def check(exercise, known, here):
    folder, name = PROJECT if here else folder_of(exercise), exercise.program
    folders = {"yours": folder}
    if not here:
        folders.update({"the solution": folder / "solution", "as it came": folder / "before"})
        file, before = folder / edited(exercise), folder / "before" / edited(exercise)
        if not file.exists():
            raise Stop(f"nothing to check: first scripts/exercise.sh {exercise.number} --start",
                       USAGE)
        if file.read_bytes() == before.read_bytes():
            raise Stop(f"{path_of(file)} is as it came (--here judges src/)", WRONG)
    counts = exercises.counting(exercise, known)
    build("ensure_counting_compiler" if counts else "ensure_compiler", folder / f"cpu/{name}",
          *[folder / f"cpu/count/{name}"] * counts)
    verdict = judging.judge(exercise, known, lambda words: simulate(exercise, folder, words))
    status = tell(exercise, verdict)
    if has_gpu():
        build("ensure_cuda", *(each / name for each in folders.values()))
        if verdict.right and exercise.timed:
            show_times(exercise, folders)
    return status


def tell(exercise, verdict):
    print(f"Exercise {exercise.number}: {'right' if verdict.right else 'not right yet'}.")
    print("".join(f"{line}\n" for line in verdict.lines), end="")
    if verdict.right:
        note("done", exercise.number)
    way = f"scripts/exercise.sh {exercise.number}"
    print(f"Why: {way} has the outcome now." if verdict.right else
          textwrap.fill(verdict.slip, 79) or f"For a hint: {way} --hint")
    return OK if verdict.right else WRONG


# --- The command line -----------------------------------------------------------------------------


def a_number(text):
    """What --answer takes: 270,336, 10.5x and 7% are numbers."""
    if not re.fullmatch(r"(\d+|\d{1,3}(,\d{3})+)(\.\d+)?[%x]?", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no number")
    return float(text.rstrip("%x").replace(",", ""))


def parse_arguments(arguments):
    parser = command_line.Parser(
        prog="exercise.sh", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit status: 0 right; 1 wrong or not built; 2 usage; 3 an error; 77 needs a GPU.")
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
        raise Stop(f"no exercise {options.number}: without a number all are listed", USAGE)
    known = exercises.facts()[exercise.number]
    if options.answer is not None:
        if exercise.patch:
            raise Stop(f"exercise {exercise.number} asks for no number: --check judges it", USAGE)
        if known.gpu and not has_gpu():
            raise Stop(f"exercise {exercise.number} needs a GPU", SKIPPED)
        return tell(exercise, judging.judge_value(known, options.answer))
    if options.way in ("start", "check") and not exercise.patch:
        raise Stop(f"exercise {exercise.number} asks for a number: --answer VALUE", USAGE)
    if options.way == "check":
        return check(exercise, known, options.here)
    ways = {None: show, "start": start, "hint": hint, "solution": show_solution}
    return ways[options.way](exercise, known)


if __name__ == "__main__":
    command_line.run(main)
