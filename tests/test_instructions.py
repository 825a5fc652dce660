"""What the compiler made of the fast kernels: no register spilled, and the instructions meant.

A spill is an array or a sum that did not fit the registers and went to memory: right, and slow. So
is a load of 4 bytes where 16 were meant. Neither shows in a result.
"""

import functools
import re
import subprocess
from pathlib import Path
from typing import NamedTuple, Tuple

import pytest

import instructions
import machine_code
from machine_code import Resources
from pages import SHARED_16, of_page
from suite import PROGRAMS, ROOT, needs, toolkit

pytestmark = pytest.mark.full


class Kernel(NamedTuple):
    """A kernel that must be fast (FAST of its program's page), and what its machine code must hold:
    tensor cores show as HMMA, Hopper's as HGMMA, ldmatrix as LDSM."""

    program: str
    name: str  # how its name begins, without namespace and arguments
    instructions: Tuple[str, ...] = ()  # patterns, each of which some instruction must match


ARCH = "90a"  # whose instructions the patterns are of
KERNELS = [Kernel(program, name, patterns) for program in PROGRAMS
           for name, patterns in of_page(program, "FAST", {}).items()]
each_kernel = pytest.mark.parametrize(
    "kernel", KERNELS, ids=[f"{kernel.program}-{kernel.name}" for kernel in KERNELS])


def skip_what_was_left_out(kernel):
    """A program that was built without the compiler of tile kernels has none."""
    if (ROOT / kernel.program).exists():
        missing = needs(kernel.program).get(kernel.name) or ""
        if "nvcc" in missing:
            pytest.skip(missing)


def names(kernel, function):
    """Whether `function`, as the compiler mangled it, is the kernel or an instance of it, and not
    another in a namespace of that name. Of "swizzled<true>" instances for which that holds."""
    plain, is_special, _ = kernel.name.partition("<true>")
    name = f"{len(plain)}{plain}"
    if is_special and "Lb1E" not in function:
        return False
    return re.search(rf"^_ZL?{name}|(?<!\d){name}[IE]", function) is not None


def assert_nothing_spilled(kernel, functions):
    own = {name: taken for name, taken in functions.items() if names(kernel, name)}
    assert own, f"no kernel {kernel.name} among {list(functions)}"
    assert all(taken.spilled == 0 and taken.stack == 0 for taken in own.values()), own


def assert_instructions(kernel, functions):
    own = {name: code for name, code in functions.items() if names(kernel, name)}
    assert own, f"no kernel {kernel.name} among {list(functions)}"
    missing = [(name, pattern) for name, code in own.items() for pattern in kernel.instructions
               if not any(re.match(rf"{pattern}\b", one.opcode) for one in code)]
    assert not missing
    assert not [(name, one.text) for name, code in own.items() for one in code
                if re.match("LDL|STL", one.opcode)]


# --- The tools ---


def tool(name):
    """A program of the toolkit that not every installation has."""
    return toolkit().tool(name) or pytest.skip(f"{name} is not installed")


def disassemble(cubin):
    return machine_code.read_sass(machine_code.disassemble(toolkit(), cubin) or
                                  pytest.skip("nvdisasm is not installed"))


def output(*command, cwd=None):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.lru_cache(maxsize=None)
def instructions_of(program):
    """Those of all kernels in a program that was built, by symbol. (Its cubins, of which tile
    kernels have their own, share a name, so that they cannot be extracted.)"""
    if not (ROOT / program).exists():
        pytest.skip(f"{program} is not built")
    tool("nvdisasm")  # which cuobjdump calls
    text = output(tool("cuobjdump"), "--dump-sass", "--gpu-architecture", f"sm_{ARCH}",
                  ROOT / program)
    functions = re.findall(r"^\s+Function : (\S+)\n(.*?)(?=^\s+Function : |\Z)", text, re.M | re.S)
    if not functions:
        pytest.skip(f"{program} is not built for {ARCH}")
    instruction = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@\S+\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
    return {name: [instructions.Instruction("", (guard or "").strip(), opcode, operands, (), ())
                   for guard, opcode, operands in instruction.findall(code)]
            for name, code in functions}


@functools.lru_cache(maxsize=None)
def resources_of(program):
    """(symbol, Resources) of all kernels, for each architecture that was compiled for."""
    files = [ROOT / program, *sorted((ROOT / "build/architectures").glob(f"{program}.*.cubin"))]
    found = []
    for file in filter(Path.exists, files):
        text = output(tool("cuobjdump"), "--dump-resource-usage", file)
        found += re.findall(r"Function (\S+?):\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)",
                            text)
    return [(name, Resources(int(registers), int(stack), int(local), int(shared)))
            for name, registers, stack, shared, local in found]


# --- The tests ---


@each_kernel
def test_no_register_is_spilled_on_any_architecture_built(kernel):
    skip_what_was_left_out(kernel)
    own = [(name, taken) for name, taken in resources_of(kernel.program) if names(kernel, name)]
    if not resources_of(kernel.program):
        pytest.skip(f"{kernel.program} is not built")
    assert own, f"no kernel {kernel.name}"
    for name, taken in own:
        assert_nothing_spilled(kernel, {name: taken})


@each_kernel
def test_the_instructions_are_those_meant(kernel):
    skip_what_was_left_out(kernel)
    assert_instructions(kernel, instructions_of(kernel.program))


def overtaking(code):
    """The copies to shared memory that may overtake loads from there, which can still wait in a
    queue: those before which a load comes later than a fence. Results show that in one row of
    hundreds, or not at all."""
    found, after_load = [], False
    for one in code:
        if re.match("LDS|FENCE.VIEW.ASYNC", one.opcode):
            after_load = one.opcode.startswith("LDS")
        elif one.opcode.startswith("UBLKCP.S") and after_load:
            found.append(one.text)
    return found


def test_copies_of_the_next_row_do_not_overtake_loads():
    kernel = Kernel("bonus_norm", "by_cluster")
    own = [code for name, code in instructions_of(kernel.program).items() if names(kernel, name)]
    assert own and not [copy for code in own for copy in overtaking(code)]
    unfenced = [[one for one in code if "FENCE" not in one.opcode] for code in own]
    assert all(overtaking(code) for code in unfenced)  # so it is the fence


# 64 sums in 32 registers: the checks must see what that costs.
SPILLING = """
__global__ void __launch_bounds__(1024, 2) spilling(const float* in, float* out) {
    float sums[64] = {};
    for (int t = 0; t < 100; ++t) {
        float row[8];
        for (int i = 0; i < 8; ++i) row[i] = in[1024 * (8 * t + i) + threadIdx.x];
        for (int i = 0; i < 64; ++i) sums[i] += row[i / 8] * row[i % 8];
    }
    for (int i = 0; i < 64; ++i) out[1024 * i + threadIdx.x] = sums[i];
}
"""


def test_the_checks_can_fail(tmp_path):
    source = tmp_path / "spilling.cu"
    source.write_text(SPILLING)
    spilling = machine_code.compile_source(toolkit(), source, str(toolkit().architectures()[-1]),
                                           tmp_path)
    functions = machine_code.read_resources(spilling.notes)
    kernel = Kernel("", "spilling", (SHARED_16,))
    with pytest.raises(AssertionError, match="spilled=[1-9]"):
        assert_nothing_spilled(kernel, functions)
    with pytest.raises(AssertionError, match="no kernel"):
        assert_nothing_spilled(Kernel("", "pilling"), functions)
    code = disassemble(spilling.cubin)
    with pytest.raises(AssertionError, match="LDS"):
        assert_instructions(kernel, code)
    with pytest.raises(AssertionError, match="STL|LDL"):
        assert_instructions(kernel._replace(instructions=()), code)
