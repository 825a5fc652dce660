"""The commands of scripts/step.sh, and how its session begins: gdb and cuda-gdb run this file in
their Python, from the repository's root. How to get from thread to thread is in gpu.py and
simulator.py, and what commands print in showing.py and values.py. The environment says what to do:
STEP_PROGRAM, STEP_ARGUMENTS (its command line), STEP_GPU (1 or empty), STEP_BATCH or STEP_WALK (a
file, or empty), STEP_FROM (the number of the file's first command that is shown)."""

import contextlib
import os
import re
import sys

import gdb

sys.path.insert(0, "scripts/step")
import command_files  # noqa: E402
from debugger import (  # noqa: E402
    NOT_RUNNING,
    ON_GPU,
    alive,
    fail,
    here,
    moved,
    quietly,
    run_until,
    say,
    spell,
    tell_of_stops,
    vector,
)
from showing import position, show_place, show_warps, world  # noqa: E402
from source_text import PROGRAM, in_a_kernel, kernel_starts  # noqa: E402
from values import printer_of, show_tile  # noqa: E402

BATCH, WALK = os.environ["STEP_BATCH"], os.environ["STEP_WALK"]
STEPPING = ("next", "step", "until", "advance", "nexti", "stepi")


def xyz(text, what, shape):
    """`5 1` as (5, 1, 0), which must lie within shape."""
    words = text.replace(",", " ").strip(" ()").split()
    if not 1 <= len(words) <= 3 or not all(re.fullmatch(r"\d{1,9}", word) for word in words):
        fail(f"{what}: up to three numbers are expected: {what} X [Y [Z]]")
    index = tuple(int(word) for word in words) + (0,) * (3 - len(words))
    if any(i >= extent for i, extent in zip(index, shape)):
        whole = "block" if what == "thread" else "grid"
        lines = f"; a breakpoint is `br {text}`" if what == "block" and words == [text] else ""
        fail(f"{what} {spell(index)}: the {whole} has {' x '.join(map(str, shape))}{lines}")
    return index


def thread(arguments):
    if arguments:
        world.go(vector("blockIdx"), xyz(arguments, "thread", vector("blockDim")))
    show_place()


def block(arguments):
    if arguments:
        world.go(xyz(arguments, "block", vector("gridDim")), vector("threadIdx"))
    show_place()


def next_barrier(_):
    if not world.next_barrier():
        say("no barrier follows: this is the kernel's end")
    show_place()


COMMANDS = [  # usage, short form, meaning, what runs
    ("thread X [Y [Z]]", "t", "go to a thread of this block", thread),
    ("block X [Y [Z]]", "b", "go to a block" if ON_GPU else
     "go to a block of the cluster, or onwards: clusters take turns", block),
    ("tile NAME", "ti", "print an array as a matrix", show_tile),
    ("next-barrier", "nb", "go to the line after the next __syncthreads()", next_barrier),
    ("who", "w", "where every warp of this block is" if ON_GPU else
     "where the block's warps are, and what they wait for", lambda _: show_warps()),
]
IN_PLACE_OF = {
    "thread": "It takes the place of the debugger's own, for which there is `info threads`.",
    "b": "It takes the place of the debugger's short form of `break`, which here is `br`.",
}


class Command(gdb.Command):
    """One of the commands, by its long or its short name. It needs a kernel that runs."""

    def __init__(self, name, usage, meaning, action):
        self.__doc__ = f"{usage}: {meaning}.\n{IN_PLACE_OF.get(name, '')}"
        self.name, self.takes_any, self.action = name, " " in usage, action
        super().__init__(name, gdb.COMMAND_USER)

    def invoke(self, arguments, _from_tty):
        if not world.in_kernel():
            fail(NOT_RUNNING)
        if arguments and not self.takes_any:
            fail(f"{self.name} takes no arguments")
        try:
            self.action(arguments)
        except gdb.error as error:  # without its name in front, and all that
            fail(f"{self.name}: {error}")


class BeforeMoving(gdb.Command):
    """Called before `next` and its kin, and before `continue`. The place is shown at the prompt, so
    the debugger need not say it, except that a watchpoint says more. And a thread that waits comes
    back from there before it steps."""

    def __init__(self):
        super().__init__("before-moving", gdb.COMMAND_USER)
        for name in (*STEPPING, "continue"):
            gdb.execute(f"define hook-{name}\nbefore-moving {name}\nend")

    def invoke(self, name, _from_tty):
        if name in STEPPING and not ON_GPU:
            world.before_stepping()
        if all(each.type == gdb.BP_BREAKPOINT for each in gdb.breakpoints() or ()):
            tell_of_stops(False)


def start():
    """Runs to the first line of the program's first kernel, in block (0,0), thread (0,0)."""
    # Not quietly: gdb would put the width back.
    for setting in ("pagination off", "confirm off", "width 0", "print thread-events off",
                    "print inferior-events off", "print address off", "print elements 8",
                    "print repeats 4", "print max-depth 3", "print static-members off",
                    "print frame-arguments none", "debuginfod enabled off"):
        with contextlib.suppress(gdb.error):  # older ones know some not
            gdb.execute(f"set {setting}")
    world.prepare()
    if BATCH or WALK:
        quietly(f"set args {os.environ['STEP_ARGUMENTS']} >&3")
    starts = kernel_starts()
    run_until(*starts, command="run")
    while alive() and not (world.in_kernel() and in_a_kernel(*here())):
        run_until(*starts)
    if not alive():
        status = int(gdb.parse_and_eval("$_exitcode"))
        if status != 0:
            quietly(f"quit {status}")  # the program has said why
        fail(f"{PROGRAM} came to no kernel of its own")
    world.go((0, 0, 0), (0, 0, 0))


def prompt(_prompt):
    """Shows where the selected thread stands now, if it has moved since that was shown last."""
    tell_of_stops(True)
    if moved and position():
        show_place()
    return "(step) "


def main():
    gdb.pretty_printers.append(printer_of)
    for usage, short, meaning, action in COMMANDS:
        for name in (usage.split()[0], short):
            Command(name, usage, meaning, action)
    BeforeMoving()
    try:
        start()
    except (gdb.error, gdb.GdbError) as error:
        print(f"step.sh: {error}", file=sys.stderr)
        quietly("quit 3")
    gdb.events.stop.connect(moved.append)
    gdb.events.exited.connect(moved.append)
    if os.isatty(2):
        os.write(2, b"\r\033[K")  # over the program's line about its progress
    if BATCH or WALK:
        status = command_files.run_file(BATCH or WALK, bool(WALK), int(os.environ["STEP_FROM"]))
        if BATCH or status or not alive():
            quietly(f"quit {status}")
        command_files.show("the walk is over, and the kernel is not: go on, or quit")
        os.dup2(3, 1)
    else:
        for usage, short, meaning, _ in COMMANDS:
            say(f"  {short:3} {usage:18} {meaning}")
        say(f"  and {'cuda-gdb' if ON_GPU else 'gdb'}'s own: next, step, print, list, break "
            "(here br), continue, quit")
        show_place()
    gdb.prompt_hook = prompt


main()
