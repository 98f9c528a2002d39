// The device's part of torch.profiler: what was recorded, as Kineto's activities.

#include "csrc/profiler/Profilers.h"

#ifndef TB_HAS_KINETO

namespace torch_backend::profiler {
void register_kineto_profiler() {}
} // namespace torch_backend::profiler

#else

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <libkineto.h>
#include <output_base.h>
#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#define TB_HAS_PRIVATEUSE1_PROFILER
#endif

#include <c10/util/StringUtil.h>

#include "csrc/core/Runtime.h"
#include "csrc/core/Stream.h"
#include "csrc/profiler/Recording.h"

namespace torch_backend::profiler {
namespace {

using libkineto::ActivityType;

uint64_t kinds_of(const std::set<ActivityType>& types) {
  uint64_t kinds = 0;
  const std::pair<ActivityType, uint64_t> pairs[] = {{ActivityType::CONCURRENT_KERNEL, TB_TRACE_KERNEL},
                                                     {ActivityType::GPU_MEMCPY, TB_TRACE_COPY},
                                                     {ActivityType::GPU_MEMSET, TB_TRACE_FILL},
                                                     {ActivityType::PRIVATEUSE1_RUNTIME, TB_TRACE_RUNTIME}};
  for (const auto& [type, kind] : pairs) {
    kinds |= types.count(type) ? kind : 0;
  }
  return kinds;
}

const char* clock_name(Clock clock) {
  switch (clock) {
    case Clock::kPlugin:
      return "device trace";
    case Clock::kEvents:
      return "device events";
    case Clock::kHostFunctions:
      return "host functions on the stream";
    default:
      return "host clock";
  }
}

ActivityType activity_type(WorkKind kind) {
  return kind == WorkKind::kCopy   ? ActivityType::GPU_MEMCPY
         : kind == WorkKind::kFill ? ActivityType::GPU_MEMSET
                                   : ActivityType::CONCURRENT_KERNEL;
}

std::string json_string(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      escaped += '\\';
    }
    escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return escaped;
}

/// Rows of the trace: a stream's number is its id where torch.Stream has one, for others they are counted.
class StreamRows {
 public:
  int32_t row(int device, uint64_t handle) {
    const auto key = std::make_pair(device, handle);
    const auto known = rows_.find(key);
    if (known != rows_.end()) {
      return known->second;
    }
    return rows_.emplace(key, handle == 0 ? 0 : find(device, handle)).first->second;
  }
  const std::map<std::pair<int, uint64_t>, int32_t>& all() const {
    return rows_;
  }

 private:
  static constexpr int32_t kFirstUnknown = 1 << 20;

  int32_t find(int device, uint64_t handle) {
    for (const auto& stream : all_streams(static_cast<c10::DeviceIndex>(device))) {
      if (reinterpret_cast<uint64_t>(stream.handle()) == handle && stream.id() > 0 && stream.id() < kFirstUnknown) {
        return static_cast<int32_t>(stream.id());
      }
    }
    return next_unknown_++;
  }

  std::map<std::pair<int, uint64_t>, int32_t> rows_;
  int32_t next_unknown_ = kFirstUnknown;
};

class Session final : public libkineto::IActivityProfilerSession {
 public:
  explicit Session(const std::set<ActivityType>& types)
      : kinds_(kinds_of(types)),
        ranges_wanted_(types.count(ActivityType::GPU_USER_ANNOTATION) != 0),
        driver_wanted_(types.count(ActivityType::PRIVATEUSE1_DRIVER) != 0) {}

  ~Session() override {
    stop();
  }

  void start() override {
    try {
      profiler::start({kinds_});
      started_ = true;
    } catch (const std::exception& error) {
      errors_.emplace_back(error.what());
    }
  }

  void stop() override {
    if (!std::exchange(started_, false)) {
      return;
    }
    try {
      recording_ = profiler::stop();
    } catch (const std::exception& error) {
      errors_.emplace_back(error.what());
    }
    errors_.insert(errors_.end(), recording_.errors.begin(), recording_.errors.end());
  }

  void toggleCollectionDynamic(bool enable) {
    profiler::pause(!enable);
  }

  std::vector<std::string> errors() override {
    return errors_;
  }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, std::numeric_limits<int64_t>::max());
  }

  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked, int64_t start_ns,
                    int64_t end_ns) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(start_ns, end_ns, device_api().name());
    for (const auto& record : recording_.runtime) {
      add_call(record, ActivityType::PRIVATEUSE1_RUNTIME, linked);
    }
    for (const auto& record : recording_.driver) {
      if (driver_wanted_) {
        add_call(record, ActivityType::PRIVATEUSE1_DRIVER, linked);
      }
    }
    for (const auto& record : recording_.work) {
      add_work(record, linked);
    }
    if (ranges_wanted_) {
      add_ranges(linked);
    }
    buffer_->gpuOpCount = static_cast<int>(recording_.work.size());
    for (const auto& activity : buffer_->activities) {
      activity->log(logger);
    }
    logger_ = &logger;
    start_ns_ = start_ns;
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return nullptr; // there may be several: getTraceBuffer tells them
  }

  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> infos;
    for (const auto& [key, row] : rows_.all()) {
      const auto name = c10::str(device_api().name(), ":", key.first, " stream ", row, row == 0 ? " (default)" : "");
      infos.push_back({row, row, key.first, name});
    }
    return infos;
  }

  /// Called with the logger of processTrace still open, after Kineto has named the devices as GPUs.
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    if (auto* logger = std::exchange(logger_, nullptr)) {
      for (const int device : used_) {
        logger->handleDeviceInfo(device_info(device), start_ns_);
      }
    }
    return std::move(buffer_);
  }

  void pushCorrelationId(uint64_t id) override {
    push_operator(id);
  }
  void popCorrelationId() override {
    pop_operator();
  }
  void pushUserCorrelationId(uint64_t id) override {
    push_range(id);
  }
  void popUserCorrelationId() override {
    pop_range();
  }

  std::unordered_map<std::string, std::string> getMetadata() override {
    std::set<std::string> clocks;
    for (const auto& record : recording_.work) {
      clocks.insert(clock_name(record.clock));
    }
    std::string list;
    for (const auto& clock : clocks) {
      list += (list.empty() ? "\"" : ", \"") + clock + "\"";
    }
    std::string errors;
    for (const auto& error : errors_) {
      errors += (errors.empty() ? "\"" : ", \"") + json_string(error) + "\"";
    }
    std::unordered_map<std::string, std::string> metadata{{device_api().name() + "_measured_by", "[" + list + "]"}};
    if (!errors_.empty()) {
      metadata.emplace(device_api().name() + "_errors", "[" + errors + "]");
    }
    return metadata;
  }

 private:
  using Linked = libkineto::getLinkedActivityCallback;

  libkineto::DeviceInfo device_info(int device) const {
    auto& api = device_api();
    const auto label = c10::str(api.name(), ":", device);
    const std::string product = api.is_lost(device) ? "" : api.properties(device).name;
    return {device, libkineto::kExceedMaxPid + device, product.empty() ? label : c10::str(label, " ", product), label};
  }

  /// Flows of all profilers are in one table: those of CUDA's, which count from 1 too, have no such bit.
  static constexpr uint32_t kOurFlow = uint32_t{1} << 31;

  /// For the life of the process: ids beyond 31 bits start again, which is long after what they could be confused with.
  static int32_t short_id(uint64_t id) {
    return static_cast<int32_t>(id & 0x7fffffff);
  }

  libkineto::GenericTraceActivity& add(ActivityType type, const std::string& name) {
    buffer_->emplace_activity(buffer_->span, type, name);
    return *buffer_->activities.back();
  }

  void add_call(const RuntimeRecord& record, ActivityType type, const Linked& linked) {
    auto& activity = add(type, record.name);
    activity.startTime = record.start_ns;
    activity.endTime = record.end_ns;
    activity.id = short_id(record.id);
    activity.device = libkineto::processId();
    activity.resource = record.system_thread;
    activity.threadId = record.thread;
    activity.linked = record.op ? linked(short_id(record.op)) : nullptr;
    activity.addMetadata("correlation", record.id);
    activity.addMetadata("device", record.device);
    if (record.op) {
      activity.addMetadata("External id", record.op);
    }
    if (type == ActivityType::PRIVATEUSE1_RUNTIME) {
      starts_.emplace(record.id, &activity);
    }
  }

  void add_work(const WorkRecord& record, const Linked& linked) {
    auto& activity = add(activity_type(record.kind), json_string(record.name));
    activity.startTime = record.start_ns;
    activity.endTime = record.end_ns;
    activity.id = short_id(record.id);
    activity.device = record.device;
    activity.resource = rows_.row(record.device, record.stream);
    activity.threadId = 0;
    activity.linked = record.op ? linked(short_id(record.op)) : nullptr;
    activity.addMetadata("device", record.device);
    activity.addMetadata("stream", activity.resource);
    activity.addMetadata("correlation", record.id);
    activity.addMetadataQuoted("measured by", clock_name(record.clock));
    if (record.op) {
      activity.addMetadata("External id", record.op);
    }
    if (record.kind != WorkKind::kKernel) {
      activity.addMetadata("bytes", record.size_bytes);
      const auto duration = static_cast<double>(record.end_ns - record.start_ns);
      if (duration > 0) {
        activity.addMetadata("memory bandwidth (GB/s)", static_cast<double>(record.size_bytes) / duration);
      }
    }
    const auto start = starts_.find(record.id);
    if (start != starts_.end()) {
      for (auto* end : {start->second, &activity}) {
        end->flow.id = kOurFlow | static_cast<uint32_t>(short_id(record.id));
        end->flow.type = libkineto::kLinkAsyncCpuGpu;
        end->flow.start = end == start->second;
      }
    }
    used_.insert(record.device);
  }

  /// A user's range on a stream is from the start of the first work in it to the end of the last.
  void add_ranges(const Linked& linked) {
    std::map<std::tuple<uint64_t, int, int32_t>, std::pair<int64_t, int64_t>> spans;
    for (const auto& record : recording_.work) {
      for (const auto range : record.ranges) {
        const auto key = std::make_tuple(range, record.device, rows_.row(record.device, record.stream));
        auto& span = spans.emplace(key, std::make_pair(record.start_ns, record.end_ns)).first->second;
        span.first = std::min(span.first, record.start_ns);
        span.second = std::max(span.second, record.end_ns);
      }
    }
    for (const auto& [key, span] : spans) {
      const auto& [range, device, row] = key;
      const auto* user = linked(short_id(range));
      if (!user) {
        continue;
      }
      auto& activity = add(ActivityType::GPU_USER_ANNOTATION, user->name());
      activity.startTime = span.first;
      activity.endTime = span.second;
      activity.id = short_id(range);
      activity.device = device;
      activity.resource = row;
      activity.linked = user;
      activity.addMetadata("External id", range);
    }
  }

  uint64_t kinds_;
  bool ranges_wanted_;
  bool driver_wanted_;
  bool started_ = false;
  Recording recording_;
  std::vector<std::string> errors_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
  libkineto::ActivityLogger* logger_ = nullptr;
  int64_t start_ns_ = 0;
  StreamRows rows_;
  std::set<int> used_;
  std::unordered_map<uint64_t, libkineto::GenericTraceActivity*> starts_; // calls that enqueued, by id
};

class KinetoProfiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    static const auto* name = new std::string(device_api().name());
    return *name;
  }

  const std::set<ActivityType>& availableActivities() const override {
    static const auto* types = new std::set<ActivityType>{
        ActivityType::CONCURRENT_KERNEL,   ActivityType::GPU_MEMCPY,         ActivityType::GPU_MEMSET,
        ActivityType::PRIVATEUSE1_RUNTIME, ActivityType::PRIVATEUSE1_DRIVER, ActivityType::GPU_USER_ANNOTATION,
    };
    return *types;
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& types,
                                                                 const libkineto::Config& /*config*/) override {
    return std::make_unique<Session>(types);
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t /*ts_ms*/, int64_t /*duration_ms*/,
                                                                 const std::set<ActivityType>& types,
                                                                 const libkineto::Config& config) override {
    return configure(types, config);
  }
};

std::unique_ptr<libkineto::IActivityProfiler> make_profiler() {
  return std::make_unique<KinetoProfiler>();
}

} // namespace

void register_kineto_profiler() {
#ifdef TB_HAS_PRIVATEUSE1_PROFILER
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory(make_profiler);
#else
  libkineto::api().registerProfilerFactory(make_profiler);
#endif
}

} // namespace torch_backend::profiler

#endif
