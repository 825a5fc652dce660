"""How scripts end where something is wrong: with one line on stderr and the exit status that it
calls for, without a traceback; interrupted, within a second, and nothing runs on."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from fakes import (FakeMachine, copy_folders, description, python_with_matplotlib, row, script,
                   write_csv, write_measured)
from suite import FAILED, ROOT, USAGE, assert_one_line

import command_line

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
    code = ("import sys; sys.path.insert(0, sys.argv.pop()); import command_line; "
            "command_line.run(lambda _: print('\\u00e9'))")
    done = subprocess.run([sys.executable, "-c", code, ROOT / "scripts/shared"], text=True,
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


@pytest.mark.parametrize("command", [
    ["compare_gpus.sh", "--out", "--fresh"], ["step.sh", "--kernel", "--cpu", "2"],
    ["profile.sh", "--trace", "--all", "true"]], ids=" ".join)
def test_an_option_is_no_value(command):
    done = script(*command)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, command[0])


@pytest.mark.parametrize("command", ["count.sh", "step.sh"])
def test_what_is_built_needs_nothing_to_build_with(tmp_path, command):
    """Neither SCons nor a compiler is asked for where the program is newer than its source."""
    copy_folders(tmp_path, "scripts", "src")
    for folder in ("include", "simulator", "cpu/count", "cpu/debug", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "SConstruct").touch()
    for folder in ("cpu", "cpu/count", "cpu/debug"):
        FakeMachine.install(tmp_path / folder / "2_matmul_sharedmem",
                            '#!/bin/sh\necho "2: this ran" >&2\nexit 77\n')
    for name in ("scons", "python3"):  # which has no SCons
        FakeMachine.install(tmp_path / "bin" / name, f'#!/bin/sh\ncase "$*" in *SCons*|--version) '
                            f'exit 1;; esac\nexec "{sys.executable}" "$@"\n')
    FakeMachine.install(tmp_path / "bin/id", "#!/bin/sh\necho 1000\n")  # nothing is installed
    FakeMachine.install(tmp_path / "bin/gdb", "#!/bin/sh\necho yes\n")
    cpu = ["--cpu"] * (command == "step.sh")
    path = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "CXX": "no_compiler"}
    done = script(command, *cpu, "2", root=tmp_path, env=path)
    assert done.returncode == 77 and "2: this ran" in done.stderr
    later = time.time() + 5
    for name in (".2_matmul_sharedmem.cu.swp", "#2_matmul_sharedmem.cu#", "2_matmul_sharedmem.cu~",
                 "kernels"):  # an editor's, and a folder where something of its was
        (tmp_path / "src" / name).touch()
        os.utime(tmp_path / "src" / name, (later, later))
    done = script(command, *cpu, "2", root=tmp_path, env=path)
    assert done.returncode == 77 and "2: this ran" in done.stderr
    os.utime(tmp_path / "src/2_matmul_sharedmem.cu", (later, later))
    done = script(command, *cpu, "2", root=tmp_path, env=path)
    assert done.returncode == FAILED and "no_compiler" in done.stderr


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
    code = ("import resource, sys; sys.path.insert(0, sys.argv[1]); import command_line; "
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); sys.exit("
            "command_line.attempt('x.py', command_line.write_text, sys.argv[2], 'x' * 9999))")
    done = subprocess.run([sys.executable, "-c", code, ROOT / "scripts/shared",
                           tmp_path / "report.html"], capture_output=True, text=True)
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
    ("compare_gpus.sh --no-build --quick", "TERM"), ("compare_gpus.sh --quick", "TERM"),
    ("compare_gpus.sh --quick", "INT")])
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
    python = python_with_matplotlib()
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
    done = machine.run("compare_gpus.sh", "--quick")
    os.close(folder)
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert_one_line(done.stderr, "compare_gpus.sh")
    assert "another" in done.stderr


def test_gpus_with_names_alike_have_files_of_their_own(machine):
    machine.has("GPU 0: A b (UUID: GPU-aaa)", "GPU 1: a-B (UUID: GPU-bbb)",
                "GPU 2: \u7845 (UUID: GPU-ccc)")
    done = machine.run("compare_gpus.sh", "--quick", "--programs", "1",
                       env={"LC_ALL": "tr_TR.UTF-8"})
    assert done.returncode == 0, done.stderr
    files = {path.name for path in (machine.root / "build/results").iterdir()}
    assert files == {"a-b-0.csv", "a-b-1.csv", "gpu.csv"}
