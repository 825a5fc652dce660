"""The run sheets of docs/lecture.md: the headings "### Talk 1: ...", "### Lecture 1: ..." and
"### Course 1: ..." with their blocks of commands, for a room with a GPU and for one without."""

import re
import textwrap
from typing import List, NamedTuple, Tuple

from shared import command_line, programs
from shared.command_line import PROJECT, Stop

LECTURE = PROJECT / "docs/lecture.md"
NAMES = "talk", "lecture", "course"
WIDTH = 79
N, S = 4096, 1024  # of the commands with a GPU
NOTE = re.compile(r"^(?:- )?\*\*(Show|Say|Asked|If)\*\* (.*?)(?=\n\n|\n- \*\*|\n```|\Z)",
                  re.MULTILINE | re.DOTALL)
PLACES = re.compile(r"\.|cpu|cpu/mutants|build/exercises/\d+/solution/cpu")  # of programs


class Step(NamedTuple):
    number: int
    title: str
    minutes: int
    programs: List[str]  # that it is about
    commands: List[str]
    notes: List[Tuple[str, str]] = []  # ("Say", the words), in the sheet's order
    named: List[str] = []  # commands that the notes name


def resized(command, n):
    """A command of the sheet with N in place of 4096, and in place of S what run.sh takes."""
    s = max(16, min(n // 4, S) // 16 * 16)
    return re.sub(rf"--talk {S}\b", f"--talk {s}", re.sub(rf" {N}\b", f" {n}", command))


def read(name, on_cpu, n=N):
    """(the sheet's title, its steps). Without commands for a GPU a step has those for the CPU."""
    text = command_line.read_text(LECTURE)
    heading = re.search(rf"^## (The {name}: .*)", text, re.MULTILINE)
    parts = re.split(rf"^### {name.capitalize()} (\d+): (.*)\n", text, flags=re.MULTILINE)
    steps = []
    for number, title, body in zip(*[iter(parts[1:])] * 3):
        body = re.split(r"^##", body, maxsplit=1, flags=re.MULTILINE)[0]
        head = re.search(r"^\*\*Minutes\*\* (\d+)\. \*\*Program\*\* (.*)", body, re.MULTILINE)
        blocks = re.findall(r"^```console( gpu)?\n(.*?)^```", body, re.MULTILINE | re.DOTALL)
        typed = {bool(gpu): re.findall(r"^\$ (.*)$", block, re.MULTILINE) for gpu, block in blocks}
        commands = typed.get(not on_cpu) or typed.get(False)
        if not head or not commands:
            raise Stop(f"{LECTURE.name}: {name} {number} lacks minutes, program or commands")
        body = re.sub(r"\[([^]]+)\]\(\.\./(src/[^)#]+)#L(\d+)-L(\d+)\)", r"\1 (\2:\3-\4)", body)
        notes = [(kind, re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", " ".join(words.split())))
                 for kind, words in NOTE.findall(body)]
        named = [command for _, words in notes for command in re.findall(
            r"`((?:\w+=\S+ )?(?:\./|cpu/|scripts/|build/)\S[^`]*)`", words)]
        if not on_cpu:
            commands = [resized(command, n) for command in commands]
        steps.append(Step(int(number), title, int(head[1]), re.findall(r"`(\w+)`", head[2]),
                          commands, notes, named))
    if not steps or not heading:
        raise Stop(f"{LECTURE.name} has no run sheet of the {name}")
    return heading[1], steps


def needs(command, on_cpu):
    """(what SCons builds for a command, what it builds for it with debug=1)"""
    plain, debug = [], []
    words = re.sub(r"--(batch|walk|kernel) \S+", "", command).split()
    for at, word in enumerate(words):
        place, _, name = word.rpartition("/")
        if PLACES.fullmatch(place) and name in programs.listed():
            plain.append(word.replace("./", "", 1) if place == "." else word)
            if "DEMO_COUNT" in command and place.endswith("cpu"):
                plain.append(f"{place}/count/{name}")
        script = {"scripts/count.sh": plain, "scripts/step.sh": debug}.get(word)
        for other in words[at + 1:] if script is not None else []:
            each = programs.named(other, programs.listed())
            # On a GPU also the simulator's: there may be no cuda-gdb, or no leave to count.
            script += ([each] * (not on_cpu) + [f"cpu/{each}"]) * bool(each)
            plain += [f"cpu/count/{each}"] * bool(each and script is plain)
    return plain, debug


def targets(steps, on_cpu, with_named):
    """What SCons builds for them: as it is, and with debug=1; also for what the notes name."""
    found = {f"cpu/{name}" if on_cpu else name: 0 for step in steps for name in step.programs}, {}
    for step in steps:
        for command in step.commands + step.named * with_named:
            for kind, needed in zip(found, needs(command, on_cpu)):
                kind.update(dict.fromkeys(needed))
    return [[target for target in kind if not on_cpu or target.startswith(("cpu/", "build/"))]
            for kind in found]


def noted(step, width):
    """(kind, text) of its notes, which together are wrapped to a width."""
    return [(kind, textwrap.fill(" " * 7 + text, width, subsequent_indent=" " * 7,
                                 break_on_hyphens=False, break_long_words=False)[len(kind):])
            for kind, text in step.notes]


def page(name, title, steps):
    """A sheet to be printed."""
    way, begin = "scripts/talk.sh" + f" --sheet {name}" * (name != NAMES[0]), 0
    lines = [title + way.rjust(WIDTH - len(title)), "=" * WIDTH]
    for step in steps:
        time = f"minutes {begin} to {begin + step.minutes}"
        lines += ["", f"{step.number}  {step.title}{time.rjust(WIDTH - 3 - len(step.title))}",
                  *(textwrap.fill(f"   $ {command}", WIDTH, subsequent_indent=" " * 7)
                    for command in step.commands)]
        lines += [textwrap.indent(kind + text, "   ")
                  for kind, text in noted(step, WIDTH - 3)]
        begin += step.minutes
    return "\n".join(lines)
