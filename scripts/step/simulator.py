"""Threads of a kernel on the CPU: where they are, what they wait for, and how to go to one, or to
the next barrier. A block's threads are fibers (simulator/scheduler.cpp), and the one that runs is
the selected one. On a GPU gpu.py has the same functions."""

import itertools
import math
import os

import gdb

from debugger import (
    NOT_RUNNING,
    alive,
    fail,
    here,
    is_at,
    linear,
    moved,
    quietly,
    run_selected_until,
    run_until,
    spell,
    vector,
)
from source_text import first_line, from_root, in_a_kernel, kernel_ends, kernels_of, source_line

NAMES = "simulator::(anonymous namespace)::"
LOOKS = NAMES + "debugger_looks"
left = {}  # (block, number of a thread) -> the file and line where it stepped aside


def prepare():
    quietly("handle SIGUSR1 nostop noprint pass")
    # Calls of the simulator, from __syncthreads() to launches, are the hardware's part.
    quietly("skip -gfi simulator/*")
    quietly("skip -gfi simulator/cuda/*")
    gdb.frame_filters[OwnFrames.name] = OwnFrames()


def the_runner():
    """The simulator's Runner; None where no kernel runs."""
    symbol = gdb.lookup_static_symbol(NAMES + "runner")
    runner = symbol.value() if symbol else None
    return runner.dereference() if runner else None


def in_kernel():
    try:
        return the_runner() is not None
    except gdb.error:  # no process
        return False


def threads_of(block):
    return [block["threads"] + i for i in range(math.prod(vector("blockDim")))]


def block_of_cluster(index):
    """One of the blocks that run now; None if that is not among them."""
    runner = the_runner()
    for rank in range(int(runner["grid_"]["cluster"])):
        block = runner["blocks_"][rank]
        if tuple(int(block["index"][axis]) for axis in "xyz") == index:
            return block
    return None


def frames():
    """From the innermost one."""
    frame = gdb.newest_frame()
    while frame:
        yield frame
        frame = frame.older()


def file_of(frame):
    place = frame.find_sal().symtab
    return place.filename if place else ""


def is_own(frame):
    return (frame.type() == gdb.NORMAL_FRAME and file_of(frame).endswith((".cu", ".cuh"))
            and "simulator/cuda/" not in file_of(frame))


def own_frame():
    """The innermost frame that is not the runtime's."""
    return next(filter(is_own, frames()), gdb.newest_frame())


class OwnFrames:
    """What `bt` shows: the frames of the program up to the kernel's, without the simulator's."""

    name, priority, enabled = "own-frames", 100, True

    def filter(self, decorated):
        for frame in decorated:
            if is_own(frame.inferior_frame()):
                yield frame
                if in_a_kernel(*here(frame.inferior_frame())):
                    return


def looks():
    """Whether the selected thread stands in debugger_looks()."""
    return gdb.newest_frame().name() == LOOKS


def at_line_start(frame):
    """Whether a line begins where this frame goes on."""
    return gdb.find_pc_line(frame.pc()).pc == frame.pc()


def kernel_start():
    """Where the running kernel begins: its frame is two below launch.hpp's."""
    inner = []
    for frame in frames():
        inner.append(frame)
        if file_of(frame).endswith("launch.hpp"):
            break
    else:
        fail(NOT_RUNNING)
    function = inner[-3].function()
    path = from_root(function.symtab.filename)
    line = next((first_line(path, brace) for brace, end in kernels_of(path)
                 if end > function.line), function.line)
    return f"{os.path.basename(path)}:{line}"


def run_to(frame):
    """Lets the selected thread come back to this frame of its own."""
    run_until(f"*{frame.pc()}", condition=f"$sp == {int(frame.read_register('sp'))}")


def leave_signal():
    """Goes on to where it was when SIGUSR1 came."""
    run_to(next(frame for frame in frames() if frame.type() == gdb.SIGTRAMP_FRAME).older())


def go(block, thread):
    """Writes the address of a thread into Runner::wanted_; the runtime then goes to it, whether or
    not it could run on, and stops in debugger_looks(). A thread that has yet to begin is begun, and
    stops at the kernel's first line."""
    if block_of_cluster(block) is None:
        go_on_to_cluster_of(block)
    current, shape = vector("threadIdx"), vector("blockDim")
    if (block, thread) == (vector("blockIdx"), current):
        return
    if file_of(gdb.newest_frame()).endswith("scheduler.cpp") and not looks():
        fail("thread: not from inside of the simulator; `finish` leaves it")
    wanted = threads_of(block_of_cluster(block))[linear(thread, shape)].dereference()
    if wanted["exited"]:
        fail(f"thread {spell(thread)} of block {spell(block)} has left the kernel")
    begun, stepped_aside = bool(wanted["fiber"]), not wanted["site"]["what"]
    left[vector("blockIdx"), linear(current, shape)] = here(own_frame())
    start = [] if begun else [kernel_start()]
    address = int(the_runner()["wanted_"].address)
    quietly(f"set variable *(unsigned long*){address} = {int(wanted.address)}")
    run_until(LOOKS, *start, command="continue" if looks() else "signal SIGUSR1")
    if begun and stepped_aside:
        leave_signal()
    else:
        own_frame().select()


def go_on_to_cluster_of(block):
    """To its first thread that begins."""
    grid, size = vector("gridDim"), int(the_runner()["grid_"]["cluster"])
    wanted = linear(block, grid)
    if wanted < linear(vector("blockIdx"), grid):
        fail(f"block {spell(block)} is over: on the CPU, blocks run one after the other")
    first = wanted - wanted % size
    first = (first % grid[0], first // grid[0] % grid[1], first // grid[0] // grid[1])
    start = kernel_start()
    run_until(NAMES + "Runner::prepare", condition=is_at("blockIdx", first))
    run_until(start)


def before_stepping():
    """`next` in a thread that waits: first it has to come back from there, yet not so far that it
    begins the next line."""
    if not in_kernel() or not looks():
        return
    frame = own_frame()
    if at_line_start(frame):
        run_to(frame.newer())
        while not is_own(gdb.newest_frame()) and not source_line(*here()).endswith("}"):
            quietly("next")
    else:
        run_to(frame)


def next_barrier():
    """Whether there was one."""
    if not looks():
        run_selected_until("simulator::block_meet", *kernel_ends())
        if not alive() or gdb.newest_frame().name() != "simulator::block_meet":
            return False
    run_to(own_frame())
    if not at_line_start(gdb.newest_frame()):
        quietly("next")
    return True


def ask():
    """What the simulator answers in text where Runner::asked_ is set. The thread then stands where
    it stood, and the same frame is selected."""
    selected, stops = gdb.selected_frame(), len(moved)
    depth = next(i for i, frame in enumerate(frames()) if frame == selected)
    quietly(f"set variable *(char*){int(the_runner()['asked_'].address)} = 1")
    run_until(LOOKS, command="signal SIGUSR1")
    answer = the_runner()["answer_"].string()
    leave_signal()
    next(itertools.islice(frames(), depth, None)).select()
    del moved[stops:]
    return answer


def threads():
    """For every thread of the block, in order: (file, line, state), and perhaps what is missing
    where it waits."""
    current, block = int(the_runner()["current_"]), vector("blockIdx")
    missing = dict(row.split("\t") for row in ask().splitlines())  # by numbers of threads
    result = []
    for i, pointer in enumerate(threads_of(block_of_cluster(block))):
        thread = pointer.dereference()
        if int(pointer) == current:
            place = here(own_frame()) + ("waits" if thread["waiting"] else "",)
        elif thread["exited"]:
            place = ("", 0, "left the kernel")
        elif not thread["fiber"]:
            place = ("", 0, "not begun yet")
        elif not thread["site"]["what"]:
            place = left[block, i] + ("",)
        else:
            place = (thread["site"]["file"].string(), int(thread["site"]["line"]),
                     "waits" if thread["waiting"] else "may go on")
        result.append(place + ((missing[str(i)],) if str(i) in missing else ()))
    return result
