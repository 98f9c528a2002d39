#include "csrc/core/Stream.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include <c10/util/Exception.h>

#include "csrc/core/AsyncError.h"
#include "csrc/core/Capture.h"
#include "csrc/core/ErrorCell.h"
#include "csrc/core/ExternalStreams.h"
#include "csrc/core/InterpreterLock.h"
#include "csrc/core/Runtime.h"

namespace torch_backend {
namespace {

// Note [Stream ids]
// A stream travels through PyTorch as a 64-bit id:
//   0             the device's default stream
//   odd           a pool stream: index << 4 | level << 1 | 1, level 0 being the lowest (least urgent) priority
//   even, not 0   a lasting or an external stream: the plugin's handle itself
constexpr int kMaxLevels = 8;
constexpr c10::StreamId kDefaultId = 0;

constexpr bool is_pool_id(c10::StreamId id) {
  return id & 1;
}
constexpr c10::StreamId pool_id(int level, int index) {
  return (static_cast<c10::StreamId>(index) << 4) | (level << 1) | 1;
}
constexpr int level_of(c10::StreamId id) {
  return static_cast<int>(id >> 1) & 7;
}
constexpr c10::StreamId index_of(c10::StreamId id) {
  return id >> 4;
}

/// The pool streams of one device.
struct StreamPool {
  std::mutex mutex; // guards creation; a handle is published by its `created` flag
  std::array<std::array<tb_stream*, kStreamsPerPriority>, kMaxLevels> handles{};
  std::array<std::array<std::atomic<bool>, kStreamsPerPriority>, kMaxLevels> created{};
  std::array<std::atomic<uint32_t>, kMaxLevels> next{};

  std::mutex lasting_mutex;           // guards lasting
  std::vector<c10::StreamId> lasting; // made by lasting_stream
};

StreamPool& pool(c10::DeviceIndex device) {
  static auto* pools = new std::array<StreamPool, kMaxDevices>;
  return (*pools)[static_cast<std::size_t>(device)];
}

/// Note [Little thread-local memory]
/// A library that is loaded while a process runs gets its thread-local memory where a register points only if all of it
/// fits into what glibc keeps for such libraries: 512 bytes (its tunable rtld.optional_static_tls). Else each use of a
/// thread-local variable is a call, and operators need several. So what is large lies on the heap.
using CurrentIds = std::array<c10::StreamId, kMaxDevices>;

/// NULL: the default streams. A plain pointer outlives the destructors of a thread's other variables, which free memory.
constinit thread_local CurrentIds* current_ids = nullptr;

CurrentIds& make_current_ids() {
  struct Owner {
    ~Owner() {
      delete std::exchange(current_ids, nullptr);
    }
  };
  thread_local const Owner owner;
  current_ids = new CurrentIds{};
  return *current_ids;
}

/// The range may be all that an int32 holds.
int num_levels(const tb_device_properties& properties) {
  const int64_t range = int64_t{properties.stream_priority_lowest} - properties.stream_priority_highest;
  return static_cast<int>(std::min<int64_t>(kMaxLevels, range + 1));
}

tb_stream* pool_handle(c10::DeviceIndex device, c10::StreamId id) {
  auto& streams = pool(device);
  const auto level = static_cast<std::size_t>(level_of(id));
  const auto index = static_cast<std::size_t>(index_of(id));
  if (!streams.created[level][index].load(std::memory_order_acquire)) {
    auto& api = device_api();
    const int priority = api.properties(device).stream_priority_lowest - level_of(id);
    const WithoutInterpreterLock unlocked;
    const std::lock_guard<std::mutex> lock(streams.mutex);
    if (!streams.created[level][index].load(std::memory_order_relaxed)) {
      streams.handles[level][index] = api.stream_create(device, priority);
      streams.created[level][index].store(true, std::memory_order_release);
    }
  }
  return streams.handles[level][index];
}

bool is_external(c10::DeviceIndex device, c10::StreamId id) {
  if (id == kDefaultId || is_pool_id(id)) {
    return false;
  }
  auto& streams = pool(device);
  const std::lock_guard<std::mutex> lock(streams.lasting_mutex);
  return std::find(streams.lasting.begin(), streams.lasting.end(), id) == streams.lasting.end();
}

Stream make_stream(c10::DeviceIndex device, c10::StreamId id) {
  return Stream(c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, device), id));
}

} // namespace

Stream::Stream(c10::Stream stream) : stream_(stream) {
  TORCH_CHECK(stream.device_type() == c10::DeviceType::PrivateUse1, "Expected a stream of ", device_api().name(),
              ", got one of ", stream.device());
  TORCH_CHECK(!is_pool_id(stream.id()) || (stream.id() > 0 && index_of(stream.id()) < kStreamsPerPriority),
              "There is no stream with id ", stream.id(), ".");
}

tb_stream* Stream::handle() const {
  if (id() == kDefaultId) {
    return nullptr;
  }
  return is_pool_id(id()) ? pool_handle(device_index(), id()) : reinterpret_cast<tb_stream*>(id());
}

int Stream::priority() const {
  return is_pool_id(id()) ? device_api().properties(device_index()).stream_priority_lowest - level_of(id()) : 0;
}

bool Stream::query() const {
  graph::refuse_in_capture(*this, "Stream.query");
  return device_api().stream_query(device_index(), handle());
}

void Stream::synchronize() const {
  graph::refuse_in_capture(*this, "Stream.synchronize");
  auto* const waited_for = handle();
  wait_and_raise_async_error(device_index(), [&] { device_api().stream_synchronize(device_index(), waited_for); });
  raise_device_error(device_index(), &waited_for);
}

Stream default_stream(c10::DeviceIndex device) {
  return make_stream(resolve_device(device), kDefaultId);
}

Stream current_stream(c10::DeviceIndex device) {
  const auto index = device < 0 ? current_device() : resolve_device(device);
  return make_stream(index, current_ids ? (*current_ids)[static_cast<std::size_t>(index)] : kDefaultId);
}

std::pair<int, int> stream_priority_range(c10::DeviceIndex device) {
  const auto& properties = device_api().properties(resolve_device(device));
  return {properties.stream_priority_lowest, properties.stream_priority_lowest - num_levels(properties) + 1};
}

Stream stream_from_pool(int priority, c10::DeviceIndex device) {
  const auto index = resolve_device(device);
  const auto& properties = device_api().properties(index);
  const int level = static_cast<int>(
      std::clamp<int64_t>(int64_t{properties.stream_priority_lowest} - priority, 0, num_levels(properties) - 1));
  const uint32_t turn = pool(index).next[static_cast<std::size_t>(level)].fetch_add(1, std::memory_order_relaxed);
  return make_stream(index, pool_id(level, static_cast<int>(turn % kStreamsPerPriority)));
}

Stream external_stream(tb_stream* handle, c10::DeviceIndex device) {
  const auto id = reinterpret_cast<c10::StreamId>(handle);
  TORCH_CHECK_VALUE(!is_pool_id(id), "A stream handle is a pointer to an aligned object; got the odd number ", id, ".");
  return make_stream(resolve_device(device), id);
}

Stream lasting_stream(int priority, c10::DeviceIndex device) {
  const auto stream = external_stream(device_api().stream_create(device, priority), device);
  auto& streams = pool(device);
  const std::lock_guard<std::mutex> lock(streams.lasting_mutex);
  streams.lasting.push_back(stream.id());
  return stream;
}

void set_current_stream(Stream stream) {
  const auto device = stream.device_index();
  if (!current_ids && stream.id() == kDefaultId) {
    return;
  }
  auto& ids = current_ids ? *current_ids : make_current_ids();
  const auto before = std::exchange(ids[static_cast<std::size_t>(device)], stream.id());
  if (before == stream.id()) {
    return;
  }
  if (is_external(device, before)) {
    external_streams(device).leave(make_stream(device, before));
  }
  if (is_external(device, stream.id())) {
    external_streams(device).enter(stream);
  }
}

std::vector<Stream> all_streams(c10::DeviceIndex device) {
  const auto index = resolve_device(device);
  std::vector<Stream> all{make_stream(index, kDefaultId)};
  auto& streams = pool(index);
  for (int level = 0; level < kMaxLevels; ++level) {
    for (int i = 0; i < kStreamsPerPriority; ++i) {
      if (streams.created[static_cast<std::size_t>(level)][static_cast<std::size_t>(i)].load(
              std::memory_order_acquire)) {
        all.push_back(make_stream(index, pool_id(level, i)));
      }
    }
  }
  {
    const std::lock_guard<std::mutex> lock(streams.lasting_mutex);
    for (const auto id : streams.lasting) {
      all.push_back(make_stream(index, id));
    }
  }
  const auto external = external_streams(index).current();
  all.insert(all.end(), external.begin(), external.end());
  return all;
}

} // namespace torch_backend
