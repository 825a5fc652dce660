"""A file of commands: --batch runs them all at once, and --walk one for each Enter. Standard output
is left to what the debugger says of itself; descriptor 3 gets what is to be read, and the program's
output. The commands themselves are in step_commands.py."""

import os
import re
import select
import signal
import sys
import termios

import gdb

from debugger import moved, quietly


def show(text):
    os.write(3, (text.rstrip("\n") + "\n").encode())


def place():
    """What show_place() says."""
    return gdb.execute("python import showing; showing.show_place()", False, True)


def show_result(line):
    """Runs a command, and shows what it says or, if it has moved, where that led."""
    moved.clear()
    text = gdb.execute(line, False, True)
    text = place() if moved else text
    if text:
        show(re.sub(r" \(\d+ locations\)", "", text))  # as many as the compiler made


def commands_of(path):
    """[(narration, command)] of a file: the lines with # before a command, which may be none. What
    follows ## is for whoever reads the file."""
    narration = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in map(str.strip, file):
            if line.startswith("#"):
                narration += [line] * (not line.startswith("##"))
            elif line:
                yield narration, line
                narration = []
    yield narration, ""


def ask(line, nth):
    """What is typed at a prompt. The next command is below it, in gray, and nothing but Enter is
    for that one. Ends the session where nothing more can be typed."""
    fancy = os.isatty(0) and os.isatty(3) and os.environ.get("TERM", "dumb") != "dumb"
    if fancy:
        termios.tcflush(0, termios.TCIFLUSH)  # an impatient Enter while a command ran
    ahead = f"\n\033[2mEnter, {nth}: {line}\033[0m\033[A\r(step) " if fancy else line
    os.write(3, f"(step) {ahead}".encode())
    try:
        while not select.select([0], [], [], 0.1)[0]:
            pass  # here Python learns of an interrupt; a read would go on after one
        with open(0, "rb", buffering=0, closefd=False) as keyboard:
            typed = keyboard.readline()
    except KeyboardInterrupt:
        typed = None
    if not typed:
        show("\033[J" * fancy)
        quietly(f"quit {130 if typed is None else 0}")
    typed = typed.decode(errors="replace").strip()
    if not fancy:
        show("")
    else:
        os.write(3, f"\033[A\r(step) {typed or line}\033[K\n\033[J".encode())
    return typed


def run_file(path, walk, first):
    """Runs a file of commands, of which those before the one of number `first` say nothing; the
    exit status. In a walk each command waits for Enter, and others may be typed before it; there
    one that fails ends nothing."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whoever reads may have seen enough
    commands = list(commands_of(path))
    if first >= len(commands) > 1:
        print(f"step.sh: --from {first}: {path} has {len(commands) - 1} commands", file=sys.stderr)
        return 2
    try:
        for _, line in commands[:first - 1]:
            gdb.execute(line, False, True)
        show(place())
        for number, (narration, line) in enumerate(commands[first - 1:], first):
            if narration:
                show("\n" + "\n".join(narration))
            while line:
                nth = f"{number} of {len(commands) - 1}"
                typed = ask(line, nth) if walk else show(f"(step) {line}")
                try:
                    show_result(typed or line)
                except gdb.error as error:
                    show(str(error))
                    if not walk:
                        return 3
                if not typed:
                    break
    except Exception as error:  # gdb itself would go on, and end with 0
        print(f"step.sh: {path}: {type(error).__name__}: {error}", file=sys.stderr)
        return 3
    return 0
