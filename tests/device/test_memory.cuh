// Device memory that tests fill and read from the host.
#pragma once

#include <vector>

#include "demo/device.cuh"

namespace demo_test {

/// Device memory that host code fills and reads by copying.
template <class T>
struct Memory : demo::Buffer<T> {
    using demo::Buffer<T>::Buffer;
    explicit Memory(const std::vector<T>& values) : demo::Buffer<T>(values.size()) {
        DEMO_CHECK(cudaMemcpy(this->data(), values.data(), this->bytes(), cudaMemcpyHostToDevice));
    }
    std::vector<T> read() const {
        DEMO_CHECK(cudaGetLastError());
        DEMO_CHECK(cudaDeviceSynchronize());
        std::vector<T> values(this->size());
        DEMO_CHECK(cudaMemcpy(values.data(), this->data(), this->bytes(), cudaMemcpyDeviceToHost));
        return values;
    }
};

/// number(0), number(1), ...
template <class T, class Number>
std::vector<T> numbers(size_t size, Number number) {
    std::vector<T> values;
    for (size_t i = 0; i < size; ++i) values.push_back(T(number(int(i))));
    return values;
}

}  // namespace demo_test
