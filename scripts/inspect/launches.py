"""How many threads a block of each kernel has: what the simulator launches, since that runs the
program's own launches. They may depend on the size, so it runs two."""

import json
import os
import re
import subprocess
import sys

import programs
from command_line import PROJECT

SIZES = [["64"], ["128"]]
SHAPES = [["--rows", "2", "--cols", "256"], ["--rows", "2", "--cols", "8192"]]
TITLE = re.compile(r"^(.+): \([\dx ]+\) blocks of \(([\dx ]+)\) threads, one launch$", re.MULTILINE)
BUILD = """
set -euo pipefail
source scripts/setup.sh
! is_built "$@" || exit 0
ensure_compiler
ensure_scons
say "building ${1}, whose launches say how many threads a block has"
build "$@" >&2
"""


def blocks(program):
    """{kernel: threads of a block, the same at two sizes, else 0}; {} where it cannot run."""
    paths = [PROJECT / "cpu" / program, PROJECT / "cpu/count" / program]
    names = [str(path.relative_to(PROJECT)) for path in paths]
    if subprocess.run(["bash", "-c", BUILD, "inspect.sh", *names], cwd=PROJECT,
                      stdin=subprocess.DEVNULL).returncode:
        print("inspect.sh: how many threads a block has is not known, then", file=sys.stderr)
        return {}
    kept = PROJECT / f"build/inspect/{program}.launches"
    built = [os.stat(path).st_mtime_ns for path in paths]
    if kept.is_file():
        known = json.loads(kept.read_text())
        if known["built"] == built:
            return known["blocks"]
    found = launched(paths[0])
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"built": built, "blocks": found}))
    return found


def launched(path):
    about = programs.describe(path)
    found = {}
    for arguments in SHAPES if about["shapes"] else SIZES:
        done = subprocess.run([str(path), *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                              universal_newlines=True, env={**os.environ, "DEMO_COUNT": "1"})
        for name, block in TITLE.findall(done.stdout):
            threads = 1
            for extent in block.split(" x "):
                threads *= int(extent)
            found.setdefault(name.replace(" ", ""), set()).add(threads)
    return {name: max(sizes) if len(sizes) == 1 else 0 for name, sizes in found.items()}


def of(name, known):
    """The threads of a kernel's block; 0 where nobody knows. An instance of a template that was not
    launched has those of the others, where these agree."""
    name = name.replace(" ", "")
    if name in known:
        return known[name]
    plain = name.split("<")[0]
    sizes = {threads for other, threads in known.items() if other.split("<")[0] == plain}
    return max(sizes) if len(sizes) == 1 else 0
