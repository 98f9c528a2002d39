#include "csrc/core/generator/PhiloxGenerator.h"

#include <array>
#include <cstring>
#include <mutex>

#include <ATen/EmptyTensor.h>
#include <ATen/Utils.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/core/Tensor.h>

#include "csrc/core/DeviceApi.h"
#include "csrc/core/Runtime.h"

namespace torch_backend {
namespace {

constexpr uint64_t kStep = 4;

uint64_t round_up(uint64_t offset) {
  return (offset + kStep - 1) / kStep * kStep;
}

} // namespace

PhiloxGenerator::PhiloxGenerator(c10::DeviceIndex device, c10::intrusive_ptr<PhiloxState> state)
    : c10::GeneratorImpl{c10::Device(c10::DeviceType::PrivateUse1, device),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)},
      state_(state ? std::move(state) : c10::make_intrusive<PhiloxState>(c10::default_rng_seed_val)) {}

void PhiloxGenerator::set_current_seed(uint64_t seed) {
  state_->seed = seed;
  state_->offset = 0;
}

void PhiloxGenerator::set_offset(uint64_t offset) {
  state_->offset = round_up(offset);
}

uint64_t PhiloxGenerator::get_offset() const {
  return state_->offset;
}

uint64_t PhiloxGenerator::current_seed() const {
  return state_->seed;
}

uint64_t PhiloxGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom(true));
  return state_->seed;
}

void PhiloxGenerator::set_state(const c10::TensorImpl& new_state) {
  at::detail::check_rng_state(new_state);
  const auto bytes = new_state.numel();
  TORCH_CHECK(bytes == 8 || bytes == 16, "A generator state of ", device_api().name(),
              " has 16 bytes (seed, offset) or 8 (seed); got ", bytes, ".");
  const auto* data = new_state.data_dtype_initialized<uint8_t>();
  std::array<uint64_t, 2> words{};
  std::memcpy(words.data(), data, static_cast<std::size_t>(bytes));
  state_->seed = words[0];
  state_->offset = round_up(words[1]);
}

c10::intrusive_ptr<c10::TensorImpl> PhiloxGenerator::get_state() const {
  const std::array<uint64_t, 2> words{state_->seed, state_->offset};
  const at::Tensor state = at::detail::empty_cpu({static_cast<int64_t>(sizeof(words))}, at::kByte);
  std::memcpy(state.mutable_data_ptr<uint8_t>(), words.data(), sizeof(words));
  return state.getIntrusivePtr();
}

void PhiloxGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& new_state) {
  auto* other = dynamic_cast<PhiloxGenerator*>(new_state.get());
  TORCH_CHECK(other, "graphsafe_set_state takes a generator of ", device_api().name(), ".");
  state_ = other->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> PhiloxGenerator::graphsafe_get_state() const {
  return c10::make_intrusive<PhiloxGenerator>(device().index(), state_);
}

std::pair<uint64_t, uint64_t> PhiloxGenerator::philox_engine_inputs(uint64_t count) {
  const auto before = state_->offset;
  state_->offset += round_up(count);
  return {state_->seed, before};
}

PhiloxGenerator* PhiloxGenerator::clone_impl() const {
  return new PhiloxGenerator(device().index(), c10::make_intrusive<PhiloxState>(state_->seed, state_->offset));
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static auto* generators = new std::array<at::Generator, kMaxDevices>;
  static auto* once = new std::array<std::once_flag, kMaxDevices>;
  const auto index = static_cast<std::size_t>(resolve_device(device));
  std::call_once((*once)[index], [&] {
    (*generators)[index] = at::make_generator<PhiloxGenerator>(static_cast<c10::DeviceIndex>(index));
  });
  return (*generators)[index];
}

at::Generator create_generator(c10::DeviceIndex device) {
  return at::make_generator<PhiloxGenerator>(resolve_device(device));
}

void check_generator_registration() {
  TORCH_CHECK(!at::GetGeneratorPrivate().has_value(),
              "An extension has registered a generator with REGISTER_GENERATOR_PRIVATEUSE1, which would not be used: "
              "torch_backend brings the device's generators. Remove the registration; kernels take their numbers from "
              "the seed and offset of torch.Generator, as CUDA's do.");
}

PhiloxGenerator* resolve_generator(const std::optional<at::Generator>& generator, c10::DeviceIndex device) {
  if (!generator.has_value() || !generator->defined()) {
    return static_cast<PhiloxGenerator*>(default_generator(device).unsafeGetGeneratorImpl());
  }
  TORCH_CHECK(generator->device().type() == c10::DeviceType::PrivateUse1, "Expected a '", device_api().name(),
              "' device type for generator but found '", generator->device().type(), "'");
  auto* philox = dynamic_cast<PhiloxGenerator*>(generator->unsafeGetGeneratorImpl());
  TORCH_CHECK(philox, "A generator of an extension cannot be used with ", device_api().name(),
              "'s random operators. Make one with torch.Generator(device).");
  return philox;
}

} // namespace torch_backend
