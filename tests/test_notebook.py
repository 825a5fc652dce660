"""docs/colab.ipynb: how it is committed; and what it does, on the simulator, in a copy of this tree
with what is built of it."""

import base64
import json
import os
import re
import shutil
import subprocess

import pytest

from fakes import FakeMachine, copy_tree, python_with
from suite import ROOT, read_rows

pytestmark = pytest.mark.full

NOTEBOOK = ROOT / "docs/colab.ipynb"
SHOWN = ["1_matmul_basic", "2_matmul_sharedmem", "3_matmul_tensorcore", "5_gating_unfused",
         "6_gating_fused"]
EXECUTE = """
import sys
import nbclient, nbformat
notebook = nbformat.read(sys.argv[1], 4)
try:
    nbclient.NotebookClient(notebook, kernel_name="python3", timeout=200).execute()
finally:
    nbformat.write(notebook, sys.argv[2])
"""


# --- As it is committed ---------------------------------------------------------------------------


def committed():
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


# --- As it runs -----------------------------------------------------------------------------------

RUNNER = "a notebook runner", "import ipykernel, nbclient"


def execute(notebook, folder, **environment):
    """Executes a notebook in a folder where there is nothing else, as if there were no GPU. Returns
    what the runner did, and the notebook with its outputs."""
    python = python_with(*RUNNER)
    (folder / "bin").mkdir(parents=True)
    FakeMachine.install(folder / "bin/nvidia-smi", "#!/bin/sh\nexit 9\n")
    (folder / "in.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    (folder / "here").mkdir()
    own = {f"{name}_DIR": str(folder / name.lower())
           for name in ("JUPYTER_CONFIG", "JUPYTER_DATA", "JUPYTER_RUNTIME")}
    environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", **own,
                   "IPYTHONDIR": str(folder / "ipython"), **environment}
    done = subprocess.run([python, "-c", EXECUTE, "../in.ipynb", "../out.ipynb"], timeout=300,
                          cwd=folder / "here", env=environment, capture_output=True, text=True)
    return done, json.loads((folder / "out.ipynb").read_text(encoding="utf-8"))


def test_it_clones_what_the_address_names(tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    (there / "SConstruct").touch()
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for command in ["init -q", "add SConstruct", "commit -q -m x"]:
        subprocess.run(git + command.split(), cwd=there, check=True)
    notebook = committed()
    first = code_cells(notebook)[0]
    without = {**first, "id": "without", "metadata": {"tags": ["raises-exception"]}}
    given = {**first, "id": "given", "source": f'os.environ["DEMO_REPOSITORY"] = "file://{there}"'}
    again = {**first, "id": "again"}
    done, notebook = execute({**notebook, "cells": [without, given, first, again]},
                             tmp_path / "run", DEMO_REPOSITORY="")
    assert done.returncode == 0, done.stderr
    [*_, error] = notebook["cells"][0]["outputs"]
    assert re.fullmatch("no address of the programs: .*", error["evalue"])
    assert (tmp_path / "run/here/gpu-demos/SConstruct").exists()
    assert not list((tmp_path / "run/here/gpu-demos").glob("gpu-demos"))


class Executed:
    """The whole notebook, after it has run."""

    def __init__(self, folder):
        self.tree = folder / "tree"
        copy_tree(self.tree)
        for folder_of_programs in ("cpu", "cpu/count"):  # each looks for the one that counts there
            (self.tree / folder_of_programs).mkdir()
            for path in [ROOT / folder_of_programs / name for name in SHOWN]:
                if path.exists():
                    shutil.copy2(path, self.tree / folder_of_programs)
        if (ROOT / ".venv").exists():
            (self.tree / ".venv").symlink_to(ROOT / ".venv")
        done, notebook = execute(committed(), folder, DEMO_REPOSITORY=str(self.tree))
        assert done.returncode == 0, done.stderr[-5000:]
        self.outputs = {cell["id"]: cell["outputs"] for cell in code_cells(notebook)}

    def text(self, cell):
        """What a cell printed."""
        return "".join("".join(output["text"]) for output in self.outputs[cell]
                       if output["output_type"] == "stream").replace("\r\n", "\n")

    def pictures(self, cell):
        return [base64.b64decode(output["data"]["image/png"]) for output in self.outputs[cell]
                if "image/png" in output.get("data", {})]


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    python_with(*RUNNER)
    for built in (".sconsign.dblite", "build/cpu/release", "cpu/count/2_matmul_sharedmem",
                  *(f"cpu/{program}" for program in SHOWN)):
        if not (ROOT / built).exists():
            pytest.skip(f"{built} is not built: scons cpu")
    return Executed(tmp_path_factory.mktemp("notebook"))


def test_without_a_gpu_it_says_what_the_times_are(executed):
    assert "No GPU here" in executed.text("gpu")
    assert "say nothing about a GPU" in executed.text("gpu")


@pytest.mark.parametrize("cell, program, runs", [
    ("basic", "1_matmul_basic", 1), ("sharedmem", "2_matmul_sharedmem", 1),
    ("mine", "2_matmul_sharedmem", 1), ("tensorcore", "3_matmul_tensorcore", 1),
    ("unfused", "5_gating_unfused", 2), ("fused", "6_gating_fused", 2),
])
def test_every_program_is_verified(executed, cell, program, runs):
    text = executed.text(cell)
    assert text.count(f"{program} on CPU simulation (not a GPU)") == runs, text
    assert len(re.findall(r"^  \w+ .* verified$", text, re.MULTILINE)) >= runs, text
    assert "WRONG" not in text and ("  mine  " in text) == (cell == "mine")


def test_what_it_measures_is_verified(executed):
    rows = read_rows((executed.tree / "build/measured.csv").read_text())
    assert {row["program"] for row in rows} == set(SHOWN)
    assert {row["verified"] for row in rows} == {"yes"}
    assert {(row["shape"], row["n"]) for row in rows} == {("square", "64"), ("talk", "16")}
    assert executed.text("measure") == f"{len(rows)} results, all verified\n"


def test_the_pictures_are_there(executed):
    table, _, said = executed.text("pictures").partition("plot.py: ")
    assert "fused_hopper" in table and said.startswith("wrote ")
    pictures = executed.pictures("pictures")
    assert len(pictures) == 2
    for picture in pictures:
        assert picture.startswith(b"\x89PNG") and int.from_bytes(picture[16:20], "big") > 1000


def per_request(text):
    """{kind of access: sectors a request} of the first table that a program printed."""
    table = text.partition("one launch")[2].partition("  line ")[0]
    return {kind: float(number) for kind, number in re.findall(
        r"^ +(global \w+) .* ([\d.]+) *$", table, re.MULTILINE)}


def test_the_exercise_is_right_and_touches_more_sectors(executed):
    assert per_request(executed.text("counts")) == {"global loads": 2.5, "global stores": 4}
    text = executed.text("exercise")
    assert re.search(r"^  matmul_basic +verified$", text, re.MULTILINE)
    assert per_request(text) == {"global loads": 16.5, "global stores": 32}
    answer = next(cell for cell in committed()["cells"] if cell["id"] == "answer-text")
    assert "16.50" in "".join(answer["source"]) and "2.50" in "".join(answer["source"])


def test_it_ends_with_the_files_as_they_were(executed):
    for name in SHOWN:
        file = f"src/{name}.cu"
        assert (executed.tree / file).read_bytes() == (ROOT / file).read_bytes()


def test_it_shows_the_kernels(executed):
    shown = {}
    for cell, outputs in executed.outputs.items():
        for output in outputs:
            if "text/markdown" in output.get("data", {}):
                shown[cell] = "".join(output["data"]["text/markdown"])
    assert list(shown) == ["basic", "sharedmem", "tensorcore", "fused", "swap"]
    assert all(re.fullmatch(r"```cpp\n__global__ .*\n}\n```", text, re.DOTALL)
               for text in shown.values())
    before, after = shown["basic"], shown["swap"]
    assert after != before and sorted(after) == sorted(before)  # x and y are swapped
