// What the programs share, so that each of them can be about its kernel.
//
//   demo/command_line.hpp  [N] and the options, --help, what is wrong with an argument
//   demo/errors.hpp        exit codes; the one line that a program ends with
//   demo/device.cuh        the GPU, its memory (Buffer), random data (fill_uniform), DEMO_CHECK
//   demo/bounds.hpp        what a right result is: the fp64 value and how far rounding may go
//   demo/verify.cuh        comparing an output with an fp64 reference, on the GPU
//   demo/measure.cuh       timing kernels in turn (measure) and printing figures (Report)
//   demo/numbers.hpp       medians, spreads, byte counts that do not wrap
//
// Everything in here that runs on the GPU serves to check and to measure. The kernels that a
// program teaches, and their launches, are in the program.
#pragma once

#include "demo/bounds.hpp"
#include "demo/command_line.hpp"
#include "demo/device.cuh"
#include "demo/errors.hpp"
#include "demo/measure.cuh"
#include "demo/numbers.hpp"
#include "demo/verify.cuh"
