"""Threads of a kernel on a GPU: where they are, and how to go to one, or to the next barrier, by
cuda-gdb's own commands. On the CPU simulator.py has the same functions."""

import math
import re

import gdb

from debugger import fail, here, linear, quietly, run_selected_until, spell, vector
from source_text import BARRIER, barriers, from_root, kernel_ends, source_line


def prepare():
    quietly("set breakpoint pending on")
    quietly("set cuda break_on_launch none")


def is_own(_frame):
    return True


def in_kernel():
    try:
        vector("threadIdx")
    except gdb.error:
        return False
    return True


def go(block, thread):
    try:
        quietly("cuda block (%d,%d,%d) thread (%d,%d,%d)" % (block + thread))
    except gdb.error as error:
        if "coordinates" not in str(error):
            raise
        fail(f"block {spell(block)}, thread {spell(thread)} has left the kernel, or is yet to come "
             "to a multiprocessor")


def next_barrier():
    """Whether there was one."""
    if not BARRIER.search(source_line(*here())):
        run_selected_until(*barriers(), *kernel_ends())
    if not in_kernel() or not BARRIER.search(source_line(*here())):
        return False
    quietly("next")
    return True


def threads():
    """For every thread of the block, in order: (file, line, state)."""
    shape = vector("blockDim")
    count = math.prod(shape)
    first = linear(vector("blockIdx"), vector("gridDim")) * count
    found = [("", 0, "left the kernel")] * count
    row = re.compile(r"\(([\d,]+)\)\s+\(([\d,]+)\)\s+\([\d,]+\)\s+\([\d,]+\)\s+(\d+)\s+"
                     r"0x[0-9a-f]+(?:[ ]+(\S+)[ ]+(\d+)[ ]*$)?", re.MULTILINE)
    for block, thread, length, file, line in row.findall(quietly("info cuda threads")):
        block, thread = (tuple(map(int, text.split(","))) for text in (block, thread))
        start = linear(block, vector("gridDim")) * count + linear(thread, shape) - first
        for i in range(max(start, 0), min(start + int(length), count)):
            found[i] = ((from_root(file), int(line), "") if line else
                        ("", 0, "in code without line numbers"))
    return found
