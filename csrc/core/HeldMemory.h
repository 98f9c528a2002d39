// Memory that enqueued work uses, and that no allocator of the device guards.
#pragma once

#include <memory>

#include "csrc/core/Stream.h"

namespace torch_backend {

class DeviceApi;

/// Keep `memory` until the stream has passed what is enqueued on it. Does not wait. If it throws nothing is kept.
void hold_until_passed(const Stream& stream, std::shared_ptr<void> memory);

/// Let go of what streams have passed. From any thread; memory is let go of without a lock.
void release_passed(const DeviceApi& api);

} // namespace torch_backend
