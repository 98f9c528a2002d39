// The device generator: a counter-based Philox stream, one default per device.
#pragma once

#include <atomic>
#include <cstdint>

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/util/intrusive_ptr.h>

namespace torch_backend {

/// Seed and offset of a Philox 4x32-10 stream (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
/// Shared between generators that graphsafe_set_state made share it.
struct PhiloxState : c10::intrusive_ptr_target {
  explicit PhiloxState(uint64_t seed_, uint64_t offset_ = 0) : seed(seed_), offset(offset_) {}
  uint64_t seed;
  uint64_t offset; // multiple of 4: one counter step yields four 32-bit numbers
};

/// Threads: lock mutex_ (c10::GeneratorImpl) around a use, as with every generator.
class PhiloxGenerator final : public c10::GeneratorImpl {
 public:
  explicit PhiloxGenerator(c10::DeviceIndex device, c10::intrusive_ptr<PhiloxState> state = nullptr);

  void set_current_seed(uint64_t seed) override;
  /// Offsets are rounded up to a multiple of 4.
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  /// CPU byte tensor of 16 bytes: seed, offset, both little-endian 64-bit. 8 bytes set the seed and zero the offset.
  void set_state(const c10::TensorImpl& new_state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& new_state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

  /// Reserve `count` 32-bit numbers per thread of work: returns (seed, offset before).
  std::pair<uint64_t, uint64_t> philox_engine_inputs(uint64_t count);

  static c10::DeviceType device_type() {
    return c10::DeviceType::PrivateUse1;
  }

 private:
  PhiloxGenerator* clone_impl() const override;

  c10::intrusive_ptr<PhiloxState> state_;
};

/// `device` -1 is the current device. Seeded with c10::default_rng_seed_val until set.
const at::Generator& default_generator(c10::DeviceIndex device = -1);

at::Generator create_generator(c10::DeviceIndex device = -1);

/// Throws RuntimeError if an extension has registered a generator of its own (REGISTER_GENERATOR_PRIVATEUSE1), which
/// PyTorch's hooks, and so the device, would never call.
void check_generator_registration();

/// `generator`, or the default one of `device` if there is none. Throws if it is of another device type; as with CUDA,
/// it may be of another device of this type.
PhiloxGenerator* resolve_generator(const std::optional<at::Generator>& generator, c10::DeviceIndex device);

} // namespace torch_backend
