"""What the commands of a run sheet printed on some machine: docs/recordings/SHEET-MACHINE.txt,
which talk.sh --record writes and --replay shows."""

import contextlib
import os
import re
import subprocess
import textwrap
import time
from typing import NamedTuple

from shared import command_line
from shared.command_line import PROJECT, SKIPPED, USAGE, Stop, first_line

FOLDER = PROJECT / "docs/recordings"
SIMULATOR = "simulator"
COMMAND = re.compile(r"^\$ (.*)\n# (\d+\.\d+) s, status (-?\d+)\n((?:    .*\n|\n)*)", re.MULTILINE)


class Recorded(NamedTuple):
    seconds: float
    status: int
    output: str
    source: str = ""  # "NVIDIA H200, 2026-07-01"


def capture(command):
    """Runs a command: its lines in the order of a terminal, and without colors."""
    begin = time.monotonic()
    done = subprocess.run(["stdbuf", "-oL", "bash", "-o", "pipefail", "-c", command], cwd=PROJECT,
                          text=True, errors="replace", stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "NO_COLOR": "1", "COLUMNS": "80"})
    return Recorded(time.monotonic() - begin, done.returncode,
                    re.sub(r"\x1b\[[\d;?]*[A-Za-z]|\r", "", done.stdout).rstrip("\n"))


def write(name, on_cpu, steps, ran):
    """The path of the sheet's recording on this machine; `ran` has the commands."""
    machine, software = SIMULATOR, first_line("g++", "--version")
    if not on_cpu:
        machine = first_line("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
        toolkit = first_line("cat", "build/toolkit.txt")
        software = f"driver {command_line.driver_version()}, CUDA {toolkit}"
    lines = [f"{'the ' * on_cpu}{machine}, {time.strftime('%F')}: by scripts/talk.sh --record",
             f"{software}, suite {command_line.suite_version()}"]
    for step in steps:
        lines += ["", f"{step.number}: {step.title}"]
        for command in step.commands:
            lines += [f"$ {command}", "# {:.1f} s, status {}".format(*ran[command]),
                      textwrap.indent(ran[command].output, "    ")]
    path = FOLDER / f"{name}-{command_line.file_stem(machine)}.txt"
    FOLDER.mkdir(parents=True, exist_ok=True)
    command_line.write_text(path, "\n".join(line.rstrip() for line in lines) + "\n")
    return path


def read(path):
    """{command: Recorded} of a file."""
    text = command_line.read_text(path)
    head = re.match(r"(.*, \d{4}-\d\d-\d\d): ", text)
    found = {command: Recorded(float(seconds), int(status), re.sub(
        "^    ", "", output.rstrip("\n"), flags=re.MULTILINE), head and head[1])
             for command, seconds, status, output in COMMAND.findall(text)}
    if not head or not found:
        raise Stop(f"{path}: not written by scripts/talk.sh --record", USAGE)
    return found


def files(name, on_cpu):
    """The recordings of a sheet: those of GPUs first, the newest first."""
    found = sorted((path.stem.endswith(SIMULATOR), -path.stat().st_mtime, path)
                   for path in FOLDER.glob(f"{name}-*.txt"))
    return [path for simulated, _, path in found if simulated or not on_cpu]


def known(name):
    """{command: Recorded} of a sheet's recordings, but for what could not run there."""
    found = {}
    for path in reversed(files(name, on_cpu=False)):
        with contextlib.suppress(Stop):  # --replay says what is wrong with a file
            found.update({command: each for command, each in read(path).items()
                          if each.status != SKIPPED})
    return found
