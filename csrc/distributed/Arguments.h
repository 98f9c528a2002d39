// What every backend checks of a collective's arguments. Failures are ValueErrors that name the collective.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace torch_backend {

/// The first of some tensors, and the one of a list that may have no other.
const at::Tensor& first(const char* what, const std::vector<at::Tensor>& tensors);
const at::Tensor& only(const char* what, const std::vector<at::Tensor>& tensors);
/// The one list of those that c10d passes; none where the rank is not the root.
const std::vector<at::Tensor>& only_list(const char* what, const std::vector<std::vector<at::Tensor>>& lists);

/// A dense tensor of the active device; `device`, set by the first tensor, is that of all.
void check_tensor(const char* what, const at::Tensor& tensor, std::optional<c10::Device>& device);
void check_same_dtype(const char* what, const std::vector<at::Tensor>& tensors, const at::Tensor& model);
/// `whole` has a `part` for each of `parts` ranks.
void check_numel(const char* what, const at::Tensor& whole, const at::Tensor& part, int parts);
/// A list with a tensor for each of `size` ranks.
void check_one_per_rank(const char* what, const std::vector<at::Tensor>& tensors, int size);
/// A list with a part for each of `size` ranks, of the dtype and as large as `model`.
void check_parts(const char* what, const std::vector<at::Tensor>& parts, const at::Tensor& model, int size);
void check_as_many(const char* what, const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs);

std::vector<at::Tensor> flatten(const std::vector<std::vector<at::Tensor>>& lists);

} // namespace torch_backend
