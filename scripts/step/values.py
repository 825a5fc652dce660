"""How values are shown: numbers and tiles by `print`, and an array as a matrix by `tile`. Where
threads are is shown by showing.py."""

import math
import re
import struct
import types

import gdb

from debugger import fail, say


def number_of(value):
    """A scalar as Python's int or float; half and bfloat16 by their bits."""
    kind = value.type.strip_typedefs()
    inner = value
    while kind.sizeof == 2 and inner.type.strip_typedefs().code == gdb.TYPE_CODE_STRUCT:
        inner = inner[[field for field in inner.type.strip_typedefs().fields()
                       if not getattr(field, "bitpos", None) and field.type.sizeof == 2][0]]
    code = inner.type.strip_typedefs().code
    if code == gdb.TYPE_CODE_FLT:
        return float(inner)
    if inner is not value:
        bits = int(inner) & 0xFFFF
        if "bf" in (kind.name or ""):
            return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
        return struct.unpack("<e", struct.pack("<H", bits))[0]
    if code in (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_BOOL, gdb.TYPE_CODE_ENUM, gdb.TYPE_CODE_CHAR):
        return int(value)
    fail(f"tile: an element is {kind}, not a number; `print` shows it")


def cut(extent):
    """The indices to show, None for those left out."""
    return list(range(extent)) if extent <= 10 else [*range(7), None, *range(extent - 2, extent)]


TILE = re.compile(r"cuda::tiles::tile<.+, cuda::tiles::extents<unsigned int((?:, \d+\w*)*)> ?>")


def extents_of(value):
    """The extents of a tile of CUDA Tile C++; None for anything else."""
    match = TILE.fullmatch(str(value.type.strip_typedefs().unqualified()))
    return match and [int(number) for number in re.findall(r"(\d+)\w*", match[1])]


def spell_tile(tile):
    """What `print` says of a tile."""
    extents, elements = extents_of(tile), tile["elements_"]
    kind = str(elements.type.target().unqualified())
    size = " x ".join(map(str, extents)) or "1"
    if not elements:
        return f"{size} of {kind}, without elements yet"
    shown = min(math.prod(extents), 8)
    numbers = spell_numbers([number_of(elements[i]) for i in range(shown)])
    rest = ", ..." * (math.prod(extents) > shown)
    return f"{size} of {kind}: {{{', '.join(numbers)}{rest}}}"


def printer_of(value):
    """What prints a value in the debugger's place; None for most. Floats and halves have six digits
    that count, as %g has."""
    if extents_of(value) is not None:
        return types.SimpleNamespace(to_string=lambda: spell_tile(value))
    kind = value.type.strip_typedefs().unqualified()
    if kind.code == gdb.TYPE_CODE_FLT or re.fullmatch("(__)?(half|nv_bfloat16)", kind.name or ""):
        if not value.is_optimized_out:
            return types.SimpleNamespace(to_string=lambda: format(number_of(value), "g"))
    return None


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
    rest = ", all but the first 7 and the last 2 left out" * left_out
    say(f"{words[1]}: {size} of {kind}{rest}")
    line("", str)
    for r in cut(rows):
        line(*(("...", lambda c: "...") if r is None else (r, lambda c: cells[r, c])))
