"""Before the hall: whether this machine, as it stands, will carry a run sheet. Each command runs
once, without a network being needed; what is not as it should be is said with what to do."""

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import recording
import sheet
from shared import clocks, command_line
from shared.command_line import FAILED, OK, PROJECT, SKIPPED

BUSY_PCT = 10  # of a GPU, before anything of ours runs
SLOW = 0.75  # of its highest clock, while the sheet runs


def of_gpu(query):
    """The first GPU's answers: as many as were asked for, "unknown" where it gives none."""
    line = command_line.first_line("nvidia-smi", "-i", "0", f"--query-{query}",
                                   "--format=csv,noheader,nounits")
    return (line.split(", ") + ["unknown"] * query.count(","))[:query.count(",") + 1]


def about_terminal():
    size = shutil.get_terminal_size()
    if sys.stdout.isatty() and (size.columns < sheet.WIDTH or size.lines < 24):
        yield (f"the terminal has {size.columns} columns and {size.lines} rows: make its letters "
               "smaller, until there are 80 and 24")


def about_builds(steps, on_cpu):
    built, debug = sheet.targets(steps, on_cpu, True)
    built += [f"{'' if target.startswith('cpu/') else 'build/'}{target}".replace("/", "/debug/", 1)
              for target in debug]
    missing = [target for target in built if not (PROJECT / target).exists()]
    if missing:
        yield f"not built: {', '.join(missing)}: scripts/talk.sh --prepare, with your --sheet"


def about_gpu(steps):
    """Before anything runs on it."""
    busy = of_gpu("gpu=utilization.gpu")[0]
    if busy.isdecimal() and int(busy) > BUSY_PCT:
        who = ", ".join(of_gpu("compute-apps=pid,name"))
        yield f"something else keeps the GPU {busy}% busy ({who}): end it"
    parameters = Path("/proc/driver/nvidia/params")
    counts = any("scripts/count.sh" in command for step in steps for command in step.commands)
    if counts and os.geteuid() and parameters.exists() and (
            "RmProfilingAdminOnly: 1" in parameters.read_text()):
        yield ("only root may read the GPU's counters: count.sh will use the simulator, or see "
               "docs/tools.md#count")


def about_clocks(samples, highest):
    mhz, temperature, _, held = clocks.medians(clocks.read(samples))
    if mhz and highest.isdecimal() and int(mhz) < SLOW * int(highest):
        yield (f"the clock was {mhz} of {highest} MHz, at {temperature} C{held and f' ({held})'}: "
               "plug the machine in, close what runs, let it cool")


def check(steps, on_cpu, fine):
    """The exit status. `fine` says whether a command's status is as it should be."""
    found, seconds, rows = [*about_terminal(), *about_builds(steps, on_cpu)], 0, 0
    uuid, highest = ["", ""] if on_cpu else of_gpu("gpu=uuid,clocks.max.sm")
    found += [] if on_cpu else about_gpu(steps)
    with tempfile.TemporaryDirectory() as folder:
        samples = Path(folder) / "samples"
        with contextlib.nullcontext() if on_cpu else clocks.sampling(uuid, samples):
            for step, command in ((step, command) for step in steps for command in step.commands):
                ran = recording.capture(command)
                lines = ran.output.splitlines() or [""]
                seconds, rows = seconds + ran.seconds, max(rows, len(lines))
                print(f"{step.number:3} {ran.seconds:6.1f} s {len(lines):4} rows  {command[:54]}",
                      flush=True)
                if not fine(command, ran.status):
                    there = "; --replay shows a recording" * (ran.status == SKIPPED)
                    found.append(f"step {step.number} ended with {ran.status}: {lines[-1]}{there}")
        found += [] if on_cpu else about_clocks(samples, highest)
    print(f"\nThe sheet ran in {seconds:.0f} s. Its longest output has {rows} rows; this screen "
          f"keeps the last {shutil.get_terminal_size().lines - 2}.")
    for text in found:
        command_line.say("talk.sh", text)
    print("Mend what is said here." if found else "This machine will carry it, offline too.")
    return FAILED if found else OK
