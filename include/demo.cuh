// What the programs share, so that each of them can be about its kernel.
//
//   demo/command_line.hpp  what a program declares: types, sizes, options; the command line, --help
//   demo/plan.hpp          the dry run: what there will be in memory, and which kernels
//   demo/describe.hpp      --describe: all of that as JSON, for scripts
//   demo/errors.hpp        exit codes; the one line that a program ends with
//   demo/device.cuh        the GPU, its memory (Buffer), launching, DEMO_CHECK
//   demo/peak.hpp          what a GPU can do at most
//   demo/error_bounds.hpp  what a right result is: the fp64 value and how far rounding may go
//   demo/verify.cuh        comparing an output with an fp64 reference, on the GPU
//   demo/inputs.cuh        random data, which can be made again and compared
//   demo/measure.cuh       timing kernels in turns (Contender, Measurement)
//   demo/report.cuh        printing results
//   demo/session.cuh       one run: Session::run(), main_of()
//   demo/data.cuh          a program's inputs and outputs
//   demo/numbers.hpp       medians, spreads, byte counts that do not wrap
//
// and what only some of them need, included where it is needed:
//
//   demo/matmul.cuh        C = A B: data, reference, operations; likewise the next three
//   demo/gating.cuh        out = sigmoid(x W1 + b1) * (x W2 + b2)
//   demo/rows.cuh          operations on the elements or the rows of a matrix
//   demo/softmax.cuh       softmax of a matrix's rows
//   demo/memory.cuh        bonus_memory: a chain through a working set, sums of loads, samples
//   demo/copy.cuh          a device copy, the yardstick where memory is the limit
//   demo/cublas.cuh        cuBLAS: its handle, and a gemm as a yardstick
//   demo/cublaslt.cuh      cuBLASLt: the fastest of the algorithms that it proposes
//   demo/graph.cuh         several launches as one: a CUDA graph
//   demo/choose.cuh        choosing the faster of several ways before anything is measured
//   demo/ranks.cuh         ranks, NCCL, and a watchdog for ranks that do not answer
//   demo/gpus.cuh          launches on several GPUs, and NCCL between them
//   demo/gated_layer.cuh   gating and one more product, on several GPUs
//
// Everything in here that runs on the GPU serves to check and to measure. The kernels that a
// program teaches, and their launches, are in the program.
#pragma once

#include "demo/command_line.hpp"
#include "demo/data.cuh"
#include "demo/describe.hpp"
#include "demo/device.cuh"
#include "demo/error_bounds.hpp"
#include "demo/errors.hpp"
#include "demo/inputs.cuh"
#include "demo/measure.cuh"
#include "demo/numbers.hpp"
#include "demo/peak.hpp"
#include "demo/plan.hpp"
#include "demo/report.cuh"
#include "demo/session.cuh"
#include "demo/verify.cuh"
