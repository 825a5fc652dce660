// One small tile kernel with a fault planted in it, whose name is the argument: what the simulator
// has to catch. `none` is the right one. (y = 2 x, of 128 x 40 numbers, in tiles of 32 x 16.)
#include <cuda_runtime.h>
#include <cuda_tile.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace ct = cuda::tiles;

enum Fault {
    kNone,
    kAlignment,
    kDivisor,
    kUnmaskedLoad,
    kUnmaskedStore,
    kNegativeIndex,
    kOneTileTooMany,
    kExtent,
    kNarrowExtent,
    kStep,
    kUninitialized,
    kThreads,
};

constexpr uint32_t kRows = 128, kColumns = 40, kTileRows = 32, kTileColumns = 16;

__tile_global__ void twice(Fault fault, const float* x, float* y, uint32_t rows, uint32_t columns) {
    x = ct::assume_aligned<16>(x);               // the alignment
    columns = ct::assume_divisible<8>(columns);  // the divisor
    const size_t wide = fault == kNarrowExtent ? 5000000000 : rows;
    const uint32_t out_rows = fault == kExtent ? 10000 : rows;
    auto X = ct::partition_view{ct::tensor_span{x, ct::extents{wide, columns}},
                                ct::shape<kTileRows, kTileColumns>{}};
    auto Y = ct::partition_view{ct::tensor_span{y, ct::extents{out_rows, columns}},
                                ct::shape<kTileRows, kTileColumns>{}};
    const int row = ct::bid().x, step = fault == kStep ? -1 : 1;
    const int end = int(columns + 15) / 16 + (fault == kOneTileTooMany);
    for (auto column : ct::irange(0, end, step)) {
        ct::tile<float, ct::shape<kTileRows, kTileColumns>> tile;
        if (fault == kUnmaskedLoad)
            tile = X.load(row, column);  // over the edge
        else if (fault != kUninitialized)
            tile = X.load_masked(row, fault == kNegativeIndex ? column - 1 : column);  // a tile
        if (fault == kUnmaskedStore)
            Y.store(2 * tile, row, column);  // beyond the edge
        else
            Y.store_masked(2 * tile, fault == kExtent ? row + 30 : row, column);
    }
}

void run(Fault fault) {
    const size_t bytes = kRows * kColumns * sizeof(float);
    std::vector<float> numbers(kRows * kColumns);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = float(i);
    float *x, *y;
    cudaMalloc(&x, bytes);
    cudaMalloc(&y, bytes);  // for y
    cudaMemcpy(x, numbers.data(), bytes, cudaMemcpyHostToDevice);
    const unsigned int blocks = kRows / kTileRows;
    twice<<<blocks, fault == kThreads ? 32 : 1>>>(fault, x + (fault == kAlignment), y, kRows,
                                                  kColumns - (fault == kDivisor));
    cudaMemcpy(numbers.data(), y, bytes, cudaMemcpyDeviceToHost);
    int wrong = 0;
    for (size_t i = 0; i < numbers.size(); ++i) wrong += !(numbers[i] == 2 * float(i));
    std::printf("%d of %zu wrong\n", wrong, numbers.size());
}

int main(int argc, char** argv) {
    const std::map<std::string, Fault> cases{
        {"none", kNone},
        {"alignment", kAlignment},
        {"divisor", kDivisor},
        {"unmasked_load", kUnmaskedLoad},
        {"unmasked_store", kUnmaskedStore},
        {"negative_index", kNegativeIndex},
        {"one_tile_too_many", kOneTileTooMany},
        {"extent", kExtent},
        {"narrow_extent", kNarrowExtent},
        {"step", kStep},
        {"uninitialized", kUninitialized},
        {"threads", kThreads},
    };
    const auto found = cases.find(argc > 1 ? argv[1] : "");
    if (found == cases.end()) return 2;
    run(found->second);
}
