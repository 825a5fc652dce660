"""How many threads a block of each kernel has: what the simulator launches, since that runs the
program's own launches. They may depend on the size, so it runs two."""

import json
import math
import os
import subprocess

from shared import command_line, kernel_names, programs
from shared.command_line import PROJECT, Stop

SIZES = [["64"], ["128"]]
SHAPES = [["--rows", "2", "--cols", "256"], ["--rows", "2", "--cols", "8192"]]
LIMIT_S = 60  # of a run
BUILD = """
set -euo pipefail
source scripts/setup.sh
ensure_counting_compiler
ensure_scons
build "$@" >&2
"""


def blocks(program):
    """{kernel: threads of a block, the same at two sizes, else 0}; {} where it cannot run."""
    paths = [PROJECT / "cpu" / program, PROJECT / "cpu/count" / program]
    names = [str(path.relative_to(PROJECT)) for path in paths]
    if subprocess.run(["bash", "-c", BUILD, "inspect.sh", *names], cwd=PROJECT,
                      stdin=subprocess.DEVNULL).returncode:
        return unknown()
    kept = PROJECT / f"build/inspect/{program}.launches"
    built = [os.stat(path).st_mtime_ns for path in paths]
    if kept.is_file():
        known = json.loads(kept.read_text())
        if known["built"] == built:
            return known["blocks"]
    try:
        found = launched(paths[0])
    except Stop as stop:
        command_line.say("inspect.sh", stop)
        return unknown()
    kept.parent.mkdir(parents=True, exist_ok=True)
    command_line.write_text(kept, json.dumps({"built": built, "blocks": found}))
    return found


def unknown():
    command_line.say("inspect.sh", "how many threads a block has is not known, then")
    return {}


def launched(path):
    """{kernel: threads of a block}, from runs at both sizes. Raises Stop where one fails."""
    runs = [launched_at(path, size)
            for size in (SHAPES if programs.describe(path)["shapes"] else SIZES)]
    names = set().union(*runs)

    def agreed(some):
        """The size that all launches of these kernels have, if each run has one."""
        sizes = {threads for run in runs for name in some for threads in run.get(name, ())}
        everywhere = all(not run.keys().isdisjoint(some) for run in runs)
        return max(sizes) if everywhere and len(sizes) == 1 else 0

    # Of a template each size of the problem may have an instance of its own.
    return {name: agreed([name]) or agreed([each for each in names if plain(each) == plain(name)])
            for name in names}


def launched_at(path, size):
    """{kernel: {threads of a block, ...}} of one run."""
    try:
        done = subprocess.run([str(path), *size], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=LIMIT_S, env={**os.environ, "DEMO_COUNT": "1"})
    except subprocess.TimeoutExpired:
        raise Stop(f"{path.name} {' '.join(size)} took more than {LIMIT_S} s on the simulator")
    if done.returncode:
        raise Stop(f"{path.name} {' '.join(size)} ended with {done.returncode} on the simulator")
    found = {}
    for title in kernel_names.LAUNCH.finditer(done.stdout):
        threads = math.prod(map(int, title["block"].split(" x ")))
        found.setdefault(title["name"].replace(" ", ""), set()).add(threads)
    return found


def plain(name):
    return name.split("<")[0]


def of(name, known):
    """The threads of a kernel's block; 0 where nobody knows. An instance of a template that was not
    launched has those of the others, where these agree."""
    name = name.replace(" ", "")
    if name in known:
        return known[name]
    sizes = {threads for other, threads in known.items() if plain(other) == plain(name)}
    return max(sizes) if len(sizes) == 1 else 0
