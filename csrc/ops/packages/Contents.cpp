#include "csrc/ops/packages/Contents.h"

#include <fstream>
#include <sstream>

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/engine/Launch.h"

namespace torch_backend::packages {
namespace {

constexpr int64_t kAny = -1;

/// Separated by `separator`.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream all(text);
  for (std::string part; std::getline(all, part, separator);) {
    parts.push_back(part);
  }
  return parts;
}

/// "[3,?]"; a number that is not known is kAny.
std::vector<int64_t> numbers_in(const std::string& text) {
  std::vector<int64_t> numbers;
  for (const auto& number : split(text.substr(1, text.size() - 2), ',')) {
    numbers.push_back(number == "?" ? kAny : std::stoll(number));
  }
  return numbers;
}

/// Within a text in JSON a quote has a backslash before it: these can only be a key and its value.
std::string value_of(const std::string& metadata, const std::string& key) {
  const auto before = "\"torch_backend." + key + "\": \"";
  const auto found = metadata.find(before);
  TORCH_CHECK(found != std::string::npos, "The package's metadata says nothing of its ", key,
              ": it was not made by torch.export of a program on ", device_api().name(),
              " with this version of torch_backend. Export and package the program again.");
  const auto begin = found + before.size();
  return metadata.substr(begin, metadata.find('"', begin) - begin);
}

} // namespace

Input::Input(const std::string& text) : text_(text) {
  const auto parts = split(text, ' ');
  TORCH_CHECK(parts.size() == 4, "What a package says of an input, '", text, "', has other parts than expected.");
  on_device_ = parts[0] != "cpu";
  dtype_ = parts[1];
  sizes_ = numbers_in(parts[2]);
  if (parts[3] != "contiguous") {
    strides_ = numbers_in(parts[3]);
  }
}

bool Input::takes(const at::Tensor& tensor, c10::Device device) const {
  return tensor.device() == (on_device_ ? device : c10::Device(c10::kCPU)) && tensor.layout() == c10::kStrided &&
         c10::getDtypeNames(tensor.scalar_type()).first == dtype_ && has_sizes(tensor) && has_strides(tensor);
}

bool Input::has_sizes(const at::Tensor& tensor) const {
  bool same = static_cast<std::size_t>(tensor.dim()) == sizes_.size();
  for (std::size_t d = 0; same && d < sizes_.size(); ++d) {
    same = sizes_[d] == kAny || sizes_[d] == tensor.sizes()[d];
  }
  return same;
}

bool Input::has_strides(const at::Tensor& tensor) const {
  if (!strides_) {
    return tensor.is_contiguous();
  }
  bool same = true;
  for (std::size_t d = 0; same && d < strides_->size(); ++d) {
    same = (*strides_)[d] == kAny || (*strides_)[d] == tensor.strides()[d] || tensor.sizes()[d] < 2;
  }
  return same || tensor.numel() == 0;
}

Contents Contents::read(const std::string& library) {
  std::ostringstream metadata;
  metadata << std::ifstream(library.substr(0, library.find_last_of('.')) + "_metadata.json").rdbuf();
  const auto text = metadata.str();
  Contents contents;
  for (const auto& input : split(value_of(text, "inputs"), ';')) {
    contents.inputs.emplace_back(input);
  }
  contents.kernels = value_of(text, "kernels");
  for (const auto& output : split(value_of(text, "outputs"), ' ')) {
    contents.outputs_on_device.push_back(output != "cpu");
  }
  contents.seeds = std::stoll(value_of(text, "seeds"));
  contents.on_host = split(value_of(text, "on_host"), ' ');
  return contents;
}

void Contents::check(const std::vector<at::Tensor>& given, c10::Device device) const {
  TORCH_CHECK_VALUE(given.size() == inputs.size(), "The package takes ", inputs.size(),
                    " tensors, and was called with ", given.size(), ".");
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto& tensor = given[i];
    TORCH_CHECK_VALUE(
        inputs[i].takes(tensor, device), "Input ", i, " has to be as when the program was exported, '",
        inputs[i].text(), "' (device, dtype, sizes, strides), on the device that the package was loaded for, ", device,
        ". It is on ", tensor.device(), ", of ", c10::getDtypeNames(tensor.scalar_type()).first, ", ", tensor.sizes(),
        " with strides ", tensor.strides(),
        ". Convert it (to(), contiguous()), load for another device_index, or export with dynamic_shapes.");
  }
}

std::string described(int device) {
  const bool has_double = compiled::computes(device, compiled::ValueType::f64);
  return std::string(compiled::runs_in_stretches(device) ? "in stretches" : "side by side") + ", blocks of " +
         std::to_string(compiled::block_items(device)) + (has_double ? ", float64" : "");
}

} // namespace torch_backend::packages
