// Pinned host memory: the plugin's page-locked memory, cached.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include "csrc/core/Stream.h"

namespace torch_backend {

/// PyTorch's caching host allocator over the plugin's TB_MEMORY_HOST. A plugin without such memory gets ordinary host
/// memory, page aligned; it counts as pinned all the same (Tensor.is_pinned, DataLoader(pin_memory=True), waiting for
/// non_blocking copies), so that programs behave alike on every device. Lives until the process ends.
at::HostAllocator& host_allocator();

/// Make it PyTorch's host allocator of PrivateUse1.
void register_host_allocator();

/// Whether `ptr` points into pinned memory: from host_allocator, or by the plugin's memory_query. Does not start the
/// driver.
bool is_pinned_ptr(const void* ptr);

/// A copy enqueued on `stream` reads or writes this pinned memory, which is not reused before it is done. `ptr` may
/// point anywhere into the allocation. False if it is not from host_allocator: then the caller keeps it alive itself.
bool record_pinned_use(const void* ptr, const Stream& stream);
bool record_pinned_use(const c10::DataPtr& data, const Stream& stream);

} // namespace torch_backend
