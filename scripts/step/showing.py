"""What is said of where threads are: of the selected one the lines around it, and of all, for
`who`, a line for each warp or for those that are alike. The values of variables are in values.py.
"""

import contextlib
import os
import shutil
import textwrap

import gdb

from debugger import ON_GPU, here, linear, moved, say, spell, vector
from source_text import SOURCES, read_lines, source_line

if ON_GPU:
    import gpu as world
else:
    import simulator as world


def columns():
    """Of the terminal that shows what is said, at most 100."""
    for file in 3, 1:  # in a walk it is descriptor 3
        with contextlib.suppress(OSError):
            return min(100, os.get_terminal_size(file).columns or 100)
    return min(100, shutil.get_terminal_size((100, 24)).columns)


WIDTH = columns()
AROUND = 3  # lines of source shown before and after the one where a thread stands
seen = None, {}  # what the reader has in view: block and thread; {(file, line): its text}


def position():
    """Block and thread; None where no kernel runs."""
    return (vector("blockIdx"), vector("threadIdx")) if world.in_kernel() else None


def show_place():
    """The selected thread's line, among those around it or, if the reader has these in view,
    alone; and block and thread, unless these are known."""
    global seen
    moved.clear()
    now = position()
    who = now and f"block {spell(now[0])}, thread {spell(now[1])}"
    if not now or not world.is_own(gdb.selected_frame()):
        seen = None, {}
        say(f"{who} has left the kernel" if now else "the kernel is over")
        return
    (file, line), (known, in_view) = here(), seen
    new = (file, line) not in in_view
    if new:
        numbers = [i for i in range(line - AROUND, line + AROUND + 1)
                   if 0 < i <= max(len(read_lines(file)), line)]
        text = textwrap.dedent("\n".join(source_line(file, i) for i in numbers))
        in_view = dict(zip(((file, i) for i in numbers), text.split("\n")))
    if new or now != known:
        say(f"{who} in {os.path.basename(file)}")
    for place, text in in_view.items():
        if new or place == (file, line):
            mark = "=>" if place == (file, line) else "  "
            say(cut_text(f"{mark} {place[1]:4}  {text}", WIDTH).rstrip())
    seen = now, in_view


def cut_text(text, room):
    return text if len(text) <= room else text[:room - 4] + " ..."


def ranges(numbers):
    """[0, 1, 2, 5] as 0-2,5."""
    parts = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{a}-{b}" if a != b else str(a) for a, b in parts)


def show_warps():
    threads = world.threads()
    selected = linear(vector("threadIdx"), vector("blockDim"))
    warps = {}  # what its lanes do -> the warps that are alike
    for first in range(0, len(threads), 32):
        lanes = {}
        for lane, place in enumerate(threads[first:first + 32]):
            lanes.setdefault(place, []).append(lane)
        alike = tuple((place, tuple(lanes[place])) for place in lanes)
        warps.setdefault((alike, selected // 32 == first // 32), []).append(first // 32)
    say(f"block {spell(vector('blockIdx'))}: {len(threads)} threads in "
        f"{'1 warp' if len(threads) <= 32 else f'{(len(threads) + 31) // 32} warps'}")
    for (alike, has_selected), numbers in warps.items():
        name = f"{'warps' if len(numbers) > 1 else 'warp'} {ranges(numbers)}"
        for (file, line, state, *missing), lanes in alike:
            mark = "=>" if has_selected and selected % 32 in lanes else "  "
            which = f"{'lanes' if len(lanes) > 1 else 'lane'} {ranges(lanes)}"
            start = f"{mark} {name:13} {which:14} "
            if line:
                text = " ".join(source_line(file, line).split("//")[0].split())
                end = f"  ({state})" if state else ""
                label = f"{line:<3}" if file == SOURCES[0] else f"{os.path.basename(file)}:{line}"
                room = WIDTH - len(start) - len(label) - len(end) - 2
                say(f"{start}{label}  {cut_text(text, room)}{end}")
            else:
                say(start + state)
            for text in missing:
                for part in textwrap.wrap(text, WIDTH - len(start) - 5):
                    say(" " * (len(start) + 5) + part)
            name = ""
