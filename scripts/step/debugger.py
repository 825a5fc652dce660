"""What gpu.py, simulator.py and the commands are made of: the debugger's own commands without what
it says of them, runs to a place, and where the selected thread is. How to select another thread is
not in here."""

import contextlib
import os

import gdb

from source_text import from_root

ON_GPU = bool(os.environ["STEP_GPU"])
NOT_RUNNING = "no kernel is running"
moved = []  # the stops since a place was shown last


def say(text):
    gdb.write(text + "\n")


def fail(message):
    raise gdb.GdbError(message)


def tell_of_stops(tell):
    """Whether the debugger itself says where it stops. Before version 13 it always does."""
    with contextlib.suppress(gdb.error):
        gdb.execute(f"set suppress-cli-notifications {'off' if tell else 'on'}")


def quietly(command):
    """Its output, as text; what gdb says of where it stops is not shown."""
    tell_of_stops(False)
    try:
        return gdb.execute(command, False, True)
    finally:
        tell_of_stops(True)


def run_until(*places, condition=None, command="continue"):
    """Runs with breakpoints at these places, whatever others there are, and deletes them."""
    others = [other for other in gdb.breakpoints() or () if other.enabled]
    own = [gdb.Breakpoint(place, internal=True) for place in places]
    for breakpoint in own:
        breakpoint.silent = True
        if condition:
            breakpoint.condition = condition
    for other in others:
        other.enabled = False
    try:
        quietly(command)
    finally:
        for breakpoint in filter(gdb.Breakpoint.is_valid, own):
            breakpoint.delete()
        for other in filter(gdb.Breakpoint.is_valid, others):
            other.enabled = True


def run_selected_until(*places):
    """Runs until the selected thread comes to one of these."""
    run_until(*places, condition=f"{is_at('blockIdx')} && {is_at('threadIdx')}")


def alive():
    return gdb.selected_inferior().pid != 0


def here(frame=None):
    """File and line of a frame; without one, of the selected one."""
    place = (frame or gdb.selected_frame()).find_sal()
    return (from_root(place.symtab.filename) if place.symtab else "?"), place.line


def vector(name):
    """threadIdx, blockIdx, blockDim or gridDim."""
    value = gdb.parse_and_eval(name)
    return tuple(int(value[axis]) for axis in "xyz")


def is_at(name, index=None):
    """The condition that threadIdx or blockIdx is this; without an index: what it is now."""
    return " && ".join(f"{name}.{axis} == {i}" for axis, i in zip("xyz", index or vector(name)))


def spell(index):
    """(0,0), with z only where there is one."""
    return "(" + ",".join(map(str, index if index[2] else index[:2])) + ")"


def linear(index, shape):
    return index[0] + shape[0] * (index[1] + shape[1] * index[2])
