// The suite's fastest matmuls, for programs that show them below their own kernels.
#pragma once

#include <memory>

#include "matmul/matmul_hopper_record.cuh"
#include "matmul/matmul_mma.cuh"

/// C = A B, all [N, N] row-major, as Session::run() takes records: the fastest first.
inline std::vector<demo::Contender> matmul_records(const half* A, const half* B, half* C, size_t N,
                                                   const demo::Gpu& gpu) {
    auto prepare_hopper = [=, &gpu](demo::Contender& self) {
        const auto exchange = std::make_shared<matmul_hopper::ExchangeBuffers>(gpu.multiprocessors);
        const matmul_hopper::Operands<half> operands{A, B, C, N, *exchange};
        const matmul_hopper::Machine machine = matmul_hopper::machine_of(gpu);
        const auto launch = matmul_hopper::prepare(operands, machine);
        self.launch = [exchange, launch] { launch(); };
        self.launches = matmul_hopper::count_launches(N, machine);
    };
    auto prepare_mma = [=, &gpu](demo::Contender& self) {
        self.launch = matmul_mma::prepare_mma_ptx<half>(A, B, C, N, gpu);
    };
    return {demo::record("bonus_matmul_hopper", {.kernel = "matmul_hopper",
                                                 .setup = prepare_hopper,
                                                 .why_not = hopper::why_not(gpu)}),
            demo::record("bonus_matmul_mma", {.kernel = "mma_ptx", .setup = prepare_mma})};
}
