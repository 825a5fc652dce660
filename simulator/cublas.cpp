// cuBLAS's and cuBLASLt's products on the CPU. Whatever the types and layouts, both matrices are
// converted to fp32, column-major; OpenBLAS multiplies them where the build found it, else a plain
// loop does; the epilogue converts the result. Products in fp64 and of integers are summed in fp64.
#include <algorithm>
#include <cmath>
#include <vector>

#include "access_errors.hpp"
#include "count.hpp"
#include "cuda/cublasLt.h"
#include "cuda/cuda_bf16.h"
#include "cuda/cuda_fp16.h"
#include "cuda/cuda_fp8.h"
#include "errors.hpp"
#include "graphs.hpp"
#include "host_threads.hpp"
#include "memory.hpp"

#ifdef SIMULATOR_OPENBLAS
#include <cblas.h>
#endif

namespace {

constexpr int kVersion = 130000;

/// A matrix, or a batch of them.
struct Layout {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t ld;
    bool by_rows = false;
    int64_t stride = 0;  // elements from one matrix of a batch to the next; 0: the same for all

    bool valid() const { return ld >= int64_t(by_rows ? columns : rows); }
    size_t at(uint64_t row, uint64_t column) const {
        return by_rows ? row * ld + column : column * ld + row;
    }
    size_t element_bytes() const {
        const bool is_8 = type == CUDA_R_64F, is_4 = type == CUDA_R_32F || type == CUDA_R_32I;
        const bool is_2 = type == CUDA_R_16F || type == CUDA_R_16BF;
        return is_8 ? 8 : is_4 ? 4 : is_2 ? 2 : 1;
    }
    size_t bytes(uint64_t batches) const {
        return rows * columns * element_bytes() * (stride == 0 ? 1 : batches);
    }
    /// The i-th matrix of a batch that begins at `data`.
    template <class Void>
    Void* matrix(Void* data, uint64_t i) const {
        const uint64_t offset = i * uint64_t(stride) * element_bytes();
        return reinterpret_cast<Void*>(reinterpret_cast<uintptr_t>(data) + offset);
    }
};

struct Product {
    uint64_t m, n, k;
    double alpha, beta;
    cublasComputeType_t compute;
    bool transpose_a, transpose_b;
    int epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void* bias = nullptr;  // [m]
    cudaDataType bias_type = CUDA_R_32F;
};

float load(const void* data, cudaDataType type, size_t i) {
    switch (type) {
        case CUDA_R_16F:
            return static_cast<const __half*>(data)[i];
        case CUDA_R_16BF:
            return static_cast<const __nv_bfloat16*>(data)[i];
        case CUDA_R_8F_E4M3:
            return float(static_cast<const __nv_fp8_e4m3*>(data)[i]);
        default:
            return static_cast<const float*>(data)[i];
    }
}

/// The same of all types.
double load_double(const void* data, cudaDataType type, size_t i) {
    switch (type) {
        case CUDA_R_64F:
            return static_cast<const double*>(data)[i];
        case CUDA_R_8I:
            return static_cast<const int8_t*>(data)[i];
        case CUDA_R_32I:
            return static_cast<const int32_t*>(data)[i];
        default:
            return load(data, type, i);
    }
}

void store(void* data, cudaDataType type, size_t i, float value) {
    switch (type) {
        case CUDA_R_16F:
            static_cast<__half*>(data)[i] = value;
            break;
        case CUDA_R_16BF:
            static_cast<__nv_bfloat16*>(data)[i] = value;
            break;
        default:
            static_cast<float*>(data)[i] = value;
    }
}

/// The nearest number with TF32's 10 bits after the point.
float round_to_tf32(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    if ((bits & 0x7F800000) == 0x7F800000) return x;
    return std::bit_cast<float>((bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFFu);
}

/// op(matrix) in fp32, column-major without gaps: what the compute type makes of its inputs.
std::vector<float> converted(const void* data, const Layout& layout, bool transpose,
                             cublasComputeType_t compute) {
    const uint64_t rows = transpose ? layout.columns : layout.rows;
    const uint64_t columns = transpose ? layout.rows : layout.columns;
    std::vector<float> result(rows * columns);
    simulator::parallel(columns, [&](uint64_t column) {
        for (uint64_t row = 0; row < rows; ++row) {
            const size_t i = transpose ? layout.at(column, row) : layout.at(row, column);
            float value = load(data, layout.type, i);
            if (compute == CUBLAS_COMPUTE_32F_FAST_TF32) value = round_to_tf32(value);
            if (compute == CUBLAS_COMPUTE_32F_FAST_16F) value = __half(value);
            if (compute == CUBLAS_COMPUTE_32F_FAST_16BF) value = __nv_bfloat16(value);
            result[column * rows + row] = value;
        }
    });
    return result;
}

/// C[m,n] = A[m,k] B[k,n], all column-major without gaps.
void multiply(const Product& p, const float* A, const float* B, float* C) {
    const uint64_t m = p.m, n = p.n, k = p.k;
    if (p.compute == CUBLAS_COMPUTE_16F) {
        simulator::parallel(n, [&](uint64_t j) {
            for (uint64_t i = 0; i < m; ++i) {
                __half sum = 0.0f;
                for (uint64_t l = 0; l < k; ++l) sum = __half(sum + A[l * m + i] * B[j * k + l]);
                C[j * m + i] = sum;
            }
        });
        return;
    }
#ifdef SIMULATOR_OPENBLAS
    static const bool once = (openblas_set_num_threads(1), true);  // our workers share the work
    (void)once;
    // OpenBLAS sums in another order where it has another number of columns to do. It always gets
    // as many, the last of them zeros: a column's bits do not depend on how many there are.
    constexpr uint64_t kColumns = 32;
    auto call = [&](const float* b, float* c) {
        cblas_sgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, int(m), int(kColumns), int(k), 1, A,
                    int(m), b, int(k), 0, c, int(m));
    };
    simulator::parallel((n + kColumns - 1) / kColumns, [&](uint64_t group) {
        const uint64_t first = group * kColumns, width = std::min(kColumns, n - first);
        if (width == kColumns) {
            call(B + first * k, C + first * m);
            return;
        }
        std::vector<float> b(kColumns * k), c(kColumns * m);
        std::copy_n(B + first * k, width * k, b.begin());
        call(b.data(), c.data());
        std::copy_n(c.begin(), width * m, C + first * m);
    });
#else
    constexpr uint64_t kColumns = 4;  // of C at a time, so that an element of A serves four
    simulator::parallel((n + kColumns - 1) / kColumns, [&](uint64_t group) {
        const uint64_t first = group * kColumns, width = std::min(kColumns, n - first);
        float* const c = C + first * m;
        std::fill(c, c + width * m, 0.0f);
        for (uint64_t l = 0; l < k; ++l) {
            const float *const a = A + l * m, *const b = B + first * k + l;
            if (width == kColumns) {
                const float b0 = b[0], b1 = b[k], b2 = b[2 * k], b3 = b[3 * k];
                for (uint64_t i = 0; i < m; ++i) {
                    c[i] += a[i] * b0;
                    c[m + i] += a[i] * b1;
                    c[2 * m + i] += a[i] * b2;
                    c[3 * m + i] += a[i] * b3;
                }
            } else {
                for (uint64_t j = 0; j < width; ++j)
                    for (uint64_t i = 0; i < m; ++i) c[j * m + i] += a[i] * b[j * k];
            }
        }
    });
#endif
}

/// D = alpha op(A) op(B) + beta C in fp64: of doubles, or of integers, which it sums exactly.
void run_in_double(const Product& p, const void* A, const Layout& a, const void* B, const Layout& b,
                   const void* C, const Layout& c, void* D, const Layout& d) {
    simulator::parallel(p.n, [&](uint64_t j) {
        for (uint64_t i = 0; i < p.m; ++i) {
            double sum = 0;
            for (uint64_t l = 0; l < p.k; ++l)
                sum += load_double(A, a.type, p.transpose_a ? a.at(l, i) : a.at(i, l)) *
                       load_double(B, b.type, p.transpose_b ? b.at(j, l) : b.at(l, j));
            sum *= p.alpha;
            if (p.beta != 0) sum += p.beta * load_double(C, c.type, c.at(i, j));
            if (d.type == CUDA_R_64F)
                static_cast<double*>(D)[d.at(i, j)] = sum;
            else
                static_cast<int32_t*>(D)[d.at(i, j)] = int32_t(sum);
        }
    });
}

/// By tanh, as cuBLASLt computes it.
float gelu(float x) {
    return 0.5f * x * (1 + std::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
}

void check_written() {
    if (const void* const written = simulator::byte_written_beside_a_buffer())
        simulator::fail(3, "cuBLAS wrote to %s", simulator::describe(written).c_str());
}

cublasStatus_t run_one(const Product& p, const void* A, const Layout& a, const void* B,
                       const Layout& b, const void* C, const Layout& c, void* D, const Layout& d) {
    if (p.compute == CUBLAS_COMPUTE_64F || p.compute == CUBLAS_COMPUTE_32I) {
        const auto out = p.compute == CUBLAS_COMPUTE_64F ? CUDA_R_64F : CUDA_R_32I;
        if (d.type != out || p.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
            return CUBLAS_STATUS_NOT_SUPPORTED;
        return run_in_double(p, A, a, B, b, C, c, D, d), CUBLAS_STATUS_SUCCESS;
    }
    const std::vector<float> left = converted(A, a, p.transpose_a, p.compute);
    const std::vector<float> right = converted(B, b, p.transpose_b, p.compute);
    std::vector<float> product(p.m * p.n);
    multiply(p, left.data(), right.data(), product.data());
    simulator::parallel(p.n, [&](uint64_t column) {
        for (uint64_t row = 0; row < p.m; ++row) {
            float value = float(p.alpha) * product[column * p.m + row];
            if (p.beta != 0) value += float(p.beta) * load(C, c.type, c.at(row, column));
            if (p.epilogue & CUBLASLT_EPILOGUE_BIAS) value += load(p.bias, p.bias_type, row);
            if (p.epilogue & CUBLASLT_EPILOGUE_RELU) value = value < 0 ? 0 : value;
            if (p.epilogue & CUBLASLT_EPILOGUE_GELU) value = gelu(value);
            store(D, d.type, d.at(row, column), value);
        }
    });
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t run(const Product& p, const void* A, const Layout& a, const void* B, const Layout& b,
                   const void* C, const Layout& c, void* D, const Layout& d, uint64_t batches = 1) {
    if (!a.valid() || !b.valid() || !c.valid() || !d.valid()) return CUBLAS_STATUS_INVALID_VALUE;
    if (p.m == 0 || p.n == 0 || batches == 0) return CUBLAS_STATUS_SUCCESS;
    simulator::count_library("cuBLAS",
                             {{A, a.bytes(batches)}, {B, b.bytes(batches)}, {D, d.bytes(batches)}});
    simulator::give_access(simulator::Access::kKernels);
    for (uint64_t i = 0; i < batches; ++i)
        if (const cublasStatus_t status = run_one(p, a.matrix(A, i), a, b.matrix(B, i), b,
                                                  c.matrix(C, i), c, d.matrix(D, i), d))
            return status;
    return check_written(), CUBLAS_STATUS_SUCCESS;
}

double scalar(const void* value, cublasComputeType_t compute) {
    return load_double(value,
                       compute == CUBLAS_COMPUTE_16F   ? CUDA_R_16F
                       : compute == CUBLAS_COMPUTE_64F ? CUDA_R_64F
                       : compute == CUBLAS_COMPUTE_32I ? CUDA_R_32I
                                                       : CUDA_R_32F,
                       0);
}

}  // namespace

// --- cuBLAS -------------------------------------------------------------------------------------

struct cublasContext {
    cublasMath_t mode = CUBLAS_DEFAULT_MATH;
};

const char* cublasGetStatusName(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS:
            return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_NOT_INITIALIZED:
            return "CUBLAS_STATUS_NOT_INITIALIZED";
        case CUBLAS_STATUS_ALLOC_FAILED:
            return "CUBLAS_STATUS_ALLOC_FAILED";
        case CUBLAS_STATUS_INVALID_VALUE:
            return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_NOT_SUPPORTED:
            return "CUBLAS_STATUS_NOT_SUPPORTED";
        default:
            return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}
const char* cublasGetStatusString(cublasStatus_t status) { return cublasGetStatusName(status); }

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
    return *handle = new cublasContext, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle) { return delete handle, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasGetVersion(cublasHandle_t, int* version) {
    return *version = kVersion, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    return handle->mode = mode, CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                            int m, int n, int k, const void* alpha, const void* A,
                            cudaDataType type_a, int lda, const void* B, cudaDataType type_b,
                            int ldb, const void* beta, void* C, cudaDataType type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    return cublasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, A, type_a, lda, 0, B,
                                      type_b, ldb, 0, beta, C, type_c, ldc, 0, 1, compute,
                                      algorithm);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a,
                                          cublasOperation_t op_b, int m, int n, int k,
                                          const void* alpha, const void* A, cudaDataType type_a,
                                          int lda, long long stride_a, const void* B,
                                          cudaDataType type_b, int ldb, long long stride_b,
                                          const void* beta, void* C, cudaDataType type_c, int ldc,
                                          long long stride_c, int batches,
                                          cublasComputeType_t compute, cublasGemmAlgo_t) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (m < 0 || n < 0 || k < 0 || batches < 0) return CUBLAS_STATUS_INVALID_VALUE;
    const uint64_t um = m, un = n, uk = k;
    if (handle->mode == CUBLAS_TF32_TENSOR_OP_MATH && compute == CUBLAS_COMPUTE_32F)
        compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    const bool at = op_a != CUBLAS_OP_N, bt = op_b != CUBLAS_OP_N;
    const Product product{um,      un, uk, scalar(alpha, compute), scalar(beta, compute),
                          compute, at, bt};
    const Layout a{type_a, at ? uk : um, at ? um : uk, lda, false, stride_a},
        b{type_b, bt ? un : uk, bt ? uk : un, ldb, false, stride_b};
    const Layout c{type_c, um, un, ldc, false, stride_c};
    return run(product, A, a, B, b, C, c, C, c, batches);
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                           int m, int n, int k, const float* alpha, const float* A, int lda,
                           const float* B, int ldb, const float* beta, float* C, int ldc) {
    return cublasGemmEx(handle, op_a, op_b, m, n, k, alpha, A, CUDA_R_32F, lda, B, CUDA_R_32F, ldb,
                        beta, C, CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

// --- cuBLASLt -----------------------------------------------------------------------------------

struct cublasLtContext {};
struct cublasLtMatmulPreferenceOpaque_t {};
struct cublasLtMatrixLayoutOpaque_t : Layout {};
struct cublasLtMatmulDescOpaque_t {
    cublasComputeType_t compute;
    cublasOperation_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void* bias = nullptr;
    int bias_type = -1;  // D's
};

namespace {

template <class T>
cublasStatus_t set(T& attribute, const void* value, size_t bytes) {
    if (!value || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&attribute, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    return *handle = new cublasLtContext, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    return delete handle, CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return kVersion; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType) {
    return *desc = new cublasLtMatmulDescOpaque_t{compute}, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    return delete desc, CUBLAS_STATUS_SUCCESS;
}
/// No bits beside DEFAULT, which a GPU takes too, and then computes something else.
static bool is_known(cublasLtEpilogue_t epilogue) {
    switch (epilogue) {
        case CUBLASLT_EPILOGUE_DEFAULT:
        case CUBLASLT_EPILOGUE_RELU:
        case CUBLASLT_EPILOGUE_BIAS:
        case CUBLASLT_EPILOGUE_RELU_BIAS:
        case CUBLASLT_EPILOGUE_GELU:
        case CUBLASLT_EPILOGUE_GELU_BIAS:
            return true;
    }
    return false;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_TRANSA:
            return set(desc->op_a, value, bytes);
        case CUBLASLT_MATMUL_DESC_TRANSB:
            return set(desc->op_b, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE:
            if (const cublasStatus_t status = set(desc->epilogue, value, bytes)) return status;
            return is_known(desc->epilogue) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
            return set(desc->bias, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
            return set(desc->bias_type, value, bytes);
        case CUBLASLT_MATMUL_DESC_FAST_ACCUM:  // here all is summed in fp32
            return bytes == sizeof(int8_t) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
        default:
            return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
    *layout = new cublasLtMatrixLayoutOpaque_t{{type, rows, columns, ld}};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    return delete layout, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t, const void* value,
                                                size_t bytes) {
    int order = 0;
    const cublasStatus_t status = set(order, value, bytes);
    layout->by_rows = order == CUBLASLT_ORDER_ROW;
    return status;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
    return *preference = new cublasLtMatmulPreferenceOpaque_t, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    return delete preference, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int requested,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* returned) {
    if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
    *returned = 1;  // there is one way to multiply here
    results[0] = {};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* A, cublasLtMatrixLayout_t layout_a, const void* B,
                              cublasLtMatrixLayout_t layout_b, const void* beta, const void* C,
                              cublasLtMatrixLayout_t layout_c, void* D,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t*, void*,
                              size_t, cudaStream_t stream) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    const bool at = desc->op_a != CUBLAS_OP_N, bt = desc->op_b != CUBLAS_OP_N;
    const uint64_t k = at ? layout_a->rows : layout_a->columns;
    const bool fits = (at ? layout_a->columns : layout_a->rows) == layout_d->rows &&
                      (bt ? layout_b->rows : layout_b->columns) == layout_d->columns &&
                      (bt ? layout_b->columns : layout_b->rows) == k &&
                      layout_c->rows == layout_d->rows && layout_c->columns == layout_d->columns;
    const bool needs_bias = desc->epilogue & CUBLASLT_EPILOGUE_BIAS;
    if (!fits || (needs_bias && !desc->bias)) return CUBLAS_STATUS_INVALID_VALUE;
    const cudaDataType bias_type =
        desc->bias_type < 0 ? layout_d->type : cudaDataType(desc->bias_type);
    const Product product{layout_d->rows,
                          layout_d->columns,
                          k,
                          scalar(alpha, desc->compute),
                          scalar(beta, desc->compute),
                          desc->compute,
                          at,
                          bt,
                          desc->epilogue,
                          desc->bias,
                          bias_type};
    auto multiply = [=, a = *layout_a, b = *layout_b, c = *layout_c, d = *layout_d] {
        return run(product, A, a, B, b, C, c, D, d);
    };
    if (simulator::noted_for_graph(stream, multiply)) return CUBLAS_STATUS_SUCCESS;
    return multiply();
}
