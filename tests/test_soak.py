"""soak.py, with fake programs and, for what it draws, the simulator's."""

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time

import pytest

from fakes import FakeMachine, copy_folders, description, row, script
from suite import (COLUMNS, CPU, FAILED, PROGRAMS, ROOT, SKIPPED, USAGE, VERIFIED, WRONG,
                   assert_one_line, declared_by, run)

sys.path.append(str(ROOT / "scripts/soak"))
import drawing  # noqa: E402
import running  # noqa: E402
import series  # noqa: E402
from drawing import Command, Run  # noqa: E402

INTERRUPTED = 130
PROCESSES = running.Processes()


# --- What is drawn --------------------------------------------------------------------------------


def about(program="1_fake", kernels=("fused",), only=None, **more):
    """What a fake program says of itself."""
    contenders = [{"kernel": kernel, "role": "ours", "dtypes": ["fp32"], "only": only,
                   "needs": None, "program": None, "repeatable": True} for kernel in kernels]
    return {**description(program, **more), "contenders": contenders,
            "problems": [{"contenders": list(kernels)}]}


@pytest.mark.parametrize("last, multiple", [(4096, 32), (160, 32), (16, 16), (1, 32), (77, 1)])
def test_sizes_are_multiples_up_to_the_largest(last, multiple):
    draws = random.Random(1)
    sizes = {drawing.size(draws, last, multiple) for _ in range(2000)}
    assert all(size % multiple == 0 for size in sizes)
    assert min(sizes) == multiple and max(sizes) <= max(last, multiple)
    if last == 4096:  # those that are multiples of a tile too, and many that are not
        assert {32, 64, 128, 256, 512, 1024, 2048} < sizes and len(sizes) > 80


def test_no_matrix_is_larger_than_the_largest():
    shapes = set()
    for seed in range(500):
        drawn = drawing.draw_size(random.Random(seed), about(shapes=[], multiple=1), 256)
        if drawn[0] == "--rows":
            shapes.add((int(drawn[1]), int(drawn[3])))
    assert all(rows * cols <= 256 ** 2 and rows <= 512 for rows, cols in shapes)
    assert max(rows for rows, _ in shapes) > 256 < max(cols for _, cols in shapes)


@pytest.mark.parametrize("option, values", [
    ({"name": "--act", "kind": "choice", "values": ["relu", "none"]}, {"relu", "none"}),
    ({"name": "--rank", "kind": "number", "first": 16, "last": 9, "multiple": 16}, {"16"}),
    ({"name": "--rank", "kind": "number", "first": 8, "last": 2 ** 63 - 1, "multiple": 8},
     {str(8 * i) for i in range(1, 9)}),
    ({"name": "--part", "kind": "number", "first": 3, "last": 5, "multiple": 1}, set("345")),
    ({"name": "--in-place", "kind": "flag"}, {None}),
    ({"name": "--sweep", "kind": "flag"}, set()),
], ids=lambda value: value["name"] if isinstance(value, dict) else "")
def test_options_have_the_values_that_they_take(option, values):
    drawn = [drawing.draw_option(random.Random(seed), option, 64) for seed in range(300)]
    given = [words for words in drawn if words]
    assert all(words[0] == option["name"] for words in given)
    assert {words[1] if len(words) > 1 else None for words in given} <= values
    assert bool(given) == bool(values) and len(given) < len(drawn)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_command_line_is_understood(program):
    path = CPU.folder / program
    if not path.exists():
        pytest.skip(f"{program} is not built")
    runs = series.Anything(7, {f"cpu/{program}": declared_by(path)}, 160, simulated=True)
    for i in range(3):
        drawn = runs.draw(PROCESSES, i)
        assert 1 <= len(drawn.commands) <= 2
        assert drawn == runs.draw(PROCESSES, i)
        for command in drawn.commands:
            assert command.words[0] == f"cpu/{program}"
            assert command.environment["DEMO_SCHEDULE"].startswith("random:")
            done = run(path, *command.words[1:], "--describe")  # reads all, and runs nothing
            assert (done.returncode, done.stderr) == (VERIFIED, ""), str(command)


def test_each_kernel_comes_under_each_tool():
    abouts = {f"cpu/{name}": declared_by(CPU.folder / name)
              for name in ("6_gating_fused", "bonus_tile") if (CPU.folder / name).exists()}
    if not abouts:
        pytest.skip("the programs are not built")
    runs = series.EveryKernel(1, abouts, 256, "compute-sanitizer")
    assert {(path, contender["kernel"], "memcheck") for path, told in abouts.items()
            for contender in told["contenders"]} < set(runs.cases)
    for i in range(0, runs.length, 9):
        [command] = runs.draw(PROCESSES, i).commands
        tool, words = command.words[:5], command.words[5:]
        assert tool == ["compute-sanitizer", "--tool", runs.cases[i][2], "--error-exitcode", "9"]
        done = run(ROOT / words[0], *words[1:], "--describe")
        assert (done.returncode, done.stderr) == (VERIFIED, ""), str(command)


def test_only_kernels_that_round_alike_are_compared():
    told = about(kernels=("one", "two", "three"))
    told["contenders"][1]["repeatable"] = False
    assert drawing.repeatable(told) == ["one", "three"]


# --- What comes of it -----------------------------------------------------------------------------

FAKE = r"""#!/usr/bin/env bash
if [[ ${*: -1} == --describe ]]; then
    echo 'DESCRIPTION'
    exit
fi
echo "${DEMO_SCHEDULE-} $0 $*" >>calls
echo 'COLUMNS'
output_hash=0123456789abcdef
BEHAVIOR
echo "ROW"
""".replace("COLUMNS", ",".join(COLUMNS)).replace(
    "ROW", row("1_fake", "fused", output_hash="$output_hash"))

BEHAVIORS = {
    "right": "",
    "wrong": "echo '1_fake: fused: 3 elements wrong' >&2; echo more >&2; exit 1",
    "crashed": "kill -SEGV $$",
    "refused": "echo '1_fake: no option' >&2; exit 2",
    "skipped": "echo '1_fake: no NVIDIA driver' >&2; exit 77",
    "talking": "echo '1_fake: by the way' >&2",
    "unstable": "output_hash=$$",
    "silent": "exec >/dev/null",
    "hanging": "sleep 50 & echo $! >child; wait",
}


class FakeTree:
    """A copy of the scripts with fake programs."""

    def __init__(self, root):
        self.root = root
        copy_folders(root, "scripts")
        for folder in ("src", "cpu", "bin"):
            (root / folder).mkdir()
        self.has_gpu(False)

    def add(self, name, behavior, folder="cpu", **more):
        text = FAKE.replace("DESCRIPTION", json.dumps(about(name, **more)))
        (self.root / "src" / f"{name}.cu").touch()
        FakeMachine.install(self.root / folder / name,
                            text.replace("BEHAVIOR", BEHAVIORS[behavior]))

    def has_gpu(self, has):
        FakeMachine.install(self.root / "bin/nvidia-smi", f"#!/bin/sh\n{'echo 9.0' * has}\n")

    @property
    def env(self):
        return {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}"}

    def soak(self, *arguments):
        return script("soak.py", *arguments, root=self.root, env=self.env)

    def calls(self):
        return (self.root / "calls").read_text().splitlines()

    def finished(self, folder="build/soak"):
        [file] = (self.root / folder).iterdir()
        return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def tree(tmp_path):
    return FakeTree(tmp_path)


@pytest.mark.parametrize("behavior, status, code, reason", [
    ("wrong", WRONG, 1, "1_fake: fused: 3 elements wrong"),
    ("crashed", FAILED, 139, "it gave no reason"),
    ("refused", FAILED, 2, "1_fake: no option"),
    ("talking", FAILED, 3, "1_fake: by the way"),
])
def test_a_failure_is_told_with_the_command_that_repeats_it(tree, behavior, status, code, reason):
    tree.add("1_fake", behavior)
    tree.add("2_fake", "right")
    done = tree.soak("--runs", 8, "--simulator")
    assert (done.returncode, done.stderr) == (status, "")
    failed = [told for told in tree.finished() if "1_fake" in told["command"]]
    assert 0 < len(failed) < 8
    lines = done.stdout.splitlines()
    assert lines[0].startswith("8 runs, ") and lines[0].endswith(
        f": {8 - len(failed)} verified, 0 skipped, {len(failed)} failed")
    assert lines[1:] == [line for told in sorted(failed, key=lambda told: told["run"]) for line in
                         ("", told["command"], f"    exit status {code}: {reason}")]

    subprocess.run(["bash", "-c", lines[2]], cwd=tree.root, capture_output=True)
    assert tree.calls()[-1] == lines[2].replace("DEMO_SCHEDULE=", "")
    assert tree.calls()[-1] in tree.calls()[:-1]


def test_all_went_well(tree):
    tree.add("1_fake", "right")
    done = tree.soak("--runs", 20, "--simulator", "--jobs", 3)
    assert (done.returncode, done.stderr) == (VERIFIED, "")
    assert done.stdout.endswith(": 20 verified, 0 skipped, 0 failed\n")
    assert 20 < len(tree.calls()) < 40  # some run twice
    assert len({call.split()[0] for call in tree.calls()}) == len(tree.calls())  # the orders


def test_results_that_differ_are_wrong(tree):
    tree.add("1_fake", "unstable")
    done = tree.soak("--runs", 10, "--simulator")
    assert done.returncode == WRONG
    assert "exit status 1: fused: output_hash is " in done.stdout
    assert " with DEMO_SCHEDULE=random:" in done.stdout


def test_every_launch_can_be_repeated(tree):
    tree.add("1_fake", "right")
    done = tree.soak("--runs", 6, "--simulator", "--repeat")
    assert (done.returncode, done.stderr) == (VERIFIED, "")
    assert done.stdout.endswith("0 failed\n6 launches gave the same bits again\n")
    assert len(tree.calls()) == 12 and all(" --once --csv" in call for call in tree.calls())
    tree.add("1_fake", "unstable")
    done = tree.soak("--runs", 6, "--simulator", "--repeat")
    assert done.returncode == WRONG
    assert done.stdout.endswith("\n0 launches gave the same bits again\n")


def test_a_hash_tells_results_apart():
    one = {"kernel": "fused", "dtype": "fp32", "shape": "square", "n": "64",
           "output_hash": "12"}
    other = {**one, "output_hash": "13"}
    assert running.difference([one], [one], ["fused"]) == ""
    assert running.difference([one], [other], ["fused"]) == "fused: output_hash is 12, then 13"
    assert running.difference([one], [other], ["chain"]) == ""
    assert running.difference([one], [], ["chain"]) == "other rows"


def test_nothing_that_can_run(tree):
    tree.add("1_fake", "skipped")
    done = tree.soak("--runs", 3, "--simulator")
    assert (done.returncode, done.stderr) == (SKIPPED, "")
    assert done.stdout.endswith(": 0 verified, 3 skipped, 0 failed\n")


def test_a_gpu_is_used_where_there_is_one(tree):
    tree.add("1_fake", "right", folder=".")
    tree.add("1_fake", "wrong")
    done = tree.soak("--runs", 3)
    assert done.returncode == WRONG
    assert done.stderr == "soak.py: no GPU here: these are runs of the simulator (cpu/)\n"
    tree.has_gpu(True)
    done = tree.soak("--runs", 3, "--out", "elsewhere")
    assert (done.returncode, done.stderr) == (VERIFIED, "")
    assert {told["command"].split()[0] for told in tree.finished("elsewhere")} == {"./1_fake"}


@pytest.mark.parametrize("arguments, status", [
    ("--sanitize", FAILED), ("--sanitize --programs 1", FAILED), ("--compute-sanitizer", SKIPPED),
    ("--simulator --out /dev/null/soak", FAILED)])
def test_what_is_missing_is_said_in_one_line(tree, arguments, status):
    tree.add("1_fake", "right")
    done = tree.soak(*arguments.split())
    assert (done.returncode, done.stdout) == (status, "")
    assert_one_line(done.stderr, "soak.py")


@pytest.mark.parametrize("arguments", [
    "--runs 5 --seconds 5", "--runs 0", "--jobs x", "--programs 99", "--simulator --sanitize", "64",
    "--repeat --compute-sanitizer",
])
def test_usage(arguments):
    done = script("soak.py", *shlex.split(arguments))
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "soak.py")


# --- Time -----------------------------------------------------------------------------------------


def is_gone(child):
    """Whether the process whose number a file holds has ended, or does so soon."""
    for _ in range(50):
        try:
            state = open(f"/proc/{child.read_text().strip()}/stat", encoding="utf-8").read()
        except OSError:
            return True
        if state.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False


def test_what_hangs_is_too_slow(tree, monkeypatch):
    tree.add("1_fake", "hanging")
    monkeypatch.setattr(running, "PROJECT", tree.root)
    done = running.perform(PROCESSES, Run([Command(["cpu/1_fake", "64"])]), limit=0.3)
    assert done == running.Outcome(124, "too slow: more than 0.3 s")
    assert is_gone(tree.root / "child")


def test_it_goes_on_where_it_stopped(tree):
    tree.add("1_fake", "right")
    tree.add("2_fake", "right", shapes=[], multiple=1)
    assert tree.soak("--runs", 4, "--simulator").returncode == VERIFIED
    [file] = (tree.root / "build/soak").iterdir()
    with file.open("a") as stream:
        stream.write('{"run": 4, "comm')  # cut off
    before = tree.calls()
    done = tree.soak("--runs", 7, "--simulator", "--jobs", 2)
    assert done.stdout.startswith("7 runs, ")
    assert [told["run"] for told in tree.finished()][:4] == [0, 1, 2, 3]
    assert tree.calls()[:len(before)] == before

    one_go = tree.soak("--runs", 7, "--simulator", "--out", "elsewhere")
    assert one_go.returncode == VERIFIED
    assert ([told["command"] for told in tree.finished("elsewhere")] ==
            [told["command"] for told in sorted(tree.finished(), key=lambda told: told["run"])])


def test_a_program_that_was_built_anew_starts_another_series(tree):
    tree.add("1_fake", "wrong")
    assert tree.soak("--runs", 2, "--simulator").returncode == WRONG
    tree.add("1_fake", "right")
    assert tree.soak("--runs", 2, "--simulator").returncode == VERIFIED


def test_it_ends_in_time(tree):
    tree.add("1_fake", "right")
    began = time.monotonic()
    done = tree.soak("--seconds", 1, "--simulator")
    assert done.returncode == VERIFIED and 1 <= time.monotonic() - began < 5
    assert len(tree.finished()) > 3


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing_behind(tree, name):
    tree.add("1_fake", "hanging")
    soak = subprocess.Popen([sys.executable, "scripts/soak.py", "--simulator", "--jobs", "2"],
                            cwd=tree.root, env=tree.env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child = tree.root / "child"
    while not (child.exists() and child.read_text().endswith("\n")):
        time.sleep(0.02)
    soak.send_signal(name)
    began = time.monotonic()
    out, err = soak.communicate(timeout=10)
    assert time.monotonic() - began < 3  # on a busy machine
    assert soak.returncode == INTERRUPTED
    assert out == "0 runs, 0 s: 0 verified, 0 skipped, 0 failed\n"
    assert err == "soak.py: interrupted: the same command goes on from here\n"
    assert is_gone(child)


# --- compute-sanitizer ----------------------------------------------------------------------------

HEAD = "========= COMPUTE-SANITIZER\n"
ROWS = "program,kernel\n"


@pytest.mark.parametrize("status, out, expected", [
    (0, HEAD + ROWS + "========= ERROR SUMMARY: 0 errors\n", (0, "")),
    (0, HEAD + ROWS + "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n",
     (0, "")),
    (77, HEAD + "========= ERROR SUMMARY: 0 errors\n", (77, "")),
    (9, HEAD + "========= Invalid __global__ read of size 4 bytes\n=========     at fused\n"
     "========= ERROR SUMMARY: 1 error\n", (9, "Invalid __global__ read of size 4 bytes")),
    (0, HEAD + "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n",
     (3, "RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)")),
    (0, HEAD + ROWS, (3, "it printed nothing")),
    (255, "", (255, "it printed nothing")),
])
def test_findings(status, out, expected):
    assert running.findings(status, out, "") == expected
