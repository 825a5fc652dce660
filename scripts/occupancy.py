#!/usr/bin/env python3
"""What an SM holds, and how many blocks run at once. Neither a GPU nor nvcc is needed.

    occupancy.py                              limits of the GPU at hand, and of all others
    occupancy.py --gpu "RTX 4090" --gpu T4    limits of these, of src/demo/data_sheets.inc
    occupancy.py --block 1024 --grid 16384    how many such blocks fit an SM by each limit, how many
                                              run at once, and how many times that the grid is
"""

import argparse

from shared import command_line, data_sheets, device_facts, table
from shared.command_line import SKIPPED, USAGE, Stop
from shared.sm_limits import LIMITS, MOST_REGISTERS, room


def parse_arguments(arguments):
    parser = command_line.Parser(prog="occupancy.py", description=__doc__, allow_abbrev=False,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    add, number = parser.add_argument, command_line.number
    add("--gpu", metavar="NAME", action="append", default=[], help="the end of its name, or a part")
    add("--block", metavar="THREADS", type=number(1, 1024), help="threads of a block")
    add("--registers", metavar="R", type=number(1, 9999), help="of a thread; inspect.sh tells them")
    add("--shared", metavar="BYTES", type=number(0, 999999), help="shared memory of a block")
    add("--grid", metavar="BLOCKS", type=number(1, 999999999), help="blocks of a launch")
    options = parser.parse_args(arguments)
    if not options.block and (options.registers or options.shared is not None or options.grid):
        parser.error("--registers, --shared and --grid need --block THREADS")
    return options


def find(word):
    """[(name, compute capability, SMs)] of the listed GPUs."""
    sheets, part = data_sheets.sheets(), word.lower()
    names = ([name for name in sheets if name.lower().endswith(part)]
             or [name for name in sheets if part in name.lower()])
    if not names:
        raise Stop(f"no GPU '{word}' in src/demo/data_sheets.inc", USAGE)
    return [(name, int(sheets[name]["capability"]), int(sheets[name]["SMs"])) for name in names]


def row(options, name, capability, sms):
    """{column: what it says of a GPU}"""
    if capability not in LIMITS:
        raise Stop(f"{name}: compute capability {capability / 10} is not known here", SKIPPED)
    at, name = LIMITS[capability], table.short(name).replace("Laptop GPU", "Laptop")
    if not options.block:
        return {"": name, "capability": capability / 10, "SMs": sms or "-",
                "threads": 32 * at.warps, "blocks": at.blocks, "shared, KiB": at.shared,
                "a block's": at.block}
    by = room(at, options.block, min(options.registers or 1, MOST_REGISTERS), options.shared or 0)
    blocks, warps = min(by.values()), -(-options.block // 32)
    cells = {"": name, "warps": by["warps"], "blocks": by["blocks"], "regs": by["registers"],
             "shared": by["shared memory"], "occupancy": f"{100 * blocks * warps // at.warps}%",
             "at once": f"{blocks} x {sms or 'SMs'}" + f" = {blocks * sms:,}" * bool(sms),
             "times": f"{(options.grid or 0) / (blocks * sms):,.1f}" if blocks * sms else "-"}
    given = {"regs": options.registers, "shared": options.shared is not None, "times": options.grid}
    return {column: cell for column, cell in cells.items() if given.get(column, True)}


@command_line.reporting("occupancy.py")
def main(arguments):
    options = parse_arguments(arguments)
    gpus = [gpu for word in options.gpu for gpu in find(word)]
    try:
        gpus = gpus or [device_facts.first_gpu()[:3]]
    except OSError:
        print('no GPU here: --gpu "RTX 4090" asks for one, its number of SMs included\n')
    if not gpus or not options.gpu and not options.block:
        gpus += [(at.gpus, capability, 0) for capability, at in LIMITS.items()]
    rows = [row(options, *gpu) for gpu in gpus]
    if options.block:
        print(f"{options.grid:,} blocks, {options.grid * options.block:,} threads. " if options.grid
              else "", f"So many blocks of {options.block} threads fit an SM, by", sep="")
    print(table.layout(list(rows[0]), [list(map(str, cells.values())) for cells in rows]))
    if not options.block:
        print("an SM has 65,536 registers; a block up to 1024 threads, a thread 255 registers")
    elif (options.registers or 0) > MOST_REGISTERS:
        print(f"regs: the compiler stops at {MOST_REGISTERS} a thread, and spills the rest")
    elif not options.registers or options.shared is None:
        print("--registers and --shared, which inspect.sh tells, may allow fewer")


if __name__ == "__main__":
    command_line.run(main)
