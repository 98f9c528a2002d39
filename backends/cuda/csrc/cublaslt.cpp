#include "cublaslt.h"

#include "library.h"

namespace xcuda {

cublaslt_functions lt;

namespace {

const char* (*status_string)(cublasStatus_t) = nullptr;

tb_status status_of(cublasStatus_t error) {
  switch (error) {
    case kCUBLAS_STATUS_SUCCESS:
      return TB_STATUS_OK;
    case kCUBLAS_STATUS_ALLOC_FAILED:
      return TB_STATUS_OUT_OF_MEMORY;
    case kCUBLAS_STATUS_INVALID_VALUE:
      return TB_STATUS_INVALID_ARGUMENT;
    case kCUBLAS_STATUS_ARCH_MISMATCH:
    case kCUBLAS_STATUS_NOT_SUPPORTED:
      return TB_STATUS_UNSUPPORTED;
    default:
      return TB_STATUS_INTERNAL;
  }
}

} // namespace

bool load_cublaslt() {
#define XCUDA_FUNCTION(name, parameters) {"cublasLt" #name, reinterpret_cast<void**>(&lt.name)},
  return load_library(versions_of("libcublasLt.so"),
                      {XCUDA_CUBLASLT_FUNCTIONS(XCUDA_FUNCTION) //
                       {"cublasLtGetStatusString", reinterpret_cast<void**>(&status_string)}},
                      "products of matrices are generated kernels");
#undef XCUDA_FUNCTION
}

result check_cublaslt(cublasStatus_t error, const char* what) {
  if (error == kCUBLAS_STATUS_SUCCESS) return {};
  if (result lost = check_device(what); !lost.ok()) return lost;
  return failure(status_of(error), "%s: %s (%d)", what, status_string(error), error);
}

} // namespace xcuda
