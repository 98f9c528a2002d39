#include "csrc/core/Capture.h"

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>

namespace torch_backend::graph {
namespace detail {

std::atomic<int> num_captures{0};

} // namespace detail

namespace {

std::atomic<uint64_t> next_id{1};

struct Registry {
  std::mutex mutex; // guards captures
  std::vector<std::shared_ptr<Capture>> captures;
};

Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

template <class Accepts>
std::shared_ptr<Capture> find_if(const Accepts& accepts) {
  auto& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = std::find_if(all.captures.begin(), all.captures.end(), accepts);
  return found == all.captures.end() ? nullptr : *found;
}

} // namespace

Capture::Capture(const Stream& stream)
    : id_(next_id.fetch_add(1)), origin_(stream), streams_{{stream.id(), stream.handle()}} {}

bool Capture::includes(c10::DeviceIndex device, c10::StreamId stream) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return device == origin_.device_index() &&
         std::any_of(streams_.begin(), streams_.end(), [&](const auto& each) { return each.first == stream; });
}

bool Capture::includes(c10::DeviceIndex device, tb_stream* handle) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return device == origin_.device_index() &&
         std::any_of(streams_.begin(), streams_.end(), [&](const auto& each) { return each.second == handle; });
}

void Capture::join(const Stream& stream) {
  if (!includes(stream.device_index(), stream.id())) {
    const std::pair joined(stream.id(), stream.handle());
    const std::lock_guard<std::mutex> lock(mutex_);
    streams_.push_back(joined);
  }
}

void Capture::add_step(std::string name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  steps_.push_back(std::move(name));
}

void Capture::keep(std::shared_ptr<Recorded> recorded) {
  const std::lock_guard<std::mutex> lock(mutex_);
  recorded_.push_back(std::move(recorded));
}

void Capture::invalidate(std::string reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_.empty()) {
    failure_ = std::move(reason);
  }
}

std::string Capture::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

std::vector<std::string> Capture::take_steps() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::move(steps_);
}

std::vector<std::shared_ptr<Recorded>> Capture::take_recorded() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::move(recorded_);
}

std::shared_ptr<Capture> detail::find(int device, tb_stream* handle) {
  return find_if([&](const auto& each) { return each->includes(static_cast<c10::DeviceIndex>(device), handle); });
}

std::shared_ptr<Capture> detail::find(const Stream& stream) {
  return find_if([&](const auto& each) { return each->includes(stream.device_index(), stream.id()); });
}

void detail::refuse(Capture& capture, const std::string& what) {
  capture.invalidate(what);
  TORCH_CHECK(false, what, " cannot be captured in a graph: the host would have to wait for the device, or the work ",
              "depends on the device's data. Move it out of the capture of ", capture.origin().device(), ".");
}

std::shared_ptr<Capture> find_capture(uint64_t id) {
  return find_if([&](const auto& capture) { return capture->id() == id; });
}

void begin(const std::shared_ptr<Capture>& capture) {
  auto& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.captures.push_back(capture);
  detail::num_captures.fetch_add(1);
}

void end(const Capture& capture) noexcept {
  auto& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found =
      std::find_if(all.captures.begin(), all.captures.end(), [&](const auto& each) { return each.get() == &capture; });
  if (found != all.captures.end()) {
    all.captures.erase(found);
    detail::num_captures.fetch_sub(1);
  }
}

} // namespace torch_backend::graph
