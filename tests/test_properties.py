"""properties.py, with programs of the simulator, and with a fake one that has a bug."""

import json
import re
import shlex
import subprocess
import sys

import pytest

import suite
from fakes import FakeMachine, copy_folders, description, row, script
from suite import COLUMNS, CPU, SKIPPED, USAGE, VERIFIED, WRONG, assert_one_line, declared_by

pytest.importorskip("hypothesis", reason="hypothesis is not installed")

FAKE = r"""#!/usr/bin/env bash
[[ ${*: -1} != --describe ]] || { echo 'DESCRIPTION' && exit; }
echo "$DEMO_SCHEDULE $*" >>calls
verified=yes hash=0123456789abcdef
BUG
echo "COLUMNS"
echo "ROW"
""".replace("COLUMNS", ",".join(COLUMNS)).replace(
    "ROW", row("1_fake", "fused", verified="$verified", output_hash="$hash"))


@pytest.fixture
def fake(tmp_path):
    """Installs a program with that bug in a tree of its own."""
    about = {**description("1_fake", multiple=1, shapes=[], dtypes=("fp32", "fp16")),
             "contenders": [{"kernel": "fused", "repeatable": True}],
             "problems": [{"flops": 1, "contenders": ["fused"]}]}

    def install(bug):
        copy_folders(tmp_path, "scripts")
        for folder in ("src", "cpu"):
            (tmp_path / folder).mkdir()
        (tmp_path / "src/1_fake.cu").touch()
        FakeMachine.install(tmp_path / "cpu/1_fake", FAKE.replace("BUG", bug).replace(
            "DESCRIPTION", json.dumps(about)))
        return tmp_path

    return install


def test_programs_hold():
    """On the simulator; with --full on a GPU, if there is one, for ten minutes."""
    declared_by(CPU.folder / "2_matmul_sharedmem")  # skips the test where none is built
    where = ["--seconds", 600]
    if suite.QUICK or suite.GPU.why_not():
        where = ["--simulator", "--seconds", 8 if suite.QUICK else 60]
    done = script("properties.py", *where, limit_s=900)
    assert (done.returncode, done.stderr) == (VERIFIED, ""), done.stdout
    assert re.fullmatch(r"\d+ runs on .* in \d+ s: [1-9]\d* verified, \d+ skipped, none failed\n",
                        done.stdout)


def test_a_failure_is_shrunk_and_can_be_repeated(fake):
    tree = fake("""[[ ! $* =~ --cols\\ [0-9]{4} ]] ||
        { echo '1_fake: fused: 3 elements wrong' >&2 && exit 1; }""")
    done = script("properties.py", "--simulator", "--seconds", "5", root=tree)
    assert (done.returncode, done.stderr) == (WRONG, "")
    command, reason, summary = done.stdout.splitlines()
    assert reason == "    exit status 1: 1_fake: fused: 3 elements wrong"
    assert summary.endswith(", 1 failed")
    schedule, program, *words = shlex.split(command)
    assert (schedule, program) == ("DEMO_SCHEDULE=random:0", "cpu/1_fake")
    assert words[:3] + words[4:] == "--rows 1 --cols --seed 0 --once --csv".split()
    assert 1000 <= int(words[3]) < 1100
    assert subprocess.run(["bash", "-c", command], cwd=tree, capture_output=True).returncode == 1


@pytest.mark.full
@pytest.mark.parametrize("bug, status, told", [
    ("hash=$$", WRONG, "fused: output_hash is "),
    ("verified=no", WRONG, "exit status 0, and a row that is not verified"),
    ("echo 'by the way' >&2", WRONG, "exit status 0: by the way"),
    ("kill -SEGV $$", WRONG, "exit status -11: it said nothing"),
    ("exit 77", SKIPPED, " 0 verified, "),
])
def test_what_counts_as_a_failure(fake, bug, status, told):
    done = script("properties.py", "--simulator", "--seconds", "2", root=fake(bug))
    assert (done.returncode, done.stderr) == (status, "")
    assert told in done.stdout


@pytest.mark.full
def test_a_seed_draws_the_same_again(fake):
    tree, calls = fake(""), []
    for _ in range(2):
        done = script("properties.py", "--simulator", "--seconds", "2", root=tree)
        assert done.returncode == VERIFIED
        calls.append((tree / "calls").read_text().splitlines())
        (tree / "calls").unlink()
    both = min(map(len, calls))
    assert both > 4 and calls[0][:both] == calls[1][:both]


@pytest.mark.parametrize("argument", ["--seconds=x", "--programs=99", "--no-such", "64"])
def test_usage(argument):
    done = script("properties.py", argument)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "properties.py")


def test_without_hypothesis(tmp_path):
    FakeMachine.install(tmp_path / "python3", f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    done = script("properties.py", python=str(tmp_path / "python3"))
    assert (done.returncode, done.stdout) == (SKIPPED, "")
    assert_one_line(done.stderr, "properties.py")
