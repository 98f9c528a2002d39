// What a kernel's arguments hold.
#pragma once

#include <complex>
#include <cstdint>

#include "torch_backend/device.h"

namespace torch_backend::compiled {

/// NULL if it is no tensor.
inline const tb_tensor* tensor_of(const tb_arg& argument) {
  return argument.tag == TB_ARG_TENSOR ? static_cast<const tb_tensor*>(argument.v.p) : nullptr;
}
/// Of an argument that is known to be a tensor.
inline const tb_tensor& tensor_in(const tb_arg& argument) {
  return *static_cast<const tb_tensor*>(argument.v.p);
}
/// A number that is real, as an integer; a float is cut.
inline int64_t int_of(const tb_arg& argument) {
  return argument.tag == TB_ARG_FLOAT ? static_cast<int64_t>(argument.v.f) : argument.v.i;
}
inline double double_of(const tb_arg& argument) {
  return argument.tag == TB_ARG_FLOAT ? argument.v.f : static_cast<double>(argument.v.i);
}
/// Of any number.
inline std::complex<double> complex_of(const tb_arg& argument) {
  const auto* parts = static_cast<const double*>(argument.v.p);
  return argument.tag == TB_ARG_COMPLEX ? std::complex<double>(parts[0], parts[1])
                                        : std::complex<double>(double_of(argument));
}
inline bool is_real(const tb_arg& argument) {
  return argument.tag == TB_ARG_INT || argument.tag == TB_ARG_BOOL || argument.tag == TB_ARG_FLOAT;
}

inline int64_t elements_of(const tb_tensor& tensor) {
  int64_t count = 1;
  for (int d = 0; d < tensor.ndim; ++d) {
    count *= tensor.shape[d];
  }
  return count;
}

} // namespace torch_backend::compiled
