#!/usr/bin/env python3
"""Shows what profile.sh recorded: tables of kernels and copies, and a timeline in text.

    profile_report.py [--all] [--trace FILE] FILE ...

The files are those that the library of profile_injection.cpp writes, which says what is in them;
profile.sh --help explains the options. Bad input: one line, exit 2.
"""

import argparse
import json
import math
import re
import statistics
import sys
from collections import defaultdict, deque
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

WIDTH = 100  # columns
TIMED = "timed"  # the range that the demos put around what they measure
MOST_GROUPS = 12  # are shown as tables; further ones are counted
MOST_OPERATIONS = 20  # are drawn in a timeline


class RecordError(Exception):
    """A file that holds no such records. The message is one line."""


class Range(NamedTuple):
    """A named stretch of one host thread (NVTX). `path` begins with the names around it."""

    path: Tuple[str, ...]
    start: float
    end: float
    thread: str


class Call(NamedTuple):
    """A CUDA call of the host."""

    name: str
    start: float
    end: float
    thread: str
    number: int
    range: Optional[Range] = None  # the innermost that it lies in


class Operation(NamedTuple):
    """A kernel, copy or memset on a GPU."""

    what: str  # "kernel", "copy", "memset"
    name: str  # a kernel's as C++ spells it; what a copy copies, and how much
    start: float
    end: float
    device: int
    stream: int
    shape: Tuple[str, str, str, str]  # grid, block, registers, bytes of shared memory
    bytes: int
    call: Optional[Call]  # that caused it

    @property
    def range(self):
        return self.call.range if self.call else None


class Profile(NamedTuple):
    operations: List[Operation]  # by start
    calls: List[Call]  # those of the program itself, by start
    ranges: List[Range]
    dropped: int  # records that CUPTI had no room for
    unfinished: int  # operations that had not ended when the program did
    errors: List[str]


# --- Reading ----------------------------------------------------------------------------------


def read(paths):
    """The records of all processes as one Profile. Times are in us from the first record on."""
    lines = []
    for path in paths:
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise RecordError(f"{path}: {error.strerror}")
        for number, line in enumerate(text.splitlines(), 1):
            lines.append((Path(path).stem, f"{path}:{number}", line.split("\t")))

    calls, marks, rows = [], defaultdict(list), []
    dropped, unfinished, errors = 0, 0, []
    for process, place, (kind, *fields) in lines:
        try:
            if kind == "call":
                start, end, thread, number, name = fields
                calls.append(Call(re.sub(r"(_v\d+|_pt[ds][sz])+$", "", name), int(start), int(end),
                                  f"{process}:{thread}", (process, int(number))))
            elif kind in ("push", "pop"):
                time, thread, number, *name = fields
                marks[(process, thread, int(number))].append((int(time), *name))
            elif kind in ("kernel", "copy", "memset"):
                start, end, device, stream, call, *rest = fields
                if int(start) == 0 or int(end) == 0:
                    unfinished += 1
                    continue
                rows.append((kind, int(start), int(end), int(device), int(stream),
                             (process, int(call)), *details(kind, rest)))
            elif kind == "dropped":
                dropped += int(fields[0])
            elif kind == "error":
                errors.append(fields[0])
            else:
                raise ValueError
        except (ValueError, IndexError):
            raise RecordError(f"{place}: not a record of profile_injection.cpp")

    times = [row[1] for row in rows] + [call.start for call in calls]
    times += [mark[0] for pair in marks.values() for mark in pair]
    first = min(times, default=0)
    last = max([row[2] for row in rows] + [call.end for call in calls], default=0)

    def us(time):
        return (time - first) / 1000

    ranges = nested(((process + ":" + thread, us(pair[0][0]), pair[0][1],
                      us(pair[1][0]) if len(pair) > 1 else us(last))
                     for (process, thread, _), pair in marks.items() if len(pair[0]) > 1))
    calls = [call._replace(start=us(call.start), end=us(call.end)) for call in calls]
    outer, caused_by = outermost(calls, ranges)
    operations = sorted((Operation(kind, name, us(start), us(end), device, stream, shape, size,
                                   caused_by.get(call))
                         for kind, start, end, device, stream, call, name, shape, size in rows),
                        key=lambda operation: (operation.start, operation.end))
    return Profile(operations, outer, ranges, dropped, unfinished, errors)


def details(kind, fields):
    """Name, shape and bytes of an operation, from the fields in which its kind differs."""
    if kind == "kernel":
        grid, block, registers, shared, name = fields
        return name, (extent(grid), extent(block), registers, shared), 0
    size, *ends = fields
    if kind == "memset":
        return f"memset {human_bytes(int(size))}", ("", "", "", ""), int(size)
    return f"copy {ends[0]} to {ends[1]} {human_bytes(int(size))}", ("", "", "", ""), int(size)


def extent(text):
    """A grid or block without its trailing ones: "128x128x1" -> "128x128"."""
    x, y, z = text.split("x")
    return "x".join([x] + [y] * ((y, z) != ("1", "1")) + [z] * (z != "1"))


def nested(spans):
    """Ranges with their paths, from (thread, start, name, end)."""
    ranges, open_ranges = [], defaultdict(list)
    for thread, start, name, end in sorted(spans, key=lambda span: (span[1], -span[3])):
        around = open_ranges[thread]
        around[:] = [outer for outer in around if outer.end >= end]
        path = (around[-1].path if around else ()) + (name,)
        ranges.append(Range(path, start, end, thread))
        around.append(ranges[-1])
    return ranges


def outermost(calls, ranges):
    """The calls that the program made, each with its range, and for every number the one of them
    that it belongs to: the runtime calls the driver, and both are recorded."""
    by_thread = defaultdict(deque)
    for mark in ranges:
        by_thread[mark.thread].append(mark)
    outer, caused_by = [], {}
    current, open_ranges = {}, defaultdict(list)
    for call in sorted(calls, key=lambda call: (call.start, -call.end)):
        around = current.get(call.thread)
        if not around or call.start >= around.end:
            to_come, marks = by_thread[call.thread], open_ranges[call.thread]
            while to_come and to_come[0].start <= call.start:
                marks.append(to_come.popleft())
            marks[:] = [mark for mark in marks if mark.end >= call.end]
            around = current[call.thread] = call._replace(range=marks[-1] if marks else None)
            outer.append(around)
        caused_by[call.number] = around
    return outer, caused_by


# --- Names ------------------------------------------------------------------------------------


def shorten(name):
    """Ways to write a kernel's name, from the shortest to the full one: what the source calls it,
    then with its template arguments, then with its namespaces."""
    text = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    text = without_parameters(re.sub(r" \[clone [^]]*\]", "", text))
    scopes, arguments = split_name(text)
    base = scopes[-1]
    if re.match(r"(Kernel2?|device_kernel)$", base) and "cutlass" in arguments:
        # CUTLASS's entry point: what it computes is its template argument.
        inner = split_name(first_argument(arguments))[0][-1]
        return [inner, f"{base}{arguments}", name]
    short_arguments = re.sub(r"\b(\w+::)+", "", arguments)
    return [base, base + short_arguments, "::".join(scopes) + arguments, name]


def without_parameters(text):
    """Without parameter list and return type: both stand outside all brackets."""
    depth, begin = 0, 0
    for i, c in enumerate(text):
        if c == "(" and depth == 0 and i > begin:
            return text[begin:i]
        if c in "<([{":
            depth += 1
        elif c in ">)]}" and text[i - 1:i + 1] != "->":
            depth -= 1
        elif c == " " and depth == 0:
            begin = i + 1
    return text[begin:]


def split_name(text):
    """"a::b<c::d>" -> (["a", "b"], "<c::d>"). Arguments of the scopes are left out."""
    scopes, arguments, depth, word, i = [], "", 0, "", 0
    while i < len(text):
        c = text[i]
        depth += c in "<({"
        if depth:
            arguments += c
        elif text.startswith("::", i):
            scopes.append(word)
            word, arguments, i = "", "", i + 1
        else:
            word += c
        depth -= c in ">)}" and text[i - 1:i + 1] != "->"
        i += 1
    return scopes + [word], arguments


def first_argument(arguments):
    """"<a<b, c>, d>" -> "a<b, c>"."""
    depth = 0
    for i, c in enumerate(arguments):
        depth += c in "<({"
        depth -= c in ">)}"
        if depth == 0 or (c == "," and depth == 1):
            return arguments[1:i]
    return arguments


def short_names(names):
    """For each kernel's full name the shortest way to write it that is no other's."""
    ways = {name: shorten(name) for name in set(names)}
    chosen = {name: 0 for name in ways}
    while True:
        shown = defaultdict(list)
        for name, ways_of in ways.items():
            shown[ways_of[chosen[name]]].append(name)
        clashes = [name for same in shown.values() if len(same) > 1 for name in same
                   if chosen[name] + 1 < len(ways[name])]
        if not clashes:
            return {name: ways[name][chosen[name]] for name in ways}
        for name in clashes:
            chosen[name] += 1


# --- Sums -------------------------------------------------------------------------------------


class Group(NamedTuple):
    """All that ran in the ranges of one path."""

    path: Tuple[str, ...]
    times: List[List[Operation]]  # one list per range: the operations of one time through it
    calls: List[Call]
    ranges: List[Optional[Range]]  # one per list

    @property
    def title(self):
        return " / ".join(self.path) or "outside of all ranges"

    @property
    def operations(self):
        return [operation for time in self.times for operation in time]


def groups_of(profile):
    """The groups in the order in which they came."""
    times, calls = {}, defaultdict(list)
    for call in profile.calls:
        path = call.range.path if call.range else ()
        times.setdefault(path, {})
        calls[path].append(call)
    for operation in profile.operations:
        path = operation.range.path if operation.range else ()
        times.setdefault(path, {}).setdefault(operation.range, []).append(operation)
    return [Group(path, list(of.values()), calls[path], list(of)) for path, of in times.items()]


def idle(operations):
    """The gaps between operations, in us: while there was none on the device."""
    gaps, busy_until = [], {}
    for operation in operations:
        until = busy_until.get(operation.device, operation.start)
        if operation.start > until:
            gaps.append(operation.start - until)
        busy_until[operation.device] = max(until, operation.end)
    return gaps


def span(operations):
    return max(operation.end for operation in operations) - operations[0].start


def is_wait(call):
    return "Synchronize" in call.name


# --- Tables -----------------------------------------------------------------------------------


def human_bytes(size):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024


def digits(value):
    """`value` with four significant digits, without an exponent."""
    if value <= 0:
        return "0"
    return f"{value:.{max(0, 3 - math.floor(math.log10(value)))}f}"


def ms(us):
    return digits(us / 1000) + " ms"


NAME_WIDTH = 34
COLUMNS = "launches|total ms|mean us|share|grid|block|regs|shared|call us".split("|")
COLUMN_WIDTHS = (8, 8, 8, 5, 9, 7, 4, 6, 7)


def line(name, cells):
    text = f"  {name:<{NAME_WIDTH}}" if len(name) <= NAME_WIDTH else f"  {name}\n" + " " * (
        NAME_WIDTH + 2)
    return (text + "".join(f" {cell:>{width}}"
                           for cell, width in zip(cells, COLUMN_WIDTHS))).rstrip()


def table(group, names):
    """One group as lines: its kernels and copies by time, the gaps, and the host's part."""
    rows = defaultdict(list)
    for operation in group.operations:
        rows[(names[operation.name], operation.shape)].append(operation)
    gaps = [gap for time in group.times for gap in idle(time)]
    busy = sum(operation.end - operation.start for operation in group.operations)
    total = busy + sum(gaps)

    lines = [line("kernel or copy", COLUMNS)]
    for (name, shape), operations in sorted(
            rows.items(), key=lambda row: -sum(o.end - o.start for o in row[1])):
        time = sum(operation.end - operation.start for operation in operations)
        callers = {operation.call.number: operation.call for operation in operations
                   if operation.call}
        host = statistics.mean(c.end - c.start for c in callers.values()) if callers else 0
        grid, block, registers, shared = shape
        size = f"{int(shared) / 1024:.1f}K" if shared not in ("", "0") else shared
        if operations[0].bytes and time:
            grid = f"{sum(o.bytes for o in operations) / time / 1000:.0f} GB/s"
        lines.append(line(name, [len(operations), digits(time / 1000),
                                 digits(time / len(operations)), percent(time, total), grid, block,
                                 registers, size, digits(host) if callers else ""]))
    if gaps:
        lines.append(line("(gaps between them)", [len(gaps), digits(sum(gaps) / 1000),
                                                  digits(statistics.mean(gaps)),
                                                  percent(sum(gaps), total)]))
    return lines + host_lines(group)


def percent(part, whole):
    return f"{100 * part / whole:.1f}%" if whole else ""


def host_lines(group):
    """Where the host's time went: in calls that launch, in calls that wait, in others."""
    launching = {operation.call.number for operation in group.operations if operation.call}
    kinds = {"launching": [], "synchronising": [], "other calls": []}
    for call in group.calls:
        kinds["launching" if call.number in launching
              else "synchronising" if is_wait(call) else "other calls"].append(call)
    parts = []
    for kind, calls in kinds.items():
        if calls:
            time = sum(call.end - call.start for call in calls)
            parts.append(f"{kind} {ms(time)} ({len(calls)} x {digits(time / len(calls))} us)")
    return ["  host: " + ", ".join(parts)] if parts else []


def headline(group):
    """What one time through the group takes on the GPU: the program's own figure, seen from here."""
    times = [time for time in group.times if time]
    if not group.path or not times:
        return group.title
    sums = statistics.median(sum(o.end - o.start for o in time) for time in times)
    gaps = statistics.median(sum(idle(time)) for time in times)
    spans = statistics.median(span(time) for time in times)
    if len(times) == 1:
        return f"{group.title}: {ms(sums)} of kernels and copies, {ms(gaps)} of gaps"
    return (f"{group.title}: {len(times)} times, median {ms(spans)} "
            f"(kernels and copies {ms(sums)}, gaps {ms(gaps)})")


def summary(group):
    """A group in one line."""
    operations = group.operations
    busy = sum(operation.end - operation.start for operation in operations)
    return f"  {group.title:<{NAME_WIDTH}} {len(operations):>8} {digits(busy / 1000):>8}"


# --- The timeline -----------------------------------------------------------------------------


def timeline(group, profile, names):
    """One time through the group, the one with the median span: host and GPU side by side."""
    times = sorted((pair for pair in zip(group.times, group.ranges) if pair[0]),
                   key=lambda pair: span(pair[0]))
    time, around = times[(len(times) - 1) // 2]
    shown = time[:MOST_OPERATIONS] if around else time[-MOST_OPERATIONS:]
    begin = min([operation.call.start for operation in shown if operation.call]
                + [around.start if around else shown[0].start, shown[0].start])
    end = max(operation.end for operation in shown)
    if around and len(shown) == len(time):
        end = max(end, around.end)

    # What the GPU was busy with when the host began: a memset that empties the cache, say.
    for operation in profile.operations:
        if operation.start < shown[0].start and operation.end > begin and operation not in shown:
            shown = [operation] + shown
            if operation.call and begin - operation.call.start < end - begin:
                begin = min(begin, operation.call.start)
    shown.sort(key=lambda operation: operation.start)

    letters = {operation: chr(ord("a") + i) for i, operation in enumerate(shown[:26])}
    lane_width = WIDTH - 12
    scale = (end - begin) / lane_width

    def lane(title, spans):
        """`spans` of (start, end, letter): each column shows what took most of it."""
        cells = [defaultdict(float) for _ in range(lane_width)]
        for start, stop, letter in spans:
            start, stop = max(start - begin, 0) / scale, min(stop - begin, end - begin) / scale
            for i in range(int(start), min(int(math.ceil(stop)), lane_width)):
                cells[i][letter] += min(stop, i + 1) - max(start, i)
        text = "".join(max(cell, key=cell.get) if cell and sum(cell.values()) > 0.3 else "."
                       for cell in cells)
        return f"  {title:<9} {text}".rstrip()

    numbers = {operation.call.number for operation in profile.operations if operation.call}
    calls = [call for call in profile.calls if call.end > begin and call.start < end]
    lines = [f"  {'us':<9} {0:<{lane_width // 2}}{digits(end - begin):>{lane_width // 2}}"]
    threads = sorted({call.thread for call in calls})
    for i, thread in enumerate(threads):
        lines.append(lane("host" + f" {i + 1}" * (len(threads) > 1), (
            (call.start, call.end, "L" if call.number in numbers else "W" if is_wait(call) else "C")
            for call in calls if call.thread == thread)))
    streams = sorted({(operation.device, operation.stream) for operation in shown})
    for device, stream in streams:
        title = "GPU" if len(streams) == 1 else f"{device}, str. {stream}"
        lines.append(lane(title, ((o.start, o.end, letters[o]) for o in shown if o in letters
                                  and (o.device, o.stream) == (device, stream))))
    lines.append("  L launches, W waits for the GPU, C in another CUDA call, . none of these")
    lines += ["", f"    {'':<{NAME_WIDTH}} {'launched':>10} {'began':>10} {'took':>10}   us"]
    for operation, letter in letters.items():
        launched = digits(operation.call.start - begin) if operation.call else "?"
        if operation.call and operation.call.start < begin:
            launched = "before"
        name = names[operation.name]
        gap = "\n" + " " * (NAME_WIDTH + 4) if len(name) > NAME_WIDTH else ""
        lines.append(f"  {letter} {name:<{NAME_WIDTH}}{gap} {launched:>10} "
                     f"{digits(max(operation.start - begin, 0)):>10} "
                     f"{digits(operation.end - operation.start):>10}")
    own = [operation.call for operation in time[:MOST_OPERATIONS] if operation.call]
    if around and own and len(shown) <= 26:
        done = max(operation.end for operation in shown) - begin
        lines.append(f"  After {digits(max(call.end for call in own) - begin)} us the host had "
                     f"launched everything; after {digits(done)} us the GPU was done.")
    return lines


# --- The report -------------------------------------------------------------------------------


def report(profile, show_all=False):
    """All that is printed, as lines."""
    names = short_names(o.name for o in profile.operations if o.what == "kernel")
    names.update((o.name, o.name) for o in profile.operations if o.what != "kernel")
    groups = [group for group in groups_of(profile) if group.operations]
    timed = [group for group in groups if TIMED in group.path]
    shown = groups if show_all or not timed else timed
    tables = sorted(shown, key=lambda group: -sum(o.end - o.start for o in group.operations))
    tables = [group for group in shown if group in tables[:MOST_GROUPS]]

    lines = []
    for group in tables:
        lines += [headline(group)] + table(group, names) + [""]
    rest = [group for group in groups if group not in tables]
    if rest:
        lines.append(line("also ran" + ("" if show_all else " (--all shows more)"),
                          ["launches", "total ms"]))
        lines += [summary(group) for group in rest] + [""]
    drawn = [group for group in tables if any(o.what == "kernel" for o in group.operations)]
    if drawn:
        group = max(drawn, key=lambda group: statistics.median(map(len, group.times)))
        which = "one of the times through it" if len(group.times) > 1 else "its end"
        lines += [f"{group.title}, {which}:"] + timeline(group, profile, names)
    return lines


def remarks(profile):
    """What is wrong with the records: one line each."""
    lines = list(profile.errors)
    if profile.dropped:
        lines.append(f"CUPTI dropped {profile.dropped} records for want of room: the figures are "
                     "too low")
    if profile.unfinished:
        lines.append(f"{profile.unfinished} operations had not ended when the program did: they "
                     "are left out")
    return lines


# --- The trace --------------------------------------------------------------------------------


def trace(profile):
    """The profile in the Chrome trace format, which Perfetto opens. Times are in us."""
    names = short_names(o.name for o in profile.operations if o.what == "kernel")
    threads = {thread: i + 1 for i, thread in enumerate(
        dict.fromkeys([r.thread for r in profile.ranges] + [c.thread for c in profile.calls]))}
    events = [{"name": "process_name", "ph": "M", "ts": 0, "pid": 0, "tid": 0,
               "args": {"name": "host"}}]
    for device in sorted({operation.device for operation in profile.operations}):
        events.append({"name": "process_name", "ph": "M", "ts": 0, "pid": device + 1, "tid": 0,
                       "args": {"name": f"GPU {device}"}})
    for device, stream in sorted({(o.device, o.stream) for o in profile.operations}):
        events.append({"name": "thread_name", "ph": "M", "ts": 0, "pid": device + 1, "tid": stream,
                       "args": {"name": f"stream {stream}"}})

    def event(name, category, start, end, pid, tid, **args):
        return {"name": name, "cat": category, "ph": "X", "ts": round(start, 3),
                "dur": round(end - start, 3), "pid": pid, "tid": tid, "args": args}

    body = [event(r.path[-1], "range", r.start, r.end, 0, threads[r.thread])
            for r in profile.ranges]
    body += [event(c.name, "call", c.start, c.end, 0, threads[c.thread]) for c in profile.calls]
    for number, o in enumerate(profile.operations):
        args = {"bytes": o.bytes} if o.bytes else dict(
            zip(("grid", "block", "registers", "shared bytes"), o.shape), full_name=o.name)
        body.append(event(names.get(o.name, o.name), o.what, o.start, o.end, o.device + 1,
                          o.stream, **args))
        if o.call:  # an arrow from the launch to what it launched
            arrow = {"name": "launch", "cat": "launch", "id": number}
            body.append({**arrow, "ph": "s", "ts": round(o.call.start, 3), "pid": 0,
                         "tid": threads[o.call.thread]})
            body.append({**arrow, "ph": "f", "bp": "e", "ts": round(o.start, 3),
                         "pid": o.device + 1, "tid": o.stream})
    # Of what begins together the longest comes first: it holds the others.
    body.sort(key=lambda event: (event["ts"], -event.get("dur", 0)))
    return {"displayTimeUnit": "ns", "traceEvents": events + body}


# --- The command line -------------------------------------------------------------------------


def fail(message, status):
    print(f"profile_report.py: {message}", file=sys.stderr)
    return status


class Parser(argparse.ArgumentParser):
    def error(self, message):
        sys.exit(fail(message, 2))


def main(arguments):
    parser = Parser(prog="profile_report.py", usage=__doc__, add_help=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--trace")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args(arguments)
    if options.help:
        print(__doc__.strip())
        return 0
    if not options.files:
        return fail("files of records are expected (--help shows the usage)", 2)
    try:
        profile = read(options.files)
    except RecordError as error:
        return fail(str(error), 2)
    for remark in remarks(profile):
        fail(remark, 0)
    if not profile.operations:
        return fail("nothing ran on a GPU, as far as CUPTI saw", 0)
    if options.trace:
        try:
            with open(options.trace, "w", encoding="utf-8") as file:
                json.dump(trace(profile), file)
        except OSError as error:
            return fail(f"{options.trace}: {error.strerror}", 3)
    print("\n".join(report(profile, options.all)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
