#include "csrc/ops/tensor/StorageOf.h"

#include <c10/util/Exception.h>

namespace torch_backend::detail {

void throw_no_memory(const c10::TensorImpl& tensor, const char* op) {
  try {
    tensor.storage();
  } catch (const c10::NotImplementedError&) { // of a kind that has none
  } // who took it away may have left word, which is for the user
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op, " needs the memory of a tensor on ", tensor.device(),
      " that has no storage, or whose storage was emptied. Only kernels that are registered for "
      "such tensors can use them; register one for the operator.");
}

} // namespace torch_backend::detail
