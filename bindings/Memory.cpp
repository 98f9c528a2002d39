// Memory: statistics, snapshots and history, limits, private pools, pinned memory.
#include <pybind11/stl.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <c10/core/AllocatorConfig.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include "bindings/Module.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Stream.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/memory/HostAllocator.h"
#include "torch_backend/api.h"

namespace py = pybind11;

namespace torch_backend::python {
namespace {

using c10::CachingAllocator::DurationStat;
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingDeviceAllocator::DeviceStats;

c10::DeviceIndex index_of(int device) {
  return resolve_device(static_cast<c10::DeviceIndex>(device));
}

// ---- statistics ----

py::dict to_dict(const Stat& stat) {
  py::dict dict;
  dict["current"] = stat.current;
  dict["peak"] = stat.peak;
  dict["allocated"] = stat.allocated;
  dict["freed"] = stat.freed;
  return dict;
}

py::dict to_dict(const StatArray& array) {
  constexpr std::array<const char*, 3> kNames = {"all", "small_pool", "large_pool"};
  py::dict dict;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    dict[kNames[i]] = to_dict(array[i]);
  }
  return dict;
}

py::dict to_dict(const DurationStat& stat) {
  py::dict dict;
  dict["total"] = stat.total;
  dict["max"] = stat.max;
  dict["min"] = stat.min;
  dict["count"] = stat.count;
  dict["avg"] = stat.count == 0 ? 0 : stat.total / stat.count;
  return dict;
}

// Fields that the oldest PyTorch we support does not have.
template <typename Stats>
void add_newer_fields(py::dict& dict, const Stats& stats) {
  py::dict pools;
  if constexpr (requires { stats.reserved_bytes_by_private_pools; }) {
    for (const auto& [id, array] : stats.reserved_bytes_by_private_pools) {
      pools[py::make_tuple(id.first, id.second)] = to_dict(array);
    }
  }
  dict["reserved_bytes_by_private_pools"] = pools;
  int64_t rejections = 0;
  if constexpr (requires { stats.num_oom_rejections; }) {
    rejections = stats.num_oom_rejections;
  }
  dict["num_oom_rejections"] = rejections;
}

py::dict memory_stats(int device) {
  const DeviceStats stats = device_allocator().getDeviceStats(index_of(device));
  py::dict dict;
  dict["num_alloc_retries"] = stats.num_alloc_retries;
  dict["num_ooms"] = stats.num_ooms;
  dict["max_split_size"] = stats.max_split_size;
  dict["num_sync_all_streams"] = stats.num_sync_all_streams;
  dict["num_device_alloc"] = stats.num_device_alloc;
  dict["num_device_free"] = stats.num_device_free;
  dict["allocation"] = to_dict(stats.allocation);
  dict["segment"] = to_dict(stats.segment);
  dict["active"] = to_dict(stats.active);
  dict["inactive_split"] = to_dict(stats.inactive_split);
  dict["allocated_bytes"] = to_dict(stats.allocated_bytes);
  dict["reserved_bytes"] = to_dict(stats.reserved_bytes);
  dict["active_bytes"] = to_dict(stats.active_bytes);
  dict["inactive_split_bytes"] = to_dict(stats.inactive_split_bytes);
  dict["requested_bytes"] = to_dict(stats.requested_bytes);
  dict["oversize_allocations"] = to_dict(stats.oversize_allocations);
  dict["oversize_segments"] = to_dict(stats.oversize_segments);
  add_newer_fields(dict, stats);
  return dict;
}

py::dict host_memory_stats() {
  const at::HostStats stats = host_allocator().get_stats();
  py::dict dict;
  dict["num_host_alloc"] = stats.num_host_alloc;
  dict["num_host_free"] = stats.num_host_free;
  dict["allocations"] = to_dict(stats.allocations);
  dict["allocated_bytes"] = to_dict(stats.allocated_bytes);
  dict["active_requests"] = to_dict(stats.active_requests);
  dict["active_bytes"] = to_dict(stats.active_bytes);
  dict["host_alloc_time"] = to_dict(stats.host_alloc_time);
  dict["host_free_time"] = to_dict(stats.host_free_time);
  return dict;
}

// ---- history and snapshots ----

ContextPtr gather_python() {
  return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, /*cpp=*/false);
}

ContextPtr gather_all() {
  return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, /*cpp=*/true);
}

RecordContext parse_context(const std::optional<std::string>& context) {
  if (!context) {
    return RecordContext::kNever;
  }
  const std::pair<const char*, RecordContext> levels[] = {
      {"state", RecordContext::kState}, {"alloc", RecordContext::kAlloc}, {"all", RecordContext::kAll}};
  for (const auto& [name, level] : levels) {
    if (*context == name) {
      return level;
    }
  }
  throw py::value_error("context must be None, 'state', 'alloc' or 'all', got '" + *context + "'");
}

void record_memory_history(const std::optional<std::string>& enabled, const std::optional<std::string>& context,
                           const std::string& stacks, std::size_t max_entries, bool clear_history,
                           const std::vector<std::string>& skip_actions) {
  if (enabled && *enabled != "state" && *enabled != "all") {
    throw py::value_error("enabled must be None, 'state' or 'all', got '" + *enabled + "'");
  }
  if (stacks != "python" && stacks != "all") {
    throw py::value_error("stacks must be 'python' or 'all', got '" + stacks + "'");
  }
  HistoryOptions options;
  options.enabled = enabled.has_value();
  options.create_context = stacks == "all" ? gather_all : gather_python;
  options.when = parse_context(context);
  options.max_entries = enabled == "all" ? max_entries : 1;
  options.clear = clear_history;
  for (const auto& action : skip_actions) {
    options.skip.push_back(parse_trace_action(action));
  }
  device_allocator().record_history(options);
}

/// Stacks as lists of frames. Each stack is resolved once, however many blocks and entries share it.
class Stacks {
 public:
  void add(const ContextPtr& context) {
    if (context && index_.emplace(context.get(), unique_.size()).second) {
      unique_.push_back(torch::getCapturedTracebackFromContext(context));
    }
  }

  /// After everything was added.
  void resolve() {
    const auto symbolized = torch::symbolize(unique_);
    std::vector<py::dict> frames;
    frames.reserve(symbolized.all_frames.size());
    for (const auto& frame : symbolized.all_frames) {
      py::dict dict;
      dict["filename"] = frame.filename;
      dict["line"] = frame.lineno;
      dict["name"] = frame.funcname;
      frames.push_back(std::move(dict));
    }
    for (const auto& stack : symbolized.tracebacks) {
      py::list list;
      for (const auto frame : stack) {
        list.append(frames.at(frame));
      }
      lists_.push_back(std::move(list));
    }
  }

  py::list frames(const ContextPtr& context) const {
    return context ? lists_.at(index_.at(context.get())) : py::list();
  }

 private:
  std::unordered_map<const c10::GatheredContext*, std::size_t> index_;
  std::vector<torch::CapturedTraceback*> unique_;
  std::vector<py::list> lists_;
};

const char* state_name(Block::State state) {
  switch (state) {
    case Block::State::kAllocated:
      return "active_allocated";
    case Block::State::kPending:
      return "active_pending_free";
    default:
      return "inactive";
  }
}

py::dict to_dict(const SegmentSnapshot& segment, const Stacks& stacks) {
  py::dict dict;
  dict["device"] = static_cast<int>(segment.device);
  dict["address"] = segment.address;
  dict["total_size"] = segment.total_size;
  dict["allocated_size"] = segment.allocated_size;
  dict["active_size"] = segment.active_size;
  dict["requested_size"] = segment.requested_size;
  dict["stream"] = segment.stream;
  dict["segment_type"] = segment.is_small ? "small" : "large";
  dict["segment_pool_id"] = py::make_tuple(segment.pool.first, segment.pool.second);
  dict["is_expandable"] = segment.is_expandable;
  dict["frames"] = stacks.frames(segment.context);
  py::list blocks;
  for (const auto& block : segment.blocks) {
    py::dict entry;
    entry["address"] = block.address;
    entry["size"] = block.size;
    entry["requested_size"] = block.requested_size;
    entry["state"] = state_name(block.state);
    entry["frames"] = stacks.frames(block.context);
    blocks.append(std::move(entry));
  }
  dict["blocks"] = std::move(blocks);
  return dict;
}

py::dict to_dict(const TraceEntry& entry, const Stacks& stacks) {
  py::dict dict;
  dict["action"] = trace_action_name(entry.action);
  dict[entry.action == TraceAction::kOutOfMemory ? "device_free" : "addr"] = entry.address;
  dict["size"] = entry.size;
  dict["stream"] = entry.stream;
  dict["pool_id"] = py::make_tuple(entry.pool.first, entry.pool.second);
  dict["time_us"] = entry.time_us;
  dict["frames"] = stacks.frames(entry.context);
  return dict;
}

py::dict settings() {
  using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
  py::dict dict;
  const std::string text = allocator_settings();
  dict["PYTORCH_ALLOC_CONF"] = text;
  dict["PYTORCH_CUDA_ALLOC_CONF"] = text; // what the viewer looks for
  const std::size_t max_split_size = Config::max_split_size();
  dict["max_split_size"] = max_split_size > std::size_t{std::numeric_limits<int64_t>::max()}
                               ? int64_t{-1}
                               : static_cast<int64_t>(max_split_size);
  dict["garbage_collection_threshold"] = Config::garbage_collection_threshold();
  dict["expandable_segments"] = Config::use_expandable_segments();
  dict["roundup_power2_divisions"] = Config::roundup_power2_divisions();
  return dict;
}

py::dict memory_snapshot(const std::optional<c10::MempoolId_t>& pool, bool include_traces) {
  std::vector<AllocatorSnapshot> devices;
  {
    const py::gil_scoped_release no_gil;
    devices = device_allocator().snapshot(pool, include_traces);
  }
  Stacks stacks;
  for (const auto& device : devices) {
    for (const auto& segment : device.segments) {
      stacks.add(segment.context);
      for (const auto& block : segment.blocks) {
        stacks.add(block.context);
      }
    }
    for (const auto& entry : device.trace) {
      stacks.add(entry.context);
    }
  }
  stacks.resolve();
  py::list segments;
  py::list traces;
  for (const auto& device : devices) {
    for (const auto& segment : device.segments) {
      segments.append(to_dict(segment, stacks));
    }
    py::list entries;
    for (const auto& entry : device.trace) {
      if (!pool || entry.pool == *pool) {
        entries.append(to_dict(entry, stacks));
      }
    }
    traces.append(std::move(entries));
  }
  py::dict dict;
  dict["segments"] = std::move(segments);
  dict["device_traces"] = std::move(traces);
  dict["allocator_settings"] = settings();
  dict["external_annotations"] = py::list();
  return dict;
}

void attach_out_of_memory_observer(py::function observer) {
  // Allocators copy and call the observer without the GIL, so the function is shared and never released.
  auto* function = new py::function(std::move(observer));
  device_allocator().add_out_of_memory_observer(
      [function](int64_t device, std::size_t requested, std::size_t total, std::size_t free) {
        const py::gil_scoped_acquire gil;
        (*function)(device, requested, total, free);
      });
}

// ---- private pools ----

/// A pool that is given back without the GIL: devices written in Python take it.
class PoolHandle {
 public:
  explicit PoolHandle(int device) : pool_(std::in_place, index_of(device)) {}
  ~PoolHandle() {
    const py::gil_scoped_release no_gil;
    pool_.reset();
  }
  PoolHandle(const PoolHandle&) = delete;
  PoolHandle& operator=(const PoolHandle&) = delete;

  const MemPool& pool() const {
    return *pool_;
  }

 private:
  std::optional<MemPool> pool_;
};

uintptr_t allocate_raw(std::size_t size, int device, c10::StreamId stream) {
  const auto index = index_of(device);
  const Stream on(c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, index), stream));
  return reinterpret_cast<uintptr_t>(device_allocator().allocate_on(size, index, on).release_context());
}

} // namespace

void init_memory(py::module_& m) {
  using NoGil = py::call_guard<py::gil_scoped_release>;

  m.def("memory_stats", &memory_stats, py::arg("device") = -1);
  m.def(
      "reset_accumulated_memory_stats", [](int device) { device_allocator().resetAccumulatedStats(index_of(device)); },
      py::arg("device") = -1);
  m.def(
      "reset_peak_memory_stats", [](int device) { device_allocator().resetPeakStats(index_of(device)); },
      py::arg("device") = -1);
  m.def("empty_cache", [] { device_allocator().emptyCache(); }, NoGil());
  m.def("empty_cache_unless_capturing", [] { device_allocator().empty_cache_unless_capturing(); }, NoGil());
  m.def(
      "mem_get_info", [](int device) { return device_allocator().getMemoryInfo(index_of(device)); },
      py::arg("device") = -1, NoGil());
  m.def(
      "set_memory_fraction",
      [](double fraction, int device) { device_allocator().set_memory_fraction(fraction, index_of(device)); },
      py::arg("fraction"), py::arg("device") = -1, NoGil());
  m.def(
      "get_memory_fraction", [](int device) { return device_allocator().memory_fraction(index_of(device)); },
      py::arg("device") = -1);
  m.def("memory_snapshot", &memory_snapshot, py::arg("pool") = py::none(), py::arg("include_traces") = true);
  m.def("record_memory_history", &record_memory_history, py::arg("enabled"), py::arg("context"), py::arg("stacks"),
        py::arg("max_entries"), py::arg("clear_history"), py::arg("skip_actions"));
  m.def("is_memory_history_enabled", [] { return device_allocator().history_enabled(); });
  m.def("attach_out_of_memory_observer", &attach_out_of_memory_observer, py::arg("observer"));
  m.def("allocate_raw", &allocate_raw, py::arg("size"), py::arg("device"), py::arg("stream_id"), NoGil());
  m.def(
      "free_raw", [](uintptr_t ptr) { device_allocator().free(reinterpret_cast<void*>(ptr)); }, py::arg("ptr"),
      NoGil());

  py::class_<PoolHandle>(m, "MemoryPool")
      .def(py::init<int>(), py::arg("device") = -1, NoGil())
      .def_property_readonly("id", [](const PoolHandle& handle) { return handle.pool().id(); })
      .def_property_readonly("device",
                             [](const PoolHandle& handle) { return static_cast<int>(handle.pool().device()); })
      .def("use_count", [](const PoolHandle& handle) { return handle.pool().use_count(); });
  m.def(
      "begin_allocate_to_pool",
      [](int device, c10::MempoolId_t pool) {
        device_allocator().begin_allocate_current_thread_to_pool(index_of(device), pool);
      },
      py::arg("device"), py::arg("pool"));
  m.def(
      "end_allocate_to_pool",
      [](int device, c10::MempoolId_t pool) {
        device_allocator().end_allocate_to_pool(index_of(device), pool);
        device_allocator().release_pool(index_of(device), pool);
      },
      py::arg("device"), py::arg("pool"));

  m.def("host_memory_stats", &host_memory_stats);
  m.def("reset_accumulated_host_memory_stats", [] { host_allocator().reset_accumulated_stats(); });
  m.def("reset_peak_host_memory_stats", [] { host_allocator().reset_peak_stats(); });
  m.def("empty_host_cache", [] { host_allocator().empty_cache(); }, NoGil());
}

} // namespace torch_backend::python
