// What a GPU can do at most: by its data sheet or, if that is not listed, by arithmetic.
#include "internal.hpp"

namespace demo {

double peak_tflops(const std::string& gpu, int capability, int multiprocessors, double boost_ghz,
                   const std::string& dtype) {
    auto times = [&](double factor, const char* type) {
        return factor * peak_tflops(gpu, capability, multiprocessors, boost_ghz, type);
    };
    const bool geforce = gpu.find("GeForce") != std::string::npos;
    // Not looked up, since data sheets agree: fp8 is twice as fast as fp16, and so is int8, four
    // times on GeForce, which halves what sums in fp32; on 10.3 int8 is twice as fast as fp32. fp64
    // is as fast as fp32 on 8.0 and 9.0, half as fast on 10.0; other GPUs have few units for it.
    if (dtype == "fp8") return capability >= 89 ? times(2, "fp16") : 0;
    if (dtype == "int8") return times(geforce ? 4 : 2, capability == 103 ? "fp32" : "fp16");
    if (dtype == "fp64") {
        const bool full = capability == 80 || capability == 90;
        return times(full                ? 1
                     : capability == 100 ? 0.5
                     : capability < 80   ? 1. / 32
                                         : 1. / 64,
                     "fp32");
    }
    auto of = [&](double fp32, double tf32, double fp16, double bf16) {
        return dtype == "fp32" ? fp32 : dtype == "tf32" ? tf32 : dtype == "fp16" ? fp16 : bf16;
    };
#define DATA_SHEET(name, capability, multiprocessors, fp32, tf32, fp16, bf16, gb_per_s) \
    if (const double listed = of(fp32, tf32, fp16, bf16); gpu == name && listed > 0) return listed;
#include "data_sheets.inc"
#undef DATA_SHEET

    // Multiply-adds per multiprocessor and cycle: the CUDA Programming Guide's table of arithmetic
    // throughput for fp32, and the architectures' whitepapers for tensor cores.
    const bool wide = capability >= 86;  // 128 fp32 units, else 64
    double fp32 = wide ? 128 : 64, fp16 = 512;
    if (capability >= 100 && capability < 120)
        fp16 = 4096;
    else if (capability / 10 == 9)
        fp16 = 2048;
    else if (capability == 80)
        fp16 = 1024;
    if (geforce) fp16 /= 2;                // where they sum in fp32
    const bool ampere = capability >= 80;  // has TF32 and bf16
    return 2e-3 * multiprocessors * boost_ghz *
           of(fp32, ampere ? fp16 / 2 : 0, fp16, ampere ? fp16 : 0);
}

double peak_gb_per_s(const std::string& gpu) {
#define DATA_SHEET(name, capability, multiprocessors, fp32, tf32, fp16, bf16, gb_per_s) \
    if (gpu == name) return gb_per_s;
#include "data_sheets.inc"
#undef DATA_SHEET
    return 0;
}

std::string limit_of(const Workload& work, double tflops, double gb_per_s) {
    if (tflops <= 0 || gb_per_s <= 0) return "";
    const double moving = double(work.least_bytes) / gb_per_s / 1e6;
    const double computing = work.flops / tflops / 1e9;
    const bool memory = moving > computing;
    return (memory ? "memory" : work.dtype + " products") + ", " +
           significant((memory ? moving : computing) / 0.9, 3) + " ms at 90%";
}

}  // namespace demo
