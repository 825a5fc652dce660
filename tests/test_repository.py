"""What clangd and editors are told of the sources: scripts/compile_commands.py."""

import json
import shutil
import subprocess

import pytest

from fakes import script
from suite import PROGRAMS, ROOT


@pytest.fixture(scope="module")
def compile_commands():
    done = script("compile_commands.py")
    assert done.returncode == 0, done.stderr
    commands = json.loads((ROOT / "compile_commands.json").read_text(encoding="utf-8"))
    return {command["file"]: command for command in commands}


def test_clangd_is_told_of_every_program_and_header_of_kernels(compile_commands):
    kernels = [path.relative_to(ROOT).as_posix() for path in (ROOT / "src").glob("*/*.cuh")]
    harness = [path.relative_to(ROOT).as_posix() for path in (ROOT / "src/demo").glob("*.c*")]
    assert {*compile_commands} > {*(f"src/{name}.cu" for name in PROGRAMS), *kernels, *harness}
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
