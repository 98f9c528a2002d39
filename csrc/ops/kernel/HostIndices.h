// What operators that index take from the host, for kernels of the device.
#pragma once

#include <optional>

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

namespace torch_backend {

/// An argument of an operator that indexes a tensor on `device`, with what it has on the host brought there: indices of any
/// size in a list, else a number, such as one to be stored. Nothing if nothing is on the host. As on CUDA, where
/// x[torch.randperm(n)] copies the indices and not x.
std::optional<c10::IValue> brought_from_host(const c10::IValue& value, c10::Device device);

} // namespace torch_backend
