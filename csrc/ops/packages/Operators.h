// The operators that the code of packages calls, besides PyTorch's.
#pragma once

namespace torch_backend::packages {

/// Define them in PyTorch's dispatcher, for all devices. They have no formula for a gradient.
///
/// torch_backend::launch runs a kernel that torch.compile wrote, on the current stream of the device of `tensors`; `work` has
/// units, cost and numbers. GraphKernel.h says what the arguments are. The last `on_host` tensors are on the CPU, with one
/// element each, which follows the numbers.
/// torch_backend::resident returns what `stand_ins` stand for: Note [Resident constants].
/// torch_backend::attention is the first result of aten::_scaled_dot_product_fused_attention_overrideable, whose others a
/// package's code could not take.
/// torch_backend::store copies `source` to `target`, and stays where it is in a graph.
void register_operators();

} // namespace torch_backend::packages
