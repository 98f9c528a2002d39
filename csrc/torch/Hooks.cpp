#include "csrc/torch/Hooks.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/core/Runtime.h"
#include "csrc/core/generator/PhiloxGenerator.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/memory/HostAllocator.h"
#include "csrc/ops/tensor/Resize.h"

namespace torch_backend {

bool Hooks::isBuilt() const {
  return true;
}

bool Hooks::isAvailable() const {
  return device_count() > 0;
}

bool Hooks::hasPrimaryContext(c10::DeviceIndex device_index) const {
  return device_api().initialized() && device_index < device_count();
}

void Hooks::init() const {
  device_api().initialize();
}

c10::DeviceIndex Hooks::deviceCount() const {
  return device_count();
}

void Hooks::setCurrentDevice(c10::DeviceIndex device) const {
  set_device(device);
}

c10::DeviceIndex Hooks::getCurrentDevice() const {
  return current_device();
}

c10::DeviceIndex Hooks::exchangeDevice(c10::DeviceIndex device) const {
  return exchange_device(device);
}

c10::DeviceIndex Hooks::maybeExchangeDevice(c10::DeviceIndex device) const {
  return exchange_device(device);
}

bool Hooks::isPinnedPtr(const void* data) const {
  return is_pinned_ptr(data);
}

at::Allocator* Hooks::getPinnedMemoryAllocator() const {
  return at::getHostAllocator(c10::DeviceType::PrivateUse1);
}

at::Device Hooks::getDeviceFromPtr(void* data) const {
  const auto device = device_allocator().device_of(data);
  TORCH_CHECK(device.has_value(), "The pointer ", data, " does not point into memory that the allocator of ",
              device_api().name(), " gave out, nor into other memory that the plugin's memory_query knows.");
  return {c10::DeviceType::PrivateUse1, *device};
}

const at::Generator& Hooks::getDefaultGenerator(c10::DeviceIndex device_index) const {
  check_generator_registration(); // one that came after activation
  return default_generator(device_index);
}

at::Generator Hooks::getNewGenerator(c10::DeviceIndex device_index) const {
  check_generator_registration();
  return create_generator(device_index);
}

void Hooks::resizePrivateUse1Bytes(const c10::Storage& storage, size_t new_bytes) const {
  resize_storage_bytes(storage.unsafeGetStorageImpl(), new_bytes);
}

void register_hooks() {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
}

} // namespace torch_backend
