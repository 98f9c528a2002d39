#include "csrc/distributed/Staging.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_real.h>

namespace torch_backend {
namespace {

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

} // namespace

at::Tensor Staging::read(const at::Tensor& tensor) {
  return tensor.resolve_conj().resolve_neg().contiguous().view({-1});
}

at::Tensor Staging::write(const at::Tensor& tensor) {
  if (is_plain(tensor)) {
    return tensor.view({-1});
  }
  auto staged = at::empty({tensor.numel()}, tensor.options());
  copies_.emplace_back(tensor, staged.view(tensor.sizes()));
  return staged;
}

at::Tensor Staging::update(const at::Tensor& tensor) {
  const auto values = read(tensor);
  if (!is_plain(tensor)) {
    copies_.emplace_back(tensor, values.view(tensor.sizes()));
  }
  return values;
}

std::vector<at::Tensor> Staging::read(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> all;
  for (const auto& tensor : tensors) {
    all.push_back(read(tensor));
  }
  return all;
}

std::vector<at::Tensor> Staging::write(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> all;
  for (const auto& tensor : tensors) {
    all.push_back(write(tensor));
  }
  return all;
}

at::Tensor Staging::read_joined(const std::vector<at::Tensor>& tensors) {
  return tensors.size() == 1 ? read(tensors.front()) : at::cat(read(tensors));
}

at::Tensor Staging::write_joined(const std::vector<at::Tensor>& tensors) {
  if (tensors.size() == 1) {
    return write(tensors.front());
  }
  int64_t numel = 0;
  for (const auto& tensor : tensors) {
    numel += tensor.numel();
  }
  auto all = at::empty({numel}, tensors.front().options());
  int64_t start = 0;
  for (const auto& tensor : tensors) {
    copies_.emplace_back(tensor, all.narrow(0, start, tensor.numel()).view(tensor.sizes()));
    start += tensor.numel();
  }
  return all;
}

void Staging::deliver() {
  for (const auto& [tensor, staged] : copies_) {
    if (tensor.numel() > 0) {
      tensor.copy_(staged);
    }
  }
  copies_.clear();
}

at::Tensor as_reduced(const at::Tensor& staged) {
  if (staged.is_complex()) {
    return at::view_as_real(staged).view({-1});
  }
  return staged.scalar_type() == c10::kBool ? staged.view(c10::kByte) : staged;
}

} // namespace torch_backend
