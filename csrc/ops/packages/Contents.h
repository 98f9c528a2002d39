// What a package of AOTInductor says beside its code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace torch_backend::packages {

/// What a package was compiled to take.
class Input {
 public:
  /// `text`: "xcpu float32 [?,4] contiguous", or with strides in place of the last word. Throws if it is another.
  explicit Input(const std::string& text);

  /// Whether `tensor` is that, given the device of the package.
  bool takes(const at::Tensor& tensor, c10::Device device) const;

  const std::string& text() const {
    return text_;
  }

 private:
  bool has_sizes(const at::Tensor& tensor) const;
  bool has_strides(const at::Tensor& tensor) const;

  std::string text_;
  bool on_device_;
  std::string dtype_;
  std::vector<int64_t> sizes_;
  std::optional<std::vector<int64_t>> strides_; // none: contiguous
};

/// See Note [Packages].
struct Contents {
  std::vector<Input> inputs;
  /// Of the device whose kernels the code has, what they depend on: described(). Empty: the code is the CPU's.
  std::string kernels;
  std::vector<bool> outputs_on_device; // of code of the CPU's
  int64_t seeds;                       // as many random numbers are the last input of the CPU's code, if there are any
  std::vector<std::string> on_host;    // constants that the code wants on the CPU, as it calls them

  /// Of the package with this library. Throws if its metadata are not torch_backend's.
  static Contents read(const std::string& library);

  /// Throws ValueError if the code was not compiled for these inputs.
  void check(const std::vector<at::Tensor>& given, c10::Device device) const;
};

/// What the text of kernels depends on that torch.compile writes for `device`.
std::string described(int device);

} // namespace torch_backend::packages
