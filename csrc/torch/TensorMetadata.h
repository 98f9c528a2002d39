// What a device's Python side notes on a tensor (c10::BackendMeta), and what becomes of it when the tensor is saved.
#pragma once

#include <optional>
#include <string>

#include <ATen/core/TensorBase.h>

namespace torch_backend {

/// The note on `tensor`: text whose form the Python side knows; nothing if there is none, or if what another extension
/// has attached is there.
std::optional<std::string> tensor_metadata(const at::TensorBase& tensor);

/// Replace the note; nothing removes it. Flags of others (torch._utils.set_tensor_metadata) stay. Throws if the tensor carries what another extension has attached.
void set_tensor_metadata(const at::TensorBase& tensor, std::optional<std::string> text);

/// Let PyTorch save and load notes with their tensors, if no extension does that for the device type in its own way.
/// Whether notes are saved. Not part of activation: PyTorch takes one registration per process, and an extension's may
/// come as long as nobody has asked for notes. Threads: any.
bool save_tensor_metadata();

} // namespace torch_backend
