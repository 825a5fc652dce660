#!/usr/bin/env python3
"""Compiles a program's kernels and shows what the compiler made of them. No GPU is needed.

PROGRAM alone: a table of its kernels, with registers, spills, shared memory, occupancy and counts
of instructions. With KERNEL, a name of that table or the beginning of one: the kernel's machine
code (SASS), or its PTX, each group of instructions below the source line that it comes from; then
the counts. Templates are written with their arguments, quoted for the shell: 'warp_tiled<3>'.

Counts are static: of instructions in the code, however often they run. "main loop" is the loop that
holds most of the multiply-adds (those of tensor cores first), or else most global loads and stores;
its instructions are marked with | in a listing. docs/tools.md shows all of it at work.
"""

import argparse
import collections
import hashlib
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple, Optional, Tuple

import html_page
import instructions
import launches
from instructions import LOCAL, Instruction, classify, counts, main_loop, multiplies_and_adds
from shared import command_line, cuda_toolkit, kernel_names, programs, table
from shared.command_line import PROJECT, SKIPPED, USAGE, Stop
from shared.sm_limits import LIMITS, occupancy

CACHE = PROJECT / "build/inspect"
NO_PTX = "tile kernels have no PTX: they go from Tile IR to machine code, which --sass shows"


# --- Compiling --------------------------------------------------------------------------------


class Compiled(NamedTuple):
    """What nvcc made of one source, for one architecture."""

    ptx: Path
    cubin: Path
    notes: str  # what `ptxas -v` said
    tiles: Optional[Path] = None  # the cubin of its tile kernels


def compile_source(toolkit, source, arch, folder, tile=None):
    """Compiles one file to PTX and that to machine code, with the flags of the build. `tile`: what
    compiles its tile kernels."""
    ptx, cubin, tiles = (Path(folder) / f"program.{suffix}" for suffix in ("ptx", "cubin", "tiles"))
    flags = [*toolkit.flags, *cuda_toolkit.FLAGS, *cuda_toolkit.OPTIMIZED, f"-arch=sm_{arch}"]
    run([toolkit.nvcc, *flags, "-ptx", "-o", ptx, source])
    done = run([toolkit.nvcc, *flags, "-Xptxas=-v", "-cubin", "-o", cubin, ptx])
    if tile:
        run([tile.nvcc, *flags, *tile.flags, "-w", "--tilecubin", "-o", tiles, source])
    return Compiled(ptx, cubin, done.stderr, tiles if tile else None)


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          cwd=PROJECT)
    if done.returncode != 0:
        said = (done.stderr + done.stdout).strip().splitlines()
        errors = [line for line in said if "error" in line or "fatal" in line] or said
        raise Stop(f"{Path(command[0]).name} failed: {errors[0] if errors else 'silently'}")
    return done


def tile_compiler(toolkit, program, arch):
    """(what compiles the program's tile kernels, or None; why these are missing, where they are)"""
    if "__tile_global__" not in programs.source(program):  # what its kernels in Tile C++ begin with
        return None, ""
    try:
        tile = cuda_toolkit.find_tile(toolkit)
    except cuda_toolkit.ToolkitError as problem:
        return None, f"without its tile kernels: {problem}"
    if int(arch.rstrip("a")) < 80:
        return None, f"without its tile kernels, which do not compile for sm_{arch}"
    return tile, ""


def compile_program(toolkit, program, arch, tile=None):
    """The same for src/PROGRAM.cu, kept in build/inspect/ until a source or a compiler changes."""
    key = hashlib.sha256(repr((toolkit, tile)).encode())
    sources = [path for folder in ("include", "src") for path in (PROJECT / folder).rglob("*")]
    for path in [Path(__file__), Path(cuda_toolkit.__file__), *sorted(sources)]:
        if path.is_file():
            key.update(str(path).encode() + path.read_bytes())
    kept = CACHE / f"{program}.{arch}"
    if not (kept / "key").is_file() or (kept / "key").read_text() != key.hexdigest():
        print(f"inspect.sh: compiling {program} for sm_{arch} ...", file=sys.stderr, flush=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        # Made aside and then renamed, so that what lies there is always whole.
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            fresh = Path(folder) / "fresh"
            fresh.mkdir()
            compiled = compile_source(toolkit, f"src/{program}.cu", arch, fresh, tile)
            (fresh / "notes").write_text(compiled.notes)
            (fresh / "key").write_text(key.hexdigest())
            shutil.rmtree(kept, ignore_errors=True)
            fresh.rename(kept)
    return Compiled(kept / "program.ptx", kept / "program.cubin", (kept / "notes").read_text(),
                    kept / "program.tiles" if tile else None)


def disassemble(toolkit, cubin, whole=False):
    """Machine code as text, with source lines; None where there is no disassembler. `whole`: with
    all else that a cubin holds."""
    nvdisasm = toolkit.tool("nvdisasm")
    return nvdisasm and run([nvdisasm, *([] if whole else ["-c"]), "-gi", cubin]).stdout


# --- Reading what the compiler wrote ------------------------------------------------------------


class Resources(NamedTuple):
    """What one kernel takes, in one architecture's machine code."""

    registers: int  # of each thread
    stack: int  # bytes; holds local arrays that are indexed at run time
    spilled: int  # bytes, stored and loaded
    shared: int  # bytes, static


class Kernel(NamedTuple):
    symbol: str  # as the compiler mangled it
    name: str  # as the source names it: warp_tiled<2>
    resources: Resources
    threads: int  # of a block, by __launch_bounds__; 0 where the source does not say
    dynamic_shared: bool  # its size is the launch's choice
    ptx: Tuple[Instruction, ...]  # none of a tile kernel
    sass: Optional[Tuple[Instruction, ...]]  # None where there is no disassembler

    @property
    def file(self):
        """Where it is written; its first line is not inlined from anywhere."""
        lines = [instruction.source[-1][0] for instruction in self.ptx or self.sass or ()
                 if instruction.source]
        return collections.Counter(lines).most_common(1)[0][0] if lines else ""

    @property
    def verifies(self):
        return (self.name.startswith("reference_")
                or not instructions.is_below(PROJECT / "src", self.file))


def read_resources(notes):
    """What `ptxas -v` says: Resources by symbol."""
    found = re.findall(r"Compiling entry function '(\S+)' for .*?(\d+) bytes stack frame, "
                       r"(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers"
                       r"(?:[^\n]*?(\d+) bytes smem)?", notes, re.DOTALL)
    return {symbol: Resources(int(registers), int(stack), int(stores) + int(loads),
                              int(shared or 0))
            for symbol, stack, stores, loads, registers, shared in found}


def read_tile_resources(disassembly):
    """(Resources, threads of a block) by symbol, of what nvdisasm printed of a whole cubin: the
    compiler of tile kernels has no -v. Their stack holds what is spilled, since they have no arrays
    of their own."""
    sections = dict(re.findall(r"^//-+ (\S+) +-+\n(.*?)(?=^//-|\Z)", disassembly, re.M | re.S))
    common = {(what, symbol): int(value, 16) for what, symbol, value in re.findall(
        r": EIATTR_(REGCOUNT|FRAME_SIZE)\n(?:(?!EIATTR).)*?index@\((\S+)\)\s.*?\.word\s+(0x\w+)",
        sections[".nv.info"], re.S)}
    found = {}
    for symbol in [symbol for what, symbol in common if what == "REGCOUNT"]:
        shared = re.search(r"\.zero\s+(\d+)", sections.get(f".nv.shared.{symbol}", ""))
        block = re.search(r": EIATTR_REQNTID\n.*?\.word\s+(0x\w+)", sections[f".nv.info.{symbol}"],
                          re.S)
        stack = common.get(("FRAME_SIZE", symbol), 0)
        found[symbol] = (Resources(common["REGCOUNT", symbol], stack, stack,
                                   int(shared[1]) if shared else 0), int(block[1], 16))
    return found


def read_sass(disassembly):
    """What nvdisasm printed: the instructions of every kernel, by symbol."""
    kernels, code, frames, labels, inlined = {}, [], [], [], False
    for line in disassembly.splitlines():
        if re.match(r"\.text\.(\S+):$", line):
            code = kernels.setdefault(line[6:-1], [])
            frames, labels, inlined = [], [], False
        elif re.match(r"\.L_\w+:$", line):
            labels.append(line[:-1])
        elif "//## File" in line:
            if not inlined:  # a new place; otherwise the line says who called the one before
                frames = []
            file, number = re.search(r'File "([^"]*)", line (\d+)', line).groups()
            frames.append((os.path.normpath(file), int(number)))
            inlined = " inlined at " in line
        else:
            found = re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(@\S+\s+)?([A-Z][\w.]*)\s*(.*?)\s*;", line)
            if found:
                address, guard, opcode, operands = found.groups()
                operands = re.sub(r"`\((\S+?)\)", r"\1", operands)  # a label's name
                code.append(Instruction(address, (guard or "").strip(), opcode, operands,
                                        tuple(frames), tuple(labels)))
                labels = []
    return {symbol: tuple(without_padding(code)) for symbol, code in kernels.items()}


def without_padding(code):
    """Without what fills the last bytes of a kernel: a branch to itself, and NOPs."""
    while code and code[-1].opcode == "NOP":
        code = code[:-1]
    if code and code[-1].opcode == "BRA" and any(
            label in code[-1].operands for label in code[-1].labels):
        code = code[:-1]
    return code


def read_ptx(text):
    """The kernels of a PTX file, by symbol: (its head, its instructions)."""
    files = {number: os.path.normpath(path)
             for number, path in re.findall(r'^\s*\.file\s+(\d+) "([^"]*)"', text, re.MULTILINE)}
    kernels = {}
    for part in re.split(r"^.*?\.entry ", text, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n{")
        kernels[re.match(r"[\w$]+", head)[0]] = (head, tuple(read_ptx_body("{" + body, files)))
    return kernels


def read_ptx_body(body, files):
    """The instructions of one kernel, up to its closing brace."""
    callers = {}  # (file, line, column), as PTX writes it: where that was inlined
    source, labels, depth, rest = (), [], 0, ""
    for line in body.splitlines():
        location = re.match(r"\s*\.loc\s+(\d+ \d+ \d+)(?:.*inlined_at (\d+ \d+ \d+))?", line)
        if location:
            place, caller = location.groups()
            callers[place] = caller
            source = []
            while place and len(source) < 32:
                file, number, _ = place.split()
                source.append((files.get(file, "?"), int(number)))
                place = callers.get(place)
            source = tuple(source) if source[0][1] else ()  # line 0: the compiler's own code
            continue
        *whole, rest = (rest + " " + line.split("//")[0]).split(";")
        for statement in whole + [rest]:
            finished, statement = statement is not rest, statement.strip()
            # What may stand before an instruction: labels, and the braces of blocks.
            while front := re.match(r"[{}]|([\w$]+):(?!:)", statement):
                labels += [front[1]] if front[1] else []
                depth += {"{": 1, "}": -1}.get(front[0], 0)
                statement = statement[front.end():].lstrip()
            words = re.match(r"(@\S+\s+)?(\w[\w.:]*)\s*(.*)", statement)  # no .declaration
            if not finished:
                rest = statement
            elif words:
                guard, opcode, operands = words.groups()
                yield Instruction("", (guard or "").strip(), opcode, " ".join(operands.split()),
                                  source, tuple(labels))
                labels = []
            elif statement.startswith(".branchtargets"):  # its label names no instruction
                labels.pop()
        if depth == 0:
            return


def demangled(symbols):
    """The kernels' names with namespaces, arguments and parameters, by symbol."""
    tool = shutil.which("c++filt")
    names = run([tool, *symbols]).stdout.splitlines() if tool and symbols else symbols
    return {symbol: name.replace("> >", ">>") for symbol, name in zip(symbols, names)}


def read_kernels(compiled, disassembly, tiles=None):
    """All kernels of a program, in the order of the PTX; then those of `tiles`, which nvdisasm
    printed of the cubin of the tile kernels."""
    resources = read_resources(compiled.notes)
    text = compiled.ptx.read_text()
    dynamic = re.findall(r"^\.extern \.shared .*?([\w$]+)\[\];", text, re.MULTILINE)
    ptx = read_ptx(text)
    sass = read_sass(disassembly) if disassembly else {}
    of_tiles = read_tile_resources(tiles) if tiles else {}
    full_names = demangled([*ptx, *of_tiles])
    names = kernel_names.short_names(full_names.values())
    kernels = []
    for symbol, (head, code) in ptx.items():
        bounds = re.search(r"\.(?:max|req)ntid\s+(\d+)(?:,\s*(\d+))?(?:,\s*(\d+))?", head)
        threads = math.prod(int(extent or 1) for extent in bounds.groups()) if bounds else 0
        words = {word for one in code for word in re.findall(r"[\w$]+", one.operands)}
        kernels.append(Kernel(symbol, names[full_names[symbol]], resources[symbol], threads,
                              not words.isdisjoint(dynamic), code, sass.get(symbol)))
    for symbol, code in read_sass(tiles).items() if tiles else ():
        name, (taken, threads) = names[full_names[symbol]], of_tiles[symbol]
        kernels.append(Kernel(symbol, name, taken, threads, False, (), code))
    return kernels


# --- Showing ----------------------------------------------------------------------------------

class Show:
    """How the command line wants it shown."""

    def __init__(self, options, arch, sass, blocks=None):
        self.colored = (sys.stdout.isatty() and not os.environ.get("NO_COLOR")
                        and os.environ.get("TERM") != "dumb")
        self.arch, self.sass = arch, sass
        self.threads, self.shared = options.block, options.shared
        self.blocks = blocks or {}  # threads of a block, by kernel, as the simulator launches it
        self.limits = LIMITS.get(int(arch.rstrip("a")))

    def paint(self, group, text):
        color = instructions.COLORS.get(group)
        return f"\033[{color}m{text}\033[0m" if self.colored and color else text

    def code(self, kernel):
        return kernel.sass if self.sass else kernel.ptx

    def figures(self, kernel):
        """What a kernel takes and what that lets an SM hold: (name, text) each."""
        resources, threads = kernel.resources, self.block_of(kernel)
        dynamic = self.shared if kernel.dynamic_shared and self.shared else 0
        shared = str(resources.shared + dynamic)
        shared += " + dynamic" if self.unknown_shared(kernel) else ""
        rows = [("registers a thread", str(resources.registers)),
                ("spilled, bytes", str(resources.spilled)),
                ("stack, bytes", str(resources.stack)),
                ("shared memory, bytes", shared),
                ("threads a block", str(threads or "unknown"))]
        if not self.limits:
            return rows + [("blocks an SM", "unknown"), ("warps an SM", "unknown")]
        # Of an unknown block the most warps that any size allows.
        held = {size: occupancy(self.limits, size, resources.registers, resources.shared + dynamic)
                for size in ([threads] if threads else range(32, 1025, 32))}
        warps, size = max((blocks * -(-size // 32), size) for size, (blocks, _) in held.items())
        blocks, limit = held[size]
        bound = "up to " if self.unknown_shared(kernel) or not threads else ""
        return rows + [
            ("blocks an SM", f"{bound}{blocks}, by {limit}" if threads else "unknown"),
            ("warps an SM", f"{bound}{warps} of {self.limits.warps}, "
                            f"{100 * warps // self.limits.warps}%")]

    def block_of(self, kernel):
        """Threads of a block, 0 where nobody says."""
        return kernel.threads or self.threads or launches.of(kernel.name, self.blocks)

    def unknown_shared(self, kernel):
        return kernel.dynamic_shared and self.shared is None

    def notes(self, kernels, unknown="unknown", dynamic="dynamic"):
        """Footnotes of a table. `unknown` and `dynamic` are its words for missing values."""
        lines = ["counts: of instructions in the code, not of those that run"]
        if any(not kernel.threads and launches.of(kernel.name, self.blocks) for kernel in kernels):
            lines.append("threads a block without __launch_bounds__: as the simulator launched "
                         "them")
        if not all(self.block_of(kernel) for kernel in kernels):
            lines.append(f"{unknown}: the source has no __launch_bounds__, and the simulator no "
                         "one size; --block tells\nthis script, else warps are the most of any "
                         "block")
        if any(self.unknown_shared(kernel) for kernel in kernels):
            lines.append(f"{dynamic}: the launch says how much; --shared tells this script")
        traps = {kernel.name.split("<")[0] for kernel in kernels
                 if any(instruction.opcode == "trap" for instruction in kernel.ptx)}
        if traps:
            lines.append(f"no code for sm_{self.arch}, but traps in place of instructions that it "
                         f"lacks (--arch 90a has Hopper's): {', '.join(sorted(traps))}")
        return "\n".join(lines)


def own_kernels(program, kernels):
    own = [k for k in kernels if k.file == str(PROJECT / f"src/{program}.cu")]
    return own or [k for k in kernels if not k.verifies]


def show_program(show, program, kernels, everything, missing):
    """A table of the program's own kernels, or of all that its binary has. `missing`: of its tile
    kernels, why they are."""
    own = own_kernels(program, kernels)
    listed = kernels if everything else own
    head = ["kernel", "regs", "spill", "stack", "shared", "block", "warps/SM", "global", "shared",
            "local", "mma", "fma", "all"]
    rows = []
    for kernel in listed:
        values = dict(show.figures(kernel))
        code = show.code(kernel)
        kinds = [kind for kind in map(classify, code) if kind]

        def total(*groups):
            return str(sum(group in groups for group, _ in kinds))

        rows.append([
            kernel.name, values["registers a thread"], values["spilled, bytes"],
            values["stack, bytes"], values["shared memory, bytes"].replace(" + dynamic", "+"),
            values["threads a block"].replace("unknown", "?"),
            values["warps an SM"].split(",")[0].replace("up to ", "<=").replace(" of ", "/"),
            total(instructions.LOADS, instructions.STORES, instructions.COPIES),
            total(instructions.SHARED_LOADS, instructions.SHARED_STORES), total(LOCAL),
            total(instructions.TENSORS), str(sum(multiplies_and_adds(*kind) for kind in kinds)),
            str(len(code))])
    print(f"{program}, {'SASS' if show.sass else 'PTX'} for sm_{show.arch}\n")
    lines = table.layout(head, rows).splitlines()
    for line, kernel in zip(lines, [None, None] + listed):
        slow = kernel and (kernel.resources.spilled or kernel.resources.stack)
        print(show.paint(LOCAL, line) if slow else line)
    print("\n" + show.notes(listed, unknown="?, <=", dynamic="+, <="))
    print("global to all: loads and stores of each memory, instructions of the tensor cores (mma)\n"
          "and multiply-adds of the ordinary units (fma), all instructions")
    if len(listed) < len(kernels):
        print(f"{len(kernels) - len(listed)} kernels from other files: --all lists them too")
    if missing:
        print(missing)


def show_kernels(show, kernels):
    """What one kernel takes and consists of, or two side by side."""
    codes = [show.code(kernel) for kernel in kernels]
    main = [main_loop(code) for code in codes]
    head = [""] + [text for kernel in kernels for text in (kernel.name, "")]
    groups, rows = ["", ""], []  # of the head and its line, then of each row
    for figures in zip(*map(show.figures, kernels)):
        groups.append(LOCAL if figures[0][0] in ("spilled, bytes", "stack, bytes") and
                      any(value != "0" for _, value in figures) else "")
        rows.append([figures[0][0]] + [text for _, value in figures for text in (value, "")])
    # Of each kernel two columns: all of it, and its main loop.
    parts = [part for code, loop in zip(codes, main) for part in (code, [code[i] for i in loop])]
    found = [counts(part) for part in parts]
    rows.append(["", *["whole kernel", "main loop"] * len(kernels)])
    rows.append(["instructions", *(str(len(part)) for part in parts)])
    groups += ["", ""]
    if any(multiplies_and_adds(*kind) for part in found[1::2] for kind in part):
        groups.append("")
        rows.append(["multiply-adds of them", *map(share, found, map(len, parts))])
    for kind in sorted(set().union(*found),
                       key=lambda kind: (instructions.GROUPS.index(kind[0]), kind[1])):
        groups.append(kind[0])
        rows.append([f"{kind[0]}  {kind[1]}", *(str(part[kind]) for part in found)])
    for group, line in zip(groups, table.layout(head, rows).splitlines()):
        print(show.paint(group, line))
    print("\n" + show.notes(kernels))


def share(found, size):
    """Multiply-adds, of that many instructions."""
    total = sum(amount for kind, amount in found.items() if multiplies_and_adds(*kind))
    return f"{100 * total / size:.0f}%" if size else "-"


def show_listing(show, kernel):
    """The kernel's instructions, each group below the source line that it comes from."""
    code = show.code(kernel)
    loop = main_loop(code)
    print(f"{kernel.name}, {'SASS' if show.sass else 'PTX'} for sm_{show.arch}\n")
    before = []
    for i, instruction in enumerate(code):
        places = instructions.places_of(instruction)
        if places != before:
            # The line in src/, and below it the line of a header that was inlined there.
            known = places[:1] == before[:1] and len(places) > 1
            for depth, place in list(enumerate(places or [None]))[known:]:
                print(show.paint("source", "  " * depth + describe(place)))
            before = places
        for label in instruction.labels:
            print(f"    {label}:")
        kind = classify(instruction)
        text = " ".join(filter(None, ("|" if i in loop else " ", instruction.address,
                                      f"{instruction.guard:5}", instruction.opcode,
                                      shortened(instruction.operands))))
        print("  " + show.paint(kind and kind[0], text))
    print()


def describe(place):
    if place is None:
        return "(no source line)"
    path, number = place
    lines = instructions.source_lines(path)
    text = lines[number - 1].strip() if number <= len(lines) else ""
    return f"{os.path.basename(path)}:{number}  {text}"


def shortened(operands):
    """Without the middle of a list of more than eight registers: a product's tile has 128."""
    return re.sub(r"\{([^{},]+),(?:[^{},]+,){7,}([^{},]+)\}", r"{\1, ...,\2}", operands)


# --- The command line -------------------------------------------------------------------------


def parse_arguments(arguments):
    parser = command_line.Parser(prog="inspect.sh", description=__doc__, allow_abbrev=False,
                                 formatter_class=argparse.RawDescriptionHelpFormatter,
                                 epilog="Exit status: 0 shown; 2 usage; 3 it does not compile; 77 "
                                        "nvcc or nvdisasm is missing.")
    add = parser.add_argument
    add("program", metavar="PROGRAM", help="of src/, by name or number: 2_matmul_sharedmem, 2")
    add("kernel", metavar="KERNEL", nargs="?", help="of the program")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--ptx", action="store_true", help="PTX, for which nvcc is enough")
    form.add_argument("--sass", action="store_true", help="machine code, which takes nvdisasm; the "
                      "default where that is installed")
    add("--html", action="store_true", help="write both side by side, as a page in build/inspect/")
    form.add_argument("--both", action="store_true", help="PTX, then machine code")
    add("--arch", metavar="86", help="for this architecture; without it for the GPU in the "
        "machine, or else for 90a")
    add("--diff", nargs=2, metavar=("KERNEL1", "KERNEL2"), help="two kernels side by side")
    add("--block", metavar="THREADS", type=command_line.number(1, 1024), help="of a block, where "
        "__launch_bounds__ does not say: for the occupancy")
    add("--shared", metavar="BYTES", type=command_line.number(0, 999999), help="dynamic shared "
        "memory of a block: for the occupancy")
    add("--all", action="store_true", help="in the table also the kernels of other files, among "
        "them those that verify")
    options = parser.parse_intermixed_args(arguments)  # options may stand between names
    if options.diff and (options.kernel or options.both or options.all):
        parser.error("--diff takes two kernels, and --ptx or --sass")
    if options.html and (options.diff or options.both):
        parser.error("--html is for a program or a KERNEL, and --ptx or --sass")
    if options.all and options.kernel:
        parser.error("--all is for the table, without a KERNEL")
    return options


def find_kernel(kernels, wanted, missing):
    """By name, with or without its template's arguments; by the beginning; by a part."""
    wanted = wanted.replace(" ", "")
    names = {kernel.name.replace(" ", ""): kernel for kernel in kernels}
    for fits in (lambda name: name == wanted, lambda name: name.split("<")[0] == wanted,
                 lambda name: name.startswith(wanted), lambda name: wanted in name):
        found = [name for name in names if wanted and fits(name)]
        if len(found) == 1:
            return names[found[0]]
        if found:
            raise Stop(f"'{wanted}' fits {len(found)} kernels: name one whole, such as "
                       f"{found[0]!r}; without a KERNEL all are listed", USAGE)
    raise Stop(f"no kernel '{wanted}': without a KERNEL all are listed"
               + f"; {missing}" * bool(missing), USAGE)


def choose_arch(toolkit, wanted):
    if wanted is None:
        return toolkit.choose("")[-1]
    if not toolkit.builds_for(wanted) or int(wanted.rstrip("a")) < 75:
        known = " ".join(str(number) for number in toolkit.architectures() if number >= 75)
        raise Stop(f"--arch {wanted}: CUDA {toolkit.version} compiles for {known}, also 90a and up "
                   "with the a", USAGE)
    return wanted


@command_line.reporting("inspect.sh")
def main(arguments):
    options = parse_arguments(arguments)
    program = programs.find(options.program)
    try:
        toolkit = cuda_toolkit.find()
    except cuda_toolkit.ToolkitError as problem:
        raise Stop(str(problem), SKIPPED)
    arch = choose_arch(toolkit, options.arch)
    if not options.ptx and not toolkit.tool("nvdisasm"):
        command_line.set_up("inspect.sh", "(pip_install nvdisasm nvidia-cuda-nvdisasm) || true")
    tile, missing = tile_compiler(toolkit, program, arch)
    compiled = compile_program(toolkit, program, arch, tile)
    disassembly = None if options.ptx else disassemble(toolkit, compiled.cubin)
    if not disassembly and not options.ptx:
        release = "-".join(toolkit.version.split(".")[:2])
        missing = ("nvdisasm, which reads machine code, is missing: install cuda-nvdisasm-"
                   f"{release} (NVIDIA's apt repository), or nvidia-cuda-nvdisasm with pip into "
                   ".venv")
        if options.sass or options.both:
            raise Stop(missing, SKIPPED)
        command_line.say("inspect.sh", f"PTX alone: {missing}")
    tiles = tile and disassembly and disassemble(toolkit, compiled.tiles, whole=True)
    if tile and not tiles:
        missing = NO_PTX
    kernels = read_kernels(compiled, disassembly, tiles)

    names = options.diff or [options.kernel] * bool(options.kernel)
    chosen = [find_kernel(kernels, name, missing) for name in names] or (
        kernels if options.all else own_kernels(program, kernels))
    ask = options.block is None and not all(kernel.threads for kernel in chosen)
    show = Show(options, arch, bool(disassembly), launches.blocks(program) if ask else {})
    if options.html:
        if not names:
            chosen = list(filter(show.code, chosen))
        if not all(map(show.code, chosen)):
            raise Stop(NO_PTX, USAGE)
        path = CACHE / f"{program}.html"
        command_line.write_text(path, html_page.page(program, show, chosen))
        print(path.relative_to(PROJECT))
    elif options.diff:
        print(f"{program}, {'SASS' if show.sass else 'PTX'} for sm_{arch}\n")
        show_kernels(show, chosen)
    elif options.kernel:
        [kernel] = chosen
        for sass in (False, True) if options.both else (show.sass,):
            if not sass and not kernel.ptx:
                print(f"{NO_PTX}\n")
                continue
            show.sass = sass
            show_listing(show, kernel)
            show_kernels(show, [kernel])
    else:
        show_program(show, program, kernels, options.all, missing)


if __name__ == "__main__":
    command_line.run(main)
