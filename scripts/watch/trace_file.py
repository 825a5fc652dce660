"""Reads what DEMO_COUNT=trace:FILE wrote; simulator/trace.hpp says what that is."""

import collections
import re
import struct
from typing import NamedTuple

from shared.command_line import FAILED, PROJECT, USAGE, Stop

VERSION = "1"
TYPES = {"float": "fp32", "__half": "fp16", "__nv_bfloat16": "bf16", "double": "fp64",
         "int": "int32"}
FORMATS = {"fp64": "<d", "fp32": "<f", "fp16": "<e", "int32": "<i", "uint32": "<I", "int8": "<b"}
COUNTS = ("threads", "requests", "bytes", "sectors", "conflicts")
BUFFER = 1 << 32  # from one buffer's offsets to the next one's


class Place(NamedTuple):
    kind: str  # "global loads"
    line: int
    file: str
    what: str  # "__syncthreads()"


class Request(NamedTuple):
    warp: int
    place: int
    bytes: int  # of each lane
    lanes: int  # a mask
    sectors: int
    conflicts: int
    runs: list  # of offsets: in shared memory, or plus BUFFER times a buffer's number
    values: list  # of each lane, in hexadecimal; or one that all have

    def offsets(self):
        return [first + i * step for first, step, lanes in self.runs for i in range(lanes)]

    def numbers(self, kind):
        """The values of a type, to four digits; None is no number."""
        if kind not in FORMATS or self.bytes != struct.calcsize(FORMATS[kind]):
            return []
        values = [struct.unpack(FORMATS[kind], bytes.fromhex(value))[0] for value in self.values]
        return [float(f"{value:.4g}") if value == value else None for value in values]


def runs_of(offsets):
    """[[first, step, how many], ...] of some offsets."""
    runs = []
    for offset in offsets:
        if runs and runs[-1][2] == 1:
            runs[-1][1] = offset - runs[-1][0]
        if runs and offset == runs[-1][0] + runs[-1][1] * runs[-1][2]:
            runs[-1][2] += 1
        else:
            runs.append([offset, 0, 1])
    return runs


class Meeting(NamedTuple):
    """A barrier of some warps, or of one warp's lanes."""

    place: int
    warps: int  # a mask
    threads: int


class Launch:
    """A kernel's launch, or a library's call, which has no blocks."""

    def __init__(self, name, line=0, file="", grid=(1, 1, 1)):
        self.name, self.line, self.file, self.grid = name, line, file, grid
        self.shared = []  # (address, bytes, type, rows, columns, name)
        self.blocks = {}  # (x, y, z): [Request or Meeting]
        self.read, self.written = collections.Counter(), collections.Counter()  # bytes, of buffers
        self.has_engines = False  # copies or products that no thread makes

    def totals(self, places):
        """{kind: its counts}, as DEMO_COUNT=1 has them."""
        sums = {}
        for event in (event for events in self.blocks.values() for event in events):
            counts = sums.setdefault(places[event.place].kind, collections.Counter())
            if isinstance(event, Meeting):
                counts.update(threads=event.threads, requests=bin(event.warps).count("1"))
                continue
            offsets = event.offsets()
            counts.update(threads=len(offsets), requests=1, sectors=event.sectors,
                          bytes=len(set(offsets)) * event.bytes, conflicts=event.conflicts)
        sums.pop("meetings", None)
        return sums


class Trace:
    """What one contender did in its verified launch."""

    def __init__(self, path, contender):
        self.contender = contender
        self.places, self.launches = {}, []
        self.buffers = []  # (address, bytes, type, columns, name)
        self.wrong = []  # (buffer, offset) of elements
        self.stored = {}  # buffer: a mark for each of its bytes that a thread stored
        self._of_number, self._depth, self._events, self._latest = {}, 0, None, 0
        with open(path, encoding="utf-8", errors="replace") as file:
            if file.readline().split() != ["trace", VERSION]:
                raise Stop(f"{path} is no trace of version {VERSION}: build anew", USAGE)
            word = ""
            for line in file:
                word, _, rest = line.rstrip("\n").partition(" ")
                getattr(self, f"_{word}")(*rest.split(" "))
        if word != "end":
            raise Stop(f"{path} has no end: the program stopped", FAILED)
        self._describe_buffers()
        for launch in self.launches:
            self._sum_up(launch)

    # --- A line each ---

    def _range(self, *name):
        if self._depth or " ".join(name) == self.contender:
            self._depth += 1

    def _leave(self, _):
        self._depth = max(self._depth - 1, 0)

    def _buffer(self, address, size, kind, columns, *name):
        own = (int(address, 16), int(size), kind, int(columns), "".join(name))
        for number, each in enumerate(self.buffers):
            if each[0] == own[0]:
                self.buffers[number] = own
                return
        self.buffers.append(own)

    def _launch(self, number, *rest):
        sizes = tuple(map(int, rest[:6]))
        launch = Launch(" ".join(rest[8:]).partition("(")[0], int(rest[6]), rest[7], sizes[:3])
        self._of_number[number] = launch
        if self._depth:
            self.launches.append(launch)

    def _kernel(self, number, *name):
        self._of_number[number].name = " ".join(name) or self._of_number[number].name

    def _shared(self, number, address, size, kind, rows, columns, name):
        self._of_number[number].shared.append(
            (int(address, 16), int(size), TYPES.get(kind, kind), int(rows), int(columns), name))

    def _block(self, number, *index):
        self._current = self._of_number[number]
        self._events = self._current.blocks.setdefault(tuple(map(int, index)), [])

    def _q(self, warp, place, size, lanes, sectors, conflicts, addresses, values):
        runs = [[int(first, 16), int(step), int(count)] for first, step, count in
                (run.split(":") for run in addresses.split(","))]
        self._events.append(Request(int(warp), int(place), int(size), int(lanes, 16), int(sectors),
                                    int(conflicts), runs, values.split(",")))

    def _b(self, place, threads, warps):
        self._events.append(Meeting(int(place), int(warps, 16), int(threads)))

    def _e(self, _):
        self._current.has_engines = True

    def _library(self, name, *matrices):
        if not self._depth:
            return
        call = Launch(name)
        found = [(self._place_in_memory(int(address, 16))[0], int(size))
                 for address, size in zip(matrices[::2], matrices[1::2])]
        call.read.update(dict(found[:-1]))
        call.written.update(dict(found[-1:]))
        self.launches.append(call)

    def _wrong(self, address):
        if self._depth:
            self.wrong.append(self._place_in_memory(int(address, 16)))

    def _place(self, number, kind, line, file, *what):
        self.places[int(number)] = Place(kind.replace("-", " "), int(line), file, " ".join(what))

    def _end(self, _):
        pass

    # --- What follows from them ---

    def _place_in_memory(self, address):
        """(a buffer's number, the offset in it)"""
        for number in (self._latest, *range(len(self.buffers))):  # often the same again
            begin, size, *_ = self.buffers[number]
            if begin <= address < begin + size:
                self._latest = number
                return number, address - begin
        raise Stop(f"the trace has an address in no buffer: {address:x}", FAILED)

    def _describe_buffers(self):
        """Where a buffer is not declared, it has the shape of a declared one of its size."""
        shapes = {size: (kind, columns) for _, size, kind, columns, _ in self.buffers if columns}
        for i, (address, size, kind, columns, name) in enumerate(self.buffers):
            if not columns:
                kind, columns = shapes.get(size, ("bytes", 32))
            name = re.sub(r"\w+(\.|->)", "", name.replace(".data()", "")) or f"buffer {i + 1}"
            self.buffers[i] = (address, size, kind, columns, name)

    def _sum_up(self, launch):
        """Global addresses become offsets in buffers; the bytes of each that are touched, sums."""
        touched = {}
        for events in launch.blocks.values():
            for i, event in enumerate(events):
                if isinstance(event, Meeting) or "shared" in self.places[event.place].kind:
                    continue
                found = [self._place_in_memory(address) for address in event.offsets()]
                events[i] = event._replace(
                    runs=runs_of(number * BUFFER + offset for number, offset in found))
                store = "loads" not in self.places[event.place].kind
                for number, at in found:
                    marks = touched.get((number, store))
                    if marks is None:
                        marks = touched[number, store] = bytearray(self.buffers[number][1])
                    marks[at:at + event.bytes] = b"\1" * event.bytes
        for (number, store), marks in touched.items():
            (launch.written if store else launch.read)[number] += sum(marks)
            if store:
                self.stored[number] = bytes(map(max, marks, self.stored.get(number, marks)))

    def never_stored(self, number, offset):
        """Whether no thread has stored there, nor a library's call."""
        calls = any(number in launch.written for launch in self.launches if not launch.blocks)
        return not calls and not (number in self.stored and self.stored[number][offset])

    def type_of(self, launch, event):
        """What a request's elements are; empty where nobody says."""
        if "shared" not in self.places[event.place].kind:
            return self.buffers[event.runs[0][0] // BUFFER][2]
        return next((kind for begin, size, kind, *_ in launch.shared
                     if begin <= event.runs[0][0] < begin + size), "")

    def sources(self):
        """{file: its lines}, of those that the events and the kernels are in."""
        files = {each.file for each in [*self.places.values(), *self.launches]}
        return {file: (PROJECT / file).read_text("utf-8").splitlines()
                for file in sorted(files) if file and (PROJECT / file).is_file()}
