#!/usr/bin/env python3
"""Shows what profile.sh recorded: tables of kernels and copies, and a timeline in text.

    profile_report.py [--all] [--trace FILE] FILE ...

The files are those that the library of profile_injection.cpp writes, which says what is in them;
profile.sh --help explains the options. Bad input: one line, exit 2.
"""

import functools
import json
import math
import re
import statistics
import string
import textwrap
from collections import Counter, defaultdict
from pathlib import Path
from typing import List, NamedTuple, Optional, Tuple

import library_names
from shared import command_line, kernel_names
from shared.command_line import OK, USAGE

WIDTH = 100  # columns
TIMED = "timed"  # the range that the demos put around what they measure
MOST_GROUPS = 12  # are shown as tables; further ones are counted
MOST_OPERATIONS = 20  # are drawn in a timeline
LETTERS = string.ascii_lowercase  # for operations in a timeline
NAME_WIDTH = 28  # columns of a table's names; longer ones take a line of their own
TIMELINE_NAME_WIDTH = 50
HOST, GPUS = 1, 2  # a trace's numbers of the host and of the first GPU


class RecordError(command_line.Stop):
    """A file that holds no such records. The message is one line."""

    status = USAGE


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
    thread: str  # "process:thread"
    number: Tuple[str, int]  # of the process, and within it
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

    @property
    def took(self):
        return self.end - self.start


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

    ranges = [Range((pair[0][1],), us(pair[0][0]), us(pair[1][0] if len(pair) > 1 else last),
                    f"{process}:{thread}")
              for (process, thread, _), pair in marks.items() if len(pair[0]) > 1]
    calls = [call._replace(start=us(call.start), end=us(call.end)) for call in calls]
    ranges, outer, caused_by = nested(ranges, calls)
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


def nested(ranges, calls):
    """The ranges with their whole paths; the calls that the program made, each with its range; and
    for every number the one of them that it belongs to: the runtime calls the driver, and both are
    recorded."""
    found, outer, caused_by = [], [], {}
    open_ranges, current = defaultdict(list), {}  # by thread
    for each in sorted([*ranges, *calls],
                       key=lambda each: (each.start, isinstance(each, Call), -each.end)):
        around = [mark for mark in open_ranges[each.thread] if mark.end >= each.end]
        if isinstance(each, Range):
            path = around[-1].path if around else ()
            found.append(each._replace(path=path + each.path))
            open_ranges[each.thread] = [*around, found[-1]]
        else:
            before = current.get(each.thread)
            if not before or each.start >= before.end:
                before = each._replace(range=around[-1] if around else None)
                current[each.thread] = before
                outer.append(before)
            caused_by[each.number] = before
    return found, outer, caused_by


# --- Sums -------------------------------------------------------------------------------------


class Group(NamedTuple):
    """All that ran in the ranges of one path."""

    path: Tuple[str, ...]
    ranges: List[Optional[Range]]  # one for each time that the program went through it
    times: List[List[Operation]]  # the operations of each time
    gaps: List[List[float]]  # the gaps between those
    calls: List[Call]
    title: str

    @property
    def operations(self):
        return [operation for time in self.times for operation in time]


def groups_of(profile):
    """The groups in the order in which they came."""
    times, calls, gaps = {}, defaultdict(list), defaultdict(list)
    for call in profile.calls:
        calls[call.range.path if call.range else ()].append(call)
    for operation in profile.operations:
        path = operation.range.path if operation.range else ()
        times.setdefault(path, {}).setdefault(operation.range, []).append(operation)
    for around, gap in gaps_of(profile.operations):
        gaps[around].append(gap)

    def title(path):
        has_inner = any(other[:len(path)] == path != other for other in times)
        if not path:
            return "outside of all ranges" if has_inner else "the whole program"
        return " / ".join(path) + (", outside of its inner ranges" if has_inner else "")

    return [Group(path, list(of), list(of.values()), [gaps[around] for around in of], calls[path],
                  title(path)) for path, of in times.items()]


def gaps_of(operations):
    """The times, in us, in which a device did nothing, each with the range that the operations
    before and after it share. Where they share none, the gap is no range's."""
    latest = {}  # by device: the operation that ends last so far
    for operation in operations:
        before = latest.get(operation.device)
        if before and operation.start > before.end and operation.range is before.range:
            yield operation.range, operation.start - before.end
        if not before or operation.end > before.end:
            latest[operation.device] = operation


def span(operations):
    return max(operation.end for operation in operations) - operations[0].start


def busy(operations):
    return sum(operation.took for operation in operations)


def occupied(operations):
    """The time in which any of them ran; of several GPUs their mean."""
    ends, time = {}, 0  # by device: when the latest so far ends
    for operation in operations:
        latest = max(ends.get(operation.device, 0), operation.start)
        ends[operation.device] = max(latest, operation.end)
        time += ends[operation.device] - latest
    return time / len(ends)


class Host(NamedTuple):
    """What the host does in a call: its name, and its letter in a timeline."""

    title: str
    letter: str


LAUNCHING, COPYING = Host("host: launching", "L"), Host("host: copying", "M")
WAITING, OTHER = Host("host: synchronizing", "W"), Host("host: other calls", "C")


def names_of(profile):
    """{an operation's name: how it is shown}"""
    return {**{o.name: o.name for o in profile.operations},
            **kernel_names.short_names(o.name for o in profile.operations if o.what == "kernel")}


def host_work(profile):
    """A function that says what the host does in a call: by what came of it, else by its name."""
    caused = {operation.call.number: LAUNCHING if operation.what == "kernel" else COPYING
              for operation in profile.operations if operation.call}
    return lambda call: caused.get(call.number,
                                   WAITING if "Synchronize" in call.name else OTHER)


# --- Tables -----------------------------------------------------------------------------------


def human_bytes(size):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024


def ms(us):
    """In milliseconds, with four significant digits and without an exponent."""
    places = 3 - math.floor(math.log10(us / 1000)) if us > 0 else 0
    return f"{us / 1000:.{max(0, places)}f} ms"


COLUMNS = "launches|total ms|mean us|share|grid|block|regs|shared|call us".split("|")
COLUMN_WIDTHS = (8, 8, 7, 5, 9, 7, 4, 6, 7)


def line(name, cells):
    text = f"  {name:<{NAME_WIDTH}}" if len(name) <= NAME_WIDTH else f"  {name}\n" + " " * (
        NAME_WIDTH + 2)
    return (text + "".join(f" {cell:>{width}}"
                           for cell, width in zip(cells, COLUMN_WIDTHS))).rstrip()


def table(group, names, work):
    """One group as lines: its kernels and copies by time, the gaps, and the host's part."""
    rows = defaultdict(list)
    for operation in group.operations:
        rows[(names[operation.name], operation.shape)].append(operation)
    gaps = [gap for time in group.gaps for gap in time]
    total = busy(group.operations) + sum(gaps)

    lines = [line("kernel or copy", COLUMNS)]
    for (name, shape), operations in sorted(rows.items(), key=lambda row: -busy(row[1])):
        time = busy(operations)
        callers = {operation.call.number: operation.call for operation in operations
                   if operation.call}
        host = [caller.end - caller.start for caller in callers.values()]
        grid, block, registers, shared = shape
        shared = f"{int(shared) / 1024:.1f}K" if int(shared or 0) else shared
        if operations[0].bytes >= 1 << 20:
            grid = f"{sum(o.bytes for o in operations) / time / 1000:.0f} GB/s"
        lines.append(line(name, sums(len(operations), time, total) + [
            grid, block, registers, shared, f"{statistics.mean(host):.2f}" if host else ""]))
    if gaps:
        lines.append(line("(gaps between them)", sums(len(gaps), sum(gaps), total)))

    for kind in (LAUNCHING, COPYING, WAITING, OTHER):
        host, times = [call for call in group.calls if work(call) == kind], Counter()
        for call in host:
            times[call.name] += call.end - call.start
        if host:
            text = line(kind.title, sums(len(host), sum(times.values()))) + "  "
            most = ", ".join(name for name, _ in times.most_common(3))
            lines.append(text + textwrap.shorten(most, WIDTH - len(text), placeholder=" ..."))
    return lines


def sums(count, time, total=0):
    """The cells of how many there are, how long they take in all and each, and their share."""
    return [count, f"{time / 1000:.3f}", f"{time / count:.2f}",
            f"{100 * time / total:.1f}%".replace("100.0", "100") if total else ""]


def headline(group):
    """What one time through the group takes on the GPU: what the program measures of it."""
    if len(group.times) == 1:
        return group.title
    return f"{group.title}: {len(group.times)} times, median {extent_of(group.times)}"


def extent_of(times):
    working, whole = (statistics.median(map(of, times)) for of in (occupied, span))
    return (f"{ms(whole)} from start to end, {ms(working)} ({100 * working / (whole or 1):.0f}%) "
            "busy")


# --- The timeline -----------------------------------------------------------------------------


def timeline(group, profile, names, work):
    """One time through the group, the one with the median span: host and GPU side by side."""
    times = sorted(zip(group.times, group.ranges), key=lambda time: span(time[0]))
    own, around = times[(len(times) - 1) // 2]
    whole = len(own) <= MOST_OPERATIONS
    own = own[:MOST_OPERATIONS] if around else own[-MOST_OPERATIONS:]

    # The window begins with the host's first launch, or with that of what the GPU still does then:
    # a memset that empties the cache, say.
    begin = min([own[0].start] + [operation.call.start for operation in own if operation.call])
    earlier = [operation for operation in profile.operations
               if operation.start < own[0].start and operation.end > begin]
    shown = (earlier + own)[-len(LETTERS):]
    end = max([operation.end for operation in own] + ([around.end] if around and whole else []))
    begin = min([begin] + [operation.call.start for operation in earlier
                           if operation.call and begin - operation.call.start < end - begin])
    letters = dict(zip(shown, LETTERS))

    row_width = WIDTH - 12
    scale = (end - begin) / row_width

    def row(title, spans):
        """`spans` of (start, end, letter): each column shows what took most of it."""
        columns = [defaultdict(float) for _ in range(row_width)]
        for start, stop, letter in spans:
            start, stop = max(start - begin, 0) / scale, min((stop - begin) / scale, row_width)
            for i in range(int(start), min(math.ceil(stop), row_width)):
                columns[i][letter] += min(stop, i + 1) - max(start, i)
        return f"  {title:<9} " + "".join(max(column, key=column.get)
                                          if sum(column.values()) > 0.3 else "."
                                          for column in columns)

    calls = [call for call in profile.calls if call.end > begin and call.start < end]
    lines = [f"  {'us':<9} {0:<{row_width // 2}}{end - begin:>{row_width // 2}.1f}"]
    threads = sorted({call.thread for call in calls})
    for i, thread in enumerate(threads, 1):
        title = "host" if len(threads) == 1 else f"host {i}"
        lines.append(row(title, ((call.start, call.end, work(call).letter)
                                 for call in calls if call.thread == thread)))
    streams = sorted({(operation.device, operation.stream) for operation in shown})
    for place in streams:
        title = "GPU" if len(streams) == 1 else f"stream {place[1]}"
        if len({device for device, _ in streams}) > 1:
            title = "GPU {}: {}".format(*place)
        lines.append(row(title, ((operation.start, operation.end, letter)
                                 for operation, letter in letters.items()
                                 if (operation.device, operation.stream) == place)))
    lines += ["  L launches a kernel, M a copy or memset, W waits for the GPU, C another CUDA call",
              "",
              f"    {'':<{TIMELINE_NAME_WIDTH}} {'launched':>9} {'began':>9} {'took':>9}  us"]
    for operation, letter in letters.items():
        name, launched = names[operation.name], "?"
        if operation.call:
            early = operation.call.start < begin
            launched = "before" if early else f"{operation.call.start - begin:.1f}"
        if len(name) > TIMELINE_NAME_WIDTH:
            name += "\n" + " " * (TIMELINE_NAME_WIDTH + 4)
        began = max(operation.start - begin, 0)
        lines.append(f"  {letter} {name:<{TIMELINE_NAME_WIDTH}} {launched:>9} {began:>9.1f} "
                     f"{operation.took:>9.1f}")
    launched = max((operation.call.end for operation in own if operation.call), default=None)
    if around and whole and launched:
        done = max(operation.end for operation in own)
        lines.append(f"  After {launched - begin:.1f} us the host had launched it all; "
                     f"after {done - begin:.1f} us the GPU was done.")
    return lines


# --- The report -------------------------------------------------------------------------------


def report(profile, show_all=False):
    """All that is printed, as lines."""
    names, work = names_of(profile), host_work(profile)
    groups = groups_of(profile)
    # What the program times, else what it names, else all of it.
    chosen = ([group for group in groups if TIMED in group.path]
              or [group for group in groups if group.path] or groups)
    # Inner ranges first, enclosing ranges last.
    shown = sorted(groups if show_all else chosen, key=lambda group: -len(group.path))
    longest = sorted(shown, key=lambda group: -busy(group.operations))
    tables = [group for group in shown if group in longest[:MOST_GROUPS]]

    gpus = len({operation.device for operation in profile.operations})
    whose = "The GPU in all" if gpus == 1 else f"Mean of {gpus} GPUs"
    lines = [f"{whose}: {extent_of([profile.operations])}", ""]
    for group in tables:
        lines += [headline(group)] + table(group, names, work) + [""]
    rest = [group for group in groups if group not in tables]
    if rest:
        lines.append(line("also ran" + ("" if show_all else " (--all shows more)"),
                          ["launches", "total ms"]))
        lines += [line(group.title, sums(len(group.operations), busy(group.operations))[:2])
                  for group in rest] + [""]
    shown_names = dict.fromkeys(names[o.name] for group in tables for o in group.operations)
    said = [f"  {name}\n    {words}" for name in shown_names
            if (words := library_names.meaning(name))]
    if said:
        lines += ["What the library's names say (A, B and the tile as cuBLAS sees them, stored by "
                  "columns; steps in k):", *said, ""]
    # Draws one pass through the range with the most operations, of those that enclose no other and
    # are passed often, where there are any.
    inner = [group for group in tables if not any(
        group is not other and other.path[:len(group.path)] == group.path for other in tables)]
    often = [group for group in inner if len(group.times) > 1] or inner
    group = max(often, key=lambda group: statistics.median(map(len, group.times)))
    which = (", the time with the median" if len(group.times) > 1 else
             ", its beginning" if group.path else ", its end")
    return lines + [f"{group.title}{which}:"] + timeline(group, profile, names, work)


def remarks(profile):
    """What is wrong with the records: one line each."""
    lines = [error + (": another tool is attached to the program" if "SUBSCRIBERS" in error else "")
             for error in profile.errors]
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
    names = names_of(profile)
    threads = {thread: i + 1 for i, thread in enumerate(
        dict.fromkeys([r.thread for r in profile.ranges] + [c.thread for c in profile.calls]))}

    def label(what, pid, tid, name):
        return {"name": what, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": {"name": name}}

    streams = sorted({(o.device, o.stream) for o in profile.operations})
    labels = [label("process_name", HOST, 0, "host")]
    labels += [label("process_name", GPUS + device, 0, f"GPU {device}")
               for device in sorted({device for device, _ in streams})]
    labels += [label("thread_name", GPUS + device, stream, f"stream {stream}")
               for device, stream in streams]

    def event(name, category, start, end, pid, tid, **args):
        return {"name": name, "cat": category, "ph": "X", "ts": round(start, 3),
                "dur": round(end - start, 3), "pid": pid, "tid": tid, "args": args}

    body = [event(r.path[-1], "range", r.start, r.end, HOST, threads[r.thread])
            for r in profile.ranges]
    body += [event(c.name, "call", c.start, c.end, HOST, threads[c.thread]) for c in profile.calls]
    for number, o in enumerate(profile.operations):
        args = {"bytes": o.bytes} if o.bytes else dict(
            zip(("grid", "block", "registers", "shared bytes"), o.shape), full_name=o.name)
        body.append(event(names[o.name], o.what, o.start, o.end, GPUS + o.device, o.stream, **args))
        if o.call:  # an arrow from the launch to what it launched
            arrow = {"name": "launch", "cat": "launch", "id": number}
            body.append({**arrow, "ph": "s", "ts": round(o.call.start, 3), "pid": HOST,
                         "tid": threads[o.call.thread]})
            body.append({**arrow, "ph": "f", "bp": "e", "ts": round(o.start, 3),
                         "pid": GPUS + o.device, "tid": o.stream})
    # Of what begins together the longest comes first: it holds the others.
    body.sort(key=lambda event: (event["ts"], -event.get("dur", 0)))
    return {"displayTimeUnit": "ns", "traceEvents": labels + body}


# --- The command line -------------------------------------------------------------------------


@command_line.reporting("profile_report.py")
def main(arguments):
    say = functools.partial(command_line.say, "profile_report.py")
    parser = command_line.Parser(prog="profile_report.py", add_help=False)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--trace")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args(arguments)
    profile = read(options.files)
    for remark in remarks(profile):
        say(remark)
    if not profile.operations:
        return OK if profile.errors else say("CUPTI recorded nothing that ran on a GPU (a program "
                                             "that is killed takes its records along)")
    if options.trace:
        command_line.write_text(options.trace, json.dumps(trace(profile)))
    print("\n".join(report(profile, options.all)))
    return OK


if __name__ == "__main__":
    command_line.run(main, __doc__)
