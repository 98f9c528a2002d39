// Matrix products with a result dtype of their own (out_dtype=), which PyTorch has only for CUDA: computed in that
// dtype.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>

#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/native/Register.h"

namespace torch_backend {
namespace {

void check_out(const at::Tensor& out, c10::ScalarType out_dtype) {
  TORCH_CHECK(out.scalar_type() == out_dtype, "out_dtype is ", out_dtype, " but the out tensor has dtype ",
              out.scalar_type());
}

at::Tensor mm_dtype(const at::Tensor& self, const at::Tensor& mat2, c10::ScalarType out_dtype) {
  return at::mm(self.to(out_dtype), mat2.to(out_dtype));
}

at::Tensor& mm_dtype_out(const at::Tensor& self, const at::Tensor& mat2, c10::ScalarType out_dtype, at::Tensor& out) {
  check_out(out, out_dtype);
  return at::mm_out(out, self.to(out_dtype), mat2.to(out_dtype));
}

at::Tensor bmm_dtype(const at::Tensor& self, const at::Tensor& mat2, c10::ScalarType out_dtype) {
  return at::bmm(self.to(out_dtype), mat2.to(out_dtype));
}

at::Tensor& bmm_dtype_out(const at::Tensor& self, const at::Tensor& mat2, c10::ScalarType out_dtype, at::Tensor& out) {
  check_out(out, out_dtype);
  return at::bmm_out(out, self.to(out_dtype), mat2.to(out_dtype));
}

at::Tensor addmm_dtype(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2,
                       c10::ScalarType out_dtype, const at::Scalar& beta, const at::Scalar& alpha) {
  return at::addmm(self.to(out_dtype), mat1.to(out_dtype), mat2.to(out_dtype), beta, alpha);
}

at::Tensor& addmm_dtype_out(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2,
                            c10::ScalarType out_dtype, const at::Scalar& beta, const at::Scalar& alpha,
                            at::Tensor& out) {
  check_out(out, out_dtype);
  return at::addmm_out(out, self.to(out_dtype), mat1.to(out_dtype), mat2.to(out_dtype), beta, alpha);
}

at::Tensor baddbmm_dtype(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2,
                         c10::ScalarType out_dtype, const at::Scalar& beta, const at::Scalar& alpha) {
  return at::baddbmm(self.to(out_dtype), batch1.to(out_dtype), batch2.to(out_dtype), beta, alpha);
}

at::Tensor& baddbmm_dtype_out(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2,
                              c10::ScalarType out_dtype, const at::Scalar& beta, const at::Scalar& alpha,
                              at::Tensor& out) {
  check_out(out, out_dtype);
  return at::baddbmm_out(out, self.to(out_dtype), batch1.to(out_dtype), batch2.to(out_dtype), beta, alpha);
}

} // namespace

void register_matmul(Registrar& m) {
  m.impl("mm.dtype", TORCH_FN(mm_dtype), Source::kComposite);
  m.impl("mm.dtype_out", TORCH_FN(mm_dtype_out), Source::kComposite);
  m.impl("bmm.dtype", TORCH_FN(bmm_dtype), Source::kComposite);
  m.impl("bmm.dtype_out", TORCH_FN(bmm_dtype_out), Source::kComposite);
  m.impl("addmm.dtype", TORCH_FN(addmm_dtype), Source::kComposite);
  m.impl("addmm.dtype_out", TORCH_FN(addmm_dtype_out), Source::kComposite);
  m.impl("baddbmm.dtype", TORCH_FN(baddbmm_dtype), Source::kComposite);
  m.impl("baddbmm.dtype_out", TORCH_FN(baddbmm_dtype_out), Source::kComposite);
}

} // namespace torch_backend
