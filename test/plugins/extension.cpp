// What an extension for PrivateUse1 registers with PyTorch, on call: a generator, and how it saves what is attached to
// tensors. And what it sees of PyTorch.
#include <ATen/core/Generator.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#if __has_include(<torch/csrc/jit/serialization/pickler_helper.h>)
#include <torch/csrc/jit/serialization/pickler_helper.h>
#else
#include <torch/csrc/jit/serialization/pickler.h>
#endif

extern "C" {

void register_generator() {
  static const at::_GeneratorRegister registered([](c10::DeviceIndex) -> at::Generator { return {}; });
}

/// Whether PyTorch has taken it.
int register_metadata() {
  const auto nothing = [](const at::Tensor&, std::unordered_map<std::string, bool>&) {};
  try {
    torch::jit::TensorBackendMetaRegistry(c10::DeviceType::PrivateUse1, nothing, nothing);
    return 1;
  } catch (const c10::Error&) {
    return 0;
  }
}

void* cpu_allocator() {
  return c10::GetAllocator(c10::DeviceType::CPU);
}
}
