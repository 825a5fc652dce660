#!/usr/bin/env python3
"""Runs the talk's programs in the order of its run sheet, for talk.sh. Order and commands are those
of docs/lecture.md: each heading "### Talk 1: ..." with its blocks of commands, for a room with a
GPU and for one without. What a program is about it says itself (--describe).

    run_sheet.py [--cpu] [--size N] --targets    what the commands need built, a word each
    run_sheet.py [--cpu] [--size N] [STEP]       runs the steps from that one on
"""

import itertools
import os
import re
import shlex
import subprocess
import sys
import termios
import textwrap
from pathlib import Path
from typing import List, NamedTuple

from shared import command_line, programs
from shared.command_line import FAILED, INTERRUPTED, OK, PROJECT, SKIPPED, USAGE, WRONG, Stop

LECTURE = PROJECT / "docs/lecture.md"
WIDTH = 79
N, S = 4096, 1024  # of the run sheet's commands with a GPU


class Command(NamedTuple):
    text: str  # as it is typed
    environment: dict
    words: List[str]

    @property
    def program(self):
        return PROJECT / self.words[0] if "/" in self.words[0] else Path(self.words[0])


class Step(NamedTuple):
    number: int
    title: str
    minutes: int
    programs: List[str]  # that it is about
    commands: List[Command]


def command_of(text):
    try:
        words = shlex.split(text)
    except ValueError:  # a quote without its end
        words = []
    given = list(itertools.takewhile(lambda word: re.match(r"[A-Z_]+=", word), words))
    words = words[len(given):]
    if not re.match(r"(\./|cpu/)\w+( |$)|python3 scripts/frameworks/\w+\.py", " ".join(words)):
        raise Stop(f"{LECTURE.name}: '{text}' runs no program")
    return Command(text, dict(word.split("=", 1) for word in given), words)


def resized(text, n):
    """A command of the sheet with N in place of 4096, and in place of S what run.sh takes."""
    s = max(16, min(n // 4, S) // 16 * 16)
    return re.sub(rf"--talk {S}\b", f"--talk {s}", re.sub(rf" {N}\b", f" {n}", text))


def run_sheet(on_cpu, n=N):
    """The talk's steps."""
    text = command_line.read_text(LECTURE)
    talk = re.search(r"^## The talk: .*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    parts = re.split(r"^### Talk (\d+): (.*)\n", talk[0] if talk else "", flags=re.MULTILINE)
    steps = []
    for number, title, body in zip(*[iter(parts[1:])] * 3):
        head = re.search(r"^\*\*Minutes\*\* (\d+)\. \*\*Program\*\* (.*)", body, re.MULTILINE)
        block = re.search(rf"^```console{'' if on_cpu else ' gpu'}\n(.*?)^```", body,
                          re.MULTILINE | re.DOTALL)
        typed = re.findall(r"^\$ (.*)$", block[1], re.MULTILINE) if block else []
        if not head or not typed:
            raise Stop(f"{LECTURE.name}: talk {number} has no program and minutes, or no commands")
        names = re.findall(r"`(\w+)`", head[2])
        commands = [command_of(line if on_cpu else resized(line, n)) for line in typed]
        for name in names:
            if name not in [command.program.name for command in commands]:
                raise Stop(f"{LECTURE.name}: no command of talk {number} runs its program {name}")
        steps.append(Step(int(number), title, int(head[1]), names, commands))
    if not steps:
        raise Stop(f"{LECTURE.name} has no run sheet of the talk")
    return steps


def targets(steps):
    """What SCons builds for them: a program that counts is another build."""
    found = {}
    for command in (command for step in steps for command in step.commands):
        path = command.program.relative_to(PROJECT)
        found[str(path)] = None
        if "DEMO_COUNT" in command.environment:
            found[str(path.parent / "count" / path.name)] = None
    return list(found)


class Room:
    """Where the talk is given: a terminal with somebody at its keyboard, or not."""

    def __init__(self):
        self.waits = sys.stdin.isatty() and sys.stdout.isatty()
        self.styled = (sys.stdout.isatty() and not os.environ.get("NO_COLOR")
                       and os.environ.get("TERM") != "dumb")

    def style(self, code, text):
        return f"\033[{code}m{text}\033[0m" if self.styled else text

    def ask(self, prompt, proposed=""):
        """What is typed over the proposed command; nothing is Enter alone. Raises EOFError for
        Ctrl-D."""
        if not self.waits:
            print(prompt + proposed, flush=True)
            return ""
        termios.tcflush(sys.stdin, termios.TCIFLUSH)  # an impatient Enter while a program ran
        print(prompt + proposed, end=f"\r{prompt}" if proposed else "", flush=True)
        line = sys.stdin.readline()
        if not line:
            print()
            raise EOFError
        typed = line.strip()
        if typed and proposed and self.styled:  # without what is left of the proposed one
            print(f"\033[A\033[K{prompt}{typed}", flush=True)
        return typed

    def show_banner(self, step, last, summaries):
        rule = "-" * WIDTH
        minutes = f"{step.minutes} minute{'s' * (step.minutes != 1)}"
        head = f"  {step.number} of {last}   {step.title}"
        print(f"\n{rule}\n{self.style(1, head)}{minutes.rjust(WIDTH - len(head))}")
        for name in step.programs:
            print(textwrap.fill(f"{name}: {summaries[name]}", WIDTH - 2, initial_indent="  ",
                                subsequent_indent="  "))
        print(rule)


def wait_for_enter(room, statuses, *prompt):
    """A command that is typed instead runs, and the prompt comes again."""
    while True:
        typed = room.ask(*prompt)
        if not typed:
            return
        try:
            command = command_of(typed)
        except Stop:
            print("no ./PROGRAM, cpu/PROGRAM or Python file: Enter goes on, Ctrl-D ends the talk")
            continue
        statuses.append(run_program(command))


def run(steps, last, room, again):
    """The exit status of the talk: 1 once a result was wrong, else that of the first program that
    failed; 77 where none could run. `again` and a step's number are the command that goes on."""
    paths = {command.program.name: command.program for step in steps for command in step.commands}
    summaries = {name: programs.describe(path)["summary"] for name, path in paths.items()}
    statuses = []
    try:
        for step in steps:
            if statuses and room.waits:
                wait_for_enter(room, statuses, room.style(2, "[Enter] "))
            room.show_banner(step, last, summaries)
            for command in step.commands:
                print()
                wait_for_enter(room, statuses, "$ ", command.text)
                statuses.append(run_program(command))
    except EOFError:  # Ctrl-D: the talk is what has run
        pass
    except KeyboardInterrupt:
        if room.waits:
            print(flush=True)  # behind the ^C
        return command_line.say("talk.sh", f"{again} {step.number} goes on from here", INTERRUPTED)
    failed = [status for status in statuses if status not in (OK, SKIPPED)]
    if WRONG in failed:
        return WRONG
    return failed[0] if failed else SKIPPED if statuses and OK not in statuses else OK


def run_program(command):
    """Its exit status. Raises KeyboardInterrupt if it was interrupted."""
    try:
        status = subprocess.run([str(command.program), *command.words[1:]], cwd=PROJECT,
                                stdin=subprocess.DEVNULL,
                                env={**os.environ, **command.environment}).returncode
    except OSError as error:
        return command_line.say("talk.sh", f"{command.words[0]}: {error.strerror}", FAILED)
    status = status if status >= 0 else 128 - status
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    return status


@command_line.reporting("talk.sh")
def main(arguments):
    parser = command_line.Parser(prog="talk.sh", add_help=False, allow_abbrev=False)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--size", type=command_line.sizes(multiple=32), metavar="N")
    parser.add_argument("--targets", action="store_true")
    parser.add_argument("step", nargs="?", default="1")
    options = parser.parse_args(arguments)
    if options.size and len(options.size) > 1:
        parser.error("--size takes one size N")
    steps = run_sheet(options.cpu, options.size[0] if options.size else N)
    numbers = [str(step.number) for step in steps]
    if options.step not in numbers:
        raise Stop(f"there is no step '{options.step}': the talk has 1 to {numbers[-1]}", USAGE)
    if options.targets:
        print(*targets(steps))
        return OK
    last, steps = len(steps), steps[numbers.index(options.step):]
    again = ["scripts/talk.sh"] + ["--cpu"] * options.cpu
    again += [f"--size {size}" for size in options.size or []]
    return run(steps, last, Room(), " ".join(again))


if __name__ == "__main__":
    command_line.run(main, __doc__)
