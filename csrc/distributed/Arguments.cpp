#include "csrc/distributed/Arguments.h"

#include <c10/util/Exception.h>

#include "csrc/core/Runtime.h"

namespace torch_backend {

const at::Tensor& first(const char* what, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(!tensors.empty(), what, " needs a tensor.");
  return tensors.front();
}

const at::Tensor& only(const char* what, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, what, " takes one tensor per process, got ", tensors.size(), ".");
  return tensors.front();
}

const std::vector<at::Tensor>& only_list(const char* what, const std::vector<std::vector<at::Tensor>>& lists) {
  TORCH_CHECK_VALUE(lists.size() == 1, what, " takes one list of tensors per process, got ", lists.size(), ".");
  return lists.front();
}

void check_tensor(const char* what, const at::Tensor& tensor, std::optional<c10::Device>& device) {
  TORCH_CHECK_VALUE(tensor.defined() && tensor.layout() == c10::kStrided, what,
                    " takes dense tensors only, got one of layout ", tensor.layout(), ".");
  TORCH_CHECK_VALUE(tensor.device().type() == c10::DeviceType::PrivateUse1, what, " takes tensors of ",
                    device_api().name(), ", got one on ", tensor.device(), ".");
  if (!device) {
    device = tensor.device();
  }
  TORCH_CHECK_VALUE(tensor.device() == *device, what, " takes tensors of one device, got some on ", *device, " and on ",
                    tensor.device(), ".");
}

void check_same_dtype(const char* what, const std::vector<at::Tensor>& tensors, const at::Tensor& model) {
  for (const auto& tensor : tensors) {
    TORCH_CHECK_VALUE(tensor.scalar_type() == model.scalar_type(), what, " takes tensors of one dtype, got ",
                      model.scalar_type(), " and ", tensor.scalar_type(), ".");
  }
}

void check_numel(const char* what, const at::Tensor& whole, const at::Tensor& part, int parts) {
  TORCH_CHECK_VALUE(whole.numel() == part.numel() * parts, what, ": of ", parts, " ranks with ", part.numel(),
                    " elements each, the whole has ", part.numel() * parts, ", but the tensor given for it has ",
                    whole.numel(), ".");
}

void check_one_per_rank(const char* what, const std::vector<at::Tensor>& tensors, int size) {
  TORCH_CHECK_VALUE(tensors.size() == static_cast<std::size_t>(size), what, " takes a tensor for each of ", size,
                    " ranks, got ", tensors.size(), ".");
}

void check_parts(const char* what, const std::vector<at::Tensor>& parts, const at::Tensor& model, int size) {
  check_one_per_rank(what, parts, size);
  check_same_dtype(what, parts, model);
  for (const auto& part : parts) {
    check_numel(what, part, model, 1);
  }
}

void check_as_many(const char* what, const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), what, " got ", inputs.size(), " inputs and ", outputs.size(),
                    " outputs.");
}

std::vector<at::Tensor> flatten(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> all;
  for (const auto& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

} // namespace torch_backend
