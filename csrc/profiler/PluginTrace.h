// A plugin's own tracing, its table "prof.1".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "torch_backend/device.h"

namespace torch_backend::profiler {

/// The active plugin's table, NULL if it has none.
const tb_profiler_table* profiler_table();

/// Around a call that enqueues work, while the plugin traces. What it answers does not change the call.
void push_correlation(const tb_profiler_table& table, uint64_t id) noexcept;
void pop_correlation(const tb_profiler_table& table) noexcept;

/// One trace. One thread at a time.
class PluginTrace {
 public:
  struct Record {
    uint32_t kind; // TB_TRACE_*
    int device;
    uint64_t stream;
    uint64_t id;
    int64_t start_ns, end_ns; // now_ns()
    std::string name;
    uint64_t size_bytes;
  };

  /// False if the plugin has no tracing, or refuses.
  bool start(uint64_t kinds);
  /// NULL if it does not run.
  const tb_profiler_table* table() const {
    return table_;
  }
  /// The devices are idle. What could not be had is added to `errors`.
  std::vector<Record> stop(std::vector<std::string>& errors);

 private:
  /// The device's clock beside the host's, at two moments between which it is a line.
  struct DeviceClock {
    int64_t device_ns[2] = {0, 0};
    int64_t host_ns[2] = {0, 0};
    int64_t to_host(int64_t ns) const;
  };
  void read_clocks(int moment, std::vector<std::string>& errors);

  const tb_profiler_table* table_ = nullptr;
  std::vector<DeviceClock> clocks_;
};

} // namespace torch_backend::profiler
