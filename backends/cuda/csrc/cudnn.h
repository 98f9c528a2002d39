// What is used of cuDNN 8 and 9, declared here so that none has to be installed, and its errors as results.
//
// Names and values are those of cudnn.h; backends/cuda/test/declarations.cpp compares them where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cu.h"
#include "result.h"

extern "C" {
struct cudnnContext;
struct cudnnTensorStruct;
struct cudnnFilterStruct;
struct cudnnConvolutionStruct;
}

namespace xcuda {

using cudnnStatus_t = int;
using cudnnHandle_t = cudnnContext*;
using cudnnTensorDescriptor_t = cudnnTensorStruct*;
using cudnnFilterDescriptor_t = cudnnFilterStruct*;
using cudnnConvolutionDescriptor_t = cudnnConvolutionStruct*;
using cudnnBackendDescriptor_t = void*;

struct cudnnConvolutionFwdAlgoPerf_t { // and those of the two gradients
  int algo;
  cudnnStatus_t status;
  float time;
  size_t memory;
  int determinism, mathType, reserved[3];
};

// X(name, value)
#define XCUDA_CUDNN_CONSTANTS(X) \
  X(CUDNN_STATUS_SUCCESS, 0)     \
  X(CUDNN_DATA_FLOAT, 0)         \
  X(CUDNN_DATA_DOUBLE, 1)        \
  X(CUDNN_DATA_HALF, 2)          \
  X(CUDNN_DATA_BFLOAT16, 9)      \
  X(CUDNN_DEFAULT_MATH, 0)       \
  X(CUDNN_TENSOR_OP_MATH, 1)     \
  X(CUDNN_FMA_MATH, 3)           \
  X(CUDNN_TENSOR_NCHW, 0)        \
  X(CUDNN_TENSOR_NHWC, 1)        \
  X(CUDNN_CROSS_CORRELATION, 1)  \
  X(CUDNN_DETERMINISTIC, 1)

// Of graphs of operations. Those of attention are in headers since 9.13 to 9.21.
#define XCUDA_CUDNN_GRAPH_CONSTANTS(X)                         \
  X(CUDNN_TYPE_HANDLE, 0)                                      \
  X(CUDNN_TYPE_DATA_TYPE, 1)                                   \
  X(CUDNN_TYPE_BOOLEAN, 2)                                     \
  X(CUDNN_TYPE_INT64, 3)                                       \
  X(CUDNN_TYPE_VOID_PTR, 6)                                    \
  X(CUDNN_TYPE_HEUR_MODE, 8)                                   \
  X(CUDNN_TYPE_NUMERICAL_NOTE, 11)                             \
  X(CUDNN_TYPE_POINTWISE_MODE, 14)                             \
  X(CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)                         \
  X(CUDNN_HEUR_MODE_A, 3)                                      \
  X(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 4)                  \
  X(CUDNN_POINTWISE_CMP_GE, 303)                               \
  X(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)                        \
  X(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)                     \
  X(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                    \
  X(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                \
  X(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)               \
  X(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                 \
  X(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)                       \
  X(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, 41)           \
  X(CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR, 43)           \
  X(CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR, 44) \
  X(CUDNN_ATTR_ENGINEHEUR_MODE, 200)                           \
  X(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                \
  X(CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                        \
  X(CUDNN_ATTR_ENGINECFG_ENGINE, 300)                          \
  X(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400)                     \
  X(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)              \
  X(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)             \
  X(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800)                     \
  X(CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                        \
  X(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)                     \
  X(CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                          \
  X(CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                         \
  X(CUDNN_ATTR_TENSOR_STRIDES, 903)                            \
  X(CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                          \
  X(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)                         \
  X(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 908)                        \
  X(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                  \
  X(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)               \
  X(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)                   \
  X(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 1303)                    \
  X(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, 2800)                 \
  X(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, 2801)                 \
  X(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, 2802)                 \
  X(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, 2803)                 \
  X(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, 2804)             \
  X(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, 2805)             \
  X(CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH, 2811)              \
  X(CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID, 2812)    \
  X(CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID, 2813)   \
  X(CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, 2851)                 \
  X(CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, 2852)                 \
  X(CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, 2853)                 \
  X(CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC, 2854)                 \
  X(CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC, 2855)             \
  X(CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC, 2856)             \
  X(CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, 2859)                \
  X(CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, 2860)                \
  X(CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC, 2861)                \
  X(CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, 2862)               \
  X(CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH, 2867)              \
  X(CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_INPUT_UID, 2868)    \
  X(CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_OUTPUT_UID, 2869)   \
  X(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_XDESC, 3000)       \
  X(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_BDESC, 3005)       \
  X(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC, 3006)       \
  X(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE, 3007)

#define XCUDA_CONSTANT(name, value) constexpr int k##name = value;
XCUDA_CUDNN_CONSTANTS(XCUDA_CONSTANT)
XCUDA_CUDNN_GRAPH_CONSTANTS(XCUDA_CONSTANT)
#undef XCUDA_CONSTANT

// X(name, parameters): cudnnCreate is dnn.Create.
#define XCUDA_CUDNN_FUNCTIONS(X)                                                                                      \
  X(Create, (cudnnHandle_t * handle))                                                                                 \
  X(SetStream, (cudnnHandle_t handle, CUstream stream))                                                               \
  X(CreateTensorDescriptor, (cudnnTensorDescriptor_t * desc))                                                         \
  X(SetTensorNdDescriptor, (cudnnTensorDescriptor_t desc, int dtype, int ndim, const int* shape, const int* strides)) \
  X(DestroyTensorDescriptor, (cudnnTensorDescriptor_t desc))                                                          \
  X(CreateFilterDescriptor, (cudnnFilterDescriptor_t * desc))                                                         \
  X(SetFilterNdDescriptor, (cudnnFilterDescriptor_t desc, int dtype, int format, int ndim, const int* shape))         \
  X(DestroyFilterDescriptor, (cudnnFilterDescriptor_t desc))                                                          \
  X(CreateConvolutionDescriptor, (cudnnConvolutionDescriptor_t * desc))                                               \
  X(SetConvolutionNdDescriptor, (cudnnConvolutionDescriptor_t desc, int ndim, const int* padding, const int* stride,  \
                                 const int* dilation, int mode, int compute_type))                                    \
  X(SetConvolutionGroupCount, (cudnnConvolutionDescriptor_t desc, int groups))                                        \
  X(SetConvolutionMathType, (cudnnConvolutionDescriptor_t desc, int math_type))                                       \
  X(DestroyConvolutionDescriptor, (cudnnConvolutionDescriptor_t desc))                                                \
  X(GetConvolutionForwardAlgorithm_v7,                                                                                \
    (cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t desc,   \
     cudnnTensorDescriptor_t y, int count, int* found, cudnnConvolutionFwdAlgoPerf_t* results))                       \
  X(GetConvolutionBackwardDataAlgorithm_v7,                                                                           \
    (cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t y, cudnnConvolutionDescriptor_t desc,   \
     cudnnTensorDescriptor_t x, int count, int* found, cudnnConvolutionFwdAlgoPerf_t* results))                       \
  X(GetConvolutionBackwardFilterAlgorithm_v7,                                                                         \
    (cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y, cudnnConvolutionDescriptor_t desc,   \
     cudnnFilterDescriptor_t w, int count, int* found, cudnnConvolutionFwdAlgoPerf_t* results))                       \
  X(ConvolutionForward,                                                                                               \
    (cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t x_desc, const void* x,                          \
     cudnnFilterDescriptor_t w_desc, const void* w, cudnnConvolutionDescriptor_t desc, int algo, void* workspace,     \
     size_t workspace_bytes, const void* beta, cudnnTensorDescriptor_t y_desc, void* y))                              \
  X(ConvolutionBackwardData,                                                                                          \
    (cudnnHandle_t handle, const void* alpha, cudnnFilterDescriptor_t w_desc, const void* w,                          \
     cudnnTensorDescriptor_t y_desc, const void* y, cudnnConvolutionDescriptor_t desc, int algo, void* workspace,     \
     size_t workspace_bytes, const void* beta, cudnnTensorDescriptor_t x_desc, void* x))                              \
  X(ConvolutionBackwardFilter,                                                                                        \
    (cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t x_desc, const void* x,                          \
     cudnnTensorDescriptor_t y_desc, const void* y, cudnnConvolutionDescriptor_t desc, int algo, void* workspace,     \
     size_t workspace_bytes, const void* beta, cudnnFilterDescriptor_t w_desc, void* w))                              \
  X(ConvolutionBackwardBias, (cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t y_desc, const void* y, \
                              const void* beta, cudnnTensorDescriptor_t bias_desc, void* bias))                       \
  X(AddTensor, (cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t a_desc, const void* a,               \
                const void* beta, cudnnTensorDescriptor_t c_desc, void* c))                                           \
  X(BackendCreateDescriptor, (int type, cudnnBackendDescriptor_t* desc))                                              \
  X(BackendDestroyDescriptor, (cudnnBackendDescriptor_t desc))                                                        \
  X(BackendFinalize, (cudnnBackendDescriptor_t desc))                                                                 \
  X(BackendSetAttribute, (cudnnBackendDescriptor_t desc, int attribute, int type, int64_t count, const void* values)) \
  X(BackendGetAttribute,                                                                                              \
    (cudnnBackendDescriptor_t desc, int attribute, int type, int64_t wanted, int64_t* count, void* values))           \
  X(BackendExecute, (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t variant_pack))

struct cudnn_functions {
#define XCUDA_MEMBER(name, parameters) cudnnStatus_t(*name) parameters;
  XCUDA_CUDNN_FUNCTIONS(XCUDA_MEMBER)
#undef XCUDA_MEMBER
};

// Constant from load_cudnn on.
extern cudnn_functions dnn;

// False if no cuDNN for the driver's CUDA is installed, or it lacks a function; the debug log says which. Once.
bool load_cudnn();
// 91301 is 9.13.1.
size_t cudnn_version();

// OK for CUDNN_STATUS_SUCCESS. `what` is what was tried.
result check_cudnn(cudnnStatus_t error, const char* what);

// The thread's, which no other one may use at the same time; its work goes to the stream. Pre: the device's context is
// the thread's.
result cudnn_handle(int32_t device, CUstream stream, cudnnHandle_t* out_handle);

} // namespace xcuda
