#include "core/allocator_test_device.h"

#include <cstring>

#include <c10/core/AllocatorConfig.h>

#include "csrc/core/Status.h"

namespace torch_backend::test {
namespace {

TestDevice* current = nullptr;

int64_t id_of(tb_stream* stream) {
  return reinterpret_cast<int64_t>(stream);
}

tb_status fail(tb_status status, const char* format, ...) {
  std::va_list args;
  va_start(args, format);
  set_error_text(status, format, args);
  va_end(args);
  return status;
}

#define ENTER(slot)                                  \
  auto& device = TestDevice::get();                  \
  if (const tb_status status = device.enter(slot)) { \
    return status;                                   \
  }                                                  \
  const std::lock_guard<std::recursive_mutex> lock(device.mutex)

tb_status count(int32_t* out) {
  *out = 1;
  return TB_STATUS_OK;
}

tb_status properties(int32_t, tb_device_properties* out) {
  const auto& options = TestDevice::get().options;
  out->capabilities = options.extra_capabilities | (options.async ? TB_CAP_ASYNC : 0) |
                      (options.commit_granularity_bytes ? TB_CAP_VIRTUAL_MEMORY : 0);
  out->commit_granularity_bytes = options.commit_granularity_bytes;
  out->total_memory_bytes = options.says_total ? options.memory_bytes : 0;
  out->allocation_granularity_bytes = options.granularity_bytes;
  out->max_allocation_bytes = options.max_allocation_bytes;
  out->allocation_alignment_bytes = 64;
  out->warp_size = 1;
  std::strcpy(out->name, "allocator test");
  return TB_STATUS_OK;
}

tb_status memory_allocate(int32_t, uint32_t, uint64_t size, tb_stream* stream, void** out) {
  ENTER("memory_allocate");
  ++device.num_allocates;
  EXPECT_LE(size, device.options.max_allocation_bytes ? device.options.max_allocation_bytes : UINT64_MAX);
  if (device.live_bytes() + size > device.options.memory_bytes) {
    return fail(TB_STATUS_OUT_OF_MEMORY, "bank %d is full", 3);
  }
  const uintptr_t address = device.next_address;
  device.next_address += size + 64; // segments never touch, so merging across them would show
  device.live[address] = device.sizes_ever[address] = size;
  device.stream_of_segment[address] = id_of(stream);
  *out = reinterpret_cast<void*>(address);
  return TB_STATUS_OK;
}

tb_status memory_free(int32_t, uint32_t, void* ptr, uint64_t size, tb_stream* stream) {
  ENTER("memory_free");
  ++device.num_frees;
  const auto found = device.live.find(reinterpret_cast<uintptr_t>(ptr));
  if (found == device.live.end() || found->second != size) {
    ADD_FAILURE() << "memory_free of what was not allocated";
    return TB_STATUS_INVALID_ARGUMENT;
  }
  if (!(device.options.extra_capabilities & TB_CAP_STREAM_ALLOC) && device.busy[id_of(stream)]) {
    ++device.frees_of_busy_streams;
  }
  device.live.erase(found);
  return TB_STATUS_OK;
}

tb_status address_reserve(int32_t, uint64_t size, void** out) {
  ENTER("address_reserve");
  ++device.num_reserves;
  const uint64_t granularity = device.options.commit_granularity_bytes;
  EXPECT_EQ(size % granularity, 0u);
  const uintptr_t address = (device.next_address + granularity - 1) / granularity * granularity;
  device.next_address = address + size + 64;
  device.reservations[address] = size;
  *out = reinterpret_cast<void*>(address);
  return TB_STATUS_OK;
}

tb_status address_release(int32_t, void* ptr, uint64_t size) {
  ENTER("address_release");
  const auto address = reinterpret_cast<uintptr_t>(ptr);
  const auto found = device.reservations.find(address);
  const auto commit = device.commits.lower_bound(address);
  if (found == device.reservations.end() || found->second != size ||
      (commit != device.commits.end() && commit->first < address + size)) {
    ADD_FAILURE() << "address_release of what was not reserved, or is committed";
    return TB_STATUS_INVALID_ARGUMENT;
  }
  device.reservations.erase(found);
  return TB_STATUS_OK;
}

tb_status memory_commit(int32_t, void* ptr, uint64_t size) {
  ENTER("memory_commit");
  ++device.num_commits;
  const auto address = reinterpret_cast<uintptr_t>(ptr);
  auto reservation = device.reservations.upper_bound(address);
  EXPECT_NE(reservation, device.reservations.begin());
  --reservation;
  EXPECT_LE(address + size, reservation->first + reservation->second);
  EXPECT_EQ(address % device.options.commit_granularity_bytes, 0u);
  EXPECT_EQ(size % device.options.commit_granularity_bytes, 0u);
  const auto next = device.commits.lower_bound(address + size);
  if (next != device.commits.begin()) {
    EXPECT_LE(std::prev(next)->first + std::prev(next)->second, address) << "committed twice";
  }
  if (device.live_bytes() + size > device.options.memory_bytes) {
    return fail(TB_STATUS_OUT_OF_MEMORY, "bank %d is full", 4);
  }
  device.commits[address] = size;
  return TB_STATUS_OK;
}

tb_status memory_decommit(int32_t, void* ptr, uint64_t size) {
  ENTER("memory_decommit");
  ++device.num_decommits;
  const auto found = device.commits.find(reinterpret_cast<uintptr_t>(ptr));
  if (found == device.commits.end() || found->second != size) {
    ADD_FAILURE() << "memory_decommit of what no memory_commit has put there";
    return TB_STATUS_INVALID_ARGUMENT;
  }
  device.commits.erase(found);
  return TB_STATUS_OK;
}

tb_status memory_copy(int32_t, void*, int32_t, const void*, uint64_t, uint32_t, tb_stream*) {
  ENTER("memory_copy");
  return TB_STATUS_OK;
}

tb_status memory_info(int32_t, uint64_t* out_free, uint64_t* out_total) {
  ENTER("memory_info");
  *out_total = device.options.memory_bytes;
  *out_free = *out_total - device.live_bytes();
  return TB_STATUS_OK;
}

tb_status ipc_export(int32_t, void* ptr, tb_ipc_handle* out_handle) {
  ENTER("ipc_export");
  ++device.num_exports;
  std::memcpy(out_handle->bytes, &ptr, sizeof ptr);
  return TB_STATUS_OK;
}

tb_status ipc_import(int32_t, const tb_ipc_handle*, void**) {
  return TB_STATUS_INTERNAL;
}

tb_status ipc_close(int32_t, void*) {
  return TB_STATUS_INTERNAL;
}

tb_status stream_create(int32_t, int32_t, tb_stream**) {
  return TB_STATUS_INTERNAL;
}

tb_status stream_destroy(int32_t, tb_stream*) {
  return TB_STATUS_OK;
}

tb_status stream_synchronize(int32_t, tb_stream* stream) {
  ENTER("stream_synchronize");
  device.complete(id_of(stream));
  return TB_STATUS_OK;
}

tb_status stream_wait_event(int32_t, tb_stream*, tb_event*) {
  return TB_STATUS_OK;
}

tb_status event_create(int32_t, uint32_t, tb_event** out) {
  ENTER("event_create");
  ++device.num_event_creates;
  auto event = std::make_unique<TestEvent>();
  *out = reinterpret_cast<tb_event*>(event.get());
  device.events[*out] = std::move(event);
  return TB_STATUS_OK;
}

tb_status event_destroy(int32_t, tb_event* event) {
  // A destroy that reports a failure has destroyed the event all the same, or every test would count it as a leak.
  auto& device = TestDevice::get();
  const tb_status status = device.enter("event_destroy");
  const std::lock_guard<std::recursive_mutex> lock(device.mutex);
  EXPECT_EQ(device.events.erase(event), 1u);
  return status;
}

tb_status event_record(int32_t, tb_event* event, tb_stream* stream) {
  ENTER("event_record");
  *device.events.at(event) = {id_of(stream), false};
  return TB_STATUS_OK;
}

tb_status event_query(int32_t, tb_event* event) {
  ENTER("event_query");
  return device.events.at(event)->complete ? TB_STATUS_OK : TB_STATUS_NOT_READY;
}

tb_status event_synchronize(int32_t, tb_event* event) {
  ENTER("event_synchronize");
  device.events.at(event)->complete = true;
  return TB_STATUS_OK;
}

} // namespace

TestDevice::TestDevice(const DeviceOptions& options) : options(options) {
  current = this;
}

TestDevice::~TestDevice() {
  current = nullptr;
}

TestDevice& TestDevice::get() {
  return *current;
}

tb_core_table TestDevice::table() const {
  tb_core_table table{};
  table.struct_size = sizeof(table);
  table.device_count = count;
  table.device_properties = properties;
  table.memory_allocate = memory_allocate;
  table.memory_free = memory_free;
  table.memory_copy = memory_copy;
  table.memory_info = options.has_memory_info ? memory_info : nullptr;
  if (options.async) {
    table.stream_create = stream_create;
    table.stream_destroy = stream_destroy;
    table.stream_synchronize = stream_synchronize;
    table.stream_wait_event = stream_wait_event;
    table.event_create = event_create;
    table.event_destroy = event_destroy;
    table.event_record = event_record;
    table.event_query = event_query;
    table.event_synchronize = event_synchronize;
  }
  if (options.commit_granularity_bytes) {
    table.address_reserve = address_reserve;
    table.address_release = address_release;
    table.memory_commit = memory_commit;
    table.memory_decommit = memory_decommit;
  }
  if (options.extra_capabilities & TB_CAP_IPC) {
    table.ipc_export = ipc_export;
    table.ipc_import = ipc_import;
    table.ipc_close = ipc_close;
  }
  return table;
}

tb_status TestDevice::enter(const char* slot) {
  std::function<void(const std::string&)> callback;
  {
    const std::lock_guard<std::recursive_mutex> lock(mutex);
    callback = on_slot;
    calls_after_lost += lost;
    if (num_calls++ == fail_at) {
      failed = true;
      lost = fail_with == TB_STATUS_DEVICE_LOST;
      // Ways of failing that the ABI does not offer every slot are made those it does.
      const std::string name = slot;
      const bool may_be_full = name == "memory_allocate" || name == "address_reserve" || name == "memory_commit";
      return fail(fail_with == TB_STATUS_OUT_OF_MEMORY && !may_be_full ? TB_STATUS_INTERNAL : fail_with,
                  "told to fail");
    }
  }
  if (callback) {
    callback(slot);
  }
  return TB_STATUS_OK;
}

void TestDevice::complete(int64_t stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  busy[stream] = false;
  for (auto& [handle, event] : events) {
    event->complete = event->complete || event->stream == stream;
  }
}

void TestDevice::complete_all() {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  busy.clear();
  for (auto& [handle, event] : events) {
    event->complete = true;
  }
}

void TestDevice::enqueue_work(int64_t stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  busy[stream] = true;
}

std::size_t TestDevice::live_bytes() {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  std::size_t total = 0;
  for (const auto* memory : {&live, &commits}) {
    for (const auto& [address, size] : *memory) {
      total += size;
    }
  }
  return total;
}

std::size_t TestDevice::num_live_segments() {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  return live.size() + reservations.size() + commits.size();
}

bool TestDevice::has_memory(uintptr_t address, std::size_t size) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  for (const auto* memory : {&live, &commits}) {
    uintptr_t at = address;
    for (auto next = memory->upper_bound(at); next != memory->begin(); next = memory->upper_bound(at)) {
      const auto& [begin, bytes] = *std::prev(next);
      if (at >= begin + bytes) {
        break;
      }
      at = begin + bytes;
      if (at >= address + size) {
        return true;
      }
    }
  }
  return false;
}

AllocatorTest::~AllocatorTest() {
  allocator.reset();
  if (configured_) {
    // There is no way back to the defaults; these come close enough.
    configure(
        "max_split_size_mb:100000000,roundup_power2_divisions:1,garbage_collection_threshold:0.999999,"
        "expandable_segments:False");
  }
}

void AllocatorTest::restart(const DeviceOptions& options) {
  allocator.reset();
  api.reset();
  device.reset();
  device = std::make_unique<TestDevice>(options);
  api = std::make_unique<DeviceApi>("fake", device->table());
  allocator = std::make_unique<CachingAllocator>(*api, 0);
}

void AllocatorTest::configure(const std::string& settings) {
  configured_ = true;
  c10::CachingAllocator::setAllocatorSettings(settings);
}

/// Blocks fill their segment without gaps, free neighbours are merged, and the numbers are those of the blocks.
void expect_consistent(CachingAllocator& allocator) {
  using State = Block::State;
  const auto snapshot = allocator.snapshot(std::nullopt, false);
  const auto stats = allocator.statistics();
  int64_t allocated = 0;
  int64_t allocated_bytes = 0;
  int64_t requested_bytes = 0;
  int64_t active = 0;
  int64_t active_bytes = 0;
  int64_t inactive = 0;
  int64_t inactive_bytes = 0;
  int64_t reserved = 0;
  for (const auto& segment : snapshot.segments) {
    reserved += static_cast<int64_t>(segment.total_size);
    uintptr_t end = segment.address;
    State before = State::kAllocated;
    for (const auto& block : segment.blocks) {
      EXPECT_EQ(block.address, end);
      EXPECT_FALSE(block.state == State::kFree && before == State::kFree) << "free neighbours are not merged";
      EXPECT_LE(block.requested_size, block.size);
      before = block.state;
      end += block.size;
      const auto size = static_cast<int64_t>(block.size);
      allocated += block.state == State::kAllocated;
      allocated_bytes += block.state == State::kAllocated ? size : 0;
      active += block.state != State::kFree;
      active_bytes += block.state != State::kFree ? size : 0;
      requested_bytes += static_cast<int64_t>(block.requested_size);
      if (block.state == State::kFree && segment.blocks.size() > 1) {
        ++inactive;
        inactive_bytes += size;
      }
    }
    EXPECT_EQ(end, segment.address + segment.total_size);
  }
  EXPECT_EQ(stats.allocation[0].current, allocated);
  EXPECT_EQ(stats.allocated_bytes[0].current, allocated_bytes);
  EXPECT_EQ(stats.requested_bytes[0].current, requested_bytes);
  EXPECT_EQ(stats.active[0].current, active);
  EXPECT_EQ(stats.active_bytes[0].current, active_bytes);
  EXPECT_EQ(stats.inactive_split[0].current, inactive);
  EXPECT_EQ(stats.inactive_split_bytes[0].current, inactive_bytes);
  EXPECT_EQ(stats.segment[0].current, static_cast<int64_t>(snapshot.segments.size()));
  EXPECT_EQ(stats.reserved_bytes[0].current, reserved);
  for (const auto* array :
       {&stats.allocation, &stats.allocated_bytes, &stats.requested_bytes, &stats.active, &stats.active_bytes,
        &stats.inactive_split, &stats.inactive_split_bytes, &stats.segment, &stats.reserved_bytes}) {
    const auto& [all, small, large] = *array;
    EXPECT_EQ(all.current, small.current + large.current);
    EXPECT_EQ(all.allocated, small.allocated + large.allocated);
    EXPECT_EQ(all.freed, all.allocated - all.current);
    EXPECT_GE(all.peak, all.current);
  }
}

} // namespace torch_backend::test
