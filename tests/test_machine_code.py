"""What the compiler made of the fast kernels: no register spilled, and the instructions meant.

A spill is an array or a sum that did not fit the registers and went to memory: right, and slow. So
is a load of 4 bytes where 16 were meant. Neither shows in a result.
"""

import functools
import re
import subprocess
import sys
from typing import NamedTuple, Tuple

import pytest

from suite import ROOT, toolkit

sys.path.insert(0, str(ROOT / "scripts"))
import machine_code  # noqa: E402
from machine_code import Resources  # noqa: E402


class Kernel(NamedTuple):
    """A kernel that must be fast, and what its machine code must hold."""

    program: str
    name: str  # how its name begins, without namespace and arguments
    instructions: Tuple[str, ...] = ()  # patterns, each of which some instruction must match
    arch: str = "90a"  # that these are checked for; the newest known where nvcc lacks it


LOAD_16, STORE_16 = r"LDG\.E\S*\.128", r"STG\.E\S*\.128"
COPY_16 = r"LDGSTS\S*\.128"  # asynchronous, from global memory to shared memory
SHARED_16 = r"LDS\S*\.128"  # a load from shared memory

# To watch another kernel, add a row: tensor cores show as HMMA, Hopper's as HGMMA, ldmatrix as
# LDSM.
KERNELS = [
    Kernel("bonus_matmul_mma", "mma_swizzled", ("HMMA", "LDSM", COPY_16, STORE_16)),
    Kernel("bonus_matmul_mma", "mma_pipelined", ("HMMA", "LDSM", COPY_16, STORE_16)),
    Kernel("bonus_matmul_mma", "mma_grouped", ("HMMA", "LDSM", COPY_16, STORE_16)),
    Kernel("bonus_matmul_mma", "mma_ptx", ("HMMA", "LDSM", COPY_16, STORE_16)),
    Kernel("3_matmul_tensorcore", "wmma_tiled", ("HMMA", COPY_16, STORE_16)),
    Kernel("5_gating_unfused", "add_bias", (LOAD_16, STORE_16)),
    Kernel("5_gating_unfused", "sigmoid", (LOAD_16, STORE_16)),
    Kernel("5_gating_unfused", "multiply", (LOAD_16, STORE_16)),
    Kernel("5_gating_unfused", "sigmoid_multiply", (LOAD_16, STORE_16)),
    Kernel("6_gating_fused", "fused_wmma", ("HMMA", COPY_16, STORE_16)),
    Kernel("6_gating_fused", "fused_streamed", ("HMMA", COPY_16, STORE_16)),
    Kernel("bonus_gating_mma", "fused_mma", ("HMMA", "LDSM", COPY_16, STORE_16)),
    Kernel("bonus_gating_talk", "fused_talk_mma", ("HMMA", "LDSM", COPY_16)),
    Kernel("7_gelu", "fused_vectorized", (LOAD_16, STORE_16)),
    Kernel("8_softmax", "online"),
    Kernel("9_bias_relu", "fused_vectorized", (LOAD_16, STORE_16)),
    Kernel("10_add_mul_activation", "fused_vectorized", (LOAD_16, STORE_16)),
    Kernel("bonus_matmul_hopper", "wgmma", ("HGMMA",)),
    Kernel("bonus_matmul_hopper", "tma", ("HGMMA", r"UTMALDG\S*")),
    Kernel("bonus_matmul_hopper", "warp_specialized", ("HGMMA", r"UTMALDG\S*", "USETMAXREG")),
    Kernel("bonus_matmul_hopper", "persistent", ("HGMMA", r"UTMALDG\S*")),
    Kernel("bonus_matmul_hopper", "overlapped", ("HGMMA", r"UTMALDG\S*", r"UTMASTG\S*", "STSM")),
    Kernel("bonus_matmul_hopper", "multicast", ("HGMMA", r"UTMALDG\S*MULTICAST", r"UTMASTG\S*")),
    Kernel("bonus_matmul_hopper", "backward", ("HGMMA", r"UTMALDG\S*MULTICAST", r"UTMASTG\S*")),
    Kernel("bonus_matmul_hopper", "stream_k", ("HGMMA", r"UTMALDG\S*MULTICAST", r"UTMASTG\S*")),
    Kernel("bonus_matmul_hopper", "matmul_hopper", ("HGMMA", r"UTMALDG\S*", r"UTMASTG\S*")),
    Kernel("bonus_matmul_register_tiled", "vectorized", (COPY_16, SHARED_16, STORE_16, "FFMA")),
    Kernel("bonus_matmul_register_tiled", "warp_tiled", (COPY_16, SHARED_16, STORE_16, "FFMA")),
    Kernel("bonus_softmax_rows", "by_warp", (LOAD_16, STORE_16)),
    Kernel("bonus_softmax_rows", "by_block", (LOAD_16, STORE_16, r"UBLKPF\S*")),
    Kernel("bonus_softmax_rows", "by_cluster_twice", (LOAD_16, STORE_16)),
    Kernel("bonus_softmax_rows", "by_cluster", (r"UBLKCP\S*", SHARED_16, STORE_16)),
    Kernel("bonus_gating_talk", "fused_talk_tma", (r"HGMMA\S*", r"UTMALDG\S*", r"UTMASTG\S*")),
    Kernel("bonus_gating_talk", "fused_talk_hopper", (r"HGMMA\S*", r"UTMALDG\S*", r"UTMASTG\S*")),
    Kernel("bonus_gating_hopper", "fused_panels", (r"HGMMA\S*", r"UTMALDG\S*", r"UTMASTG\S*")),
    Kernel("bonus_gating_hopper", "fused_hopper", (r"HGMMA\S*", r"UTMALDG\S*", r"UTMASTG\S*")),
]
IDS = [f"{kernel.program}-{kernel.name}" for kernel in KERNELS]


def names(kernel, function):
    """Whether `function`, as the compiler mangled it, is the kernel or an instance of it, and not
    another in a namespace of that name."""
    name = f"{len(kernel.name)}{kernel.name}"
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


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A function of a kernel: its program, compiled. Each program is compiled once."""

    @functools.lru_cache(maxsize=None)
    def compile_program(program, arch):
        arch = arch if toolkit().builds_for(arch) else str(toolkit().architectures()[-1])
        return machine_code.compile_source(toolkit(), ROOT / f"src/{program}.cu", arch,
                                           tmp_path_factory.mktemp(program))

    return lambda kernel: compile_program(kernel.program, kernel.arch)


# --- The tests ---


@pytest.mark.parametrize("kernel", KERNELS, ids=IDS)
def test_no_register_is_spilled(compiled, kernel):
    assert_nothing_spilled(kernel, machine_code.read_resources(compiled(kernel).notes))


@pytest.mark.parametrize("kernel", KERNELS, ids=IDS)
def test_the_instructions_are_those_meant(compiled, kernel):
    assert_instructions(kernel, disassemble(compiled(kernel).cubin))


@pytest.mark.parametrize("kernel", KERNELS, ids=IDS)
def test_no_register_is_spilled_on_any_architecture_built(kernel):
    if not (ROOT / kernel.program).exists():
        pytest.skip(f"{kernel.program} is not built")
    done = subprocess.run([tool("cuobjdump"), "--dump-resource-usage", ROOT / kernel.program],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"Function (\S+?):\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)",
                       done.stdout)
    # A name occurs once for each architecture.
    for name, registers, stack, shared, local in found:
        if names(kernel, name):
            taken = Resources(int(registers), int(stack), int(local), int(shared))
            assert_nothing_spilled(kernel, {name: taken})
    assert any(names(kernel, name) for name, *_ in found)


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
