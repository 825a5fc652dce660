"""Runs the commands of a soak, and says what came of them."""

import contextlib
import csv
import os
import signal
import subprocess
import threading
from typing import NamedTuple

from command_line import FAILED, OK, PROJECT, SKIPPED, WRONG

TOO_SLOW = 124  # exit status, as timeout(1) has it
PLACE = ("kernel", "dtype", "shape", "n")    # columns that say which result it is


# --- Processes ------------------------------------------------------------------------------------


class Stopped(Exception):
    """No command is started any more."""


class Processes:
    """Runs commands, several at a time, and ends them all when that is asked for."""

    def __init__(self):
        self.lock = threading.Lock()
        self.running = set()
        self.stopped = False

    def output(self, command, limit):
        """(exit status, stdout, stderr) of a command, which gets `limit` seconds. Raises Stopped.
        """
        with self.lock:
            if self.stopped:
                raise Stopped
            try:
                process = subprocess.Popen(
                    command.words, env={**os.environ, **command.environment}, cwd=str(PROJECT),
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    universal_newlines=True, errors="replace", start_new_session=True)
            except OSError as error:
                return FAILED, "", error.strerror
            self.running.add(process)
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            end(process)
            process.communicate()
            return TOO_SLOW, "", f"too slow: more than {limit} s"
        finally:
            with self.lock:
                self.running.remove(process)
        if self.stopped:
            raise Stopped
        # As a shell: a program that signal 9 ends has status 137.
        status = process.returncode if process.returncode >= 0 else 128 - process.returncode
        return status, out, err

    def stop(self):
        with self.lock:
            self.stopped = True
            for process in self.running:
                end(process)


def end(process):
    """Ends a process and those that it has started, such as a tool the program."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


# --- What came of them ----------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What came of a run."""

    code: int  # exit status
    error: str = ""  # what is wrong
    alike: int = 0  # launches that gave the same bits as the same launch before


def first_line(text):
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def fault(status, out, err):
    """(exit status, what is wrong with a program's run), the latter empty where nothing is."""
    if status == SKIPPED:
        return status, ""
    if status != OK:
        return status, first_line(err) or "it gave no reason"
    if err:
        return FAILED, first_line(err) or "blank lines on stderr"
    return status, "" if out else "it printed nothing"


def findings(status, out, err):
    """The same of a run under compute-sanitizer: its own lines begin with =========."""
    lines = [line.strip("= ") for line in out.splitlines() if line.startswith("=========")]
    summaries = [line for line in lines if "SUMMARY: " in line]
    found = [line for line in lines if line not in summaries and line != "COMPUTE-SANITIZER"]
    clean = len(summaries) == 1 and "SUMMARY: 0 " in summaries[0]
    if status == SKIPPED or clean and status == OK:
        return fault(status, out, err)
    return status or FAILED, (found + summaries + [first_line(err) or "it printed nothing"])[0]


def rows_of(out):
    """The rows that a program printed; none without --csv."""
    return list(csv.DictReader(out.splitlines())) if out.startswith("program,") else []


def difference(rows, others, kernels):
    """How the results of two runs differ, of some kernels; empty where they do not."""
    if [[row[name] for name in PLACE] for row in rows] != [
            [row[name] for name in PLACE] for row in others]:
        return "other rows"
    for row, other in zip(rows, others):
        one, two = row["output_hash"], other["output_hash"]
        if row["kernel"] in kernels and one != two:
            return f"{row['kernel']}: output_hash is {one}, then {two}"
    return ""


def perform(processes, run, limit):
    """The Outcome of all commands of a run. Raises Stopped."""
    results = []
    for command in run.commands:
        status, out, err = processes.output(command, limit)
        status, wrong = (findings if run.by_tool else fault)(status, out, err)
        if wrong or status == SKIPPED:
            return Outcome(status, wrong)
        results.append(rows_of(out))
        if any(row["verified"] != "yes" for row in results[-1]):
            return Outcome(FAILED, "exit status 0, and a row that is not verified")
        different = difference(results[0], results[-1], run.compared)
        if different:
            return Outcome(WRONG, f"{different} with {command}")
    compared = [row for row in results[0] if row["kernel"] in run.compared]
    return Outcome(OK, alike=len(compared) * (len(results) - 1))
