#include "csrc/torch/TensorMetadata.h"

#include <unordered_map>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>
#if __has_include(<torch/csrc/jit/serialization/pickler_helper.h>)
#include <torch/csrc/jit/serialization/pickler_helper.h>
#else
#include <torch/csrc/jit/serialization/pickler.h>
#endif

namespace torch_backend {
namespace {

/// What is saved is a map of names to flags, so the text goes into a name.
constexpr char kPrefix[] = "torch_backend:";
constexpr std::size_t kPrefixBytes = sizeof kPrefix - 1;

using Flags = std::unordered_map<std::string, bool>;

/// Never changed, as detached tensors share it.
struct Note final : c10::BackendMeta {
  Note(std::optional<std::string> text, Flags flags) : text(std::move(text)), flags(std::move(flags)) {}
  c10::intrusive_ptr<c10::BackendMeta> clone(const c10::intrusive_ptr<c10::BackendMeta>&) const override {
    return c10::make_intrusive<Note>(text, flags);
  }
  const std::optional<std::string> text;
  const Flags flags; // of others, who know what they mean
};

const Note* note_of(const at::TensorBase& tensor) {
  return dynamic_cast<const Note*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
}

void attach(const at::TensorBase& tensor, std::optional<std::string> text, Flags flags) {
  auto* impl = tensor.unsafeGetTensorImpl();
  TORCH_CHECK(!impl->get_backend_meta() || note_of(tensor),
              "The tensor carries metadata of another extension, which this would replace.");
  if (text || !flags.empty()) {
    impl->set_backend_meta(c10::make_intrusive<Note>(std::move(text), std::move(flags)));
  } else if (impl->get_backend_meta()) {
    impl->set_backend_meta(nullptr);
  }
}

Flags flags_of(const at::TensorBase& tensor) {
  const auto* note = note_of(tensor);
  return note ? note->flags : Flags{};
}

void save(const at::Tensor& tensor, Flags& metadata) {
  if (const auto* note = note_of(tensor)) {
    metadata.insert(note->flags.begin(), note->flags.end());
    if (note->text) {
      metadata[kPrefix + *note->text] = true;
    }
  }
}

/// As with PyTorch's own flags, what is not named stays as it is.
void load(const at::Tensor& tensor, Flags& metadata) {
  auto text = tensor_metadata(tensor);
  auto flags = flags_of(tensor);
  for (const auto& [name, flag] : metadata) {
    if (name.compare(0, kPrefixBytes, kPrefix) == 0) {
      text = name.substr(kPrefixBytes);
    } else {
      flags[name] = flag;
    }
  }
  if (!metadata.empty()) {
    attach(tensor, std::move(text), std::move(flags));
  }
}

} // namespace

std::optional<std::string> tensor_metadata(const at::TensorBase& tensor) {
  const auto* note = note_of(tensor);
  return note ? note->text : std::nullopt;
}

void set_tensor_metadata(const at::TensorBase& tensor, std::optional<std::string> text) {
  attach(tensor, std::move(text), flags_of(tensor));
}

bool save_tensor_metadata() {
  static const bool is_ours = [] {
    constexpr auto kType = c10::DeviceType::PrivateUse1;
    if (torch::jit::GetBackendMetaSerialization()[static_cast<std::size_t>(kType)].has_value()) {
      return false;
    }
    torch::jit::TensorBackendMetaRegistry(kType, save, load);
    return true;
  }();
  return is_ours;
}

} // namespace torch_backend
