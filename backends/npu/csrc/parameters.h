// The parameters of CANN's operators as types: each takes what it needs of a kernel's arguments and makes the descriptor.
// A row of the table in operators.cpp is a list of them.
#pragma once

#include <cstring>

#include "opapi.h"

namespace npu {

// A kernel's arguments, and the calls that serve it.
struct kernel_call {
  const tb_arg* args;
  operator_calls& calls;
  uint32_t allowed; // TB_MATH_*

  const tb_tensor& tensor(int i) const {
    return *static_cast<const tb_tensor*>(args[i].v.p);
  }
  bool is_tensor(int i) const {
    return args[i].tag == TB_ARG_TENSOR;
  }
};

// Of a Scalar; a complex one is none that operators take.
inline number number_of(const kernel_call& k, int i) {
  const tb_arg& a = k.args[i];
  if (a.tag == TB_ARG_FLOAT) return {number::floating, 0, a.v.f};
  if (a.tag != TB_ARG_INT && a.tag != TB_ARG_BOOL) k.calls.refuse();
  return {a.tag == TB_ARG_BOOL ? number::boolean : number::integer, a.v.i, static_cast<double>(a.v.i)};
}

template <int I>
struct tensor { // null for None, and for an output that is left out
  static acl_tensor* make(const kernel_call& k) {
    return k.is_tensor(I) ? k.calls.tensor(k.tensor(I)) : nullptr;
  }
};

template <int I, int Like>
struct operand { // a tensor, or a number in a tensor's place
  static acl_tensor* make(const kernel_call& k) {
    if (k.is_tensor(I)) return k.calls.tensor(k.tensor(I));
    const number n = number_of(k, I);
    const tb_dtype dtype = n.kind == number::floating  ? tb_dtype{TB_DTYPE_FLOAT, 32, 1}
                           : n.kind == number::boolean ? tb_dtype{TB_DTYPE_BOOL, 8, 1}
                                                       : tb_dtype{TB_DTYPE_INT, 64, 1};
    return k.calls.tensor(k.calls.filled(k.tensor(Like), dtype, n));
  }
};

template <int I>
struct tensors {
  static acl_tensor_list* make(const kernel_call& k) {
    auto** list = static_cast<tb_tensor**>(k.args[I].v.p);
    return k.calls.tensors({list, list + k.args[I].length});
  }
};

template <int I>
struct scalar { // null for None
  static acl_scalar* make(const kernel_call& k) {
    return k.args[I].tag == TB_ARG_NONE ? nullptr : k.calls.scalar(number_of(k, I));
  }
};

template <int I>
struct ints {
  static acl_int_array* make(const kernel_call& k) {
    return k.calls.ints(static_cast<const int64_t*>(k.args[I].v.p), k.args[I].length);
  }
};

template <int I>
struct dims { // of argument 0; None and an empty list are all of them
  static acl_int_array* make(const kernel_call& k) {
    const tb_arg& a = k.args[I];
    if (a.tag == TB_ARG_INT) return k.calls.ints(&a.v.i, 1);
    if (a.tag == TB_ARG_INT_LIST && a.length > 0) return ints<I>::make(k);
    std::vector<int64_t> all;
    for (int32_t i = 0; i < k.tensor(0).ndim; ++i) all.push_back(i);
    return k.calls.ints(all.data(), all.size());
  }
};

template <int I, int Otherwise = I>
struct height_and_width { // of a list of one or two; an empty one means what argument `Otherwise` says
  static acl_int_array* make(const kernel_call& k) {
    const tb_arg& a = k.args[k.args[I].length ? I : Otherwise];
    const auto* values = static_cast<const int64_t*>(a.v.p);
    const int64_t both[] = {values[0], values[a.length - 1]};
    return k.calls.ints(both, 2);
  }
};

template <int I>
struct mask {
  static acl_bool_array* make(const kernel_call& k) {
    bool values[8] = {};
    for (uint32_t i = 0; i < k.args[I].length && i < 8; ++i) values[i] = static_cast<const int64_t*>(k.args[I].v.p)[i];
    return k.calls.bools(values, k.args[I].length);
  }
};

template <int I, typename T = int64_t>
struct integer { // 0 for None
  static T make(const kernel_call& k) {
    return k.args[I].tag == TB_ARG_NONE ? T{} : static_cast<T>(k.args[I].v.i);
  }
};
template <int I>
using boolean = integer<I, bool>;

template <int I, typename T = double>
struct real {
  static T make(const kernel_call& k) {
    return static_cast<T>(number_of(k, I).f);
  }
};

template <int I>
struct dtype_of { // a tensor's
  static int make(const kernel_call& k) {
    return acl_dtype_of(k.tensor(I).dtype);
  }
};

template <int I>
struct text {
  static char* make(const kernel_call& k) {
    return static_cast<char*>(k.args[I].v.p);
  }
};

template <int I>
struct is_tanh { // gelu's approximation as a number
  static int64_t make(const kernel_call& k) {
    return std::strcmp(text<I>::make(k), "tanh") == 0;
  }
};

template <int I, typename T = int64_t>
struct seed {
  static T make(const kernel_call& k) {
    return static_cast<T>(static_cast<const tb_philox*>(k.args[I].v.p)->seed);
  }
};
template <int I, typename T = int64_t>
struct offset {
  static T make(const kernel_call& k) {
    return static_cast<T>(static_cast<const tb_philox*>(k.args[I].v.p)->offset);
  }
};

template <uint32_t Flag>
struct cube_math { // what the matrix unit may do with float32: 0 nothing, 3 HFLOAT32
  static int8_t make(const kernel_call& k) {
    return k.allowed & Flag ? 3 : 0;
  }
};

} // namespace npu
