"""What the program's text says: its lines, where its kernels begin and end, and where barriers are.
Where threads stand in it is asked of the debugger, in debugger.py."""

import contextlib
import os
import re

import gdb

PROGRAM = os.environ["STEP_PROGRAM"]
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


SOURCES = sources_of(f"src/{PROGRAM}.cu")


def from_root(path):
    """A file's path from the repository's root, whatever the compiler called it."""
    for own in SOURCES:
        if os.path.basename(path) == os.path.basename(own):
            return own
    below = re.search(r"(?:^|/)((?:src|include)/.*)$", path)
    return below[1] if below else path


def kernels_of(path):
    """The lines of the first and the last brace of each kernel in a file, but those that verify."""
    lines = read_lines(path)
    for i, line in enumerate(lines):
        if re.match(r"(\[\[.*\]\] )?(static )?__(tile_)?global__ (?!void reference_)", line):
            end = next(j for j in range(i, len(lines)) if lines[j].startswith("}"))
            brace = next(j for j in range(i, end) if lines[j].split("//")[0].rstrip().endswith("{"))
            yield brace + 1, end + 1


def in_a_kernel(path, line):
    return any(brace <= line <= end for brace, end in kernels_of(path))


def first_line(path, brace):
    """The line after a kernel's first brace from which debuggers take the first statement. On a GPU
    declarations of shared memory are none."""
    line = brace + 1
    while re.match(r"\s*(alignas\(.*?\) |extern )*__shared__ .*;", source_line(path, line)):
        line += 1
    return line


def places(numbers_of):
    """Places as gdb spells them, 2_matmul_sharedmem.cu:33, for those of a file's lines that were
    compiled."""
    found = []
    for path in SOURCES:
        for line in numbers_of(path):
            with contextlib.suppress(gdb.error):
                gdb.decode_line(f"{os.path.basename(path)}:{line}")
                found.append(f"{os.path.basename(path)}:{line}")
    return found


def kernel_starts():
    """The lines before the first ones belong also to the functions that launch kernels, in the
    host's code."""
    return places(lambda path: [first_line(path, brace) for brace, _ in kernels_of(path)])


def kernel_ends():
    return places(lambda path: [end for _, end in kernels_of(path)])


def barriers():
    return places(lambda path: [i for i, line in enumerate(read_lines(path), 1)
                                if BARRIER.search(line.split("//")[0])])
