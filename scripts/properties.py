#!/usr/bin/env python3
"""Runs the programs with random command lines for a time: for people who distrust their card, and
for people who write kernels. Every run must end verified and soon. A quarter run twice, and must
give the same bits.

    properties.py [--seconds S] [--programs P,...] [--seed SEED] [--simulator]

  --seconds S    begin no run after that time (default 3600)
  --programs     these, by name or number; else all that are built
  --seed SEED    decides all that is drawn (default 1)
  --simulator    run cpu/NAME, with other orders of threads; so it does without a GPU in any case

The programs take turns. When a run fails, smaller ones are tried for two minutes, and the smallest
that fails is printed, with the reason; its program has no more turns. It builds nothing, and needs
hypothesis: scripts/test.sh installs it into .venv.

Exit status: 0 no run failed; 1 one did; 2 usage; 3 a program does not describe itself; 77 nothing
here can run the programs; 130 interrupted.
"""

import collections
import csv
import random
import re
import shlex
import subprocess
import time
from types import SimpleNamespace

from shared import command_line, cuda_toolkit, programs
from shared.command_line import FAILED, OK, PROJECT, SKIPPED, WRONG, Stop

try:
    from hypothesis import HealthCheck, Phase, assume, configuration, errors, given, seed, settings
    from hypothesis import strategies as st
except ImportError:
    st = None

# Options that are not drawn. --sweep has sizes of its own; --gpus asks for GPUs that may not be
# there, --meet for other processes.
SPECIAL = set("--talk --kernel --seed --device --rounds --hot --once --verbose --csv "
              "--sweep --describe --help --gpus --meet --patience".split())
TURN = 5        # runs, the first of which is the program's simplest
SHRINK_S = 120

# The largest N, S of --talk, rows, rows x cols, and operations; and the limit for a run, most of
# which take a second. (On the simulator a row takes as long as some ten numbers.)
GPU = SimpleNamespace(name="the GPU", folder=".", n=8192, s=1024, rows=2**28, numbers=2**28,
                      flops=4e12, limit_s=120)
SIMULATOR = SimpleNamespace(name="the simulator", folder="cpu", n=160, s=32, rows=20_000,
                            numbers=100_000, flops=1.5e8, limit_s=300)


class Wrong(Exception):
    """A run that failed: its command, and why."""

    def __init__(self, words, reason):
        super().__init__(f"{shlex.join(words)}\n    {reason}")


# --- Drawing. What fails shrinks: numbers towards 0, choices towards the first one. ---------------


def one_in(draw, count):
    return draw(st.integers(0, count - 1)) == count - 1


def size(draw, last, multiple=1):
    """A multiple of `multiple` up to `last`, evenly in the logarithm; a third are powers of two
    times it."""
    digits = [draw(st.integers(0, 255)) for _ in range(2)]  # a larger range is not drawn evenly
    count = int((max(1, last // multiple) + 1) ** (digits[0] / 256 + digits[1] / 256**2))
    return multiple * (1 << count.bit_length() - 1 if one_in(draw, 3) else count)


def draw_size(draw, about, place):
    if about["shapes"] is not None and not one_in(draw, 4):
        rows, cols = size(draw, place.rows), size(draw, place.numbers)
        assume(rows * cols <= place.numbers)
        return ["--rows", str(rows), "--cols", str(cols)]
    sizes, talk = about["sizes"], about["talk"]
    if talk and (not sizes or draw(st.booleans())):
        return ["--talk", str(size(draw, place.s, talk["multiple"]))]
    return [str(size(draw, max(place.n, sizes["default"]), sizes["multiple"]))]


def draw_option(draw, option, place):
    """An option and its value."""
    if option["kind"] == "flag":
        return [option["name"]]
    if option["kind"] == "choice":
        return [option["name"], draw(st.sampled_from(option["values"]))]
    last = min(option["last"], max(option["first"], place.n))
    return [option["name"], str(max(option["first"], size(draw, last, option["multiple"])))]


def draw_commands(draw, path, about, place):
    """One command, or two that must give the same bits; and the kernels of which that holds."""
    words = [path, *draw_size(draw, about, place)]
    special = SPECIAL if about["shapes"] is None else SPECIAL | {"--rows", "--cols"}
    for option in about["options"]:
        other, choice = option.get("only_with", (None, None))
        fits = not other or other in words and words[words.index(other) + 1] == choice
        if option["name"] not in special and fits and draw(st.booleans()):
            words += draw_option(draw, option, place)
    try:
        about = programs.describe(PROJECT / path, *words[1:])
    except programs.ProgramError as error:
        raise Wrong([*words, "--describe"], error)
    assume(sum(problem["flops"] for problem in about["problems"]) <= place.flops)
    words += ["--seed", str(draw(st.integers(0, 2**63 - 1)))]
    if draw(st.booleans()):
        kernels = {kernel for problem in about["problems"] for kernel in problem["contenders"]}
        words += ["--kernel", draw(st.sampled_from(sorted(kernels)))]
    timed = place is GPU and about["sweep"] != "always" and one_in(draw, 6)
    words += ["--csv"] if timed else ["--once", "--csv"]
    commands = [words] * (2 if one_in(draw, 4) else 1)
    if place is SIMULATOR:
        order = draw(st.integers(0, 999))
        commands = [[f"DEMO_SCHEDULE=random:{order + i}", *words] for i in range(len(commands))]
    return commands, [contender["kernel"] for contender in about["contenders"]
                      if contender["repeatable"]]


# --- Running --------------------------------------------------------------------------------------


def run(words, limit_s):
    """The rows that a command prints; none where this machine cannot run it. Raises Wrong."""
    try:
        done = subprocess.run(["env", *words], cwd=PROJECT, stdin=subprocess.DEVNULL, text=True,
                              errors="replace", capture_output=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise Wrong(words, f"it takes more than {limit_s} s") from None
    no_memory = re.search("are free;|not enough .*memory", done.stderr)
    if done.returncode == SKIPPED or done.returncode == FAILED and no_memory:
        return []
    rows = list(csv.DictReader(done.stdout.splitlines()))
    if done.returncode or done.stderr or not rows:
        said = done.stderr.strip() or "it said nothing"
        raise Wrong(words, f"exit status {done.returncode}: {said.splitlines()[0]}")
    if any(row["verified"] != "yes" for row in rows):
        raise Wrong(words, "exit status 0, and a row that is not verified")
    return rows


def verify(commands, repeatable, limit_s):
    """Runs them, and returns whether this machine can. Raises Wrong."""
    results = [run(words, limit_s) for words in commands]
    for one, other in zip(results[0], results[-1]):
        if one["kernel"] in repeatable and one["output_hash"] != other["output_hash"]:
            raise Wrong(commands[0], f"{one['kernel']}: output_hash is {one['output_hash']}, then "
                                     f"{other['output_hash']} with {shlex.join(commands[-1])}")
    return all(results)


def take_turn(path, about, place, draws, end, done):
    """Runs some commands of a program, and adds to `done` whether each could run. Returns the
    smallest failure, or None."""
    failures = []

    @seed(draws.getrandbits(64))
    @settings(max_examples=TURN, deadline=None, report_multiple_bugs=False,
              phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck))
    @given(st.data())
    def everything_is_verified(data):
        nonlocal end
        try:
            commands, repeatable = draw_commands(data.draw, path, about, place)
            words = tuple(commands[0])
            if time.monotonic() < end and (failures or words not in done):
                could_run = verify(commands, repeatable, place.limit_s)
                if not failures:
                    done[words] = could_run
        except Wrong as wrong:
            end = end if failures else time.monotonic() + SHRINK_S
            failures.append(wrong)
            raise

    try:
        everything_is_verified()
    except (Wrong, errors.Flaky):
        return failures[-1]
    return None


@command_line.reporting("properties.py")
def main(arguments):
    parser = command_line.Parser(prog="properties.py", add_help=False, allow_abbrev=False)
    parser.add_argument("--seconds", type=command_line.number(0, 10**9 - 1), default=3600)
    parser.add_argument("--seed", type=command_line.number(0, 10**9 - 1), default=1)
    parser.add_argument("--simulator", action="store_true")
    parser.add_argument("--programs", type=lambda text: [*map(programs.find, text.split(","))])
    options = parser.parse_args(arguments)
    if not st:
        raise Stop("hypothesis is not installed: after scripts/test.sh, .venv/bin/python has it",
                   SKIPPED)
    place = SIMULATOR if options.simulator or not cuda_toolkit.gpus_here() else GPU
    names = options.programs or [name for name in programs.listed()
                                 if (PROJECT / place.folder / name).exists()]
    if not names:
        raise Stop(f"no program is built in {place.folder}/: see scons -h", SKIPPED)
    abouts = {f"{place.folder}/{name}": programs.describe(PROJECT / place.folder / name)
              for name in names}
    configuration.set_hypothesis_home_dir(PROJECT / "build/hypothesis")

    began = time.monotonic()
    end = began + options.seconds
    draws, done, failed = random.Random(options.seed), {}, 0
    waiting = collections.deque(draws.sample(sorted(abouts), len(abouts)))
    while waiting and time.monotonic() < end:
        path = waiting.popleft()
        failure = take_turn(path, abouts[path], place, draws, end, done)
        if failure:
            print(failure, flush=True)
            failed += 1
        else:
            waiting.append(path)
    verified = sum(done.values())
    seconds = time.monotonic() - began
    print(f"{len(done) + failed} runs on {place.name} in {seconds:.0f} s: {verified} verified, "
          f"{len(done) - verified} skipped, {failed or 'none'} failed")
    return WRONG if failed else OK if verified else SKIPPED


if __name__ == "__main__":
    command_line.run(main, __doc__)
