// Running a CPU kernel on device tensors of any layout.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "csrc/ops/host/HostCall.h"
#include "csrc/ops/host/layouts/Layout.h"

namespace torch_backend {

/// A HostCall whose arguments and results may be sparse, nested or quantized: their parts are what HostCall stands in
/// for and brings back (Note [Layouts as parts]). Plain strided tensors go to HostCall as they are.
///
/// Threads: one thread per object.
class LayoutCall {
 public:
  /// As HostCall's.
  explicit LayoutCall(const char* op) : host_(op) {}

  /// The strided part of the call: device, generators, figures.
  HostCall& host() {
    return host_;
  }

  /// Before every stand_in(): one of the arguments is written. A tensor that is read and written (out= is an operand) has
  /// one stand-in, as it has one identity for the kernel.
  void expect_write(const at::Tensor& tensor);

  /// As HostCall's functions of the same names; `tensor` need not outlive the call if it is not strided.
  at::Tensor stand_in(const at::Tensor& tensor, bool written);
  void leave();
  at::Tensor result(at::Tensor&& cpu);

 private:
  /// One argument that is not strided.
  struct Argument {
    const Layout* layout;
    at::Tensor original;
    at::Tensor stand_in;
    std::vector<at::Tensor> original_parts;
    std::vector<at::Tensor> stand_in_parts;
    bool written;
  };

  at::Tensor result_part(at::Tensor&& part);
  std::optional<at::Tensor> part_of_argument(const at::Tensor& part) const;
  std::vector<at::Tensor> bring(std::vector<at::Tensor>&& parts);

  HostCall host_;
  std::vector<Argument> arguments_;
};

} // namespace torch_backend
