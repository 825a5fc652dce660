"""The slides' drawings, as SVG whose colors the deck's style sheet sets: light or dark."""

import math
from html import escape


def text(x, y, words, kind=""):
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(words)}</text>'


def box(x, y, width, height, words="", kind=""):
    """A rectangle with words in its middle."""
    return (f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" class="{kind}"/>'
            + (words and text(x + width / 2, y + height / 2, words)))


def path(*points, kind="arrow"):
    return f'<path class="{kind}" d="M{" L".join(f"{x:g} {y:g}" for x, y in points)}"/>'


def grid(x, y, width, height, columns, rows, kind=""):
    lines = [((x + width * i / columns, y), (x + width * i / columns, y + height))
             for i in range(columns + 1)]
    lines += [((x, y + height * i / rows), (x + width, y + height * i / rows))
              for i in range(rows + 1)]
    return box(x, y, width, height, kind=kind) + "".join(path(*line, kind="grid") for line in lines)


def machine(_):
    for i in range(3):
        yield box(20 * (2 - i), 20 * i, 500, 330, kind="green" if i == 2 else "")
    for i, part in enumerate(["arithmetic units", "tensor cores", "registers", "shared memory"]):
        yield box(20, 105 + 64 * i, 460, 52, part, "orange" if i < 2 else "blue")
    yield text(250, 72, "a multiprocessor, of many") + box(590, 0, 120, 370, "L2", "blue")
    yield path((505, 200), (580, 200)) + path((715, 200), (925, 200)) + path((925, 230), (715, 230))
    yield text(820, 165, "the road") + box(935, 0, 280, 370, "memory", "blue")


def threads(_):
    yield grid(0, 50, 340, 340, 8, 8) + box(212.5, 135, 42.5, 42.5, kind="orange")
    yield text(170, 20, "C: a block for each tile") + text(620, 20, "a block: 32 x 32 threads")
    yield path((262, 156), (440, 156)) + grid(450, 50, 340, 340, 32, 32)
    yield box(450, 145, 340, 10.6, kind="orange") + path((800, 150), (880, 150))
    yield text(1050, 90, "a row of it, a warp:") + text(1050, 210, "32 threads, in step")
    yield grid(890, 137, 320, 26, 32, 1, "orange")


def warp(_, swapped=False):
    """Which sectors of 32 bytes the 32 lanes' loads of A and B touch."""
    for y, name, line in (20, "B[k * N + col]", not swapped), (255, "A[row * N + k]", False):
        one = name.startswith("A") != swapped
        yield text(0, y + 18, name, "left mono") + grid(290, y, 896, 36, 32, 1, "orange")
        count = 4 if line else 1 if one else 32
        for i in range(32):
            to = 290 + (896 / 32 * (i + 0.5) if count == 32 else 224 * (i + 0.5) / 8 if line else 112)
            yield path((290 + 28 * (i + 0.5), y + 40), (to, y + 98), kind="grid")
        for i in range(count):
            wide = 224 if count < 32 else 28
            yield box(290 + i * wide, y + 104, wide, 36, kind="blue")
        yield text(290, y + 170, f"{count} sector{'s' * (count > 1)} of 32 bytes, "
                   f"{4 if one or count == 32 else 32} of them used" * 1, "left muted")
    yield text(0, 85, "32 lanes of a warp", "left muted")


def swapped(figures):
    return warp(figures, True)


def tile(_):
    yield text(170, 150, "A") + grid(60, 170, 220, 220, 8, 8) + box(60, 252.5, 220, 27.5, kind="orange")
    yield text(300, 20, "B", "left") + grid(330, 0, 220, 150, 8, 5) + box(412.5, 0, 27.5, 150, kind="green")
    yield grid(330, 170, 220, 220, 8, 8) + box(412.5, 252.5, 27.5, 27.5, kind="purple") + text(575, 185, "C")
    yield path((290, 266), (400, 266)) + path((426, 155), (426, 245)) + path((450, 266), (690, 266))
    for x, name, kind in (700, "tile of A", "orange"), (970, "tile of B", "green"):
        yield grid(x, 140, 240, 240, 32, 32, kind) + text(x + 120, 110, name)
    yield text(955, 30, "in shared memory: 32 x 32 each,") + text(955, 65, "every number used 32 times")


def banks(_):
    for row in range(4):
        for column in range(12):
            for x, shift, lit in (0, 0, 0), (650, row, row % 12):
                kind = "orange" if column == lit else ""
                yield box(x + 46 * column, 90 + 46 * row, 46, 46, str((column - shift) % 32), kind)
    for x, words in (0, "tile[32][32]: a column is one bank"), (650, "tile[32][33]: 32 banks"):
        yield text(x + 276, 20, words) + text(x + 276, 60, "bank 0, 1, 2 ... 11 ...", "muted")
        yield text(x + 276, 310, "32 passes" if not x else "one pass")


def registers(_):
    yield grid(130, 100, 300, 300, 8, 8, "purple") + grid(60, 100, 40, 300, 1, 8, "orange")
    yield grid(130, 30, 300, 40, 8, 1, "green") + text(20, 250, "a") + text(280, 8, "b: 8 numbers")
    yield box(130, 212.5, 300, 37.5, kind="orange") + path((440, 250), (600, 250))
    for i, words in enumerate(["a thread's 64 sums, in registers", "16 loads for each k",
                               "64 multiply-adds for each k", "so a load feeds four"]):
        yield text(620, 145 + 70 * i, words, "left")


def ring(_):
    names = ["fill", "fill", "fill", "fill"]
    yield text(60, 24, "producer", "left") + box(0, 50, 250, 330, "copy engine", "blue")
    yield box(966, 50, 250, 330, "tensor cores", "orange") + text(1091, 24, "consumer")
    for i, state in enumerate(["being multiplied", "full", "full", "being filled"]):
        y = 50 + 86 * i
        yield box(380, y, 456, 72, f"stage {i}: {state}", ["orange", "green", "green", "blue"][i])
    yield path((256, 344), (370, 344)) + path((842, 86), (956, 86)) + text(608, 24, "shared memory")
    yield text(608, 405, "a stage that is used up is filled again: a ring", "muted")


def feed(_):
    yield grid(60, 110, 300, 300, 2, 2, "purple") + grid(60, 110, 300, 300, 8, 8)
    yield box(0, 110, 44, 300, kind="orange") + box(60, 50, 300, 44, kind="green")
    yield text(210, 20, "a block's 128 x 128 of C: four warps") + path((370, 185), (560, 185))
    yield grid(580, 110, 300, 300, 4, 4, "purple") + grid(524, 110, 40, 300, 1, 4, "orange")
    yield grid(580, 54, 300, 40, 4, 1, "green") + text(730, 24, "a warp: 4 x 4 fragments")
    for i, words in enumerate(["8 fragments loaded", "16 products", "each used four times"]):
        yield text(910, 180 + 70 * i, words, "left")


def stays(_):
    yield text(150, 20, "A: one tile stays") + grid(0, 50, 300, 300, 4, 4) + box(150, 125, 75, 75, kind="orange")
    yield text(600, 20, "B: a row of tiles") + grid(450, 50, 300, 300, 4, 4) + box(450, 200, 300, 75, kind="green")
    yield text(1050, 20, "C: a row of sums") + grid(900, 50, 300, 300, 4, 4) + box(900, 125, 300, 75, kind="purple")
    yield path((235, 162), (440, 230)) + path((760, 230), (890, 162)) + text(825, 290, "atomicAdd", "mono")


def fused(_):
    for x, name in (420, "W1"), (560, "W2"):
        yield grid(x, 0, 110, 130, 3, 4, "green") + text(x + 55, 65, name)
        yield path((x + 55, 135), (x + 55, 185))
    yield grid(0, 200, 260, 100, 8, 3, "orange") + text(130, 250, "a tile of x") + path((270, 250), (405, 250))
    yield box(420, 195, 110, 110, "sum 1", "purple") + box(560, 195, 110, 110, "sum 2", "purple")
    yield path((680, 250), (760, 250)) + box(770, 215, 170, 70, "gate", "orange") + path((950, 250), (1030, 250))
    yield box(1040, 195, 176, 110, "out", "blue") + text(545, 340, "registers: nothing of this is written", "muted")


def merge(_):
    parts = [(3, 1.135), (5, 1.05)]
    for x, (top, total) in zip((120, 760), parts):
        yield box(x, 70, 330, 80, f"({top}, {total:.3f})", "blue") + path((x + 165, 155), (608 + (x - 440) / 8, 235))
    total = sum(part * math.exp(top - 5) for top, part in parts)
    yield box(408, 245, 400, 80, f"(5, {total:.3f})", "purple")
    yield text(285, 35, "left half: scores 1, 3") + text(925, 35, "right half: scores 2, 5")
    yield text(608, 365, f"1.135 e^(3 - 5) + 1.050 = {total:.3f}", "mono")


def swizzle(_):
    yield text(30, 30, "chunk", "left muted")
    for row in range(8):
        yield text(60, 66 + 44 * row, f"row {row}", "muted")
        for place in range(8):
            yield box(130 + 60 * place, 45 + 44 * row, 60, 44, str(place ^ row),
                      "orange" if place ^ row == 2 else "")
    for i, words in enumerate(["row r keeps chunk c", "at place c XOR r:", "a column's eight chunks",
                               "are in eight places"]):
        yield text(720, 130 + 50 * i, words, "left")


def passes(_):
    for y, name, parts in ((60, "fused", ["load, max", "", "sum", "", "write"]),
                           (250, "online", ["load, max and sum", "", "write"])):
        x = 150
        yield text(0, y + 45, name, "left mono")
        for part in parts:
            wide = 250 if part else 60
            yield box(x, y, wide, 90, part, "green" if part else "orange")
            x += wide + 6
    yield text(150, 200, "orange: a barrier, where nothing is loaded", "left muted")


def scores(_):
    yield grid(330, 0, 800, 90, 5, 1, "green") + text(160, 45, "tiles of K^T")
    yield grid(330, 110, 800, 130, 5, 1) + box(490, 110, 160, 130, "scores", "orange")
    yield box(60, 110, 200, 130, "64 rows of Q", "blue")
    yield grid(330, 260, 800, 90, 5, 1, "green") + text(160, 305, "tiles of V") + path((650, 175), (800, 175))
    yield text(608, 395, "for each row: max, sum and the weighted sum of V", "muted")


def asked(figures):
    """A roofline of the bytes that threads ask for: a tile of T x T asks for 2 T numbers a step."""
    def at(intensity, rate):
        return 90 + 270 * math.log10(intensity / 0.1), 400 - 115 * math.log10(rate / 0.5)

    road, peaks = figures.sheet["GB/s"] / 1000, {"fp32": 0, "fp16": 0}
    for dtype in peaks:
        peak = figures.sheet[dtype]
        yield path(at(0.12, road * 0.12), at(peak / road, peak), at(900, peak), kind="")
        yield text(at(900, peak)[0] + 10, at(900, peak)[1], f"{dtype} {peak:g} TFLOP/s", "left muted")
    for program, kernel, operations in [
            ("1", "matmul_basic", 2 / 8), ("2", "matmul_sharedmem", 32 / 4),
            ("bonus_matmul_register_tiled", "register_tiled", 128 / 4), ("3", "wmma_tiled", 128 / 2)]:
        rate = figures.value(program, kernel, "4096", "", "tflops")
        x, y = at(operations, rate)
        yield f'<circle cx="{x:g}" cy="{y:g}" r="11" class="orange"/>' + text(x + 20, y + 24, kernel, "left mono")
    yield text(330, 120, f"the road, {road:g} TB/s") + text(590, 425, "operations per byte that the threads ask for: 0.25, 8, 32, 64", "muted")


DRAWINGS = {f.__name__: f for f in (machine, threads, warp, swapped, tile, banks, registers, ring, feed,
                                    stays, fused, merge, swizzle, passes, scores, asked)}


def svg(name, sentence, figures):
    """A drawing as an SVG element of a page."""
    return (f'<svg class="drawn" viewBox="0 0 1216 430" role="img" aria-label="{escape(sentence)}">'
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="5" '
            'markerHeight="5" orient="auto"><path d="M0 0 L10 5 L0 10 z"/></marker></defs>'
            + "".join(DRAWINGS[name](figures)) + "</svg>")
