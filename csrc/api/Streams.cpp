// Streams that are made outside of PyTorch.

#include "csrc/core/Runtime.h"
#include "csrc/core/Stream.h"
#include "torch_backend/api.h"

namespace torch_backend {

c10::Stream stream_from_external(void* handle, c10::DeviceIndex device) {
  return external_stream(static_cast<tb_stream*>(handle), resolve_device(device));
}

} // namespace torch_backend
