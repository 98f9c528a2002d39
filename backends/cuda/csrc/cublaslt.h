// What is used of cuBLASLt, declared here so that none has to be installed, and its errors as results.
//
// Names and values are those of cublasLt.h; backends/cuda/test/declarations.cpp compares them where there is
// one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cu.h"
#include "result.h"

extern "C" struct cublasLtContext;

namespace xcuda {

struct lt_matmul_desc;
struct lt_matrix_layout;
struct lt_matmul_preference;

using cublasStatus_t = int;
using cublasLtHandle_t = cublasLtContext*;
using cublasLtMatmulDesc_t = lt_matmul_desc*;
using cublasLtMatrixLayout_t = lt_matrix_layout*;
using cublasLtMatmulPreference_t = lt_matmul_preference*;

struct cublasLtMatmulAlgo_t {
  uint64_t data[8];
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
};

// X(name, value)
#define XCUDA_CUBLASLT_CONSTANTS(X)                 \
  X(CUBLAS_STATUS_SUCCESS, 0)                       \
  X(CUBLAS_STATUS_NOT_INITIALIZED, 1)               \
  X(CUBLAS_STATUS_ALLOC_FAILED, 3)                  \
  X(CUBLAS_STATUS_INVALID_VALUE, 7)                 \
  X(CUBLAS_STATUS_ARCH_MISMATCH, 8)                 \
  X(CUBLAS_STATUS_EXECUTION_FAILED, 13)             \
  X(CUBLAS_STATUS_NOT_SUPPORTED, 15)                \
  X(CUBLAS_OP_N, 0)                                 \
  X(CUBLAS_OP_T, 1)                                 \
  X(CUBLAS_COMPUTE_32F, 68)                         \
  X(CUBLAS_COMPUTE_32F_FAST_TF32, 77)               \
  X(CUBLAS_COMPUTE_64F, 70)                         \
  X(CUDA_R_32F, 0)                                  \
  X(CUDA_R_64F, 1)                                  \
  X(CUDA_R_16F, 2)                                  \
  X(CUDA_R_16BF, 14)                                \
  X(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)          \
  X(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6) \
  X(CUBLASLT_MATMUL_DESC_TRANSA, 3)                 \
  X(CUBLASLT_MATMUL_DESC_TRANSB, 4)                 \
  X(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)               \
  X(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)           \
  X(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, 10)     \
  X(CUBLASLT_EPILOGUE_DEFAULT, 1)                   \
  X(CUBLASLT_EPILOGUE_BIAS, 4)                      \
  X(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)      \
  X(CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, 4)       \
  X(CUBLASLT_REDUCTION_SCHEME_MASK, 7)              \
  X(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)    \
  X(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)  \
  X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)  \
  X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)  \
  X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)  \
  X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)

#define XCUDA_CONSTANT(name, value) constexpr int k##name = value;
XCUDA_CUBLASLT_CONSTANTS(XCUDA_CONSTANT)
#undef XCUDA_CONSTANT

// X(name, parameters): cublasLtMatmul is lt.Matmul.
#define XCUDA_CUBLASLT_FUNCTIONS(X)                                                                                \
  X(Create, (cublasLtHandle_t * handle))                                                                           \
  X(MatrixLayoutCreate, (cublasLtMatrixLayout_t * layout, int dtype, uint64_t rows, uint64_t columns, int64_t ld)) \
  X(MatrixLayoutDestroy, (cublasLtMatrixLayout_t layout))                                                          \
  X(MatrixLayoutSetAttribute, (cublasLtMatrixLayout_t layout, int attribute, const void* value, size_t bytes))     \
  X(MatmulDescCreate, (cublasLtMatmulDesc_t * desc, int compute_type, int scale_type))                             \
  X(MatmulDescDestroy, (cublasLtMatmulDesc_t desc))                                                                \
  X(MatmulDescSetAttribute, (cublasLtMatmulDesc_t desc, int attribute, const void* value, size_t bytes))           \
  X(MatmulPreferenceCreate, (cublasLtMatmulPreference_t * preference))                                             \
  X(MatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference))                                              \
  X(MatmulPreferenceSetAttribute,                                                                                  \
    (cublasLtMatmulPreference_t preference, int attribute, const void* value, size_t bytes))                       \
  X(MatmulAlgoGetHeuristic,                                                                                        \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,       \
     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int count,         \
     cublasLtMatmulHeuristicResult_t* results, int* found))                                                        \
  X(Matmul, (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,                 \
             cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,    \
             const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,             \
             const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes, CUstream stream))

struct cublaslt_functions {
#define XCUDA_MEMBER(name, parameters) cublasStatus_t(*name) parameters;
  XCUDA_CUBLASLT_FUNCTIONS(XCUDA_MEMBER)
#undef XCUDA_MEMBER
};

// Constant from load_cublaslt on.
extern cublaslt_functions lt;

// False if no libcublasLt for the driver's CUDA is installed, or it lacks a function; the debug log says which.
bool load_cublaslt();

// OK for CUBLAS_STATUS_SUCCESS. `what` is what was tried.
result check_cublaslt(cublasStatus_t error, const char* what);

} // namespace xcuda
