"""What scripts/compare_frameworks.py compares our programs with: PyTorch and Triton.

A file that has the name of a program, such as 7_gelu.py, is that program's page:

  formula(*inputs)  what the program computes, written in plain PyTorch
  peers(problem)    {name of the column: torch_demo.Peer}
  SIZES             the sizes to compare: N;
  TALK, SHAPES      the same for --talk S, and for --rows R --cols C
  RUNS              whole command lines of our program, where a size says too little
  TILE              (program, kernel, ...): our kernels of the same work in CUDA Tile C++, and the
                    program that runs them (optional)
  OPTIONS           of our program, where it needs some (optional)
  expected(dtype, inputs, rows)
                    (values, tolerance) of these rows of the output; without it,
                    verification.elementwise() derives them from the formula (optional)
  problem(N)        the same problem as the program's --describe has: for a page that also runs
                    alone, as in python3 scripts/frameworks/7_gelu.py 4096 (optional)

The inputs come in the order in which the program's --describe lists them. What pages are written
with is in torch_demo.py; the other files are shared by some pages, or stand behind torch_demo.py.
"""

import importlib.util
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.append(str(FOLDER))  # of torch_demo, which a page that runs alone finds beside it


def load_page(name, folder=FOLDER):
    """The page of a program: by its path, since a module's name cannot begin with a digit."""
    spec = importlib.util.spec_from_file_location(f"frameworks.of_{name}", folder / f"{name}.py")
    page = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = page  # torch.compile looks it up there
    spec.loader.exec_module(page)
    return page
