"""What the scripts' command lines share. What goes wrong ends a script with one line, which begins
with the name of the command that was called, and with the exit status that it calls for.
"""

import argparse
import functools
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
OK, WRONG, USAGE, FAILED, SKIPPED, INTERRUPTED = 0, 1, 2, 3, 77, 130  # exit status


class Stop(Exception):
    """Ends a script. The message is one line."""

    status = FAILED

    def __init__(self, reason, status=None):
        super().__init__(reason)
        if status is not None:
            self.status = status


def say(who, message, status=OK):
    print(f"{who}: {message}", file=sys.stderr, flush=True)
    return status


def attempt(who, work, *arguments):
    """The exit status that work(*arguments) returns, or that what it raises calls for; `who` says
    what that was."""
    try:
        return work(*arguments) or OK
    except Stop as stop:
        return say(who, stop, stop.status)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        return say(who, f"{name}{error.strerror or error}", FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED


def reporting(who):
    """Decorates a script's main(arguments), which then returns the exit status in any case."""
    return lambda main: functools.wraps(main)(functools.partial(attempt, who, main))


class Parser(argparse.ArgumentParser):
    def error(self, message):
        sys.exit(say(self.prog, f"{message} (--help shows the usage)", USAGE))


def sizes(multiple=1):
    """A parser of "64,128": multiples of `multiple`, from it up."""

    def parse(text):
        if not all(re.fullmatch("[1-9][0-9]{0,8}", part) for part in text.split(",")):
            raise argparse.ArgumentTypeError(f"'{text}' is no list of sizes such as 4096,8192")
        values = [int(part) for part in text.split(",")]
        if any(value % multiple for value in values):
            raise argparse.ArgumentTypeError(f"'{text}': multiples of {multiple} are expected")
        return values

    return parse


def count(text):
    """A parser of how often something is repeated."""
    if not re.fullmatch("[1-9][0-9]?", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 to 99")
    return int(text)


def set_up(who, commands, **streams):
    """Runs functions of setup.sh, and returns what they print where stdout=subprocess.PIPE. Where
    they fail, they have said why, as `who`: the script ends with their status."""
    script = f"set -euo pipefail\nsource scripts/setup.sh\n{commands}"
    done = subprocess.run(["bash", "-c", script, who], cwd=PROJECT, universal_newlines=True,
                          **streams)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def run_with(who, modules, ensure, variable):
    """Starts this script once more, by a Python that has these modules, if they are missing here: a
    function of setup.sh makes sure of them, and sets the variable to that Python."""
    if all(importlib.util.find_spec(module) for module in modules):
        return
    python = set_up(who, f'{ensure} >&2\necho "${variable}"', stdout=subprocess.PIPE).strip()
    python = str(PROJECT / python) if "/" in python else shutil.which(python)
    os.execv(python, [python] + sys.argv)


def run(main, usage=None):
    """Ends the script with the status of main(arguments). --help prints `usage`, where given."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a pager may stop reading
    if usage and sys.argv[1:] in (["-h"], ["--help"]):
        print(usage.strip())
        sys.exit(OK)
    sys.exit(main(sys.argv[1:]))
