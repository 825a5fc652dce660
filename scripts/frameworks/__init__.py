"""What compare_frameworks.py compares our programs with.

A file that has the name of a program, such as 7_gelu.py, is that program's page:

  formula(*inputs)  what the program computes, written in plain PyTorch
  SIZES             the sizes to compare: N;
  TALK, SHAPES      the same for --talk S, and for --rows R --cols C
  RUNS              whole command lines of our program, where a size says too little
  TILE              (program, kernel, ...): our kernels of the same work in CUDA Tile C++, and the
                    program that runs them (optional)
  OPTIONS           of our program, where it needs some (optional)
  peers(problem)    {name of the column: peers.Peer}
  expected(dtype, inputs, rows)
                    (values, tolerance) of these rows of the output; without it,
                    verification.elementwise() derives them from the formula (optional)

The inputs come in the order in which the program's --describe lists them. The other files are
shared by the pages.
"""
