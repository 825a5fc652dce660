"""What the scripts' command lines share. An error is one line, which begins with the script's name.
"""

import argparse
import re
import signal
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
OK, WRONG, USAGE, FAILED, SKIPPED = 0, 1, 2, 3, 77  # exit status


def say(who, message, status=OK):
    print(f"{who}: {message}", file=sys.stderr, flush=True)
    return status


def name_file(who, error):
    """Says what an OSError says of a file."""
    return say(who, f"{error.filename}: {error.strerror}", FAILED)


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


def run(main, usage=None):
    """Ends the script with the status of main(arguments). --help prints `usage`, where given."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a pager may stop reading
    if usage and sys.argv[1:] in (["-h"], ["--help"]):
        print(usage.strip())
        sys.exit(OK)
    sys.exit(main(sys.argv[1:]))
