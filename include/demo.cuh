// What the programs share, so that each of them can be about its kernel. In reading order:
//
//   demo/program.hpp       what a program declares: types, sizes, options; what the user asked for
//   demo/error_bounds.hpp  what a right result is: the fp64 value and how far rounding may go
//   demo/workload.hpp      what it computes: arrays, parameters, operations; the dry run
//   demo/numbers.hpp       medians, spreads, byte counts that do not wrap, figures as text
//   demo/errors.hpp        exit codes; the one line that a program ends with
//   demo/device.cuh        the GPU, its memory (Buffer), its clock (EventTimer), DEMO_CHECK
//   demo/verify.cuh        comparing an output with an fp64 reference, on the GPU
//   demo/inputs.cuh        random data, which can be made again and compared
//   demo/contender.cuh     what is compared (Contender), and what came of it (Result)
//   demo/session.cuh       one run: Session::run(), main_of()
//   demo/data.cuh          a program's inputs and outputs
//
// What parses, measures and prints is in src/demo/, where internal.hpp lists it. Go on there with
// main_of() and Session::run() in session.cu, and with take_turn() in measure.cu, which times a
// kernel. The rest of demo/, such as cublas.cuh, is included by the programs that need it.
//
// Everything in here that runs on the GPU serves to check and to measure. The kernels that a
// program teaches, and their launches, are in the program.
#pragma once

#include "demo/data.cuh"  // and with it all of them
