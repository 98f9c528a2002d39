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

struct Note final : c10::BackendMeta {
  explicit Note(std::string text) : text(std::move(text)) {}
  c10::intrusive_ptr<c10::BackendMeta> clone(const c10::intrusive_ptr<c10::BackendMeta>&) const override {
    return c10::make_intrusive<Note>(text);
  }
  const std::string text;
};

const Note* note_of(const at::TensorBase& tensor) {
  return dynamic_cast<const Note*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
}

void save(const at::Tensor& tensor, std::unordered_map<std::string, bool>& metadata) {
  if (const auto* note = note_of(tensor)) {
    metadata[kPrefix + note->text] = true;
  }
}

void load(const at::Tensor& tensor, std::unordered_map<std::string, bool>& metadata) {
  for (const auto& [name, flag] : metadata) {
    if (name.compare(0, kPrefixBytes, kPrefix) == 0) {
      set_tensor_metadata(tensor, name.substr(kPrefixBytes));
    }
  }
}

} // namespace

std::optional<std::string> tensor_metadata(const at::TensorBase& tensor) {
  const auto* note = note_of(tensor);
  return note ? std::optional(note->text) : std::nullopt;
}

void set_tensor_metadata(const at::TensorBase& tensor, std::optional<std::string> text) {
  auto* impl = tensor.unsafeGetTensorImpl();
  TORCH_CHECK(!impl->get_backend_meta() || note_of(tensor),
              "The tensor carries metadata of another extension, which this would replace.");
  if (text) {
    impl->set_backend_meta(c10::make_intrusive<Note>(std::move(*text)));
  } else if (impl->get_backend_meta()) {
    impl->set_backend_meta(nullptr);
  }
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
