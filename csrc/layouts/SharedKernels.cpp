#include "csrc/layouts/SharedKernels.h"

#include <algorithm>

#include <c10/util/ArrayRef.h>

namespace torch_backend {
namespace {

using Names = c10::ArrayRef<std::string_view>;

/// One operand, element by element, zero at zero: the values' business alone. All overloads, in place and out= too.
constexpr std::string_view kSparseElementwise[] = {
    "abs",     "angle",      "asin",  "asinh", "atan",    "atanh", "ceil",  "conj_physical", "deg2rad",
    "erf",     "erfinv",     "expm1", "floor", "frac",    "isinf", "isnan", "isneginf",      "isposinf",
    "log1p",   "nan_to_num", "neg",   "pow",   "rad2deg", "relu",  "round", "sgn",           "sign",
    "signbit", "sin",        "sinh",  "sqrt",  "tan",     "tanh",  "trunc", "_conj_physical"};

constexpr std::string_view kSparse[] = {"_coalesced_",
                                        "_dimI",
                                        "_dimV",
                                        "_indices",
                                        "_nnz",
                                        "_sparse_broadcast_to",
                                        "_sparse_coo_tensor_with_dims",
                                        "_sparse_coo_tensor_with_dims_and_tensors",
                                        "_to_dense",
                                        "_to_sparse",
                                        "_to_sparse_bsc",
                                        "_to_sparse_bsr",
                                        "_to_sparse_csc",
                                        "_to_sparse_csr",
                                        "_values",
                                        "add.Tensor",
                                        "add_.Tensor",
                                        "any",
                                        "cat",
                                        "clone",
                                        "copy_",
                                        "copy_sparse_to_sparse_",
                                        "dense_dim",
                                        "div",
                                        "div_",
                                        "empty",
                                        "empty_like",
                                        "floor_divide",
                                        "floor_divide_",
                                        "indices",
                                        "is_coalesced",
                                        "mm",
                                        "mul.Tensor",
                                        "mul_.Tensor",
                                        "mv",
                                        "narrow_copy",
                                        "native_norm",
                                        "norm",
                                        "permute",
                                        "resize_as_sparse_",
                                        "sparse_dim",
                                        "sparse_resize_",
                                        "sparse_resize_and_clear_",
                                        "sub",
                                        "sub_",
                                        "sum",
                                        "threshold_backward",
                                        "unsqueeze",
                                        "values",
                                        "view_as_complex",
                                        "view_as_real",
                                        "zero_",
                                        "zeros"};

constexpr std::string_view kSparseCompressed[] = {
    "_nnz",        "_to_dense",   "_to_sparse",   "add.Tensor",  "add_.Tensor", "ccol_indices",       "clone",
    "col_indices", "copy_",       "crow_indices", "dense_dim",   "empty",       "empty_like",         "fill_",
    "mm",          "mul",         "mul_",         "normal_",     "resize_",     "resize_as_sparse_",  "row_indices",
    "select",      "select_copy", "sparse_dim",   "sparse_mask", "sum",         "threshold_backward", "values",
    "zero_"};

constexpr std::string_view kNested[] = {"_nested_from_padded_and_nested_example",
                                        "_nested_select_backward",
                                        "_nested_tensor_size",
                                        "_nested_tensor_storage_offsets",
                                        "_nested_tensor_strides",
                                        "_softmax",
                                        "_softmax_backward_data",
                                        "_to_copy",
                                        "abs",
                                        "abs_",
                                        "add",
                                        "add_",
                                        "alias",
                                        "chunk",
                                        "clone",
                                        "copy_",
                                        "cos",
                                        "detach",
                                        "div",
                                        "empty_like",
                                        "eq",
                                        "fill_",
                                        "ge",
                                        "gelu",
                                        "gelu_",
                                        "gelu_backward",
                                        "gt",
                                        "is_same_size",
                                        "isinf",
                                        "isnan",
                                        "isneginf",
                                        "isposinf",
                                        "linear",
                                        "linear_backward",
                                        "logical_not",
                                        "logical_not_",
                                        "masked_fill",
                                        "matmul",
                                        "matmul_backward",
                                        "mul",
                                        "mul_",
                                        "narrow",
                                        "native_dropout",
                                        "native_dropout_backward",
                                        "neg",
                                        "neg_",
                                        "normal_",
                                        "ones_like",
                                        "relu",
                                        "relu_",
                                        "select",
                                        "sgn",
                                        "sgn_",
                                        "silu",
                                        "silu_",
                                        "silu_backward",
                                        "sin",
                                        "split_with_sizes",
                                        "sqrt",
                                        "squeeze",
                                        "sub",
                                        "tanh",
                                        "tanh_",
                                        "threshold_backward",
                                        "transpose",
                                        "unbind",
                                        "unsqueeze",
                                        "values",
                                        "view",
                                        "where",
                                        "zero_"};

/// Only what is about the memory: the numbers of a quantized tensor have no operators of their own.
constexpr std::string_view kQuantized[] = {"_empty_affine_quantized",
                                           "_reshape_alias",
                                           "as_strided",
                                           "clone",
                                           "empty",
                                           "empty_like",
                                           "empty_quantized",
                                           "empty_strided",
                                           "q_per_channel_axis",
                                           "q_per_channel_scales",
                                           "q_per_channel_zero_points",
                                           "q_scale",
                                           "q_zero_point",
                                           "qscheme",
                                           "set_",
                                           "squeeze",
                                           "unfold",
                                           "unsqueeze",
                                           "view"};

bool contains(Names names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// "sin_" and "sin.out" are kinds of "sin".
bool is_elementwise(std::string_view name) {
  return contains(kSparseElementwise, name) ||
         (name.size() > 1 && name.back() == '_' && contains(kSparseElementwise, name.substr(0, name.size() - 1)));
}

} // namespace

bool has_shared_kernel(c10::DispatchKey key, std::string_view overload) {
  const auto name = overload.substr(0, overload.find('.'));
  const auto listed = [&](Names names) { return contains(names, name) || contains(names, overload); };
  switch (key) {
    case c10::DispatchKey::SparsePrivateUse1:
      return listed(kSparse) || is_elementwise(name);
    case c10::DispatchKey::SparseCsrPrivateUse1:
      return listed(kSparseCompressed) || is_elementwise(name);
    case c10::DispatchKey::NestedTensorPrivateUse1:
      return listed(kNested);
    case c10::DispatchKey::QuantizedPrivateUse1:
      return listed(kQuantized);
    default:
      return false;
  }
}

} // namespace torch_backend
