#include "csrc/profiler/PluginTrace.h"

#include <cmath>

#include "csrc/core/Runtime.h"
#include "csrc/core/Status.h"
#include "csrc/core/Text.h"

namespace torch_backend::profiler {
namespace {

bool failed(tb_status status, const char* slot, std::vector<std::string>& errors) {
  if (status == TB_STATUS_OK) {
    return false;
  }
  errors.push_back(describe_failure(status, device_api().name(), slot, -1));
  return true;
}

} // namespace

const tb_profiler_table* profiler_table() {
  auto* plugin = active_plugin();
  return plugin && plugin->tables().profiler ? &*plugin->tables().profiler : nullptr;
}

void push_correlation(const tb_profiler_table& table, uint64_t id) noexcept {
  if (table.correlation_push(id) != TB_STATUS_OK) {
    take_error_text();
  }
}

void pop_correlation(const tb_profiler_table& table) noexcept {
  if (table.correlation_pop() != TB_STATUS_OK) {
    take_error_text();
  }
}

bool PluginTrace::start(uint64_t kinds) {
  table_ = profiler_table();
  if (!table_) {
    return false;
  }
  device_api().initialize();
  std::vector<std::string> errors;
  clocks_.assign(static_cast<std::size_t>(device_count()), {});
  // What is left of an earlier trace is not this one's.
  table_->trace_collect([](void*, const tb_trace_record*) {}, nullptr);
  read_clocks(0, errors);
  if (!errors.empty() || failed(table_->trace_start(kinds), "trace_start", errors)) {
    table_ = nullptr;
  }
  take_error_text();
  return table_ != nullptr;
}

void PluginTrace::read_clocks(int moment, std::vector<std::string>& errors) {
  for (std::size_t device = 0; device < clocks_.size(); ++device) {
    if (device_api().is_lost(static_cast<int>(device))) {
      continue;
    }
    auto& clock = clocks_[device];
    const auto index = static_cast<int32_t>(device);
    failed(device_api().call(index, "clock_pair", table_->clock_pair, index, &clock.device_ns[moment],
                             &clock.host_ns[moment]),
           "clock_pair", errors);
  }
}

int64_t PluginTrace::DeviceClock::to_host(int64_t ns) const {
  const auto device_span = static_cast<double>(device_ns[1] - device_ns[0]);
  const auto host_span = static_cast<double>(host_ns[1] - host_ns[0]);
  const double rate = device_span > 0 ? host_span / device_span : 1.0;
  return host_ns[0] + std::llround(static_cast<double>(ns - device_ns[0]) * rate);
}

std::vector<PluginTrace::Record> PluginTrace::stop(std::vector<std::string>& errors) {
  struct Collected {
    std::vector<Record> records;
    const std::vector<DeviceClock>& clocks;
    uint64_t unknown_devices;
  } collected{{}, clocks_, 0};
  failed(table_->trace_stop(), "trace_stop", errors);
  read_clocks(1, errors);
  const auto take = [](void* arg, const tb_trace_record* record) {
    auto& into = *static_cast<Collected*>(arg);
    if (record->device < 0 || static_cast<std::size_t>(record->device) >= into.clocks.size()) {
      ++into.unknown_devices;
      return;
    }
    const auto& clock = into.clocks[static_cast<std::size_t>(record->device)];
    into.records.push_back({record->kind, record->device, record->stream, record->correlation,
                            clock.to_host(record->start_ns), clock.to_host(record->end_ns),
                            as_utf8(record->name, kMaxTextBytes), record->size_bytes});
  };
  failed(table_->trace_collect(take, &collected), "trace_collect", errors);
  if (collected.unknown_devices > 0) {
    errors.push_back(std::to_string(collected.unknown_devices) +
                     " records of prof.1 name a device that does not exist");
  }
  table_ = nullptr;
  return std::move(collected.records);
}

} // namespace torch_backend::profiler
