// What the tests of the xcpu device share: an instance with options, and its slots in a convenient form.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "common/testing/plugin_instance.h"

namespace torch_backend::testing {

using bytes = std::vector<unsigned char>;

// Different at every position, and for every seed.
bytes pattern(size_t size, unsigned seed);

class XcpuTest : public ::testing::Test {
 protected:
  void TearDown() override;

  // Options without their "xcpu." prefix. Fails the test if the plugin refuses them.
  void load(const option_map& options);

  unsigned char* allocate(int32_t device, uint64_t size, uint32_t kind = TB_MEMORY_DEVICE);
  void release(int32_t device, void* ptr, uint64_t size, uint32_t kind = TB_MEMORY_DEVICE);

  // Complete when they return, on the default stream.
  void upload(int32_t device, void* dst, const bytes& data);
  bytes download(int32_t device, const void* src, size_t size);
  void synchronize(int32_t device);

  // Destroyed at the latest when the test ends.
  tb_stream* create_stream(int32_t device);
  tb_event* create_event(int32_t device, uint32_t flags = TB_EVENT_TIMING);
  void destroy(tb_stream* stream);
  void destroy(tb_event* event);

  uint64_t free_bytes(int32_t device);

  const tb_plugin* plugin = nullptr;
  const tb_core_table* core = nullptr;

 private:
  std::map<tb_stream*, int32_t> streams_; // with their devices
  std::map<tb_event*, int32_t> events_;
};

// Work on a stream that waits until the test lets it go on.
class gate {
 public:
  void enqueue(const tb_core_table* core, int32_t device, tb_stream* stream);
  void open();

 private:
  static void wait(void* self);
  std::mutex mutex_; // guards open_
  std::condition_variable opened_;
  bool open_ = false;
};

} // namespace torch_backend::testing
