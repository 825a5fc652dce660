"""What the repository has for those who work on it: commands for clangd and editors, the tasks of
VS Code, the workflow, who wrote it and where it lives."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from suite import PROGRAMS, ROOT, USAGE, assert_one_line, build_lock, scons

# --- clangd -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compile_commands():
    done = scons("compile_commands", env={"CUDA_HOME": "/nowhere", "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    commands = json.loads((ROOT / "compile_commands.json").read_text(encoding="utf-8"))
    return {command["file"]: command for command in commands}


def test_clangd_is_told_of_every_program_and_header_of_kernels(compile_commands):
    kernels = [path.relative_to(ROOT).as_posix() for path in (ROOT / "src/kernels").glob("*.cuh")]
    assert {*compile_commands} > {*(f"src/{name}.cu" for name in PROGRAMS), *kernels}
    assert all(command["directory"] == str(ROOT) for command in compile_commands.values())


@pytest.mark.parametrize("file", ["src/2_matmul_sharedmem.cu", "include/demo/verify.cuh"])
def test_clang_finds_nothing_to_mark(compile_commands, file):
    """Neither <<< nor extern __shared__, and without CUDA's headers."""
    if not shutil.which("clang++"):
        pytest.skip("clang++ is not installed")
    command = compile_commands[file]
    done = subprocess.run([*command["arguments"][:-2], "-fsyntax-only", file], cwd=ROOT,
                          capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# --- VS Code, and a container -------------------------------------------------------------------


def read_json(name):
    return json.loads((ROOT / name).read_text(encoding="utf-8"))


TASKS = {task["label"]: task for task in read_json(".vscode/tasks.json")["tasks"]}
LAUNCHES = {one["name"]: one for one in read_json(".vscode/launch.json")["configurations"]}


def of_file(text, program="2_matmul_sharedmem"):
    """A command as VS Code calls it while this program's source is open."""
    return (text.replace("${fileBasenameNoExtension}", program)
            .replace("${workspaceFolder}", str(ROOT)))


@pytest.fixture(scope="module")
def with_scons(tmp_path_factory):
    """An environment in which a task finds SCons: the tests' own, if there is no other."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "scons").write_text(f"#!/bin/sh\nexec {sys.executable} -m SCons \"$@\"\n")
    (folder / "scons").chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def run_task(label, env):
    if subprocess.run([sys.executable, "-c", "import SCons"], capture_output=True).returncode:
        pytest.skip("SCons is not installed for this Python")
    with build_lock():
        return subprocess.run(["bash", "-c", of_file(TASKS[label]["command"])], cwd=ROOT, env=env,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)


def test_the_open_file_runs_on_the_simulator(with_scons):
    done = run_task("run this file on the simulator", with_scons)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2_matmul_sharedmem on CPU simulation" in done.stdout
    assert re.search(r"^ +matmul_sharedmem .* verified$", done.stdout, re.MULTILINE)


def test_the_debugger_gets_the_program_that_its_task_builds(with_scons):
    debug = LAUNCHES["debug this file on the simulator"]
    done = run_task(debug["preLaunchTask"], with_scons)
    assert done.returncode == 0, done.stdout + done.stderr
    if not shutil.which("gdb"):
        pytest.skip("gdb is not installed")
    setup = [word for command in debug["setupCommands"] if command["text"][0] != "-"
             for word in ("-ex", command["text"])]
    stop = ["-ex", "break 2_matmul_sharedmem.cu:44", "-ex", "run", "-ex", "print tile_A[y][x]"]
    done = subprocess.run(["gdb", "-q", "-nx", "-batch", *setup, *stop, "--args",
                           of_file(debug["program"]), *debug["args"]], cwd=of_file(debug["cwd"]),
                          capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert re.search(r"^44\t.*tile_B\[y\]\[x\] = B", done.stdout, re.MULTILINE), done.stderr
    assert re.search(r"^\$1 = -?0\.\d+", done.stdout, re.MULTILINE)


def test_tasks_call_what_there_is():
    targets = scons("-h").stdout
    for label, task in TASKS.items():
        for command in of_file(task["command"]).split(" && "):
            program, *words = command.split()
            targets_or_options = [word for word in words if word[0] != "-"]
            if program == "scons":
                for word in targets_or_options:
                    name = word.rpartition("/")[2]
                    assert name in PROGRAMS or word.split("=")[0] in targets, f"{label}: {word}"
            elif program.startswith("scripts/"):
                assert os.access(ROOT / program, os.X_OK), f"{label}: {program}"
            else:
                assert program.rpartition("/")[2] in PROGRAMS, f"{label}: {program}"
    assert {launch["preLaunchTask"] for launch in LAUNCHES.values()} <= set(TASKS)


def test_the_container_has_the_same_extensions_and_calls_what_there_is():
    container = read_json(".devcontainer/devcontainer.json")
    extensions = read_json(".vscode/extensions.json")["recommendations"]
    assert container["customizations"]["vscode"]["extensions"] == extensions
    scripts = re.findall(r"\bscripts/\S+", container["postCreateCommand"])
    assert scripts and all(os.access(ROOT / script, os.X_OK) for script in scripts)
    assert container["postCreateCommand"].endswith(".venv/bin/scons compile_commands")


# --- The workflow -------------------------------------------------------------------------------

WORKFLOW = ROOT / ".github/workflows/tests.yml"


@pytest.fixture(scope="module")
def lanes_and_steps():
    yaml = pytest.importorskip("ruamel.yaml", reason="ruamel.yaml is not installed")
    job, = yaml.YAML(typ="safe").load(WORKFLOW.read_text(encoding="utf-8"))["jobs"].values()
    return job["strategy"]["matrix"]["include"], job["steps"]


@pytest.mark.parametrize("file, schema", [(".github/workflows/tests.yml", "github-workflows"),
                                          ("CITATION.cff", "citation-file-format")])
def test_by_its_schema(file, schema):
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed")
    done = subprocess.run([sys.executable, "-m", "check_jsonschema", "--builtin-schema",
                           f"vendor.{schema}", file], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_actionlint_finds_nothing():
    if not shutil.which("actionlint"):
        pytest.skip("actionlint is not installed")
    done = subprocess.run(["actionlint", str(WORKFLOW)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_lanes_are_both_systems_processors_and_compilers(lanes_and_steps):
    lanes, _ = lanes_and_steps
    assert {(lane["runner"], lane["compiler"]) for lane in lanes} == {
        (f"ubuntu-{system}{processor}", compiler) for system in ("22.04", "24.04")
        for processor in ("", "-arm") for compiler in ("g++", "clang++")}
    assert any(lane["cuda"] for lane in lanes)


def test_steps_call_what_there_is(lanes_and_steps, tmp_path):
    _, steps = lanes_and_steps
    called = [step for step in steps if "run" in step]
    for step in called:
        script = tmp_path / "step.sh"
        script.write_text("#!/usr/bin/env bash\nset -e\n" + step["run"])
        checks = [["bash", "-n"]] + [["shellcheck"]] * bool(shutil.which("shellcheck"))
        for check in checks:
            done = subprocess.run([*check, str(script)], capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    command, = called[-1]["run"].splitlines()
    done = subprocess.run([ROOT / command, "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert all(re.search(rf"\b{name}\b", done.stdout) for name in called[-1]["env"])


# --- Who and where ------------------------------------------------------------------------------


def test_author_and_address_stand_in_one_place():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    authors = re.findall(r"^  - name: (.*)$", citation, re.MULTILINE)
    license_text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert re.search(r"^Copyright \(c\) \d+ (.*)$", license_text, re.MULTILINE)[1] == authors[0]
    address = re.search(r"^repository-code: (.*)$", citation, re.MULTILINE)
    notebook = (ROOT / "docs/colab.ipynb").read_text(encoding="utf-8")
    given = re.search(r'DEMO_REPOSITORY\\", \\"(.*?)\\"', notebook)[1]
    assert given == (address[1] if address else "")


def test_fresh_machines_names_are_checked_first():
    done = subprocess.run([ROOT / "tests/fresh_machines.sh", "debian-12", "bogus"], text=True,
                          capture_output=True)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "fresh_machines.sh")


def test_no_badge_claims_what_nobody_saw():
    for name in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not re.search(r"badge|shields\.io", text), name
