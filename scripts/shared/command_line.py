"""What the scripts' command lines share. What goes wrong ends a script with one line, which begins
with the name of the command that was called, and with the exit status that it calls for. So does an
interrupt, by Ctrl-C or by kill, but without a line.
"""

import argparse
import contextlib
import functools
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import traceback
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
OK, WRONG, USAGE, FAILED, SKIPPED, INTERRUPTED = 0, 1, 2, 3, 77, 130  # exit status
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop(Exception):
    """Ends a script. The message is one line."""

    status = FAILED

    def __init__(self, reason, status=None):
        super().__init__(reason)
        if status is not None:
            self.status = status


def printable(text):
    """On one line, and without what steers a terminal."""
    return "".join(c if c.isprintable() else "?" for c in str(text))


def file_stem(words):
    """A file's name after a GPU's: "NVIDIA H200" becomes nvidia-h200."""
    return re.sub("[^a-z0-9]+", "-", words.lower()).strip("-") or "gpu"


def say(who, message, status=OK):
    with contextlib.suppress(OSError):  # nowhere is left to say it
        if sys.stderr:
            print(f"{who}: {printable(message)}", file=sys.stderr, flush=True)
    return status


def attempt(who, work, *arguments):
    """The exit status that work(*arguments) returns, or that what it raises calls for; `who` says
    what that was."""
    try:
        try:
            return work(*arguments) or OK
        finally:
            sys.stdout.flush()
    except Stop as stop:
        return say(who, stop, stop.status)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        _drop_unwritten()
        name = f"{error.filename}: " if error.filename else "cannot read or write: "
        return say(who, f"{name}{error.strerror or error}", FAILED)
    except MemoryError:
        return say(who, "not enough memory", FAILED)
    except Exception as error:  # a mistake of ours: where it is, in place of a traceback
        at = traceback.extract_tb(error.__traceback__)[-1]
        return say(who, f"{type(error).__name__} in {Path(at.filename).name}, line {at.lineno}: "
                        f"{error}", FAILED)


def _drop_unwritten():
    """Leaves nothing to write at the end, if stdout takes no more: that would fail once more."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def reporting(who):
    """Decorates a script's main(arguments), which then returns the exit status in any case."""

    def decorate(main):
        decorated = functools.wraps(main)(functools.partial(attempt, who, main))
        decorated.who = who
        return decorated

    return decorate


def read_text(path, encoding="utf-8"):
    """A file's text. Raises Stop where it is none."""
    try:
        return Path(path).read_text(encoding=encoding)
    except UnicodeDecodeError:
        raise Stop(f"{path}: not a text file in UTF-8", USAGE)


def write_text(path, text):
    """Writes a file whole, or leaves it as it was."""
    path = Path(path)
    if path.exists():
        path.open("r+").close()  # may it be written?
    if path.exists() and not path.is_file():  # /dev/stdout
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve()
    new = path.with_name(path.name + ".new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink()
        raise OSError(error.errno, error.strerror, str(path))


class Parser(argparse.ArgumentParser):
    def print_help(self, file=None):
        print(self.format_help(), end="", file=file)  # argparse hides that it cannot be written

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


def number(first, last):
    """A parser of a whole number."""

    def parse(text):
        if not (re.fullmatch("[0-9]{1,9}", text) and first <= int(text) <= last):
            raise argparse.ArgumentTypeError(f"'{text}' is no number from {first} to {last}")
        return int(text)

    return parse


def set_up(who, commands, **streams):
    """Runs functions of setup.sh, and returns what they print where stdout=subprocess.PIPE. Where
    they fail, they have said why, as `who`: the script ends with their status."""
    script = f"set -euo pipefail\nsource scripts/setup.sh\n{commands}"
    with subprocess.Popen(["bash", "-c", script, who], cwd=PROJECT, universal_newlines=True,
                          start_new_session=True, **streams) as shell:
        try:
            printed, _ = shell.communicate()
        except KeyboardInterrupt:
            os.killpg(shell.pid, signal.SIGTERM)  # with all that it has started
            raise
    if shell.returncode:
        sys.exit(shell.returncode)
    return printed


def output(*command, **environment):
    """(whether a command, started in the repository's root, went well, what it printed)"""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, errors="replace", cwd=PROJECT,
                              env={**os.environ, **environment}, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False, ""
    return done.returncode == 0, done.stdout


def first_line(*command):
    """Of what a command prints; "unknown" where it fails."""
    went_well, text = output(*command)
    return text.splitlines()[0] if went_well and text else "unknown"


def driver_version():
    """The same for every GPU of a machine."""
    return first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def suite_version():
    return first_line("git", "describe", "--always", "--dirty")


def run_with(who, modules, ensure):
    """Starts this script once more, by a Python that has these modules, if they are missing here: a
    function of setup.sh makes sure of them, and sets FOUND_PYTHON."""
    if all(importlib.util.find_spec(module) for module in modules):
        return
    python = set_up(who, f'{ensure} >&2\necho "$FOUND_PYTHON"', stdout=subprocess.PIPE).strip()
    python = str(PROJECT / python) if "/" in python else shutil.which(python)
    os.execv(python, [python] + sys.argv)


def interrupt(*_):
    """Handles a signal as Ctrl-C. What comes after the first is ignored: the script is ending."""
    for name in INTERRUPTS:
        signal.signal(name, signal.SIG_IGN)
    raise KeyboardInterrupt


def be_a_worker():
    """For a process of a pool: the script itself is interrupted, and ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def run(main, usage=None):
    """Ends the script with the status of main(arguments). --help prints `usage`, where given."""
    who = getattr(main, "who", Path(sys.argv[0]).name)
    if sys.stdout is None:
        sys.exit(say(who, "stdout is closed: it needs a terminal or a file", FAILED))
    sys.stdout.reconfigure(errors="backslashreplace")  # where a terminal has ASCII alone
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a pager may stop reading
    for name in INTERRUPTS:
        if signal.getsignal(name) != signal.SIG_IGN:  # as nohup wants it
            signal.signal(name, interrupt)
    if usage and sys.argv[1:] in (["-h"], ["--help"]):
        sys.exit(attempt(who, print, usage.strip()))
    sys.exit(main(sys.argv[1:]))
