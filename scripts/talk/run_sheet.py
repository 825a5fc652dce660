#!/usr/bin/env python3
"""Builds what a run sheet of docs/lecture.md needs, and then runs its commands in their order, from
STEP on, on a GPU or, without one, on the CPU. Before each step a banner says what it is about, and
which minute it is and should be. Enter runs the command that stands there; Enter again goes on. b
goes a step back, r runs the last command again, a number goes to that step, and any other line is a
command, for Bash. Ctrl-C stops a command; only q and Ctrl-D end the talk. ? lists the keys. Where a
command cannot run here, v shows what a recording has of it.

Without a terminal it runs through, for the evening before: scripts/talk.sh </dev/null
"""

import argparse
import contextlib
import os
import re
import readline
import shutil
import signal
import subprocess
import sys
import termios
import textwrap
import time
from pathlib import Path

import hall
import recording
import sheet
from shared import command_line, programs
from shared.command_line import INTERRUPTED, OK, PROJECT, SKIPPED, USAGE, WRONG, Stop
from sheet import WIDTH

PLACE = PROJECT / "build/talk/step"  # where the talk is, for --notes
KEYS = """
  Enter  runs the command, or goes on    b  the step before
  3      goes to step 3                  r  the last command again
  q      ends the talk, or Ctrl-D        v  the last command's recording
  Any other line is a command, for Bash. Up and Down have the sheet's and yours.
  Ctrl-C stops what runs, and never the talk.
"""


def interrupted(*_):
    raise InterruptedError


class Room:
    """Where the talk is given: a terminal with somebody at its keyboard, or not."""

    def __init__(self):
        self.waits = sys.stdin.isatty() and sys.stdout.isatty()
        self.moves = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self.styled = self.moves and not os.environ.get("NO_COLOR")

    def style(self, code, text):
        return f"\033[{code}m{text}\033[0m" if self.styled else text

    def wrapped(self, line):
        """A line as the terminal shows it, but broken between words."""
        columns = shutil.get_terminal_size().columns
        return [line] if not self.moves or len(line) <= columns else textwrap.wrap(
            line, columns, subsequent_indent="    ", break_on_hyphens=False, drop_whitespace=False)

    def show(self, text, label):
        """A screen at a time, from a walk's command or an empty line on; Enter for the next."""
        lines = [row for line in text.split("\n") for row in self.wrapped(line)]
        most = max(5, shutil.get_terminal_size().lines - 3)
        while self.waits and len(lines) > most:
            begins = [i for i in range(most // 2, most + 1)
                      if not lines[i] or lines[i].startswith("(step)") and lines[i - 1]]
            end = [most, *begins][-1]
            print("\n".join(lines[:end]))
            lines = lines[end:]
            if self.ask(f"{label}; Enter: more; q: no more", "", []):
                return
        print("\n".join(lines))

    def clear(self):
        """Scrolls away what is on the screen."""
        if self.moves:
            print("\n" * shutil.get_terminal_size().lines + "\033[H\033[J", end="")

    def ask(self, prompt, proposed, history):
        """What is typed below the proposed command; nothing is Enter alone. The question leaves the
        screen. Raises EOFError for Ctrl-D, and InterruptedError for Ctrl-C."""
        termios.tcflush(sys.stdin, termios.TCIFLUSH)  # an impatient Enter while a program ran
        lines = self.wrapped(f"$ {proposed}") if proposed else []
        print("".join(self.style(1, line) + "\n" for line in lines), end="")
        for command in filter(None, history):
            readline.add_history(command)
        before = signal.signal(signal.SIGINT, interrupted)
        try:
            typed = input(f"[{prompt}] ").strip()
        except InterruptedError:
            print()
            raise
        finally:
            signal.signal(signal.SIGINT, before)
        if self.moves:
            columns = shutil.get_terminal_size().columns
            rows = sum(-(-len(line) // columns) for line in [*lines, f"[{prompt}] {typed}"])
            print(f"\033[{rows}A\r\033[J", end="", flush=True)
        return typed


def meant(command, status):
    """The status of a command that should verify: a mutant is there to be wrong."""
    turned = {OK: WRONG, WRONG: OK} if "cpu/mutants/" in command else {}
    return turned.get(status, status)


class Talk:
    """A sheet in a room."""

    def __init__(self, name, steps, on_cpu, known, replayed):
        self.room, self.name, self.steps, self.on_cpu = Room(), name, steps, on_cpu
        self.known = known  # {command: what it printed once}
        self.replayed = replayed  # the recording that is shown in place of what would run
        self.step, self.begin, self.statuses, self.ran = steps[0], None, [], {}

    def show_banner(self, step):
        self.step, about = step, ""
        for name in step.programs:
            with contextlib.suppress(programs.ProgramError):  # it is not built
                path = (PROJECT / "cpu" if self.on_cpu else PROJECT) / name
                about += textwrap.fill(f"{name}: {programs.describe(path)['summary']}", WIDTH - 2,
                                       initial_indent="  ", subsequent_indent="  ") + "\n"
        rule = f"-- recording of {self.replayed} " if self.replayed else ""
        if self.room.waits:
            planned = sum(each.minutes for each in self.steps if each.number < step.number)
            self.begin = self.begin or time.monotonic() - 60 * planned
            rule += f" {self.minute()}, planned {planned} --".rjust(WIDTH - len(rule), "-")
            with contextlib.suppress(OSError):
                PLACE.parent.mkdir(parents=True, exist_ok=True)
                PLACE.write_text(f"{self.name} {step.number}")
            self.room.clear()
        head = f"  {step.number} of {self.steps[-1].number}   {step.title}"
        minutes = f"{step.minutes} minutes".rjust(WIDTH - len(head))
        print(f"\n{'-' * WIDTH}\n{self.room.style(1, head)}{minutes}\n"
              f"{about}{rule.ljust(WIDTH, '-')}\n", flush=True)

    def run(self, command, of_sheet, keep=False):
        """Its exit status. Raises KeyboardInterrupt where nobody can say how to go on."""
        if self.replayed and (of_sheet or command in self.known):
            return self.show_recorded(command)
        print("\n".join(self.room.wrapped(f"$ {command}")), flush=True)
        if keep:
            self.ran[command] = recording.capture(command)
            status = self.ran[command].status
            print(self.ran[command].output)
        else:
            status = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=PROJECT, stdin=(
                None if self.room.waits else subprocess.DEVNULL)).returncode
        status = status if status >= 0 else 128 - status
        if status == INTERRUPTED and not self.room.waits:
            raise KeyboardInterrupt
        if of_sheet and status != INTERRUPTED:
            self.statuses.append(meant(command, status))
        print(flush=True)
        return status

    def show_recorded(self, command):
        recorded = self.known.get(command) or recording.Recorded(0, 0, "It does not have that.")
        label = f"recording of {recorded.source or self.replayed}: {recorded.seconds:.1f} s"
        with contextlib.suppress(InterruptedError):
            self.room.show(f"$ {command}\n{recorded.output}", label)
        print(f"{self.room.style(7, label)}\n", flush=True)
        return OK

    def minute(self):
        return f"minute {(time.monotonic() - self.begin) / 60:.0f}"

    def prompt(self, following, proposed, last, status):
        words = "Enter"
        if proposed in self.known and not self.replayed and "--walk" not in proposed:
            words += f", about {max(1, round(self.known[proposed].seconds))} s"
        elif not proposed:
            words = f"Enter: step {following[0].number}" if following else "the end; q leaves"
            words += f"; step {self.step.number}, {self.minute()}"  # whose banner may be gone
        if status not in (OK, WRONG, INTERRUPTED) and last in self.known:
            words += f"; v: the recording of {self.known[last].source}"
        return words + "; ?: keys" * (not last)

    def converse(self, at):
        """With somebody at the keyboard, from the step `at` on."""
        readline.set_auto_history(False)
        readline.parse_and_bind("set enable-bracketed-paste off")
        mode = termios.tcgetattr(sys.stdin)
        signal.signal(signal.SIGINT, lambda *_: None)  # it is for the command that runs
        numbers = [str(step.number) for step in self.steps]
        last, status, go, typed = "", OK, at, ""
        while typed != "q":
            if go is not None:
                at, done, history = go, 0, self.steps[go].named
                self.show_banner(self.steps[at])
            go, proposed = None, "".join(self.steps[at].commands[done:done + 1])
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, mode)  # whatever a program has left
            try:
                typed = self.room.ask(self.prompt(self.steps[at + 1:], proposed, last, status),
                                      proposed, [*history, proposed])
            except (InterruptedError, UnicodeError):
                continue
            history = []
            if typed == "?":
                print(KEYS, *(f"  {each.number:2}  {each.title}\n" for each in self.steps))
            elif typed == "b":
                go = max(0, at - 1)
            elif typed in numbers:
                go = numbers.index(typed)
            elif typed == "v" and last in self.known:
                self.show_recorded(last)
            elif typed == "v" or typed.isdecimal():
                print("there is no recording of that\n" if typed == "v" else
                      f"there is no step {typed}: 1 to {numbers[-1]}\n")
            elif typed == "r" and last:
                status = self.run(last, of_sheet=False)
            elif typed not in ("", "q", "r") or proposed and not typed:
                history = [typed] * bool(typed)
                last = typed or proposed
                status = self.run(last, of_sheet=not typed)
                done += bool(proposed) and last.startswith(proposed)
            elif not typed and at + 1 < len(self.steps):
                go = at + 1

    def status(self):
        """1 once a result was wrong, else the first failure's; 77 where nothing could run."""
        failed = [status for status in self.statuses if status not in (OK, SKIPPED)]
        none = self.statuses and OK not in self.statuses
        return WRONG if WRONG in failed else [*failed, SKIPPED if none else OK][0]


def show_notes(name):
    """Follows the talk. Where there is no terminal, the notes of the step at which it is."""
    room, shown = Room(), None
    while room.moves or not shown:
        where = PLACE.read_text().split() if PLACE.exists() else [name, "1"]
        size = shutil.get_terminal_size()
        if len(where) == 2 and (where, size) != shown:
            shown, step = (where, size), sheet.read(where[0], on_cpu=True)[1][int(where[1]) - 1]
            room.clear()
            print(room.style(1, f"{where[0]} {step.number}: {step.title} ({step.minutes} min)"))
            for kind, text in sheet.noted(step, size.columns):
                print(f"\n{room.style(1, kind)}{text}", flush=True)
        time.sleep(0.3 * room.moves)


def build(steps, on_cpu, everything):
    """Builds what the steps need, and says how long it took."""
    begin, (plain, debug) = time.monotonic(), sheet.targets(steps, on_cpu, everything)
    for number in sorted(set(re.findall(r"exercises/(\d+)/solution/", " ".join(plain)))):
        command_line.set_up("talk.sh", f"scripts/exercise.sh {int(number)} --start >/dev/null")
    commands = ["ensure_compiler", "ensure_scons"] + ["ensure_cuda", "mention_tile"] * (not on_cpu)
    plain += ["build/toolkit.txt"] * (not on_cpu)  # a recording says by which one
    commands += ["ensure_simulator_libraries"] * any("cpu/" in target for target in plain + debug)
    commands += [f"build {' '.join(plain)} >&2"] * bool(plain)
    commands += ["(ensure_gdb) || say 'there is no walk, then'",
                 f"build debug=1 {' '.join(debug)} >&2"] * bool(debug)
    if everything and not on_cpu and "scripts/profile.sh" in str([step.named for step in steps]):
        commands += ["(ensure_cupti && build profile >&2) || say 'there is no profile, then'"]
    command_line.set_up("talk.sh", "\n".join(commands))
    command_line.say("talk.sh", f"all is built; it took {time.monotonic() - begin:.0f} s")


def prepare(steps, options):
    """Builds, unless that is not wanted. Why no GPU runs the talk; nothing where one does."""
    builds = "" if options.no_build else "--builds"
    why = command_line.set_up("talk.sh", f'has_gpu {builds} || echo "$NO_GPU"',
                              stdout=subprocess.PIPE).strip()
    if why:
        return why
    if builds:
        build(steps, False, options.prepare)
    probe = PROJECT / [*sheet.targets(steps, False, False)[0], "none"][0]
    skips = probe.is_file() and subprocess.run([probe, "32", "--once"], stdin=subprocess.DEVNULL,
                                               capture_output=True).returncode == SKIPPED
    return "there is a GPU here, but no program can use it" if skips else ""


def parse_arguments(arguments):
    parser = command_line.Parser(
        prog="talk.sh", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit status: 0 all that could run here is verified, and mutants are wrong; 1 a "
               "wrong result; else\nthat of the sheet's first command that failed; 2 usage; 77 "
               "nothing here can run it, or there is no\nrecording; 130 interrupted.")
    parser.add_argument("step", nargs="?", default="1", metavar="STEP")
    parser.add_argument("--sheet", choices=sheet.NAMES,
                        help="the run sheet: of 20, 45 or 90 minutes; without it: talk")
    parser.add_argument("--size", type=command_line.sizes(multiple=32), default=[sheet.N],
                        metavar="N", help="for a slower GPU: in place of 4096; S becomes N / 4")
    parser.add_argument("--cpu", action="store_true", help="on the CPU, GPU or not")
    parser.add_argument("--no-build", action="store_true",
                        help="run the programs that lie here; they were built elsewhere")
    way = parser.add_mutually_exclusive_group()
    for flag, words in (
            ("prepare", "only build, also what answers need, and say how long it took"),
            ("check", "build nothing; run all once, and say what this machine lacks for the hall"),
            ("notes", "on a second terminal: follow the talk, and show what to show and to say"),
            ("print", "print the sheet; without --sheet all three"),
            ("record", "run the whole sheet, and keep in docs/recordings/ what is printed")):
        way.add_argument(f"--{flag}", action="store_true", help=words)
    way.add_argument("--replay", nargs="?", const="", metavar="FILE",
                     help="show a recording in place of running: without FILE a GPU's, with --cpu "
                     "the simulator's. Each screen says of which machine and day it is")
    options = parser.parse_args(arguments)
    if len(options.size) > 1:
        parser.error("--size takes one size N")
    if (options.replay or "").isdecimal():
        options.step, options.replay = options.replay, ""
    return options


@command_line.reporting("talk.sh")
def main(arguments):
    options = parse_arguments(arguments)
    name, size = options.sheet or sheet.NAMES[0], options.size[0]
    options.no_build |= options.check
    if options.notes:
        return show_notes(name)
    if options.print:
        for each in [options.sheet] if options.sheet else sheet.NAMES:
            print(sheet.page(each, *sheet.read(each, options.cpu, size)), end="\n\n\f\n")
        return OK
    known, replayed = recording.known(name), ""
    if options.replay is not None:
        file = Path(options.replay or next(iter(recording.files(name, options.cpu)), ""))
        if file == Path():
            raise Stop(f"docs/recordings has none of the {name}: --record writes one", SKIPPED)
        name, known = file.stem.partition("-")[0], recording.read(file)
        if name not in sheet.NAMES:
            raise Stop(f"{file}: a recording's name begins with {', '.join(sheet.NAMES)}", USAGE)
        options.cpu = file.stem.endswith(recording.SIMULATOR)
        replayed = next(iter(known.values())).source
    steps = sheet.read(name, options.cpu, size)[1]
    numbers = [str(step.number) for step in steps]
    if options.step not in numbers:
        raise Stop(f"there is no step '{options.step}': the {name} has 1 to {numbers[-1]}", USAGE)
    for variable in "DEMO_COUNT", "DEMO_SCHEDULE":  # the sheet says where they are wanted
        os.environ.pop(variable, None)
    if options.no_build or replayed:
        os.environ["BUILD_NOTHING"] = "yes"  # the sheet's scripts neither
    if not replayed:
        why = not options.cpu and prepare(steps, options)
        if why:
            command_line.say("talk.sh", f"{why}: on the CPU")
            options.cpu, steps = True, sheet.read(name, True)[1]
        if options.cpu and size != sheet.N:
            command_line.say("talk.sh", "--size is for a GPU: on the CPU the run sheet's N stays")
        if options.cpu and not options.no_build:
            build(steps, True, options.prepare)
        if options.prepare:
            return OK
        if options.check:
            return hall.check(steps, options.cpu, lambda *ran: meant(*ran) == OK)
    talk, first = Talk(name, steps, options.cpu, known, replayed), numbers.index(options.step)
    try:
        if talk.room.waits and not options.record:
            talk.converse(first)
        for step in steps[first:] if options.record or not talk.room.waits else []:
            talk.show_banner(step)
            for command in step.commands:
                talk.run(command, True, options.record)
    except EOFError:  # Ctrl-D: the talk is what has run
        print()
    except KeyboardInterrupt:
        again = [word for word in arguments if word != options.step] + [str(talk.step.number)]
        return command_line.say("talk.sh", f"scripts/talk.sh {' '.join(again)} goes on from here",
                                INTERRUPTED)
    if options.record and talk.status() != SKIPPED:
        print(f"{recording.write(name, options.cpu, steps, talk.ran)} has what was printed")
    return talk.status()


if __name__ == "__main__":
    command_line.run(main)
