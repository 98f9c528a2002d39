// The declarations of backends/cuda are those of cuda.h, cublasLt.h, cudnn.h, cupti.h, nccl.h and nvrtc.h: compiling this is
// the test, of those headers that are there. Ours have the same names: they are "cudnn.h", and NVIDIA's <cudnn.h>.
#include <cuda.h>
#if __has_include(<cuda_runtime.h>) && __has_include(<nccl.h>)
#include <nccl.h>
#endif
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif
#if __has_include(<cudnn.h>)
#include <cudnn.h>
#endif
#if __has_include(<cupti.h>)
#include <cupti.h>
#endif
#if __has_include(<nvrtc.h>)
#include <nvrtc.h>
#endif

#include <cstddef>
#include <type_traits>

#include "cu.h"
#include "cublaslt.h"
#include "cudnn.h"
#include "cupti.h"
#include "nccl.h"
#include "nvrtc.h"

namespace torch_backend::testing {
namespace {

#define EXPECT_VALUE(name, value) static_assert(static_cast<int>(name) == value, #name);
XCUDA_CONSTANTS(EXPECT_VALUE)

// Enumerations are passed as int, and our structs have other names.
template <typename T>
using plain = std::conditional_t<std::is_enum_v<std::remove_cv_t<T>>, int, std::remove_cv_t<T>>;

template <typename T, typename = void>
struct is_complete : std::false_type {};
template <typename T>
struct is_complete<T, std::void_t<decltype(sizeof(T))>> : std::true_type {};

template <typename Ours, typename Theirs>
struct same_function;

// A struct of ours that is incomplete is one that is only passed on.
template <typename Ours, typename Theirs>
constexpr bool same_value() {
  if constexpr (std::is_function_v<std::remove_pointer_t<Ours>> && std::is_function_v<std::remove_pointer_t<Theirs>>)
    return same_function<Ours, std::remove_pointer_t<Theirs>>::value;
  else if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>)
    return same_value<std::remove_pointer_t<Ours>, std::remove_pointer_t<Theirs>>();
  else if constexpr (std::is_void_v<Ours> || std::is_void_v<Theirs>)
    return std::is_void_v<Ours> && std::is_void_v<Theirs>;
  else if constexpr (std::is_same_v<plain<Ours>, plain<Theirs>>)
    return true;
  else if constexpr (std::is_class_v<Ours> && std::is_class_v<Theirs> && !is_complete<Ours>::value)
    return true;
  else if constexpr (std::is_class_v<Ours> && std::is_class_v<Theirs>)
    return sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);
  else
    return false;
}

template <typename Ours, typename Theirs>
struct same_function : std::is_same<Ours, Theirs*> {};
template <typename R, typename... Ours, typename Q, typename... Theirs>
struct same_function<R (*)(Ours...), Q(Theirs...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(Ours) != sizeof...(Theirs))
      return false;
    else
      return (same_value<Ours, Theirs>() && ...);
  }();
};

#define EXPECT_FUNCTION(name, suffix, parameters) \
  static_assert(same_function<decltype(xcuda::functions::name), decltype(::cu##name)>::value, "cu" #name);
XCUDA_FUNCTIONS(EXPECT_FUNCTION)

#ifdef NCCL_VERSION_CODE
XCUDA_NCCL_CONSTANTS(EXPECT_VALUE)

#define EXPECT_NCCL_FUNCTION(name, parameters) \
  static_assert(same_function<decltype(xcuda::nccl_functions::name), decltype(::nccl##name)>::value, "nccl" #name);
XCUDA_NCCL_FUNCTIONS(EXPECT_NCCL_FUNCTION)
#endif

#if __has_include(<cublasLt.h>)
XCUDA_CUBLASLT_CONSTANTS(EXPECT_VALUE)

#define EXPECT_CUBLASLT_FUNCTION(name, parameters)                                                           \
  static_assert(same_function<decltype(xcuda::cublaslt_functions::name), decltype(::cublasLt##name)>::value, \
                "cublasLt" #name);
XCUDA_CUBLASLT_FUNCTIONS(EXPECT_CUBLASLT_FUNCTION)

static_assert(offsetof(xcuda::cublasLtMatmulHeuristicResult_t, workspaceSize) ==
              offsetof(::cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(xcuda::cublasLtMatmulHeuristicResult_t, state) ==
              offsetof(::cublasLtMatmulHeuristicResult_t, state));
#endif

#if __has_include(<cudnn.h>)
XCUDA_CUDNN_CONSTANTS(EXPECT_VALUE)
#if CUDNN_VERSION >= 92100
XCUDA_CUDNN_GRAPH_CONSTANTS(EXPECT_VALUE)
#endif

#define EXPECT_CUDNN_FUNCTION(name, parameters) \
  static_assert(same_function<decltype(xcuda::cudnn_functions::name), decltype(::cudnn##name)>::value, "cudnn" #name);
XCUDA_CUDNN_FUNCTIONS(EXPECT_CUDNN_FUNCTION)

#define EXPECT_ALGORITHM(Theirs, name) \
  static_assert(offsetof(xcuda::cudnnConvolutionFwdAlgoPerf_t, name) == offsetof(::Theirs, name));
#define EXPECT_ALGORITHMS(Theirs)       \
  EXPECT_ALGORITHM(Theirs, status)      \
  EXPECT_ALGORITHM(Theirs, memory)      \
  EXPECT_ALGORITHM(Theirs, determinism) \
  EXPECT_ALGORITHM(Theirs, mathType)
EXPECT_ALGORITHMS(cudnnConvolutionFwdAlgoPerf_t)
EXPECT_ALGORITHMS(cudnnConvolutionBwdDataAlgoPerf_t)
EXPECT_ALGORITHMS(cudnnConvolutionBwdFilterAlgoPerf_t)
#endif

#if __has_include(<cupti.h>)
XCUDA_CUPTI_CONSTANTS(EXPECT_VALUE)

#define EXPECT_CUPTI_FUNCTION(name, parameters) \
  static_assert(same_function<decltype(xcuda::cupti_functions::name), decltype(::cupti##name)>::value, "cupti" #name);
XCUDA_CUPTI_FUNCTIONS(EXPECT_CUPTI_FUNCTION)

#define EXPECT_FIELD(Ours, Theirs, name) static_assert(offsetof(xcuda::Ours, name) == offsetof(::Theirs, name));
#define EXPECT_CORRELATION(Ours, Theirs) \
  EXPECT_FIELD(Ours, Theirs, externalId) EXPECT_FIELD(Ours, Theirs, correlationId)
#define EXPECT_KERNEL(Theirs)                       \
  EXPECT_FIELD(cupti_kernel, Theirs, start)         \
  EXPECT_FIELD(cupti_kernel, Theirs, end)           \
  EXPECT_FIELD(cupti_kernel, Theirs, deviceId)      \
  EXPECT_FIELD(cupti_kernel, Theirs, streamId)      \
  EXPECT_FIELD(cupti_kernel, Theirs, correlationId) \
  EXPECT_FIELD(cupti_kernel, Theirs, name)
#define EXPECT_MEMORY(Theirs)                  \
  EXPECT_FIELD(cupti_memory, Theirs, bytes)    \
  EXPECT_FIELD(cupti_memory, Theirs, start)    \
  EXPECT_FIELD(cupti_memory, Theirs, end)      \
  EXPECT_FIELD(cupti_memory, Theirs, deviceId) \
  EXPECT_FIELD(cupti_memory, Theirs, streamId)
EXPECT_CORRELATION(CUpti_ActivityExternalCorrelation, CUpti_ActivityExternalCorrelation)
EXPECT_KERNEL(CUpti_ActivityKernel9)
EXPECT_MEMORY(CUpti_ActivityMemcpy5)
EXPECT_MEMORY(CUpti_ActivityMemset4)
EXPECT_MEMORY(CUpti_ActivityMemcpyPtoP4)
EXPECT_FIELD(cupti_memory, CUpti_ActivityMemcpy5, copyKind)
EXPECT_FIELD(cupti_memory, CUpti_ActivityMemcpy5, srcKind)
EXPECT_FIELD(cupti_memory, CUpti_ActivityMemcpy5, dstKind)
EXPECT_FIELD(cupti_memory, CUpti_ActivityMemcpy5, correlationId)
EXPECT_FIELD(cupti_memory, CUpti_ActivityMemset4, correlationId)
static_assert(offsetof(xcuda::cupti_peer_copy, correlationId) == offsetof(::CUpti_ActivityMemcpyPtoP4, correlationId));
#if CUPTI_API_VERSION >= 130000
EXPECT_KERNEL(CUpti_ActivityKernel10)
EXPECT_MEMORY(CUpti_ActivityMemcpy6)
#endif
#endif

#if __has_include(<nvrtc.h>)
#define EXPECT_NVRTC_FUNCTION(name, parameters) \
  static_assert(same_function<decltype(xcuda::nvrtc_functions::name), decltype(::nvrtc##name)>::value, "nvrtc" #name);
XCUDA_NVRTC_FUNCTIONS(EXPECT_NVRTC_FUNCTION)
#endif

static_assert(offsetof(xcuda::CUDA_MEMCPY2D, dstPitch) == offsetof(::CUDA_MEMCPY2D, dstPitch));
static_assert(offsetof(xcuda::CUDA_MEMCPY2D, Height) == offsetof(::CUDA_MEMCPY2D, Height));

} // namespace
} // namespace torch_backend::testing
