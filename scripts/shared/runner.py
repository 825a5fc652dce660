"""Runs programs one after the other, as run.sh and compare_gpus.sh do, and prints a line for each
run, which says what came of it."""

import os
import subprocess
from typing import NamedTuple

from shared import command_line, measurements, one_run
from shared.command_line import FAILED, OK, SKIPPED, USAGE, WRONG

NOT_BUILT = 127  # as a shell calls it
# In the words of a program that finds no GPU: see src/demo/device.cu.
NO_GPU_WORDS = ("no NVIDIA driver", "cudaErrorNoDevice", "cudaErrorInsufficientDriver")


class Outcome(NamedTuple):
    """What came of a run: the program's exit status, and what it said where that is not 0."""

    status: int
    reason: str

    @property
    def no_gpu(self):
        """Whether the program was skipped because CUDA finds no GPU, or no driver for it."""
        return self.status == SKIPPED and any(words in self.reason for words in NO_GPU_WORDS)


class Runner:
    """Runs programs and keeps count of what came of them. `who` says what is wrong."""

    def __init__(self, who):
        self.who = who
        self.count = 0
        self.verified = 0
        self.without_gpu = 0
        self.worst = OK

    @property
    def status(self):
        """The exit status of all runs: 1 once a result was wrong, else 3 once a program failed
        otherwise, 77 where nothing could run (to skip some is no failure)."""
        return self.worst or (OK if self.verified else SKIPPED)

    @property
    def no_gpu(self):
        """Whether every run was skipped because CUDA finds no GPU."""
        return 0 < self.count == self.without_gpu

    def failed(self, status=FAILED):
        if self.worst != WRONG:
            self.worst = WRONG if status == WRONG else FAILED

    def run(self, label, rows, program, arguments, environment=None):
        """Runs a program with --csv into the file `rows`, and prints one line: the label, and what
        came of it. The file is left where it can be read, also after a failure: a program may fail
        at its last kernel."""
        self.count += 1
        print(f"{label} ... ", end="", flush=True)
        outcome = run_program(program, arguments, rows, environment)
        self.without_gpu += outcome.no_gpu
        result = ""
        try:
            result = one_run.summary(rows)
        except measurements.TableError as error:
            if outcome.status == OK:
                outcome = Outcome(FAILED, str(error))
            if rows.exists():
                rows.unlink()

        status, reason = outcome
        if status == OK:
            self.verified += 1
        elif status == SKIPPED:
            result = f"skipped: {reason}"
        else:
            self.failed(status)
            result = f"FAILED, exit status {status}: {reason}"
            if status == WRONG:
                result = f"FAILED, a wrong result: {reason}"
            elif status == USAGE:
                result = "refused"
        print(result, flush=True)
        if status == USAGE:  # as always on stderr
            command_line.say(self.who, f"{program.name}: {reason}")
        return outcome


def run_program(program, arguments, rows, environment=None):
    """The outcome of a program, whose rows go to one file and what it says beside that."""
    if not os.access(program, os.X_OK):
        return Outcome(NOT_BUILT, "not built")
    said = rows.with_name(rows.name + ".err")
    try:
        with rows.open("w") as out, said.open("w") as err:
            status = subprocess.run(
                [str(program.absolute()), *arguments, "--csv"], stdout=out, stderr=err,
                env={**os.environ, **(environment or {})}).returncode
    except OSError as error:
        return Outcome(FAILED, error.strerror)
    if status == OK:
        return Outcome(OK, "")
    lines = [line for line in said.read_text(errors="replace").splitlines() if line.strip()]
    reason = command_line.printable(lines[-1]) if lines else "it gave no reason"
    name = f"{program.name}: "  # the label says it already
    # As a shell: a program that signal 9 ends has status 137.
    return Outcome(status if status > 0 else 128 - status,
                   reason[len(name):] if reason.startswith(name) else reason)
