"""How scripts end where something is wrong: with one line on stderr and the exit status that it
calls for, without a traceback; interrupted, within a second, and nothing runs on."""

import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

import fakes
from fakes import FakeMachine, copy_folders, description, row, script, write_csv, write_measured
from shared import command_line
from suite import FAILED, ROOT, USAGE, assert_one_line

INTERRUPTED = 130


@pytest.fixture
def machine(tmp_path):
    return FakeMachine(tmp_path)


# --- The environment --------------------------------------------------------------------------


@pytest.mark.parametrize("stdout", [">/dev/full", ">&-"], ids=["full", "closed"])
@pytest.mark.parametrize("command", ["run.sh --no-build 64", "compare_gpus.sh --table a.csv"])
def test_results_that_cannot_be_written(machine, command, stdout):
    write_csv(machine.root / "a.csv", row())
    env = {**os.environ, "PATH": f"{machine.root}/bin:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", f"scripts/{command} {stdout}"], cwd=machine.root, env=env,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == FAILED
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_a_terminal_that_has_ascii_alone(tmp_path):
    code = "from shared import command_line; command_line.run(lambda _: print('\\u00e9'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "scripts", text=True,
                          capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "\\xe9\n", "")


def test_no_folder_for_temporary_files():
    done = script("test.sh", "-k", "nothing", env={"TMPDIR": "/no/such/folder"})
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert_one_line(done.stderr, "test.sh")
    assert "TMPDIR" in done.stderr


def test_a_script_is_called_through_a_link(machine, tmp_path):
    (tmp_path / "link").symlink_to(machine.root / "scripts/run.sh")
    done = subprocess.run([tmp_path / "link", "--no-build", "64"], cwd="/", text=True,
                          env={**os.environ, "PATH": f"{machine.root}/bin:{os.environ['PATH']}"},
                          capture_output=True)
    assert done.returncode == 0, done.stderr


def test_without_python_one_line_says_so(machine):
    for name in ("bash", "dirname", "readlink", "id"):
        (machine.root / "bin" / name).symlink_to(shutil.which(name))
    (machine.root / "bin/python3").unlink()
    done = machine.run("run.sh", env={"PATH": str(machine.root / "bin")})
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert_one_line(done.stderr, "run.sh")
    assert "Python 3 is missing" in done.stderr


W = "scripts/step/walks/2_matmul_sharedmem.txt"
REFUSED = {
    "test.sh": ["--bogus", "-k", "-k -x", "tests/test_none.py"],
    "run.sh": ["--bogus", "64 96", "33", "abc", "''", "'a\n\x1b[31m'", "'--a\nb'"],
    "talk.sh": ["0", "8", "one", "1 2", "--size 33", "--size", "--size 32,64", "--bogus"],
    "inspect.sh": ["", "99", "1 --bogus", "2 a b", "2 --ptx --sass", "2 --diff a", "2 a --diff b c",
                   "2 --both --diff b c", "2 --html --diff a b", "2 --html --both", "2 a --all",
                   "2 --block 0", "2 --block 1025", "2 --shared many", "1 --arch 10"],
    "count.sh": ["", "--bogus", "99", "../1_matmul_basic", "2 --csv", "2 abc", "1 2 33",
                 "1 --bogus", "'a\n\x1b[31m'"],
    "step.sh": ["", "bonus", "2 64 64", "--bogus 2", "2 --kernel", "--kernel --cpu 2", "2 33",
                "8 0", "--batch /no/such/file 2", "--batch / 2", f"--walk {W} --batch {W} 2"],
    "watch.sh": ["", "20", "2 33", "--kernel nothing 2", "--block x 1 2", "--schedule late 2",
                 "--with 2 2", "--preset tiles 2", "src/2_matmul_sharedmem.cu"],
    "profile.sh": ["", "--bogus 5", "--trace", "--trace --all true", "--trace x.json",
                   "./no_program", "99", "README.md", "5 33", "5 --bogus"],
    "compare_gpus.sh": ["--bogus", "--sizes 33", "--grid --programs 1", "--talk 16 --programs 1",
                        "--out --fresh", "'a\n\x1b[31m'"],
    "lint.sh": ["--bogus", "--fix --fix"], "setup.sh": ["", "--bogus"], "site.sh": ["--bogus"]}


@pytest.fixture(scope="module")
def idle(tmp_path_factory):
    """A copy of the scripts among commands that tell if they are called: what installs, what
    builds, and what looks at the machine."""
    root = tmp_path_factory.mktemp("idle")
    copy_folders(root, "scripts", "src", "include", "docs")
    (root / "bin").mkdir()
    for name in ("apt-get", "g++", "nvidia-smi", "scons"):
        FakeMachine.install(root / "bin" / name, f'#!/bin/sh\ntouch "{root}/worked"\n')
    FakeMachine.install(root / "bin/python3", f'#!/bin/sh\n[ "$1" != -m ] || '
                        f'touch "{root}/worked"\nexec "{sys.executable}" "$@"\n')
    return root


@pytest.mark.parametrize("name, arguments", [(name, each) for name in REFUSED
                                             for each in REFUSED[name]])
def test_arguments_are_refused_in_one_line_before_any_work(idle, name, arguments):
    done = script(name, *shlex.split(arguments), root=idle,
                  env={"PATH": f"{idle}/bin:{os.environ['PATH']}", "CXX": ""})
    if name == "inspect.sh" and done.returncode == 77:
        pytest.skip("no CUDA toolkit here")
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, name)
    assert "\x1b" not in done.stderr and not (idle / "worked").exists()


@pytest.mark.parametrize("program, arguments, status", [
    ("8_softmax", ["33"], 0), ("11_lora", ["1", "--rank", "8"], 0), ("8_softmax", ["-h"], 0),
    ("1_matmul_basic", ["--kernel", "none"], 0), ("1_matmul_basic", ["33"], USAGE),
    ("8_softmax", ["9" * 19], USAGE)])
def test_a_program_is_refused_what_it_would_refuse(program, arguments, status):
    assert script("shared/programs.py", "x.sh", program, *arguments).returncode == status


@pytest.mark.parametrize("command", ["count.sh 2", "step.sh --cpu 2"])
def test_scons_decides_whether_a_program_is_out_of_date(tmp_path, command):
    """Not the dates of files, which a copy may have kept. Without a build nothing is needed."""
    copy_folders(tmp_path, "scripts", "src")
    for folder in ("cpu/count", "cpu/debug", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("cpu", "cpu/count", "cpu/debug"):
        FakeMachine.install(tmp_path / folder / "2_matmul_sharedmem", "#!/bin/sh\nexit 77\n")
    FakeMachine.install(tmp_path / "bin/scons", "#!/bin/sh\necho asked: $* >&2\n")
    FakeMachine.install(tmp_path / "bin/gdb", "#!/bin/sh\necho yes\n")
    FakeMachine.install(tmp_path / "bin/id", "#!/bin/sh\necho 1000\n")  # nothing is installed
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    name, *arguments = command.split()
    done = script(name, *arguments, root=tmp_path, env=env)
    assert done.returncode == 77 and "cpu/2_matmul_sharedmem" in done.stderr
    done = script(name, "--no-build", *arguments, root=tmp_path, env={**env, "CXX": "none"})
    assert done.returncode == 77 and "asked" not in done.stderr


def test_a_checkout_by_a_git_that_changes_line_ends(tmp_path):
    if subprocess.run(["git", "clone", "-q", "-c", "core.autocrlf=true", ROOT, tmp_path],
                      capture_output=True).returncode:
        pytest.skip("this is no clone")
    assert script("run.sh", "--help", root=tmp_path).returncode == 0


def test_a_checkout_that_may_not_be_written(tmp_path):
    scons = ROOT / ".venv/bin/scons"
    if not scons.exists():
        pytest.skip("SCons is not in .venv")
    mount = f'mount --bind "{ROOT}" "$0" && mount -o remount,bind,ro "$0" && cd "$0" && '
    done = subprocess.run(["unshare", "-m", "bash", "-c", mount + f'"{scons}" -Q cpu/lessons',
                           tmp_path], capture_output=True, text=True)
    if "scons" not in done.stderr:
        pytest.skip("nothing can be mounted here: " + done.stderr.strip())
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert_one_line(done.stderr, "scons")
    assert "--no-build" in done.stderr


# --- Whatever is raised -----------------------------------------------------------------------


@pytest.mark.parametrize("code, said", [
    ("int('x')", "ValueError in code, line 1: invalid literal"),
    ("b'\\xff'.decode()", "UnicodeDecodeError in code, line 1: "),
    ("open('/no/such/file')", "/no/such/file: No such file or directory"),
    ("raise OSError(28, 'No space left on device')", "cannot read or write: No space left"),
    ("raise MemoryError", "not enough memory"),
    ("raise command_line.Stop('two\\nlines \\x1b[31m')", "two?lines ?[31m"),
], ids=lambda text: re.sub(r"\W+", "-", text)[:20])
def test_what_goes_wrong_is_one_line(capsys, code, said):
    def work():
        exec(compile(code, "code", "exec"))

    assert command_line.attempt("x.py", work) == FAILED
    printed = capsys.readouterr().err
    assert_one_line(printed, "x.py")
    assert said in printed


def test_a_file_is_written_whole_or_left_as_it_was(tmp_path):
    """As where the disk is full: here no file may grow beyond a thousand bytes."""
    (tmp_path / "report.html").write_text("the old one")
    code = ("import resource, sys; from shared import command_line; "
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); sys.exit("
            "command_line.attempt('x.py', command_line.write_text, sys.argv[1], 'x' * 9999))")
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "report.html"],
                          cwd=ROOT / "scripts", capture_output=True, text=True)
    assert done.returncode == FAILED
    assert done.stderr == f"x.py: {tmp_path}/report.html: File too large\n"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_text() == "the old one"


@pytest.mark.parametrize("path", sorted((ROOT / "scripts").glob("*.[ps][yh]")),
                         ids=lambda path: path.name)
def test_every_script_begins_and_ends_as_all_do(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sh":
        assert '\n    attend "$@"' in text or '\nattend "$@"' in text or '*) attend "$@" ;;' in text
        # `end` alone gives 1, the status of a wrong result.
        assert not re.search(r"(exit|die) (1\b|\"?\$(?!1\b|status\"$))", text, re.MULTILINE)
    else:
        assert "\n    command_line.run(main" in text and "\n@command_line.reporting(" in text


# --- Interrupts -------------------------------------------------------------------------------

# It runs on, with a child, unless it is ended.
SLOW = """#!/usr/bin/env bash
case "$*" in *--describe*) echo 'DESCRIPTION' && exit ;; *--version*) exit ;; esac
echo >>"$STARTED"
sleep 60 & wait
"""


def left_of(mark):
    """The processes that have MARK in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append((path.parent / "cmdline").read_bytes().replace(b"\0", b" "))
        except OSError:
            continue  # it has ended
    return found


@pytest.mark.parametrize("command, name", [
    ("run.sh --no-build 64", "TERM"), ("run.sh --no-build 64", "INT"),
    ("run.sh --no-build 64", "HUP"), ("run.sh 64", "TERM"), ("count.sh 1", "TERM"),
    ("compare_gpus.sh --no-build --standard", "TERM"), ("compare_gpus.sh --standard", "TERM"),
    ("compare_gpus.sh --standard", "INT")])
def test_an_interrupt_ends_all_within_a_second(machine, tmp_path, command, name):
    """One that reaches the script's first process alone. Without --no-build it builds meanwhile."""
    slow = SLOW.replace("DESCRIPTION", json.dumps(description("x", [4096])))
    for path in ("1_matmul_basic", "bin/scons"):
        machine.install(machine.root / path, slow)
    mark = f"MARK={uuid.uuid4()}"
    started = tmp_path / "started"
    env = {**os.environ, **dict([mark.split("=")]), "STARTED": str(started), "TILE": "0",
           "PATH": f"{machine.root}/bin:{os.environ['PATH']}"}
    process = subprocess.Popen(["bash", *f"scripts/{command}".split()], cwd=machine.root, env=env,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True,
                               preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
    deadline = time.monotonic() + 30
    while not started.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    if not started.exists() and "nvcc" in (process.poll() is not None and process.stderr.read()
                                           or ""):
        pytest.skip("no CUDA toolkit here")
    assert started.exists()
    begun = time.monotonic()
    process.send_signal(getattr(signal, f"SIG{name}"))
    _, said = process.communicate(timeout=30)
    assert time.monotonic() - begun < 1
    assert process.returncode == INTERRUPTED
    assert "Traceback" not in said
    assert left_of(mark) == []


def test_an_interrupt_ends_the_workers_of_a_plot(tmp_path):
    python = fakes.python_with_matplotlib()
    a = write_measured(tmp_path / "a.csv", "NVIDIA H200")
    mark = f"MARK={uuid.uuid4()}"
    process = subprocess.Popen([python, ROOT / "scripts/plot.py", "--out", tmp_path / "out", a],
                               env={**os.environ, **dict([mark.split("=")])},
                               stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (tmp_path / "out").exists():
        time.sleep(0.02)
    time.sleep(0.3)
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (INTERRUPTED, "")
    assert time.monotonic() - begun < 1
    assert left_of(mark) == []


def test_two_do_not_measure_at_once(machine):
    (machine.root / "build").mkdir()
    folder = os.open(machine.root / "build", os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    done = machine.run("compare_gpus.sh", "--standard")
    os.close(folder)
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert_one_line(done.stderr, "compare_gpus.sh")
    assert "another" in done.stderr


def test_gpus_with_names_alike_have_files_of_their_own(machine):
    machine.has("GPU 0: A b (UUID: GPU-aaa)", "GPU 1: a-B (UUID: GPU-bbb)",
                "GPU 2: \u7845 (UUID: GPU-ccc)")
    done = machine.run("compare_gpus.sh", "--sizes", "64", "--programs", "1",
                       env={"LC_ALL": "tr_TR.UTF-8"})
    assert done.returncode == 0, done.stderr
    files = {path.name for path in (machine.root / "build/results").iterdir()}
    assert files == {"a-b-0.csv", "a-b-1.csv", "gpu.csv"}
