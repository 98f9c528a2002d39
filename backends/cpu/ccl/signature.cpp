#include "signature.h"

namespace xcpu::ccl {
namespace {

const char* operation_name(operation what, side which) {
  constexpr const char* names[] = {"recv",       "all_reduce",     "reduce",    "broadcast",
                                   "all_gather", "reduce_scatter", "all_to_all"};
  if (what == operation::point_to_point && which == side::sends) return "send";
  return what <= operation::all_to_all ? names[static_cast<uint32_t>(what)] : "an unknown call";
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
  struct kind {
    uint8_t code;
    const char* name;
    bool has_bits; // in its name
  };
  constexpr kind kinds[] = {{TB_DTYPE_INT, "int", true},
                            {TB_DTYPE_UINT, "uint", true},
                            {TB_DTYPE_FLOAT, "float", true},
                            {TB_DTYPE_BFLOAT, "bfloat", true},
                            {TB_DTYPE_COMPLEX, "complex", true},
                            {TB_DTYPE_BOOL, "bool", false},
                            {TB_DTYPE_FLOAT8_E4M3FN, "float8_e4m3fn", false},
                            {TB_DTYPE_FLOAT8_E4M3FNUZ, "float8_e4m3fnuz", false},
                            {TB_DTYPE_FLOAT8_E5M2, "float8_e5m2", false},
                            {TB_DTYPE_FLOAT8_E5M2FNUZ, "float8_e5m2fnuz", false},
                            {TB_DTYPE_FLOAT8_E8M0FNU, "float8_e8m0fnu", false}};
  const std::string bits = std::to_string(dtype.bits);
  std::string name = "dtype(" + std::to_string(dtype.code) + ", " + bits + ")";
  for (const kind& k : kinds)
    if (k.code == dtype.code) name = k.has_bits ? k.name + bits : k.name;
  return dtype.lanes == 1 ? name : name + "x" + std::to_string(dtype.lanes);
}

} // namespace xcpu::ccl
