#include "support/xcpu_test.h"

namespace torch_backend::testing {

bytes pattern(size_t size, unsigned seed) {
  bytes data(size);
  uint32_t state = seed * 2654435761u + 1;
  for (unsigned char& byte : data) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<unsigned char>(state >> 24);
  }
  return data;
}

void XcpuTest::load(const option_map& options) {
  option_map full;
  for (const auto& [key, value] : options) full["xcpu." + key] = value;
  set_options(full);
  plugin = load_plugin(TB_XCPU_PLUGIN);
  ASSERT_NE(plugin, nullptr) << take_failure_text();
  core = plugin->core;
  ASSERT_OK(core->initialize());
}

unsigned char* XcpuTest::allocate(int32_t device, uint64_t size, uint32_t kind) {
  void* ptr = nullptr;
  EXPECT_OK(core->memory_allocate(device, kind, size, nullptr, &ptr));
  return static_cast<unsigned char*>(ptr);
}

void XcpuTest::release(int32_t device, void* ptr, uint64_t size, uint32_t kind) {
  EXPECT_OK(core->memory_free(device, kind, ptr, size, nullptr));
}

void XcpuTest::upload(int32_t device, void* dst, const bytes& data) {
  EXPECT_OK(core->memory_copy(device, dst, -1, data.data(), data.size(), TB_COPY_HOST_TO_DEVICE, nullptr));
  synchronize(device);
}

bytes XcpuTest::download(int32_t device, const void* src, size_t size) {
  bytes data(size);
  EXPECT_OK(core->memory_copy(-1, data.data(), device, src, size, TB_COPY_DEVICE_TO_HOST, nullptr));
  synchronize(device);
  return data;
}

void XcpuTest::synchronize(int32_t device) {
  if (!core->stream_synchronize) return;
  EXPECT_OK(core->stream_synchronize(device, nullptr));
}

tb_stream* XcpuTest::create_stream(int32_t device) {
  tb_stream* stream = nullptr;
  EXPECT_OK(core->stream_create(device, 0, &stream));
  streams_[stream] = device;
  return stream;
}

tb_event* XcpuTest::create_event(int32_t device, uint32_t flags) {
  tb_event* event = nullptr;
  EXPECT_OK(core->event_create(device, flags, &event));
  events_[event] = device;
  return event;
}

void XcpuTest::destroy(tb_stream* stream) {
  EXPECT_OK(core->stream_destroy(streams_.at(stream), stream));
  streams_.erase(stream);
}

void XcpuTest::destroy(tb_event* event) {
  EXPECT_OK(core->event_destroy(events_.at(event), event));
  events_.erase(event);
}

void XcpuTest::TearDown() {
  set_options({});
  while (!streams_.empty()) destroy(streams_.begin()->first);
  while (!events_.empty()) destroy(events_.begin()->first);
}

uint64_t XcpuTest::free_bytes(int32_t device) {
  uint64_t free = 0, total = 0;
  EXPECT_OK(core->memory_info(device, &free, &total));
  return free;
}

void gate::enqueue(const tb_core_table* core, int32_t device, tb_stream* stream) {
  EXPECT_OK(core->stream_host_function(device, stream, wait, this));
}

void gate::open() {
  const std::lock_guard<std::mutex> lock(mutex_);
  open_ = true;
  opened_.notify_all();
}

void gate::wait(void* self) {
  gate* g = static_cast<gate*>(self);
  std::unique_lock<std::mutex> lock(g->mutex_);
  g->opened_.wait(lock, [g] { return g->open_; });
}

} // namespace torch_backend::testing
