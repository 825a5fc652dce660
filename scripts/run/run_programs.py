#!/usr/bin/env python3
"""Runs the lessons, or all programs, and prints one table, for run.sh.

    run_programs.py [--all] FOLDER N S

The programs are those built in FOLDER. Each runs at size N (0: at its own default), and at S of
the talk's shape where it has that. Exit status: that of run.sh, or 78 where CUDA finds no GPU: that
is told by the first program's line alone, and nothing more is run.
"""

import tempfile
from pathlib import Path

from shared import command_line, one_run, programs
from shared.command_line import PROJECT
from shared.runner import Runner, run_program

NO_GPU = 78  # exit status, for run.sh
WITHOUT_A_GPU = """\
What a kernel reads and writes:  scripts/count.sh {number}
Line by line, in a debugger:     scripts/step.sh {number}"""


def run(runner, program, label, n, s, folder):
    """The runs of one program, whose rows go to files in `folder`."""
    runs = [(f"N={n}" if n else "", "")]  # of one that is not built: the runner says so
    if program.exists():
        runs = programs.runs_to_show(programs.describe(program), n, s)
    for shown, arguments in runs:
        rows = folder / f"{runner.count:03}.csv"
        runner.run(f"{label} {shown}", rows, program, arguments.split())


@command_line.reporting("run.sh")
def main(arguments):
    parser = command_line.Parser(prog="run.sh", add_help=False, allow_abbrev=False)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("folder", type=Path)
    parser.add_argument("n", type=int)
    parser.add_argument("s", type=int)
    options = parser.parse_args(arguments)

    names = programs.listed() if options.all else programs.lessons()
    runner = Runner("run.sh")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for i, name in enumerate(names, 1):
            try:
                run(runner, PROJECT / options.folder / name, f"[{i}/{len(names)}] {name}",
                    options.n, options.s, folder)
            except programs.ProgramError as error:
                command_line.say("run.sh", error)
                runner.failed()
            if i == 1 and runner.no_gpu and all(
                    run_program(PROJECT / options.folder / other, ["32", "--once"],
                                folder / "probe").no_gpu for other in names[1:]):
                return NO_GPU
        files = sorted(folder.glob("*.csv"))
        if files:
            print("\n" + (one_run.run if options.all else one_run.lessons)(files))
            if options.folder.name == "cpu":
                print(WITHOUT_A_GPU.format(number=names[0].split("_")[0]))
    return runner.status


if __name__ == "__main__":
    command_line.run(main, __doc__)
