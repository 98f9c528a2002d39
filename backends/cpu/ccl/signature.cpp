#include "signature.h"

namespace xcpu::ccl {
namespace {

const char* operation_name(operation what, side which) {
  switch (what) {
    case operation::point_to_point:
      return which == side::sends ? "send" : "recv";
    case operation::all_reduce:
      return "all_reduce";
    case operation::reduce:
      return "reduce";
    case operation::broadcast:
      return "broadcast";
    case operation::all_gather:
      return "all_gather";
    case operation::reduce_scatter:
      return "reduce_scatter";
    case operation::all_to_all:
      return "all_to_all";
  }
  return "an unknown call";
}

const char* reduction_name(int32_t reduction) {
  constexpr const char* names[] = {"sum", "product", "min", "max", "average"};
  return reduction >= 0 && reduction <= TB_REDUCE_AVERAGE ? names[reduction] : "no reduction";
}

} // namespace

bool same(const signature& a, const signature& b) {
  return a.what == b.what && a.dtype.code == b.dtype.code && a.dtype.bits == b.dtype.bits &&
         a.dtype.lanes == b.dtype.lanes && a.reduction == b.reduction && a.root == b.root && a.count == b.count;
}

std::string describe(const signature& call, side which) {
  std::string text = operation_name(call.what, which);
  text += " of " + std::to_string(call.count) + (call.count == 1 ? " element of " : " elements of ");
  text += dtype_name(call.dtype);
  if (call.reduction != kNoReduction) text += std::string(", ") + reduction_name(call.reduction);
  if (call.root != kNoRoot) text += ", root " + std::to_string(call.root);
  return text;
}

std::string dtype_name(tb_dtype dtype) {
  const auto base = [&]() -> std::string {
    switch (dtype.code) {
      case TB_DTYPE_INT:
        return "int" + std::to_string(dtype.bits);
      case TB_DTYPE_UINT:
        return "uint" + std::to_string(dtype.bits);
      case TB_DTYPE_FLOAT:
        return "float" + std::to_string(dtype.bits);
      case TB_DTYPE_BFLOAT:
        return "bfloat" + std::to_string(dtype.bits);
      case TB_DTYPE_COMPLEX:
        return "complex" + std::to_string(dtype.bits);
      case TB_DTYPE_BOOL:
        return "bool";
      case TB_DTYPE_FLOAT8_E4M3FN:
        return "float8_e4m3fn";
      case TB_DTYPE_FLOAT8_E4M3FNUZ:
        return "float8_e4m3fnuz";
      case TB_DTYPE_FLOAT8_E5M2:
        return "float8_e5m2";
      case TB_DTYPE_FLOAT8_E5M2FNUZ:
        return "float8_e5m2fnuz";
      case TB_DTYPE_FLOAT8_E8M0FNU:
        return "float8_e8m0fnu";
    }
    return "dtype(" + std::to_string(dtype.code) + ", " + std::to_string(dtype.bits) + ")";
  }();
  return dtype.lanes == 1 ? base : base + "x" + std::to_string(dtype.lanes);
}

} // namespace xcpu::ccl
