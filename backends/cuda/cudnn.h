// What is used of cuDNN 8 and 9, declared here so that none has to be installed, and its errors as results.
//
// Names and values are those of cudnn.h; test/cpp/backends/xcuda_declarations_test.cpp compares them where there is one.
#pragma once

#include <cstddef>

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

#define XCUDA_CONSTANT(name, value) constexpr int k##name = value;
XCUDA_CUDNN_CONSTANTS(XCUDA_CONSTANT)
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
                const void* beta, cudnnTensorDescriptor_t c_desc, void* c))

struct cudnn_functions {
#define XCUDA_MEMBER(name, parameters) cudnnStatus_t(*name) parameters;
  XCUDA_CUDNN_FUNCTIONS(XCUDA_MEMBER)
#undef XCUDA_MEMBER
};

// Constant from load_cudnn on.
extern cudnn_functions dnn;

// False if no cuDNN for the driver's CUDA is installed, or it lacks a function; the debug log says which.
bool load_cudnn();

// OK for CUDNN_STATUS_SUCCESS. `what` is what was tried.
result check_cudnn(cudnnStatus_t error, const char* what);

} // namespace xcuda
