"""The commands of scripts/step.sh, inside gdb and cuda-gdb, which run this file in their Python.

On a GPU they are short forms of cuda-gdb's. On the simulator a block's threads are fibers
(simulator/scheduler.cpp): the one that runs is the selected one. To select another, its address is
written into Runner::wanted_; the runtime then goes to it, whether or not it could run on, and stops
in debugger_looks(). A thread that has yet to begin is begun, and stops at the kernel's first line.
What threads wait for is asked for in the same way: by Runner::asked_.

The environment says what to do: STEP_PROGRAM, STEP_ARGUMENTS (its command line), STEP_GPU (1 or
empty), STEP_BATCH or STEP_WALK (a file, or empty).
"""

import contextlib
import math
import os
import re
import select
import signal
import struct
import sys
import textwrap

import gdb

PROGRAM = os.environ["STEP_PROGRAM"]
ON_GPU = bool(os.environ.get("STEP_GPU"))
BATCH = os.environ.get("STEP_BATCH")
WALK = os.environ.get("STEP_WALK")

COMMANDS = [  # usage, short form, meaning
    ("thread X [Y [Z]]", "t", "go to a thread of this block"),
    ("block X [Y [Z]]", "b", "go to a block" if ON_GPU else
     "go to a block of the cluster, or onwards: clusters run one after the other"),
    ("tile NAME", "ti", "print an array as a matrix"),
    ("next-barrier", "nb", "go to the line after the next __syncthreads()"),
    ("who", "w", "where every warp of this block is" if ON_GPU else
     "where every warp of this block is, and what it waits for"),
]
OWN = {name for usage, short, _ in COMMANDS for name in (usage.split()[0], short)}
STEPPING = ("next", "step", "until", "advance", "nexti", "stepi")
WIDTH = 100  # of a line that projects
AROUND = 3  # lines of source shown before and after the one where a thread stands
NOT_RUNNING = "no kernel is running"


# --- The program's text ---------------------------------------------------------------------------

BARRIER = re.compile(r"__syncthreads(_\w+)?\(")


def read_lines(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError:
        return []


def source_line(path, line):
    lines = read_lines(path)
    return lines[line - 1] if 0 < line <= len(lines) else ""


def sources_of(path):
    """A program's source, and the headers of its room that it includes."""
    paths = [path]
    for line in read_lines(path):
        included = re.match(r'#include "((?!demo/)\w+/\w+\.cuh)"', line)
        if included:
            paths += sources_of(os.path.join("src", included[1]))
    return list(dict.fromkeys(paths))


def kernels_of(path):
    """The lines of the first and the last brace of each kernel in a file, but those that verify."""
    lines = read_lines(path)
    for i, line in enumerate(lines):
        if re.match(r"(\[\[.*\]\] )?(static )?__(tile_)?global__ (?!void reference_)", line):
            end = next(j for j in range(i, len(lines)) if lines[j].startswith("}"))
            brace = next(j for j in range(i, end) if lines[j].split("//")[0].rstrip().endswith("{"))
            yield brace + 1, end + 1


SOURCES = sources_of(f"src/{PROGRAM}.cu")


def places(numbers_of):
    """Places as gdb spells them, 2_matmul_sharedmem.cu:33, for those of a file's lines that were
    compiled."""
    return [place for path in SOURCES for line in numbers_of(path)
            for place in [f"{os.path.basename(path)}:{line}"] if is_compiled(place)]


def is_compiled(place):
    try:
        gdb.decode_line(place)
    except gdb.error:
        return False
    return True


def first_line(path, brace):
    """The line after a kernel's first brace from which debuggers take the first statement. On a GPU
    declarations of shared memory are none."""
    lines, line = read_lines(path), brace + 1
    while re.match(r"\s*(alignas\(.*?\) |extern )*__shared__ .*;", source_line(path, line)):
        line += 1
    return line if line <= len(lines) else brace + 1


def kernel_starts():
    """The lines before the first ones belong also to the functions that launch kernels, in the
    host's code."""
    return places(lambda path: [first_line(path, brace) for brace, _ in kernels_of(path)])


def kernel_ends():
    return places(lambda path: [end for _, end in kernels_of(path)])


def in_a_kernel(path, line):
    return any(brace <= line <= end for brace, end in kernels_of(path))


def barriers():
    return places(lambda path: [i for i, line in enumerate(read_lines(path), 1)
                                if BARRIER.search(line.split("//")[0])])


# --- What both debuggers share --------------------------------------------------------------------


def say(text):
    gdb.write(text + "\n")


def fail(message):
    raise gdb.GdbError(message)


def quietly(command):
    """Its output, as text; what gdb says of where it stops is not shown."""
    with contextlib.suppress(gdb.error):  # gdb before 13 shows it
        gdb.execute("set suppress-cli-notifications on")
    try:
        return gdb.execute(command, False, True)
    finally:
        with contextlib.suppress(gdb.error):
            gdb.execute("set suppress-cli-notifications off")


@contextlib.contextmanager
def only(*breakpoints):
    """Runs with these breakpoints, whatever others there are, and deletes them."""
    others = [b for b in gdb.breakpoints() or () if b.enabled and b not in breakpoints]
    for other in others:
        other.enabled = False
    try:
        yield
    finally:
        for breakpoint in breakpoints:
            if breakpoint.is_valid():
                breakpoint.delete()
        for other in others:
            if other.is_valid():
                other.enabled = True


def stop_at(place, condition=None):
    breakpoint = gdb.Breakpoint(place, internal=True)
    breakpoint.silent = True
    if condition:
        breakpoint.condition = condition
    return breakpoint


def continue_to(places):
    """Runs until the selected thread comes to one of these."""
    selected = f"{is_at('blockIdx')} && {is_at('threadIdx')}"
    with only(*[stop_at(place, selected) for place in places]):
        quietly("continue")


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


def spell(index):
    """(0,0), with z only where there is one."""
    return "(" + ",".join(map(str, index if index[2] else index[:2])) + ")"


def linear(index, shape):
    return index[0] + shape[0] * (index[1] + shape[1] * index[2])


def vector(name):
    """threadIdx, blockIdx, blockDim or gridDim."""
    value = gdb.parse_and_eval(name)
    return tuple(int(value[axis]) for axis in "xyz")


def is_at(name, index=None):
    """The condition that threadIdx or blockIdx is this; without an index: what it is now."""
    return " && ".join(f"{name}.{axis} == {i}" for axis, i in zip("xyz", index or vector(name)))


def at_line_start(frame):
    """Whether a line begins where this frame goes on."""
    return gdb.find_pc_line(frame.pc()).pc == frame.pc()


def from_root(path):
    """A file's path from the repository's root, whatever the compiler called it."""
    for own in SOURCES:
        if os.path.basename(path) == os.path.basename(own):
            return own
    below = re.search(r"(?:^|/)((?:src|include)/.*)$", path)
    return below[1] if below else path


def alive():
    return gdb.selected_inferior().pid != 0


def here(frame=None):
    """File and line of a frame; without one, of the selected one."""
    place = (frame or gdb.selected_frame()).find_sal()
    return (from_root(place.symtab.filename) if place.symtab else "?"), place.line


# --- The two worlds -------------------------------------------------------------------------------


class Gpu:
    """cuda-gdb."""

    def prepare(self):
        quietly("set breakpoint pending on")
        quietly("set cuda break_on_launch none")

    def is_own(self, _frame):
        return True

    def in_kernel(self):
        try:
            vector("threadIdx")
        except gdb.error:
            return False
        return True

    def go(self, block, thread):
        try:
            quietly("cuda block (%d,%d,%d) thread (%d,%d,%d)" % (block + thread))
        except gdb.error as error:
            if "coordinates" not in str(error):
                raise
            fail(f"block {spell(block)}, thread {spell(thread)} has left the kernel, or is yet to "
                 "come to a multiprocessor")

    def select_thread(self, thread):
        self.go(vector("blockIdx"), thread)

    def select_block(self, block):
        self.go(block, vector("threadIdx"))

    def before_stepping(self):
        pass

    def next_barrier(self):
        """Whether there was one."""
        if not BARRIER.search(source_line(*here())):
            continue_to(barriers() + kernel_ends())
        if not self.in_kernel() or not BARRIER.search(source_line(*here())):
            return False
        quietly("next")
        return True

    def threads(self):
        """For every thread of the block, in order: (file, line, state)."""
        shape = vector("blockDim")
        count = shape[0] * shape[1] * shape[2]
        first = linear(vector("blockIdx"), vector("gridDim")) * count
        found = [None] * count
        row = re.compile(r"\(([\d,]+)\)\s+\(([\d,]+)\)\s+\([\d,]+\)\s+\([\d,]+\)\s+(\d+)\s+"
                         r"0x[0-9a-f]+(?:[ ]+(\S+)[ ]+(\d+)[ ]*$)?", re.MULTILINE)
        for block, thread, length, file, line in row.findall(quietly("info cuda threads")):
            block, thread = (tuple(map(int, text.split(","))) for text in (block, thread))
            start = linear(block, vector("gridDim")) * count + linear(thread, shape) - first
            for i in range(max(start, 0), min(start + int(length), count)):
                found[i] = ((from_root(file), int(line), "") if line else
                            ("", 0, "in code without line numbers"))
        return [place or ("", 0, "left the kernel") for place in found]


class Simulator:
    """gdb, and the simulator."""

    LOOKS = "simulator::(anonymous namespace)::debugger_looks"

    def __init__(self):
        self.left = {}  # (block, number of a thread) -> the file and line where it stepped aside

    def prepare(self):
        quietly("handle SIGUSR1 nostop noprint pass")
        # Calls of the simulator, from __syncthreads() to launches, are the hardware's part.
        quietly("skip -gfi simulator/*")
        quietly("skip -gfi simulator/cuda/*")

    def runner(self):
        symbol = gdb.lookup_static_symbol("simulator::(anonymous namespace)::runner")
        runner = symbol.value() if symbol else None
        return runner.dereference() if runner else None

    def in_kernel(self):
        try:
            return self.runner() is not None
        except gdb.error:  # no process
            return False

    def looks(self):
        """Whether the selected thread stands in debugger_looks()."""
        return gdb.newest_frame().name() == self.LOOKS

    def is_own(self, frame):
        place = frame.find_sal().symtab
        return (frame.type() == gdb.NORMAL_FRAME and place is not None
                and "simulator/cuda/" not in place.filename
                and place.filename.endswith((".cu", ".cuh")))

    def own_frame(self):
        """The innermost frame that is not the runtime's."""
        frame = gdb.newest_frame()
        while frame and not self.is_own(frame):
            frame = frame.older()
        return frame or gdb.newest_frame()

    def show_kernel(self):
        self.own_frame().select()

    def kernel_start(self):
        """Where the running kernel begins: its frame is two below launch.hpp's."""
        frames = [gdb.newest_frame()]
        while True:
            place = frames[-1].find_sal().symtab
            if place and place.filename.endswith("launch.hpp"):
                break
            frames.append(frames[-1].older())
            if frames[-1] is None:
                fail(NOT_RUNNING)
        function = frames[-3].function()
        path = from_root(function.symtab.filename)
        line = next((first_line(path, brace) for brace, end in kernels_of(path)
                     if end > function.line), function.line)
        return f"{os.path.basename(path)}:{line}"

    def all_threads(self, block):
        shape = vector("blockDim")
        return [block["threads"] + i for i in range(shape[0] * shape[1] * shape[2])]

    def block_of_cluster(self, index):
        """One of the blocks that run now; None if that is not among them."""
        runner = self.runner()
        for rank in range(int(runner["grid_"]["cluster"])):
            block = runner["blocks_"][rank]
            if tuple(int(block["index"][axis]) for axis in "xyz") == index:
                return block
        return None

    def run_to(self, frame):
        """Lets the selected thread come back to this frame of its own."""
        stop = stop_at(f"*{frame.pc()}", f"$sp == {int(frame.read_register('sp'))}")
        with only(stop):
            quietly("continue")

    def leave_signal(self):
        """Goes on to where it was when SIGUSR1 came."""
        frame = gdb.newest_frame()
        while frame.type() != gdb.SIGTRAMP_FRAME:
            frame = frame.older()
        self.run_to(frame.older())

    def select_thread(self, thread):
        self.go(vector("blockIdx"), thread)

    def go(self, block, thread):
        """To a thread of a block that runs now: of this cluster."""
        runner = self.runner()
        current, shape = vector("threadIdx"), vector("blockDim")
        if (block, thread) == (vector("blockIdx"), current):
            return
        newest = gdb.newest_frame().find_sal().symtab
        if newest and newest.filename.endswith("scheduler.cpp") and not self.looks():
            fail("thread: not from inside of the simulator; `finish` leaves it")
        threads = self.all_threads(self.block_of_cluster(block))
        wanted = threads[linear(thread, shape)].dereference()
        if wanted["exited"]:
            fail(f"thread {spell(thread)} of block {spell(block)} has left the kernel")
        begun, stepped_aside = bool(wanted["fiber"]), not wanted["site"]["what"]
        self.left[vector("blockIdx"), linear(current, shape)] = here(self.own_frame())
        start = [] if begun else [stop_at(self.kernel_start())]
        with only(stop_at(self.LOOKS), *start):
            address = int(runner["wanted_"].address)
            quietly(f"set variable *(unsigned long*){address} = {int(wanted.address)}")
            quietly("continue" if self.looks() else "signal SIGUSR1")
        if begun and stepped_aside:
            self.leave_signal()
        else:
            self.show_kernel()

    def select_block(self, block):
        thread, grid = vector("threadIdx"), vector("gridDim")
        if self.block_of_cluster(block) is None:
            wanted, size = linear(block, grid), int(self.runner()["grid_"]["cluster"])
            if wanted < linear(vector("blockIdx"), grid):
                fail(f"block {spell(block)} is over: on the CPU, blocks run one after the other")
            first = wanted - wanted % size  # of its cluster
            first = (first % grid[0], first // grid[0] % grid[1], first // grid[0] // grid[1])
            start = self.kernel_start()
            with only(stop_at("simulator::(anonymous namespace)::Runner::prepare",
                              is_at("blockIdx", first))):
                quietly("continue")
            with only(stop_at(start)):
                quietly("continue")
        self.go(block, thread)

    def before_stepping(self):
        """`next` in a thread that waits: first it has to come back from there, yet not so far that
        it begins the next line."""
        if not self.in_kernel() or not self.looks():
            return
        frame = self.own_frame()
        if not at_line_start(frame):
            self.run_to(frame)
            return
        self.run_to(frame.newer())
        while not self.is_own(gdb.newest_frame()) and not source_line(*here()).endswith("}"):
            quietly("next")

    def next_barrier(self):
        if not self.looks():
            continue_to(["simulator::block_meet"] + kernel_ends())
            if not alive() or gdb.newest_frame().name() != "simulator::block_meet":
                return False
        self.run_to(self.own_frame())
        if not at_line_start(gdb.newest_frame()):
            quietly("next")
        return True

    def ask(self):
        """What the simulator answers in text. The thread then stands where it stood, and the same
        frame is selected."""
        frames, stops = [gdb.newest_frame()], len(moved)
        while frames[-1] != gdb.selected_frame():
            frames.append(frames[-1].older())
        with only(stop_at(self.LOOKS)):
            quietly(f"set variable *(char*){int(self.runner()['asked_'].address)} = 1")
            quietly("signal SIGUSR1")
        answer = self.runner()["answer_"].string()
        self.leave_signal()
        frame = gdb.newest_frame()
        for _ in frames[1:]:
            frame = frame.older()
        frame.select()
        del moved[stops:]
        return answer

    def missing(self):
        """What threads of the block wait for, by their numbers, where that is not all others."""
        rows = (row.split("\t") for row in self.ask().splitlines())
        return {int(number): text for number, text in rows}

    def threads(self):
        """For every thread of the block, in order: (file, line, state), and perhaps what is missing
        where it waits."""
        runner, block = self.runner(), vector("blockIdx")
        current, missing = int(runner["current_"]), self.missing()
        result = []
        for i, pointer in enumerate(self.all_threads(self.block_of_cluster(block))):
            thread = pointer.dereference()
            if int(pointer) == current:
                place = here(self.own_frame()) + ("waits" if thread["waiting"] else "",)
            elif thread["exited"]:
                place = ("", 0, "left the kernel")
            elif not thread["fiber"]:
                place = ("", 0, "not begun yet")
            elif not thread["site"]["what"]:
                place = self.left[block, i] + ("",)
            else:
                place = (thread["site"]["file"].string(), int(thread["site"]["line"]),
                         "waits" if thread["waiting"] else "may go on")
            result.append(place + ((missing[i],) if i in missing else ()))
        return result


world = Gpu() if ON_GPU else Simulator()


# --- Showing --------------------------------------------------------------------------------------


seen = None  # what the reader has in view: (block and thread, {(file, line): its text})


def position():
    """Block and thread; None where no kernel runs."""
    return (vector("blockIdx"), vector("threadIdx")) if world.in_kernel() else None


def show_place():
    """The selected thread's line, among those around it or, if the reader has these in view,
    alone; and block and thread, unless these are known."""
    global seen
    moved.clear()
    now = position()
    if not now:
        seen = None
        say("the kernel is over")
        return
    who = f"block {spell(now[0])}, thread {spell(now[1])}"
    if not world.is_own(gdb.selected_frame()):
        seen = None
        say(f"{who} has left the kernel")
        return
    file, line = here()
    known, in_view = seen if seen else (None, {})
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


def number_of(value):
    """A scalar as Python's int or float; half and bfloat16 by their bits."""
    kind = value.type.strip_typedefs()
    if kind.code == gdb.TYPE_CODE_STRUCT and kind.sizeof == 2:
        bits = value
        while bits.type.strip_typedefs().code == gdb.TYPE_CODE_STRUCT:
            bits = bits[[field for field in bits.type.strip_typedefs().fields()
                         if not getattr(field, "bitpos", None) and field.type.sizeof == 2][0]]
        if bits.type.strip_typedefs().code == gdb.TYPE_CODE_FLT:
            return float(bits)
        bits = int(bits) & 0xFFFF
        if "bf" in (kind.name or ""):
            return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
        return struct.unpack("<e", struct.pack("<H", bits))[0]
    if kind.code == gdb.TYPE_CODE_FLT:
        return float(value)
    if kind.code in (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_BOOL, gdb.TYPE_CODE_ENUM,
                     gdb.TYPE_CODE_CHAR):
        return int(value)
    fail(f"tile: an element is {kind}, not a number; `print` shows it")


def cut(extent):
    """The indices to show, None for those left out."""
    return list(range(extent)) if extent <= 12 else [*range(8), None, *range(extent - 3, extent)]


TILE = re.compile(r"cuda::tiles::tile<.+, cuda::tiles::extents<unsigned int((?:, \d+\w*)*)> ?>")


def extents_of(value):
    """The extents of a tile of CUDA Tile C++; None for anything else."""
    match = TILE.fullmatch(str(value.type.strip_typedefs().unqualified()))
    return match and [int(number) for number in re.findall(r"(\d+)\w*", match[1])]


class NumberPrinter:
    """What `print` says of a float or a half: six digits that count, as %g does."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        return format(number_of(self.value), "g")


class TilePrinter:
    """What `print` says of a tile."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        extents, elements = extents_of(self.value), self.value["elements_"]
        kind = str(elements.type.target().unqualified())
        size = " x ".join(map(str, extents)) or "1"
        if not elements:
            return f"{size} of {kind}, without elements yet"
        shown = min(math.prod(extents), 8)
        numbers = spell_numbers([number_of(elements[i]) for i in range(shown)])
        rest = ", ..." * (math.prod(extents) > shown)
        return f"{size} of {kind}: {{{', '.join(numbers)}{rest}}}"


SMALL_FLOAT = re.compile(r"(__)?(half|nv_bfloat16)")


def printer_of(value):
    """What prints a value in the debugger's place; None for most."""
    if extents_of(value) is not None:
        return TilePrinter(value)
    kind = value.type.strip_typedefs().unqualified()
    if kind.code == gdb.TYPE_CODE_FLT or SMALL_FLOAT.fullmatch(kind.name or ""):
        return None if value.is_optimized_out else NumberPrinter(value)
    return None


class OwnFrames:
    """What `bt` shows: the frames of the program up to the kernel's, without the simulator's."""

    name, priority, enabled = "own-frames", 100, True

    def __init__(self):
        gdb.frame_filters[self.name] = self

    def filter(self, frames):
        for frame in frames:
            if world.is_own(frame.inferior_frame()):
                yield frame
                if in_a_kernel(*here(frame.inferior_frame())):
                    return


def find_tile(name, extents):
    """An array's rows and columns, the type of its elements, and what returns one by its row and
    column. `extents` are those of what a pointer points to."""
    value = gdb.parse_and_eval(name)
    if value.type.strip_typedefs().code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
        value = value.referenced_value()  # a __shared__ variable, on the simulator
    kind, own = value.type.strip_typedefs(), extents_of(value)
    if own is not None:
        if extents or len(own) > 2:
            fail(f"tile: {name} has {len(own)} dimensions; `print` shows its first elements")
        extents, value = own or [1], value["elements_"]
    if extents:
        while value.type.strip_typedefs().code == gdb.TYPE_CODE_ARRAY:
            value = value[0].address
        rows, columns = (extents if len(extents) == 2 else [1] + extents)
        return rows, columns, value.type.strip_typedefs().target(), (
            lambda row, column: (value + row * columns + column).dereference())
    if kind.code != gdb.TYPE_CODE_ARRAY:
        fail(f"tile: {name} is {kind}, not an array; for a pointer: tile NAME ROWS COLUMNS")
    extent, inner = kind.range()[1] + 1, kind.target().strip_typedefs()
    if inner.code != gdb.TYPE_CODE_ARRAY:
        return 1, extent, inner, lambda row, column: value[column]
    return extent, inner.range()[1] + 1, inner.target(), lambda row, column: value[row][column]


def spell_numbers(numbers):
    """All in one format: fixed-point if the largest is in [0.01, 1000), else to three digits."""
    largest = max((abs(n) for n in numbers if math.isfinite(n)), default=0)
    form = ".3f" if largest == 0 or 0.01 <= largest < 1000 else ".3g"
    return [str(n) if isinstance(n, int) else format(n, form) for n in numbers]


def show_tile(text):
    words = re.fullmatch(r"(.+?)((?:\s+[1-9]\d*){0,2})", text.strip())
    if not words:
        fail("tile: the name of an array is expected: tile NAME")
    rows, columns, kind, element = find_tile(words[1], [int(word) for word in words[2].split()])
    shown = [(r, c) for r in cut(rows) for c in cut(columns) if None not in (r, c)]
    cells = dict(zip(shown, spell_numbers([number_of(element(r, c)) for r, c in shown])))
    width = max(map(len, [*cells.values(), *map(str, cut(columns))]))

    def line(label, cell_of):
        """A row: its label, and what cell_of() says of each column."""
        parts = ["..." if c is None else cell_of(c).rjust(width) for c in cut(columns)]
        say(f"{label:>4}  " + " ".join(parts))

    left_out = None in cut(rows) + cut(columns)
    size = f"{rows} x {columns}" if rows > 1 else str(columns)
    kind = re.sub(r"@\w+ ", "", str(kind.unqualified()))  # @shared, says cuda-gdb
    rest = ", all but the first 8 and the last 3 left out" * left_out
    say(f"{words[1]}: {size} of {kind}{rest}")
    line("", str)
    for r in cut(rows):
        line(*(("...", lambda c: "...") if r is None else (r, lambda c: cells[r, c])))


# --- The commands ---------------------------------------------------------------------------------


def command(name, usage, meaning, action):
    """Defines a command of gdb, which needs a kernel that runs."""

    class Command(gdb.Command):
        def __init__(self):
            super().__init__(name, gdb.COMMAND_USER)

        def invoke(self, arguments, _from_tty):
            if not world.in_kernel():
                fail(NOT_RUNNING)
            if " " not in usage and arguments:
                fail(f"{name} takes no arguments")
            try:
                action(arguments)
            except gdb.error as error:  # without its name in front, and all that
                fail(f"{name}: {error}")

    Command.__doc__ = f"{usage}: {meaning}.\n{IN_PLACE_OF.get(name, '')}"
    Command()


IN_PLACE_OF = {
    "thread": "It takes the place of the debugger's own, for which there is `info threads`.",
    "b": "It takes the place of the debugger's short form of `break`, which here is `br`.",
}


def thread(arguments):
    if arguments:
        world.select_thread(xyz(arguments, "thread", vector("blockDim")))
    show_place()


def block(arguments):
    if arguments:
        world.select_block(xyz(arguments, "block", vector("gridDim")))
    show_place()


def next_barrier(_):
    if not world.next_barrier():
        say("no barrier follows: this is the kernel's end")
    show_place()


def define_commands():
    gdb.pretty_printers.append(printer_of)
    if not ON_GPU:
        OwnFrames()
    for (usage, short, meaning), action in zip(COMMANDS, (thread, block, show_tile, next_barrier,
                                                          lambda _: show_warps())):
        for name in (usage.split()[0], short):
            command(name, usage, meaning, action)


moved = []  # the stops since a place was shown last


class BeforeMoving(gdb.Command):
    """Called before `next` and its kin, and before `continue`. The place is shown at the prompt, so
    the debugger need not say it, except that a watchpoint says more. And a thread that waits comes
    back from there before it steps."""

    def __init__(self):
        super().__init__("before-moving", gdb.COMMAND_USER)
        for name in (*STEPPING, "continue"):
            gdb.execute(f"define hook-{name}\nbefore-moving {name}\nend")

    def invoke(self, name, _from_tty):
        if name in STEPPING:
            world.before_stepping()
        if all(each.type == gdb.BP_BREAKPOINT for each in gdb.breakpoints() or ()):
            tell_of_stops("off")


def tell_of_stops(setting):
    """Whether the debugger itself says where it stops. Before version 13 it always does."""
    with contextlib.suppress(gdb.error):
        gdb.execute(f"set suppress-cli-notifications {'on' if setting == 'off' else 'off'}")


# --- The session ----------------------------------------------------------------------------------


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
    starts = [stop_at(place) for place in kernel_starts()]
    with only(*starts):
        if BATCH or WALK:
            quietly(f"set args {os.environ['STEP_ARGUMENTS']} >&3")
        quietly("run")
        while alive() and not (world.in_kernel() and in_a_kernel(*here())):
            quietly("continue")
    if not alive():
        status = int(gdb.parse_and_eval("$_exitcode"))
        if status != 0:
            quietly(f"quit {status}")  # the program has said why
        fail(f"{PROGRAM} came to no kernel of its own")
    if ON_GPU:
        world.go((0, 0, 0), (0, 0, 0))


def banner():
    debugger = "cuda-gdb" if ON_GPU else "gdb"
    for usage, short, meaning in COMMANDS:
        say(f"  {short:3} {usage:18} {meaning}")
    say(f"  and {debugger}'s own: next, step, print, list, break (here br), continue, quit")


def prompt(_prompt):
    """Shows where the selected thread stands now, if it has moved since that was shown last."""
    tell_of_stops("on")
    if moved and position():
        show_place()
    return "(step) "


# A file of commands: all at once, or one for each Enter. Standard output is left to what the
# debugger says of itself; descriptor 3 gets what is to be read, and the program's output.


def show(text):
    os.write(3, (text.rstrip("\n") + "\n").encode())


def show_result(line):
    """Runs a command, and shows what it says or, if it has moved, where that led."""
    moved.clear()
    text = gdb.execute(line, False, True)
    if moved and line.split()[0] not in OWN:
        text = gdb.execute("python show_place()", False, True)
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
    if narration:
        yield narration, ""


def run_batch(path):
    """Runs a file of commands; whether all went well."""
    for narration, line in commands_of(path):
        if narration:
            show("\n" + "\n".join(narration))
        if line:
            show(f"(step) {line}")
            try:
                show_result(line)
            except gdb.error as error:
                show(str(error))
                return False
    return True


def run_walk(path):
    """The same, for a room: each command waits for Enter, and another one may be typed instead."""
    for narration, line in commands_of(path):
        if narration:
            show("\n" + "\n".join(narration))
        while line:
            typed = ask(line)
            try:
                show_result(typed or line)
            except gdb.error as error:
                show(str(error))
            if not typed:
                break


def ask(line):
    """What is typed at a prompt that has the next command in it, in gray: nothing but Enter is for
    that one. Ends the session where nothing more can be typed."""
    fancy = os.isatty(0) and os.isatty(3) and os.environ.get("TERM", "dumb") != "dumb"
    ahead = f"\033[2m{line}\033[0m\r(step) " if fancy else line
    os.write(3, f"(step) {ahead}".encode())
    try:
        while not select.select([0], [], [], 0.1)[0]:
            pass  # here Python learns of an interrupt; a read would go on after one
        with open(0, "rb", buffering=0, closefd=False) as keyboard:
            typed = keyboard.readline()
    except KeyboardInterrupt:
        typed = None
    if not typed:
        show("")
        quietly(f"quit {130 if typed is None else 0}")
    typed = typed.decode(errors="replace").strip()
    if not fancy:
        show("")
    elif not typed:
        os.write(3, f"\033[A\r(step) {line}\033[K\n".encode())
    return typed


def run_file(run, path):
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whoever reads may have seen enough
    show(gdb.execute("python show_place()", False, True))
    try:
        return 0 if run(path) in (None, True) else 3
    except Exception as error:  # gdb itself would go on, and end with 0
        print(f"step.sh: {path}: {type(error).__name__}: {error}", file=sys.stderr)
        return 3


def main():
    define_commands()
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
    if BATCH:
        quietly(f"quit {run_file(run_batch, BATCH)}")
    if WALK:
        status = run_file(run_walk, WALK)
        if status or not alive():
            quietly(f"quit {status}")
        show("the walk is over, and the kernel is not: go on, or quit")
        os.dup2(3, 1)
    else:
        banner()
        show_place()
    gdb.prompt_hook = prompt


main()
