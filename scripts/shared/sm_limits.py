"""What a multiprocessor (SM) holds at once, and so how many blocks of a kernel."""

from typing import NamedTuple


class Limits(NamedTuple):
    warps: int
    blocks: int
    shared: int  # KiB of shared memory
    block: int  # KiB of that for one block; the driver takes the difference of each block
    gpus: str  # some of these GPUs


# By compute capability, times ten. Source: CUDA C++ Programming Guide, "Technical Specifications
# per Compute Capability"; how they apply: cuda_occupancy.h of the toolkit. All have 64 Ki registers
# in four parts, of which a warp gets a multiple of 256; a block gets shared memory by 128 bytes
# (7.5: 256).
LIMITS = {75: Limits(32, 16, 64, 64, "T4, RTX 20"), 80: Limits(64, 32, 164, 163, "A100, A30"),
          86: Limits(48, 16, 100, 99, "A10, A40, RTX 30"),
          87: Limits(48, 16, 164, 163, "Jetson Orin"),
          89: Limits(48, 24, 100, 99, "L4, L40S, RTX 40"),
          90: Limits(64, 32, 228, 227, "H100, H200"), 100: Limits(64, 32, 228, 227, "B200, GB200"),
          103: Limits(64, 32, 228, 227, "B300"), 110: Limits(48, 24, 228, 227, "Jetson Thor"),
          120: Limits(48, 24, 100, 99, "RTX 50"), 121: Limits(48, 24, 100, 99, "DGX Spark")}
MOST_REGISTERS = 255  # of a thread


def room(limits, threads, registers, shared):
    """{what limits it: how many blocks it lets an SM hold}. `shared`: bytes a block."""
    warps = -(-threads // 32)
    of_a_warp = -(-registers * 32 // 256) * 256
    reserved = (limits.shared - limits.block) * 1024
    granularity = 128 if reserved else 256
    of_a_block = -(-(shared + reserved) // granularity) * granularity
    by = {"warps": limits.warps // warps, "blocks": limits.blocks,
          "registers": 16384 // of_a_warp * 4 // warps,
          "shared memory": limits.shared * 1024 // max(of_a_block, 1)}
    if of_a_warp * -(-warps // 4) * 4 > 65536:  # launches are refused then
        by["registers"] = 0
    return by


def occupancy(limits, threads, registers, shared):
    """How many blocks an SM holds at once, and by what that is limited."""
    by = room(limits, threads, registers, shared)
    limit = min(by, key=by.get)
    return by[limit], limit
