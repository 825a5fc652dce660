// The peaks of GPUs: those of data sheets, and the arithmetic for all others.
#include <gtest/gtest.h>

#include "demo/internal.hpp"

namespace {

using demo::peak_tflops;

TEST(Peak, OfAKnownGpuIsTheDataSheets) {
    // Whatever its clock and its multiprocessors are said to be.
    EXPECT_EQ(peak_tflops("NVIDIA H200", 90, 1, 1, "fp32"), 67);
    EXPECT_EQ(peak_tflops("NVIDIA H200", 90, 132, 1.98, "tf32"), 494.7);
    EXPECT_EQ(peak_tflops("NVIDIA H200", 90, 132, 1.98, "fp16"), 989.4);
    EXPECT_EQ(peak_tflops("NVIDIA H200", 90, 132, 1.98, "bf16"), 989.4);
    EXPECT_EQ(peak_tflops("Tesla T4", 75, 40, 1.59, "bf16"), 0);
}

/// An A10 that nobody looked up: its data sheet says 31.2, 62.5, 125 and 125 (at 1.695 GHz).
TEST(Peak, OfAnUnknownGpuFollowsFromItsUnitsAndItsClock) {
    EXPECT_NEAR(peak_tflops("NVIDIA A10X", 86, 72, 1.695, "fp32"), 31.2, 0.1);
    EXPECT_NEAR(peak_tflops("NVIDIA A10X", 86, 72, 1.695, "tf32"), 62.5, 0.1);
    EXPECT_NEAR(peak_tflops("NVIDIA A10X", 86, 72, 1.695, "fp16"), 125, 0.1);
    EXPECT_NEAR(peak_tflops("NVIDIA A10X", 86, 72, 1.695, "bf16"), 125, 0.1);
}

TEST(Peak, ArithmeticAgreesWithDataSheets) {
    struct Known {
        const char* name;
        int capability, multiprocessors;
        double boost_ghz;
    };
    for (const Known& gpu : {Known{"NVIDIA A100-SXM4-80GB", 80, 108, 1.41},
                             {"NVIDIA A40", 86, 84, 1.74},
                             {"NVIDIA L40S", 89, 142, 2.52},
                             {"NVIDIA GeForce RTX 5090", 120, 170, 2.407},
                             {"NVIDIA GeForce RTX 5060 Ti", 120, 36, 2.572},
                             {"NVIDIA GeForce RTX 4090", 89, 128, 2.52},
                             {"NVIDIA GeForce RTX 4050 Laptop GPU", 89, 20, 2.37},
                             {"NVIDIA GeForce RTX 3090", 86, 82, 1.695},
                             {"NVIDIA GeForce RTX 3050", 86, 20, 1.777},
                             {"NVIDIA GeForce RTX 2080 Ti", 75, 68, 1.635},
                             {"NVIDIA GeForce RTX 2060", 75, 30, 1.68},
                             {"Tesla T4", 75, 40, 1.59}})
        for (const char* dtype : {"fp32", "tf32", "fp16", "bf16"}) {
            const double listed = peak_tflops(gpu.name, gpu.capability, 1, 1, dtype);
            const bool geforce = std::string(gpu.name).find("GeForce") != std::string::npos;
            const double computed = peak_tflops(geforce ? "A GeForce" : "Another", gpu.capability,
                                                gpu.multiprocessors, gpu.boost_ghz, dtype);
            EXPECT_NEAR(computed, listed, 0.02 * listed) << gpu.name << " " << dtype;
        }
}

TEST(Peak, OfFp64Int8AndFp8FollowsFromOtherTypes) {
    struct Known {
        const char* name;
        int capability;
        double fp64, int8, fp8;
    };
    // By the data sheets, of GeForce by the whitepapers on GA102 and Ada. fp64 of those that are
    // not for it: one 64th of fp32, on Turing a 32nd.
    for (const Known& gpu : {Known{"NVIDIA B200", 100, 37, 4500, 4500},
                             {"NVIDIA H200", 90, 67, 1979, 1979},
                             {"NVIDIA H100 PCIe", 90, 51, 1513, 1513},
                             {"NVIDIA A100-SXM4-80GB", 80, 19.5, 624, 0},
                             {"NVIDIA A30", 80, 10.3, 330, 0},
                             {"NVIDIA L40S", 89, 1.43, 733, 733},
                             {"Tesla T4", 75, 0.253, 130, 0},
                             {"NVIDIA GeForce RTX 4090", 89, 1.29, 660.6, 330.3},
                             {"NVIDIA GeForce RTX 3090", 86, 0.556, 284.7, 0}}) {
        auto expect = [&](const char* dtype, double listed) {
            EXPECT_NEAR(peak_tflops(gpu.name, gpu.capability, 1, 1, dtype), listed, 0.02 * listed)
                << gpu.name << " " << dtype;
        };
        expect("fp64", gpu.fp64), expect("int8", gpu.int8), expect("fp8", gpu.fp8);
    }
}

TEST(Peak, OfGeForceIsHalfOnTensorCoresThatSumInFp32) {
    for (const char* dtype : {"tf32", "fp16", "bf16"})
        EXPECT_DOUBLE_EQ(2 * peak_tflops("NVIDIA GeForce RTX 0", 86, 80, 1.7, dtype),
                         peak_tflops("NVIDIA RTX A0", 86, 80, 1.7, dtype));
    EXPECT_DOUBLE_EQ(peak_tflops("NVIDIA GeForce RTX 0", 86, 80, 1.7, "fp32"),
                     peak_tflops("NVIDIA RTX A0", 86, 80, 1.7, "fp32"));
}

TEST(Peak, TuringHasNeitherTf32NorBf16) {
    EXPECT_EQ(peak_tflops("Quadro RTX 0", 75, 72, 1.77, "tf32"), 0);
    EXPECT_EQ(peak_tflops("Quadro RTX 0", 75, 72, 1.77, "bf16"), 0);
    EXPECT_GT(peak_tflops("Quadro RTX 0", 75, 72, 1.77, "fp16"), 0);
}

/// By hand. tests/test_gpus_page.py reads these lines, too: docs/gpus.md must say the same.
TEST(Limit, IsTheLongerOfMovingAndComputing) {
    const demo::Workload product{"square", 4096, "fp16", 137438953472, 100663296};
    const demo::Workload talk{"talk", 1024, "fp16", 137438953472, 1610645760, true};
    const demo::Workload gelu{"square", 4096, "fp32", 150994944, 134217728, true};
    auto on = [](const char* gpu, int capability, const demo::Workload& work) {
        return demo::limit_of(work, peak_tflops(gpu, capability, 1, 1, work.dtype),
                              demo::peak_gb_per_s(gpu));
    };
    // 137.4e9 / 65e12 = 2.114 ms; 1.611e9 / 320e9 = 5.033 ms; 0.1342e9 / 320e9 = 0.4194 ms.
    EXPECT_EQ(on("Tesla T4", 75, product), "fp16 products, 2.35 ms at 90%");
    EXPECT_EQ(on("Tesla T4", 75, talk), "memory, 5.59 ms at 90%");
    EXPECT_EQ(on("Tesla T4", 75, gelu), "memory, 0.466 ms at 90%");
    // 137.4e9 / 25.5e12 = 5.390 ms; 1.611e9 / 360e9 = 4.474 ms; 0.1342e9 / 360e9 = 0.3728 ms.
    EXPECT_EQ(on("NVIDIA GeForce RTX 3060", 86, product), "fp16 products, 5.99 ms at 90%");
    EXPECT_EQ(on("NVIDIA GeForce RTX 3060", 86, talk), "fp16 products, 5.99 ms at 90%");
    EXPECT_EQ(on("NVIDIA GeForce RTX 3060", 86, gelu), "memory, 0.414 ms at 90%");
    // 137.4e9 / 209.5e12 = 0.6560 ms; 1.611e9 / 1792e9 = 0.8988 ms; 0.1342e9 / 1792e9 = 0.07490 ms.
    EXPECT_EQ(on("NVIDIA GeForce RTX 5090", 120, product), "fp16 products, 0.729 ms at 90%");
    EXPECT_EQ(on("NVIDIA GeForce RTX 5090", 120, talk), "memory, 0.999 ms at 90%");
    EXPECT_EQ(on("NVIDIA GeForce RTX 5090", 120, gelu), "memory, 0.0832 ms at 90%");
}

TEST(Limit, IsUnknownWhereARateIs) {
    const demo::Workload product{"square", 4096, "bf16", 137438953472, 100663296};
    EXPECT_EQ(demo::limit_of(product, 0, 320), "");
    EXPECT_EQ(demo::limit_of(product, 65, 0), "");
}

/// NVIDIA states no fp32 of GB10, so it follows from units and clock; and no bf16 of the T4.
TEST(Peak, ThatADataSheetLacksIsComputed) {
    EXPECT_NEAR(peak_tflops("NVIDIA GB10", 121, 48, 2.418, "fp32"), 29.7, 0.1);
    EXPECT_EQ(peak_tflops("NVIDIA GB10", 121, 48, 2.418, "fp16"), 125);
    EXPECT_NEAR(peak_tflops("NVIDIA GB300", 103, 1, 1, "int8"), 24e3 / 72 / 2, 7);  // of NVL72
}

TEST(Peak, IsUnknownWithoutAClock) { EXPECT_EQ(peak_tflops("CPU simulation", 0, 4, 0, "fp32"), 0); }

}  // namespace
