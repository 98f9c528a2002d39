#include "csrc/torch/DeviceGuard.h"

#include <c10/core/DeviceCapability.h>
#include <c10/util/Exception.h>

#include "csrc/core/Capture.h"
#include "csrc/core/DType.h"
#include "csrc/core/Event.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Stream.h"
#include "csrc/memory/DeviceAllocator.h"

namespace torch_backend {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

c10::Device device_of(c10::DeviceIndex index) {
  return c10::Device(kType, index);
}

Event* as_event(void* event) {
  return static_cast<Event*>(event);
}

} // namespace

c10::DeviceType DeviceGuardImpl::type() const {
  return kType;
}

c10::Device DeviceGuardImpl::exchangeDevice(c10::Device device) const {
  return device_of(exchange_device(device.index()));
}

c10::Device DeviceGuardImpl::getDevice() const {
  return device_of(current_device());
}

void DeviceGuardImpl::setDevice(c10::Device device) const {
  TORCH_CHECK(device.type() == kType, "Expected a device of type ", device_api().name(), ", got ", device, ".");
  if (device.has_index()) {
    set_device(device.index());
  }
}

void DeviceGuardImpl::uncheckedSetDevice(c10::Device device) const noexcept {
  try {
    exchange_device(device.index());
  } catch (const std::exception& error) {
    TORCH_WARN("Could not switch to ", device, ": ", error.what());
  }
}

c10::DeviceIndex DeviceGuardImpl::deviceCount() const noexcept {
  return device_count();
}

c10::DeviceCapability DeviceGuardImpl::getDeviceCapability(c10::Device device) const {
  c10::DeviceCapability capability;
  capability.capability_data.capability_bits = 0;
  const auto& properties = device_api().properties(resolve_device(device.index()));
  for (const auto dtype : supported_dtypes(properties)) {
    capability.capability_data.capability_bits |= (1ULL << static_cast<int>(dtype));
  }
  return capability;
}

void DeviceGuardImpl::synchronizeDevice(const c10::DeviceIndex device) const {
  synchronize_device(device);
}

c10::Stream DeviceGuardImpl::getStream(c10::Device device) const {
  return current_stream(device.index());
}

c10::Stream DeviceGuardImpl::getDefaultStream(c10::Device device) const {
  return default_stream(device.index());
}

c10::Stream DeviceGuardImpl::getStreamFromGlobalPool(c10::Device device, bool is_high_priority) const {
  const auto [lowest, highest] = stream_priority_range(device.index());
  return stream_from_pool(is_high_priority ? highest : lowest, device.index());
}

c10::Stream DeviceGuardImpl::getNewStream(c10::Device device, int priority) const {
  return stream_from_pool(priority, device.index());
}

c10::Stream DeviceGuardImpl::exchangeStream(c10::Stream stream) const {
  const Stream next(stream);
  const Stream before = current_stream(next.device_index());
  if (before != next) {
    set_current_stream(next);
  }
  return before;
}

void* DeviceGuardImpl::getStreamNativeHandle(const c10::Stream stream) const {
  return Stream(stream).handle();
}

bool DeviceGuardImpl::queryStream(const c10::Stream& stream) const {
  return Stream(stream).query();
}

void DeviceGuardImpl::synchronizeStream(const c10::Stream& stream) const {
  Stream(stream).synchronize();
}

bool DeviceGuardImpl::isStreamCapturing(const c10::Stream& stream) const {
  return graph::is_capturing(Stream(stream));
}

void DeviceGuardImpl::record(void** event, const c10::Stream& stream, const c10::DeviceIndex /*device_index*/,
                             const c10::EventFlag flag) const {
  // InlineEvent passes the index the event had before, -1 the first time: the stream's is the one that counts.
  if (!*event) {
    *event = new Event(flag == c10::EventFlag::BACKEND_DEFAULT);
  }
  as_event(*event)->record(Stream(stream));
}

void DeviceGuardImpl::block(void* event, const c10::Stream& stream) const {
  if (event) {
    as_event(event)->block(Stream(stream));
  }
}

bool DeviceGuardImpl::queryEvent(void* event) const {
  return !event || as_event(event)->query();
}

void DeviceGuardImpl::synchronizeEvent(void* event) const {
  if (event) {
    as_event(event)->synchronize();
  }
}

double DeviceGuardImpl::elapsedTime(void* start, void* end, const c10::DeviceIndex /*device_index*/) const {
  TORCH_CHECK_VALUE(start && end, "Both events must be recorded before the time between them can be measured.");
  return as_event(start)->elapsed_ms(*as_event(end));
}

void DeviceGuardImpl::destroyEvent(void* event, const c10::DeviceIndex /*device_index*/) const noexcept {
  delete as_event(event);
}

void DeviceGuardImpl::recordDataPtrOnStream(const c10::DataPtr& data_ptr, const c10::Stream& stream) const {
  device_allocator().recordStream(data_ptr, stream);
}

void register_device_guard() {
  static const c10::impl::DeviceGuardImplRegistrar registrar(kType, new DeviceGuardImpl);
}

} // namespace torch_backend
