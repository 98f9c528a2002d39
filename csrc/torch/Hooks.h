// PyTorch's hooks for the active plugin: availability, pinned memory, generators, storage resize.
#pragma once

#include <ATen/detail/PrivateUse1HooksInterface.h>

namespace torch_backend {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override;
  /// Never throws and never starts the driver.
  bool isAvailable() const override;
  bool hasPrimaryContext(c10::DeviceIndex device_index) const override;
  void init() const override;

  c10::DeviceIndex deviceCount() const override;
  void setCurrentDevice(c10::DeviceIndex device) const override;
  c10::DeviceIndex getCurrentDevice() const override;
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override;
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override;

  bool isPinnedPtr(const void* data) const override;
  at::Allocator* getPinnedMemoryAllocator() const override;
  /// For at::from_blob without a device: throws if the plugin does not know the pointer.
  at::Device getDeviceFromPtr(void* data) const override;

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device_index) const override;
  at::Generator getNewGenerator(c10::DeviceIndex device_index) const override;

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t new_bytes) const override;
};

/// Make these the hooks of PrivateUse1.
void register_hooks();

} // namespace torch_backend
