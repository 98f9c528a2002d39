// A plugin's table as C++ calls: checks, defaults, errors, lost devices, forks.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>

#include "csrc/core/DeviceApi.h"
#include "csrc/core/Plugin.h"
#include "csrc/core/Status.h"

namespace torch_backend {
namespace {

// ---- a device that does as it is told ----

/// What the table's functions read and write. Slots have no context argument, so there is one at a time.
struct Device {
  std::mutex mutex; // guards calls
  std::vector<std::string> calls;
  std::map<std::string, tb_status> fails; // what a slot returns
  std::string text = "it was told to";    // with every failure
  int32_t count = 2;
  uint64_t capabilities = 0;
  uint64_t alignment = 64;
  uint64_t granularity = 0;
  int not_ready = 0; // so many queries
  void (*change_properties)(int32_t, tb_device_properties*) = nullptr;
};

Device* device = nullptr;

tb_status enter(const char* slot) {
  const std::lock_guard<std::mutex> lock(device->mutex);
  device->calls.emplace_back(slot);
  const auto found = device->fails.find(slot);
  if (found == device->fails.end()) {
    return TB_STATUS_OK;
  }
  return device->text.empty() ? found->second : Plugin::host()->fail(found->second, "%s", device->text.c_str());
}

tb_status query(const char* slot) {
  const tb_status status = enter(slot);
  return status == TB_STATUS_OK && device->not_ready > 0 ? (--device->not_ready, TB_STATUS_NOT_READY) : status;
}

template <typename Handle>
Handle* handle(uintptr_t number) {
  return reinterpret_cast<Handle*>(number);
}

tb_core_table synchronous_table() {
  tb_core_table table{};
  table.struct_size = sizeof(table);
  table.device_count = [](int32_t* out) {
    *out = device->count;
    return enter("device_count");
  };
  table.device_properties = [](int32_t index, tb_device_properties* out) {
    std::strcpy(out->name, "Acme X100");
    out->total_memory_bytes = uint64_t{1} << 30;
    out->warp_size = 1;
    out->capabilities = device->capabilities;
    out->allocation_alignment_bytes = device->alignment;
    out->allocation_granularity_bytes = device->granularity;
    if (device->change_properties) {
      device->change_properties(index, out);
    }
    return enter("device_properties");
  };
  table.memory_allocate = [](int32_t, uint32_t, uint64_t, tb_stream*, void** out) {
    const tb_status status = enter("memory_allocate");
    if (status == TB_STATUS_OK) {
      *out = handle<void>(0x1000);
    }
    return status;
  };
  table.memory_free = [](int32_t, uint32_t, void*, uint64_t, tb_stream*) { return enter("memory_free"); };
  table.memory_copy = [](int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size_bytes,
                         uint32_t, tb_stream*) {
    const tb_status status = enter("memory_copy");
    if (status == TB_STATUS_OK) {
      std::memcpy(dst, src, size_bytes);
    }
    return status;
  };
  return table;
}

tb_core_table asynchronous_table() {
  device->capabilities |= TB_CAP_ASYNC;
  tb_core_table table = synchronous_table();
  table.stream_create = [](int32_t, int32_t, tb_stream** out) {
    *out = handle<tb_stream>(0x10);
    return enter("stream_create");
  };
  table.stream_destroy = [](int32_t, tb_stream*) { return enter("stream_destroy"); };
  table.stream_synchronize = [](int32_t, tb_stream*) { return enter("stream_synchronize"); };
  table.stream_wait_event = [](int32_t, tb_stream*, tb_event*) { return enter("stream_wait_event"); };
  table.event_create = [](int32_t, uint32_t, tb_event** out) {
    *out = handle<tb_event>(0x20);
    return enter("event_create");
  };
  table.event_destroy = [](int32_t, tb_event*) { return enter("event_destroy"); };
  table.event_record = [](int32_t, tb_event*, tb_stream*) { return enter("event_record"); };
  table.event_query = [](int32_t, tb_event*) { return query("event_query"); };
  return table;
}

class DeviceApiTest : public ::testing::Test {
 protected:
  DeviceApiTest() {
    device = &device_;
  }
  ~DeviceApiTest() override {
    device = nullptr;
    take_error_text();
  }

  /// Started, and without the calls that took.
  DeviceApi& start(const tb_core_table& table) {
    api_ = std::make_unique<DeviceApi>("acme", table);
    api_->initialize();
    device_.calls.clear();
    return *api_;
  }
  /// What was called since the last time.
  std::vector<std::string> calls() {
    return std::exchange(device_.calls, {});
  }

  Device device_;
  std::unique_ptr<DeviceApi> api_;
};

using Calls = std::vector<std::string>;

/// The text of what `function` throws, which must be an `Exception`.
template <typename Exception, typename Function>
std::string text_of(Function function) {
  try {
    function();
  } catch (const Exception& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "threw something else: " << error.what();
    return "";
  }
  ADD_FAILURE() << "did not throw";
  return "";
}

#define EXPECT_THROWS(statement, exception, part) \
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, part, text_of<exception>([&] { statement; }))

// ---- statuses ----

TEST(StatusTest, Names) {
  EXPECT_EQ(status_name(TB_STATUS_OK), "OK");
  EXPECT_EQ(status_name(TB_STATUS_OUT_OF_MEMORY), "OUT_OF_MEMORY");
  EXPECT_EQ(status_name(42), "UNKNOWN(42)");
  EXPECT_EQ(status_name(-1), "UNKNOWN(-1)");
}

TEST(StatusTest, TextIsTakenOnceAndByItsThread) {
  EXPECT_EQ(Plugin::host()->fail(TB_STATUS_TIMEOUT, "bank %d of %s", 3, std::string(5000, 'x').c_str()),
            TB_STATUS_TIMEOUT);
  std::thread([] { EXPECT_EQ(take_error_text(), ""); }).join();
  EXPECT_EQ(take_error_text(), "bank 3 of " + std::string(5000, 'x'));
  EXPECT_EQ(take_error_text(), "");
}

TEST(StatusTest, FailureSaysWhereWhatAndWhy) {
  set_error_text("the cable is out");
  EXPECT_EQ(describe_failure(TB_STATUS_DEVICE_LOST, "acme", "memory_copy", 1),
            "acme:1: memory_copy failed: device lost (DEVICE_LOST): the cable is out");
  EXPECT_EQ(describe_failure(TB_STATUS_INTERNAL, "acme", "initialize", -1),
            "acme: initialize failed: internal error (INTERNAL)");
  EXPECT_EQ(describe_failure(77, "acme", "initialize", -1),
            "acme: initialize failed: a status that the ABI does not list (UNKNOWN(77))");
}

TEST(StatusTest, ExceptionsAreThoseOfPyTorch) {
  EXPECT_THROWS(throw_status(TB_STATUS_OUT_OF_MEMORY, "acme", "x", 0), c10::OutOfMemoryError, "(OUT_OF_MEMORY)");
  EXPECT_THROWS(throw_status(TB_STATUS_UNSUPPORTED, "acme", "x", 0), c10::NotImplementedError, "(UNSUPPORTED)");
  for (const tb_status status : {TB_STATUS_NOT_READY, TB_STATUS_INVALID_ARGUMENT, TB_STATUS_DEVICE_LOST,
                                 TB_STATUS_INTERNAL, TB_STATUS_TIMEOUT}) {
    try {
      throw_status(status, "acme", "x", 0);
    } catch (const c10::AcceleratorError& error) {
      EXPECT_EQ(error.get_error_code(), status);
    }
  }
  EXPECT_THROWS(throw_status(77, "acme", "x", 0), c10::AcceleratorError, "UNKNOWN(77)");
}

// ---- the table ----

TEST_F(DeviceApiTest, ConstructionCallsNothing) {
  const DeviceApi api("acme", asynchronous_table());
  EXPECT_EQ(calls(), Calls{});
  EXPECT_FALSE(api.initialized());
}

TEST_F(DeviceApiTest, EveryFaultOfATableIsNamed) {
  tb_core_table table = synchronous_table();
  table.memory_copy = nullptr;
  table.device_count = nullptr;
  table.stream_create = asynchronous_table().stream_create;
  table.host_register = [](void*, uint64_t) { return enter("host_register"); };
  const auto text = text_of<c10::ValueError>([&] { DeviceApi("acme", table); });
  for (const char* part :
       {"plugin 'acme' is not usable: ", "slot device_count is not set", "slot memory_copy is not set",
        "stream_create set, but stream_destroy, ", "host_register set, but host_unregister not"}) {
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, part, text);
  }
}

TEST_F(DeviceApiTest, SlotsThatBelongTogether) {
  tb_core_table table = synchronous_table();
  table.memory_unmap = [](int32_t, void*, uint64_t, uint32_t) { return enter("memory_unmap"); };
  EXPECT_THROWS(DeviceApi("acme", table), c10::ValueError, "memory_unmap set, but memory_map not");
  table = synchronous_table();
  table.ipc_close = [](int32_t, void*) { return enter("ipc_close"); };
  EXPECT_THROWS(DeviceApi("acme", table), c10::ValueError, "ipc_close set, but ipc_export, ipc_import not");
  table = asynchronous_table();
  table.event_query = nullptr;
  EXPECT_THROWS(DeviceApi("acme", table), c10::ValueError, "but event_query not");
}

TEST_F(DeviceApiTest, SlotsBeyondTheTableAreUnset) {
  tb_core_table table = asynchronous_table();
  device_.capabilities = 0;
  table.initialize = [] { return enter("initialize"); };
  table.struct_size = offsetof(tb_core_table, stream_create);
  auto& api = start(table);
  EXPECT_FALSE(api.async());
  EXPECT_EQ(api.stream_create(0, 0), nullptr);
  EXPECT_EQ(calls(), Calls{});
}

// ---- starting ----

TEST_F(DeviceApiTest, DevicesAreCountedOnceAndWithoutStarting) {
  DeviceApi api("acme", synchronous_table());
  EXPECT_EQ(api.device_count(), 2);
  EXPECT_EQ(api.device_count(), 2);
  EXPECT_EQ(calls(), Calls{"device_count"});
  EXPECT_FALSE(api.initialized());
}

TEST_F(DeviceApiTest, AFailedCountIsAskedAgain) {
  DeviceApi api("acme", synchronous_table());
  device_.fails["device_count"] = TB_STATUS_TIMEOUT;
  EXPECT_THROWS(api.device_count(), c10::AcceleratorError,
                "acme: device_count failed: timed out (TIMEOUT): it was told");
  device_.fails.clear();
  EXPECT_EQ(api.device_count(), 2);
}

TEST_F(DeviceApiTest, CountsThatCannotBe) {
  for (const int32_t count : {-1, 65}) {
    device_.count = count;
    DeviceApi api("acme", synchronous_table());
    EXPECT_THROWS(api.device_count(), c10::Error,
                  "reports " + std::to_string(count) + " devices; 0 to 64 are possible");
  }
}

TEST_F(DeviceApiTest, TheFirstCallStarts) {
  tb_core_table table = synchronous_table();
  table.initialize = [] { return enter("initialize"); };
  DeviceApi api("acme", table);
  EXPECT_EQ(api.properties(1).allocation_alignment_bytes, 64u);
  EXPECT_EQ(calls(), (Calls{"device_count", "initialize", "device_properties", "device_properties"}));
  api.initialize();
  api.memory_free(0, TB_MEMORY_DEVICE, nullptr, 1, nullptr);
  EXPECT_EQ(calls(), Calls{"memory_free"});
}

TEST_F(DeviceApiTest, ManyThreadsStartItOnce) {
  tb_core_table table = synchronous_table();
  table.initialize = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return enter("initialize");
  };
  DeviceApi api("acme", table);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { EXPECT_EQ(api.properties(0).allocation_alignment_bytes, 64u); });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  const auto all = calls();
  EXPECT_EQ(std::count(all.begin(), all.end(), "initialize"), 1);
}

TEST_F(DeviceApiTest, AFailedStartIsTriedAgain) {
  tb_core_table table = synchronous_table();
  table.initialize = [] { return enter("initialize"); };
  DeviceApi api("acme", table);
  device_.fails["initialize"] = TB_STATUS_INTERNAL;
  EXPECT_THROWS(api.initialize(), c10::AcceleratorError, "acme: initialize failed: internal error (INTERNAL): it was");
  EXPECT_FALSE(api.initialized());
  device_.fails.clear();
  api.initialize();
  EXPECT_TRUE(api.initialized());
}

TEST_F(DeviceApiTest, TheDriverIsNotStartedTwice) {
  tb_core_table table = synchronous_table();
  table.initialize = [] { return enter("initialize"); };
  DeviceApi api("acme", table);
  device_.fails["device_properties"] = TB_STATUS_TIMEOUT;
  EXPECT_THROWS(api.initialize(), c10::AcceleratorError, "acme:0: device_properties failed: timed out");
  device_.fails.clear();
  api.initialize();
  const auto all = calls();
  EXPECT_EQ(std::count(all.begin(), all.end(), "initialize"), 1) << "the header promises one call";
}

TEST_F(DeviceApiTest, NothingToStart) {
  tb_core_table table = synchronous_table();
  table.initialize = [] { return enter("initialize"); };
  device_.fails["initialize"] = TB_STATUS_UNSUPPORTED;
  DeviceApi api("acme", table);
  EXPECT_NO_THROW(api.initialize());
}

TEST_F(DeviceApiTest, PropertiesThatCannotBe) {
  const auto refused = [&](const tb_core_table& table) {
    return text_of<c10::Error>([&] { DeviceApi("acme", table).initialize(); });
  };
  for (const uint64_t alignment : {uint64_t{0}, uint64_t{3}, uint64_t{32}, uint64_t{96}, uint64_t{1} << 31}) {
    device_.alignment = alignment;
    EXPECT_EQ(refused(synchronous_table())
                  .find("acme:0: device_properties reports what cannot be: an allocation alignment of " +
                        std::to_string(alignment) + " bytes; it must be a power of two, at least 64"),
              0u);
  }
  device_.alignment = 4096;
  device_.granularity = 3;
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "an allocation granularity of 3 bytes; it must be a power of two, or 0",
                      refused(synchronous_table()));
  device_.granularity = 4096;
  EXPECT_NO_THROW(DeviceApi("acme", synchronous_table()).initialize());
}

TEST_F(DeviceApiTest, CapabilitiesWithoutTheirSlots) {
  const std::pair<uint64_t, const char*> cases[] = {
      {TB_CAP_ASYNC, "TB_CAP_ASYNC is declared but the eight stream and event slots are not set"},
      {TB_CAP_EVENT_TIMING, "TB_CAP_EVENT_TIMING is declared but the slot event_elapsed is not set"},
      {TB_CAP_IPC, "TB_CAP_IPC is declared but the ipc slots are not set"},
      {TB_CAP_HOST_ACCESS, "TB_CAP_HOST_ACCESS without TB_CAP_HOST_COHERENT needs the slots memory_map and"},
  };
  for (const auto& [capabilities, part] : cases) {
    device_.capabilities = capabilities;
    DeviceApi api("acme", synchronous_table());
    EXPECT_THROWS(api.initialize(), c10::Error, part);
    EXPECT_FALSE(api.initialized());
  }
  const tb_core_table table = asynchronous_table();
  device_.capabilities = 0;
  EXPECT_THROWS(DeviceApi("acme", table).initialize(), c10::Error, "slots are set but TB_CAP_ASYNC is not declared");
}

TEST_F(DeviceApiTest, CapabilitiesThatMustNotDiffer) {
  device_.change_properties = [](int32_t index, tb_device_properties* out) {
    out->capabilities = index == 1 ? TB_CAP_HOST_ACCESS | TB_CAP_HOST_COHERENT : 0;
  };
  DeviceApi api("acme", synchronous_table());
  EXPECT_THROWS(api.initialize(), c10::Error, "acme:1: TB_CAP_ASYNC, HOST_ACCESS and HOST_COHERENT must be");
}

TEST_F(DeviceApiTest, EveryPropertyIsChecked) {
  using Change = void (*)(int32_t, tb_device_properties*);
  const std::pair<Change, const char*> cases[] = {
      {[](int32_t, tb_device_properties* out) { std::memset(out->name, 'n', sizeof(out->name)); },
       "a name that does not end with a NUL within its 64 bytes"},
      {[](int32_t, tb_device_properties* out) { std::memset(out->arch, 'a', sizeof(out->arch)); },
       "an arch that does not end with a NUL within its 32 bytes"},
      {[](int32_t, tb_device_properties* out) { out->name[0] = 0; }, "an empty name"},
      {[](int32_t, tb_device_properties* out) { out->total_memory_bytes = ~uint64_t{0}; },
       "a total memory of 18446744073709551615 bytes"},
      {[](int32_t, tb_device_properties* out) { out->allocation_granularity_bytes = uint64_t{1} << 63; },
       "an allocation granularity of 9223372036854775808 bytes"},
      {[](int32_t, tb_device_properties* out) { out->warp_size = 0; }, "a warp_size of 0; it must be at least 1"},
      {[](int32_t, tb_device_properties* out) { out->multiprocessor_count = -1; }, "a multiprocessor_count of -1"},
      {[](int32_t, tb_device_properties* out) { out->numa_node = -2; }, "a numa_node of -2"},
      {[](int32_t, tb_device_properties* out) { out->capability_major = -1; }, "a capability_major of -1"},
      {[](int32_t, tb_device_properties* out) { out->stream_priority_highest = 1; },
       "stream priorities from 0 (lowest) to 1 (highest)"},
      {[](int32_t, tb_device_properties* out) {
         out->stream_priority_lowest = 1;
         out->stream_priority_highest = INT32_MAX;
       },
       "stream priorities from 1 (lowest) to 2147483647 (highest)"},
      {[](int32_t, tb_device_properties* out) { out->dtype_mask[3] = uint64_t{1} << 63; },
       "a dtype_mask without a dtype that PyTorch has"},
      {[](int32_t, tb_device_properties* out) { std::memset(out->driver_version, 'v', sizeof(out->driver_version)); },
       "a driver_version that does not end with a NUL within its 64 bytes"},
      {[](int32_t, tb_device_properties* out) { out->max_allocation_bytes = out->total_memory_bytes + 1; },
       "bytes; 0 means as much as there is"},
      {[](int32_t, tb_device_properties* out) {
         out->allocation_granularity_bytes = 4096;
         out->max_allocation_bytes = 4095;
       },
       "a max_allocation_bytes of 4095 with an allocation granularity of 4096 bytes"},
      {[](int32_t, tb_device_properties* out) {
         std::fill(std::begin(out->max_block), std::end(out->max_block), 8u);
         out->max_block_items = 513;
       },
       "max_block_items of 513 with a max_block that has room for 512"},
      {[](int32_t, tb_device_properties* out) {
         out->max_block_items = 256;
         out->preferred_block_items = 257;
       },
       "preferred_block_items of 257 with max_block_items of 256"},
      {[](int32_t, tb_device_properties* out) { out->compute_dtype_mask[3] = uint64_t{1} << 63; },
       "a compute_dtype_mask without a dtype that PyTorch has"},
      {[](int32_t, tb_device_properties* out) {
         out->dtype_mask[0] = TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 32);
         out->compute_dtype_mask[0] = TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 64);
       },
       "a compute_dtype_mask with dtypes that are not in dtype_mask"},
      {[](int32_t, tb_device_properties* out) { out->capabilities = TB_CAP_HOST_COHERENT; },
       "TB_CAP_HOST_COHERENT is declared without TB_CAP_HOST_ACCESS"},
      {[](int32_t, tb_device_properties* out) { out->struct_size = 8; }, "that it has filled 8 bytes"},
      {[](int32_t, tb_device_properties* out) { out->struct_size += 8; }, "bytes; the caller has room for"},
      {[](int32_t, tb_device_properties* out) { std::memset(out + 1, 0, 1); }, "device_properties wrote past the"},
  };
  for (const auto& [change, part] : cases) {
    device_.change_properties = change;
    DeviceApi api("acme", synchronous_table());
    EXPECT_THROWS(api.initialize(), c10::Error, part);
    EXPECT_FALSE(api.initialized()) << part;
  }
}

TEST_F(DeviceApiTest, PropertiesThatMayBeExtreme) {
  device_.change_properties = [](int32_t, tb_device_properties* out) {
    out->total_memory_bytes = 0; // unknown
    out->max_allocation_bytes = 4096;
    out->stream_priority_lowest = INT32_MAX;
    out->stream_priority_highest = INT32_MIN;
    out->capabilities |= uint64_t{1} << 40; // of a later version
    std::strcpy(out->arch, "caf\xe9");
    std::memset(out->name, 0xff, sizeof(out->name) - 1);
    out->name[sizeof(out->name) - 1] = 0;
  };
  const auto& properties = start(synchronous_table()).properties(0);
  EXPECT_EQ(properties.capabilities, 0u);
  EXPECT_STREQ(properties.arch, "caf\xef\xbf\xbd") << "what is no UTF-8 is replaced";
  EXPECT_EQ(std::strlen(properties.name), 63u) << "21 replacements";
}

// ---- which device ----

TEST_F(DeviceApiTest, DevicesOutOfRange) {
  auto& api = start(synchronous_table());
  char byte = 0;
  for (const int index : {-1, 2, 63, 64, 1 << 20}) {
    const auto part = "Device index " + std::to_string(index) + " is out of range: acme has 2 devices, 0 to 1";
    void* out = nullptr;
    EXPECT_THROWS(api.properties(index), c10::IndexError, part);
    EXPECT_THROWS(api.memory_allocate(index, TB_MEMORY_DEVICE, 1, nullptr, &out), c10::IndexError, part);
    EXPECT_THROWS(api.memory_copy(index, &byte, -1, &byte, 1, TB_COPY_HOST_TO_DEVICE, nullptr), c10::IndexError, part);
    EXPECT_THROWS(api.memory_copy(-1, &byte, index, &byte, 1, TB_COPY_DEVICE_TO_HOST, nullptr), c10::IndexError, part);
    EXPECT_THROWS(api.memory_copy(index, &byte, 0, &byte, 1, TB_COPY_PEER, nullptr), c10::IndexError, part);
    EXPECT_THROWS(api.peer_can_access(0, index), c10::IndexError, part);
    api.memory_free(index, TB_MEMORY_DEVICE, &byte, 1, nullptr);
  }
  EXPECT_EQ(calls(), Calls{});
}

// ---- errors ----

TEST_F(DeviceApiTest, ACallThatFailsIsMadeOnce) {
  auto& api = start(asynchronous_table());
  char byte = 0;
  for (const tb_status status :
       {+TB_STATUS_INVALID_ARGUMENT, +TB_STATUS_INTERNAL, +TB_STATUS_TIMEOUT, +TB_STATUS_NOT_READY, 99}) {
    for (const char* slot :
         {"memory_copy", "stream_create", "stream_synchronize", "stream_wait_event", "event_create", "event_record"}) {
      device_.fails = {{slot, status}};
      const std::string expected = "acme:1: " + std::string(slot) + " failed: ";
      const auto text = text_of<c10::AcceleratorError>([&] {
        api.memory_copy(-1, &byte, 1, &byte, 1, TB_COPY_DEVICE_TO_HOST, nullptr);
        api.stream_create(1, 0);
        api.stream_synchronize(1, nullptr);
        api.stream_wait_event(1, nullptr, nullptr);
        api.event_create(1, 0);
        api.event_record(1, nullptr, nullptr);
      });
      EXPECT_EQ(text.find(expected), 0u) << text;
      EXPECT_PRED_FORMAT2(::testing::IsSubstring, "(" + status_name(status) + "): it was told to", text);
      const auto all = calls();
      EXPECT_EQ(std::count(all.begin(), all.end(), slot), 1);
      EXPECT_EQ(all.back(), slot);
    }
  }
}

TEST_F(DeviceApiTest, AnAllocationMayBeRefused) {
  auto& api = start(synchronous_table());
  for (const tb_status status : {TB_STATUS_OUT_OF_MEMORY, TB_STATUS_UNSUPPORTED}) {
    device_.fails["memory_allocate"] = status;
    void* out = &device_;
    EXPECT_EQ(api.memory_allocate(0, TB_MEMORY_HOST, 64, nullptr, &out), status);
    EXPECT_EQ(out, &device_);
    EXPECT_EQ(take_error_text(), "it was told to");
  }
  device_.fails["memory_allocate"] = TB_STATUS_INTERNAL;
  void* out = nullptr;
  EXPECT_THROWS(api.memory_allocate(0, 0, 64, nullptr, &out), c10::AcceleratorError, "acme:0: memory_allocate failed");
}

TEST_F(DeviceApiTest, CleaningUpDoesNotThrow) {
  tb_core_table table = asynchronous_table();
  table.ipc_export = [](int32_t, void*, tb_ipc_handle*) { return enter("ipc_export"); };
  table.ipc_import = [](int32_t, const tb_ipc_handle*, void**) { return enter("ipc_import"); };
  table.ipc_close = [](int32_t, void*) { return enter("ipc_close"); };
  auto& api = start(table);
  device_.fails = {{"memory_free", TB_STATUS_INTERNAL},
                   {"stream_destroy", TB_STATUS_TIMEOUT},
                   {"event_destroy", TB_STATUS_INVALID_ARGUMENT},
                   {"ipc_close", TB_STATUS_INTERNAL}};
  ::testing::internal::CaptureStderr();
  api.memory_free(1, TB_MEMORY_DEVICE, nullptr, 1, nullptr);
  api.stream_destroy(1, handle<tb_stream>(0x10));
  api.event_destroy(1, handle<tb_event>(0x20));
  api.ipc_close(1, nullptr);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(calls(), (Calls{"memory_free", "stream_destroy", "event_destroy", "ipc_close"}));
  for (const char* slot : {"memory_free", "stream_destroy", "event_destroy", "ipc_close"}) {
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, "acme:1: " + std::string(slot) + " failed: ", log);
  }
  EXPECT_EQ(take_error_text(), "") << "the text went to the log";
}

// ---- defaults: fill ----

std::string pattern_of(std::size_t bytes) {
  std::string pattern(bytes, '\0');
  std::iota(pattern.begin(), pattern.end(), 'a');
  return pattern;
}

TEST_F(DeviceApiTest, FillIsMadeOfCopies) {
  auto& api = start(asynchronous_table());
  constexpr std::size_t kMiB = 1 << 20;
  for (const uint32_t bytes : {1, 2, 4, 8, 16}) {
    for (const std::size_t size : {std::size_t{bytes}, 16 * std::size_t{bytes}, kMiB, 2 * kMiB + 48}) {
      std::string memory(size + 2, '#');
      const auto pattern = pattern_of(bytes);
      api.memory_fill(0, &memory[1], pattern.data(), bytes, size, nullptr);
      EXPECT_EQ(memory.front(), '#');
      EXPECT_EQ(memory.back(), '#');
      bool right = true;
      for (std::size_t i = 0; i < size; ++i) {
        right = right && memory[1 + i] == pattern[i % bytes];
      }
      EXPECT_TRUE(right) << bytes << " " << size;
      const auto all = calls();
      EXPECT_EQ(static_cast<std::size_t>(std::count(all.begin(), all.end(), "memory_copy")), (size + kMiB - 1) / kMiB);
      EXPECT_EQ(all.back(), "stream_synchronize") << "what is copied from must stay until the copies are done";
    }
  }
}

TEST_F(DeviceApiTest, FillOfThePlugin) {
  tb_core_table table = synchronous_table();
  table.memory_fill = [](int32_t, void*, const void*, uint32_t, uint64_t, tb_stream*) { return enter("memory_fill"); };
  auto& api = start(table);
  char memory[4] = "###";
  api.memory_fill(0, memory, "a", 1, 3, nullptr);
  EXPECT_EQ(calls(), Calls{"memory_fill"});
  device_.fails["memory_fill"] = TB_STATUS_UNSUPPORTED;
  api.memory_fill(0, memory, "a", 1, 3, nullptr);
  EXPECT_STREQ(memory, "aaa");
  EXPECT_EQ(calls(), (Calls{"memory_fill", "memory_copy"}));
  EXPECT_EQ(take_error_text(), "");
  device_.fails["memory_fill"] = TB_STATUS_INTERNAL;
  EXPECT_THROWS(api.memory_fill(0, memory, "b", 1, 3, nullptr), c10::AcceleratorError, "acme:0: memory_fill failed");
  EXPECT_STREQ(memory, "aaa");
}

// ---- defaults: copies of rows ----

TEST_F(DeviceApiTest, RowsAreCopiedOneByOne) {
  tb_core_table table = synchronous_table();
  table.memory_copy = [](int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size_bytes,
                         uint32_t kind, tb_stream*) {
    EXPECT_EQ(dst_device, kind == TB_COPY_DEVICE_TO_HOST ? -1 : 1);
    EXPECT_EQ(src_device, kind == TB_COPY_HOST_TO_DEVICE ? -1 : 1);
    std::memcpy(dst, src, size_bytes);
    return enter("memory_copy");
  };
  auto& api = start(table);
  for (const uint32_t kind : {TB_COPY_HOST_TO_DEVICE, TB_COPY_DEVICE_TO_HOST, TB_COPY_DEVICE_TO_DEVICE}) {
    std::string from = "abc.def.ghi.";
    std::string to = "---------------";
    api.memory_copy_2d(1, to.data(), 5, from.data(), 4, 3, 3, kind, nullptr);
    EXPECT_EQ(to, "abc--def--ghi--");
    EXPECT_EQ(calls(), Calls(3, "memory_copy"));
  }
}

TEST_F(DeviceApiTest, RowsOfThePlugin) {
  tb_core_table table = synchronous_table();
  table.memory_copy_2d = [](int32_t, void*, uint64_t, const void*, uint64_t, uint64_t, uint64_t, uint32_t, tb_stream*) {
    return enter("memory_copy_2d");
  };
  auto& api = start(table);
  std::string from = "ab";
  std::string to = "--";
  const auto copy = [&] { api.memory_copy_2d(0, to.data(), 1, from.data(), 1, 1, 2, TB_COPY_HOST_TO_DEVICE, nullptr); };
  copy();
  EXPECT_EQ(calls(), Calls{"memory_copy_2d"});
  device_.fails["memory_copy_2d"] = TB_STATUS_TIMEOUT;
  EXPECT_THROWS(copy(), c10::AcceleratorError, "acme:0: memory_copy_2d failed: timed out");
  calls();
  device_.fails["memory_copy_2d"] = TB_STATUS_UNSUPPORTED;
  copy();
  EXPECT_EQ(calls(), (Calls{"memory_copy_2d", "memory_copy", "memory_copy"}));
  EXPECT_EQ(to, "ab");
}

// ---- defaults: streams and events ----

TEST_F(DeviceApiTest, SynchronousDevicesAreAlwaysReady) {
  auto& api = start(synchronous_table());
  bool called = false;
  api.stream_synchronize(0, nullptr);
  api.event_record(0, api.event_create(0, TB_EVENT_TIMING), api.stream_create(0, 0));
  api.stream_wait_event(0, nullptr, nullptr);
  api.event_synchronize(0, nullptr);
  api.stream_host_function(0, nullptr, [](void* arg) { *static_cast<bool*>(arg) = true; }, &called);
  EXPECT_TRUE(called);
  EXPECT_TRUE(api.stream_query(0, nullptr));
  EXPECT_TRUE(api.event_query(0, nullptr));
  EXPECT_EQ(api.device_synchronize(0), TB_STATUS_OK);
  EXPECT_EQ(calls(), Calls{});
}

TEST_F(DeviceApiTest, AStreamIsQueriedByAnEvent) {
  auto& api = start(asynchronous_table());
  device_.not_ready = 1; // the record itself may still be on its way
  EXPECT_TRUE(api.stream_query(0, nullptr));
  EXPECT_EQ(calls(), (Calls{"event_create", "event_record", "event_query", "event_query", "event_destroy"}));
  device_.not_ready = 1'000'000;
  EXPECT_FALSE(api.stream_query(0, nullptr));
  device_.not_ready = 0;
  EXPECT_TRUE(api.stream_query(0, nullptr));
  for (const char* slot : {"event_record", "event_query"}) {
    device_.fails = {{slot, TB_STATUS_INTERNAL}};
    EXPECT_THROWS(api.stream_query(0, nullptr), c10::AcceleratorError, std::string(slot) + " failed");
    EXPECT_EQ(calls().back(), "event_destroy");
  }
}

TEST_F(DeviceApiTest, StreamQueryOfThePlugin) {
  tb_core_table table = asynchronous_table();
  table.stream_query = [](int32_t, tb_stream*) { return query("stream_query"); };
  auto& api = start(table);
  device_.not_ready = 1;
  EXPECT_FALSE(api.stream_query(0, nullptr));
  EXPECT_TRUE(api.stream_query(0, nullptr));
  EXPECT_EQ(calls(), Calls(2, "stream_query"));
  device_.fails["stream_query"] = TB_STATUS_UNSUPPORTED;
  EXPECT_TRUE(api.stream_query(0, nullptr));
  EXPECT_EQ(calls(), (Calls{"stream_query", "event_create", "event_record", "event_query", "event_destroy"}));
}

TEST_F(DeviceApiTest, AHostFunctionRunsAfterTheStream) {
  auto& api = start(asynchronous_table());
  EXPECT_FALSE(api.has_stream_host_function());
  const auto function = [](void*) { device->calls.emplace_back("function"); };
  api.stream_host_function(0, nullptr, function, nullptr);
  EXPECT_EQ(calls(), (Calls{"stream_synchronize", "function"}));
  device_.fails["stream_synchronize"] = TB_STATUS_INTERNAL;
  EXPECT_THROWS(api.stream_host_function(0, nullptr, function, nullptr), c10::AcceleratorError, "stream_synchronize");
  EXPECT_EQ(calls(), Calls{"stream_synchronize"}) << "the caller keeps the argument of a call that throws";
}

TEST_F(DeviceApiTest, HostFunctionOfThePlugin) {
  tb_core_table table = asynchronous_table();
  table.stream_host_function = [](int32_t, tb_stream*, tb_host_function fn, void* arg) {
    const tb_status status = enter("stream_host_function");
    if (status == TB_STATUS_OK) {
      fn(arg);
    }
    return status;
  };
  auto& api = start(table);
  int count = 0;
  const auto run = [&] { api.stream_host_function(0, nullptr, [](void* arg) { ++*static_cast<int*>(arg); }, &count); };
  run();
  device_.fails["stream_host_function"] = TB_STATUS_UNSUPPORTED;
  run();
  EXPECT_EQ(calls(), (Calls{"stream_host_function", "stream_host_function", "stream_synchronize"}));
  device_.fails["stream_host_function"] = TB_STATUS_INTERNAL;
  EXPECT_THROWS(run(), c10::AcceleratorError, "stream_host_function failed");
  EXPECT_EQ(count, 2);
}

TEST_F(DeviceApiTest, AnEventIsPolled) {
  auto& api = start(asynchronous_table());
  device_.not_ready = 100;
  api.event_synchronize(0, handle<tb_event>(0x20));
  EXPECT_EQ(calls(), Calls(101, "event_query"));
  device_.fails["event_query"] = TB_STATUS_TIMEOUT;
  EXPECT_THROWS(api.event_synchronize(0, handle<tb_event>(0x20)), c10::AcceleratorError, "event_query failed");
}

TEST_F(DeviceApiTest, EventSynchronizeOfThePlugin) {
  tb_core_table table = asynchronous_table();
  table.event_synchronize = [](int32_t, tb_event*) { return enter("event_synchronize"); };
  auto& api = start(table);
  api.event_synchronize(0, nullptr);
  EXPECT_EQ(calls(), Calls{"event_synchronize"});
  device_.fails["event_synchronize"] = TB_STATUS_UNSUPPORTED;
  device_.not_ready = 2;
  api.event_synchronize(0, nullptr);
  EXPECT_EQ(calls(), (Calls{"event_synchronize", "event_query", "event_query", "event_query"}));
}

TEST_F(DeviceApiTest, TimesOfEvents) {
  EXPECT_THROWS(start(asynchronous_table()).event_elapsed(0, nullptr, nullptr), c10::NotImplementedError,
                "acme:0: the device does not time events");
  tb_core_table table = asynchronous_table();
  table.event_elapsed = [](int32_t, tb_event*, tb_event*, int64_t* out) {
    const tb_status status = query("event_elapsed");
    *out = status == TB_STATUS_OK ? 1500 : *out;
    return status;
  };
  auto& api = start(table);
  device_.not_ready = 1; // though the caller has seen that both events are complete
  EXPECT_THROWS(api.event_elapsed(0, nullptr, nullptr), c10::AcceleratorError,
                "acme:0: event_elapsed failed: not ready (NOT_READY)");
  EXPECT_EQ(api.event_elapsed(0, nullptr, nullptr), 1500);
}

// ---- defaults: the rest ----

TEST_F(DeviceApiTest, WhatTheCallerDoesItself) {
  auto& api = start(asynchronous_table());
  uint64_t free = 1;
  uint64_t total = 2;
  tb_pointer_info info{};
  EXPECT_EQ(api.memory_info(0, &free, &total), TB_STATUS_UNSUPPORTED);
  EXPECT_EQ(api.memory_query(&free, &info), TB_STATUS_UNSUPPORTED);
  EXPECT_EQ(api.device_synchronize(0), TB_STATUS_UNSUPPORTED);
  EXPECT_FALSE(api.peer_can_access(0, 1));
  EXPECT_EQ(std::pair(free, total), std::pair(uint64_t{1}, uint64_t{2}));
  EXPECT_EQ(calls(), Calls{});
}

TEST_F(DeviceApiTest, OptionalSlotsMayBeUnsupported) {
  tb_core_table table = asynchronous_table();
  table.memory_info = [](int32_t, uint64_t*, uint64_t*) { return enter("memory_info"); };
  table.memory_query = [](const void*, tb_pointer_info* out) {
    EXPECT_EQ(out->struct_size, sizeof(*out));
    return enter("memory_query");
  };
  table.device_synchronize = [](int32_t) { return enter("device_synchronize"); };
  table.peer_can_access = [](int32_t, int32_t, int32_t*) { return enter("peer_can_access"); };
  auto& api = start(table);
  for (const char* slot : {"memory_info", "memory_query", "device_synchronize", "peer_can_access"}) {
    device_.fails[slot] = TB_STATUS_UNSUPPORTED;
  }
  uint64_t bytes = 0;
  tb_pointer_info info{};
  EXPECT_EQ(api.memory_info(0, &bytes, &bytes), TB_STATUS_UNSUPPORTED);
  EXPECT_EQ(api.memory_query(&bytes, &info), TB_STATUS_UNSUPPORTED);
  EXPECT_EQ(api.device_synchronize(0), TB_STATUS_UNSUPPORTED);
  EXPECT_EQ(take_error_text(), "");
  EXPECT_FALSE(api.peer_can_access(0, 1));
  EXPECT_EQ(take_error_text(), "");
}

TEST_F(DeviceApiTest, NothingToBind) {
  tb_core_table table = synchronous_table();
  table.thread_bind = [](int32_t) { return enter("thread_bind"); };
  auto& api = start(table);
  device_.fails["thread_bind"] = TB_STATUS_UNSUPPORTED;
  EXPECT_EQ(api.properties(0).allocation_alignment_bytes, 64u);
  EXPECT_EQ(take_error_text(), "");
}

TEST_F(DeviceApiTest, MemoryTheHostMayTouch) {
  tb_core_table table = synchronous_table();
  EXPECT_THROWS(start(table).memory_map(0, nullptr, 1, TB_MAP_READ), c10::NotImplementedError,
                "acme:0: the host cannot access this device's memory");
  table.memory_map = [](int32_t, void*, uint64_t, uint32_t) { return enter("memory_map"); };
  table.memory_unmap = [](int32_t, void*, uint64_t, uint32_t) { return enter("memory_unmap"); };
  device_.capabilities = TB_CAP_HOST_ACCESS;
  auto& mapped = start(table);
  mapped.memory_map(0, nullptr, 1, TB_MAP_READ);
  mapped.memory_unmap(0, nullptr, 1, TB_MAP_READ);
  EXPECT_EQ(calls(), (Calls{"memory_map", "memory_unmap"}));
  device_.capabilities |= TB_CAP_HOST_COHERENT;
  auto& coherent = start(table);
  coherent.memory_map(0, nullptr, 1, TB_MAP_READ);
  coherent.memory_unmap(0, nullptr, 1, TB_MAP_READ);
  EXPECT_EQ(calls(), Calls{});
}

TEST_F(DeviceApiTest, WhatIsNotOfferedIsRefused) {
  auto& api = start(synchronous_table());
  tb_ipc_handle handle{};
  EXPECT_THROWS(api.host_register(&handle, 1), c10::NotImplementedError, "acme cannot page-lock existing host memory");
  EXPECT_THROWS(api.host_unregister(&handle), c10::NotImplementedError, "cannot page-lock existing host memory");
  EXPECT_THROWS(api.ipc_export(0, &handle, &handle), c10::NotImplementedError, "cannot share device memory between");
  EXPECT_THROWS(api.ipc_import(0, handle), c10::NotImplementedError, "cannot share device memory between processes");
  api.ipc_close(0, &handle);
}

TEST_F(DeviceApiTest, PeersOfThePlugin) {
  tb_core_table table = synchronous_table();
  table.peer_can_access = [](int32_t index, int32_t peer, int32_t* out) {
    *out = index < peer;
    return enter("peer_can_access");
  };
  auto& api = start(table);
  EXPECT_TRUE(api.peer_can_access(0, 1));
  EXPECT_FALSE(api.peer_can_access(1, 0));
  EXPECT_FALSE(api.peer_can_access(1, 1)) << "not a peer of itself";
  EXPECT_EQ(calls(), Calls(2, "peer_can_access"));
}

TEST_F(DeviceApiTest, ThreadsAreBoundWhenTheirDeviceChanges) {
  tb_core_table table = synchronous_table();
  table.thread_bind = [](int32_t index) { return enter(index == 0 ? "bind 0" : "bind 1"); };
  auto& api = start(table);
  char byte = 0;
  const auto use = [&](int index) { api.memory_copy(index, &byte, -1, "", 1, TB_COPY_HOST_TO_DEVICE, nullptr); };
  use(1);
  use(1);
  use(0);
  EXPECT_EQ(calls(), (Calls{"bind 1", "memory_copy", "memory_copy", "bind 0", "memory_copy"}));
  std::thread([&] { use(0); }).join();
  EXPECT_EQ(calls(), (Calls{"bind 0", "memory_copy"}));
  device_.fails["bind 1"] = TB_STATUS_INTERNAL;
  EXPECT_THROWS(use(1), c10::AcceleratorError, "acme:1: thread_bind failed: internal error");
  device_.fails.clear();
  calls();
  use(1);
  EXPECT_EQ(calls(), (Calls{"bind 1", "memory_copy"}));
}

/// Every slot of the core table that names a device, with nothing but its call.
tb_core_table full_table() {
  tb_core_table table = asynchronous_table();
  table.thread_bind = [](int32_t index) { return enter(index == 0 ? "bind 0" : "bind 1"); };
  table.device_synchronize = [](int32_t) { return enter("device_synchronize"); };
  table.memory_info = [](int32_t, uint64_t*, uint64_t*) { return enter("memory_info"); };
  table.memory_fill = [](int32_t, void*, const void*, uint32_t, uint64_t, tb_stream*) { return enter("memory_fill"); };
  table.memory_copy_2d = [](int32_t, void*, uint64_t, const void*, uint64_t, uint64_t, uint64_t, uint32_t, tb_stream*) {
    return enter("memory_copy_2d");
  };
  table.memory_map = [](int32_t, void*, uint64_t, uint32_t) { return enter("memory_map"); };
  table.memory_unmap = [](int32_t, void*, uint64_t, uint32_t) { return enter("memory_unmap"); };
  table.stream_query = [](int32_t, tb_stream*) { return enter("stream_query"); };
  table.stream_host_function = [](int32_t, tb_stream*, tb_host_function, void*) {
    return enter("stream_host_function");
  };
  table.event_synchronize = [](int32_t, tb_event*) { return enter("event_synchronize"); };
  table.event_elapsed = [](int32_t, tb_event*, tb_event*, int64_t*) { return enter("event_elapsed"); };
  table.peer_can_access = [](int32_t, int32_t, int32_t*) { return enter("peer_can_access"); };
  table.ipc_export = [](int32_t, void*, tb_ipc_handle*) { return enter("ipc_export"); };
  table.ipc_import = [](int32_t, const tb_ipc_handle*, void** out) {
    *out = handle<void>(0x1000);
    return enter("ipc_import");
  };
  table.ipc_close = [](int32_t, void*) { return enter("ipc_close"); };
  device->capabilities |= TB_CAP_HOST_ACCESS;
  return table;
}

TEST_F(DeviceApiTest, EverySlotIsCalledWithItsDeviceBound) {
  auto& api = start(full_table());
  char byte = 0;
  void* out = nullptr;
  uint64_t bytes = 0;
  tb_ipc_handle ipc{};
  auto* const stream = handle<tb_stream>(0x10);
  auto* const event = handle<tb_event>(0x20);
  const std::map<std::string, std::function<void()>> uses = {
      {"memory_allocate", [&] { api.memory_allocate(0, TB_MEMORY_DEVICE, 1, nullptr, &out); }},
      {"memory_free", [&] { api.memory_free(0, TB_MEMORY_DEVICE, &byte, 1, nullptr); }},
      {"memory_copy", [&] { api.memory_copy(1, &byte, 0, "", 1, TB_COPY_PEER, nullptr); }},
      {"memory_fill", [&] { api.memory_fill(0, &byte, "", 1, 1, nullptr); }},
      {"memory_copy_2d", [&] { api.memory_copy_2d(0, &byte, 1, "", 1, 1, 1, TB_COPY_HOST_TO_DEVICE, nullptr); }},
      {"memory_info", [&] { api.memory_info(0, &bytes, &bytes); }},
      {"memory_map", [&] { api.memory_map(0, &byte, 1, TB_MAP_READ); }},
      {"memory_unmap", [&] { api.memory_unmap(0, &byte, 1, TB_MAP_READ); }},
      {"stream_create", [&] { api.stream_create(0, 0); }},
      {"stream_destroy", [&] { api.stream_destroy(0, stream); }},
      {"stream_synchronize", [&] { api.stream_synchronize(0, stream); }},
      {"stream_wait_event", [&] { api.stream_wait_event(0, stream, event); }},
      {"stream_query", [&] { api.stream_query(0, stream); }},
      {"stream_host_function", [&] { api.stream_host_function(0, stream, [](void*) {}, nullptr); }},
      {"event_create", [&] { api.event_create(0, 0); }},
      {"event_destroy", [&] { api.event_destroy(0, event); }},
      {"event_record", [&] { api.event_record(0, event, stream); }},
      {"event_query", [&] { api.event_query(0, event); }},
      {"event_synchronize", [&] { api.event_synchronize(0, event); }},
      {"event_elapsed", [&] { api.event_elapsed(0, event, event); }},
      {"device_synchronize", [&] { api.device_synchronize(0); }},
      {"peer_can_access", [&] { api.peer_can_access(0, 1); }},
      {"ipc_export", [&] { api.ipc_export(0, &byte, &ipc); }},
      {"ipc_import", [&] { api.ipc_import(0, ipc); }},
      {"ipc_close", [&] { api.ipc_close(0, &byte); }},
      {"of another table", [&] { api.call(0, "slot", [](int) { return enter("of another table"); }, 0); }},
      {"that cleans up", [&] { api.clean_up(0, "slot", [](int) { return enter("that cleans up"); }, 0); }},
  };
  for (const auto& [slot, use] : uses) {
    api.event_query(1, event);
    calls();
    use();
    EXPECT_EQ(calls(), (Calls{"bind 0", slot}));
  }
}

TEST_F(DeviceApiTest, WhatCannotBeBoundIsNotCleanedUp) {
  auto& api = start(full_table());
  device_.fails["bind 0"] = TB_STATUS_INTERNAL;
  api.memory_free(0, TB_MEMORY_DEVICE, nullptr, 1, nullptr);
  EXPECT_EQ(calls(), Calls{"bind 0"});
}

TEST_F(DeviceApiTest, ASlotGetsItsDeviceBackAfterACallOfTheCore) {
  auto& api = start(full_table());
  const auto kernel = [](DeviceApi* api) {
    api->event_query(1, handle<tb_event>(0x20)); // as the allocator does for memory that another device used
    const tb_status status = api->bind_again(0);
    return status == TB_STATUS_OK ? enter("rest of the kernel") : status;
  };
  api.call(0, "kernel", kernel, &api);
  EXPECT_EQ(calls(), (Calls{"bind 0", "bind 1", "event_query", "bind 0", "rest of the kernel"}));
}

// ---- answers that cannot be ----

TEST_F(DeviceApiTest, OkWithoutAResultIsAFault) {
  tb_core_table table = full_table();
  table.memory_allocate = [](int32_t, uint32_t, uint64_t, tb_stream*, void**) { return enter("memory_allocate"); };
  table.stream_create = [](int32_t, int32_t, tb_stream**) { return enter("stream_create"); };
  table.event_create = [](int32_t, uint32_t, tb_event**) { return enter("event_create"); };
  table.ipc_import = [](int32_t, const tb_ipc_handle*, void**) { return enter("ipc_import"); };
  auto& api = start(table);
  void* out = nullptr;
  EXPECT_THROWS(
      api.memory_allocate(0, TB_MEMORY_DEVICE, 1, nullptr, &out), c10::AcceleratorError,
      "acme:0: memory_allocate failed: internal error (INTERNAL): it returned TB_STATUS_OK and left *out_ptr");
  EXPECT_THROWS(api.stream_create(0, 0), c10::AcceleratorError, "left *out_stream NULL; see stream_create in");
  EXPECT_THROWS(api.event_create(0, 0), c10::AcceleratorError, "left *out_event NULL; see event_create in");
  EXPECT_THROWS(api.ipc_import(0, {}), c10::AcceleratorError, "left *out_ptr NULL; see ipc_import in");
}

TEST_F(DeviceApiTest, MemoryThatIsNotAlignedIsGivenBack) {
  device_.alignment = 0x2000;
  auto& api = start(synchronous_table());
  void* out = nullptr;
  EXPECT_THROWS(api.memory_allocate(0, TB_MEMORY_DEVICE, 1, nullptr, &out), c10::AcceleratorError,
                "it gave 0x1000, which is not aligned to the 8192 bytes of allocation_alignment_bytes");
  EXPECT_EQ(calls(), (Calls{"memory_allocate", "memory_free"}));
  EXPECT_EQ(out, nullptr);
}

TEST_F(DeviceApiTest, AnswersAboutMemoryAreChecked) {
  tb_core_table table = full_table();
  table.memory_info = [](int32_t, uint64_t* free, uint64_t* total) {
    *free = 2;
    *total = 1;
    return enter("memory_info");
  };
  table.memory_query = [](const void*, tb_pointer_info* info) {
    info->device = 7;
    return enter("memory_query");
  };
  auto& api = start(table);
  uint64_t bytes = 0;
  tb_pointer_info info{};
  EXPECT_THROWS(api.memory_info(0, &bytes, &bytes), c10::AcceleratorError, "it says that 2 of 1 bytes are free");
  EXPECT_THROWS(api.memory_query(&bytes, &info), c10::AcceleratorError, "of device 7; there are 2 devices");
}

TEST_F(DeviceApiTest, SlotsThatPointAtData) {
  static int data = 0;
  tb_core_table table = synchronous_table();
  table.memory_info = reinterpret_cast<decltype(table.memory_info)>(&data);
  EXPECT_THROWS(DeviceApi("acme", table), c10::ValueError, "the slot memory_info points at 0x");
  table.memory_info = reinterpret_cast<decltype(table.memory_info)>(uintptr_t{0x10});
  EXPECT_THROWS(DeviceApi("acme", table), c10::ValueError, "points at 0x10, where there is no code");
}

TEST_F(DeviceApiTest, TextsThatAreNoUtf8) {
  auto& api = start(synchronous_table());
  device_.fails["memory_allocate"] = TB_STATUS_INTERNAL;
  device_.text = "caf\xe9 \xf0\x9f\x98\x80 \xed\xa0\x80 \xc0\xaf";
  void* out = nullptr;
  EXPECT_THROWS(api.memory_allocate(0, TB_MEMORY_DEVICE, 1, nullptr, &out), c10::AcceleratorError,
                "caf\xef\xbf\xbd \xf0\x9f\x98\x80 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd");
}

// ---- lost devices ----

TEST_F(DeviceApiTest, ALostDeviceIsNotCalledAgain) {
  auto& api = start(asynchronous_table());
  device_.fails["stream_synchronize"] = TB_STATUS_DEVICE_LOST;
  EXPECT_THROWS(api.stream_synchronize(1, nullptr), c10::AcceleratorError,
                "acme:1: stream_synchronize failed: device lost (DEVICE_LOST): it was told to");
  device_.fails.clear();
  EXPECT_TRUE(api.is_lost(1));
  EXPECT_FALSE(api.is_lost(0));
  calls();
  char byte = 0;
  void* out = nullptr;
  uint64_t bytes = 0;
  const auto earlier = [](const char* slot) {
    return "acme:1: " + std::string(slot) + " failed: device lost (DEVICE_LOST): an earlier call reported that";
  };
#define EXPECT_LOST(slot, ...) EXPECT_THROWS(api.slot(__VA_ARGS__), c10::AcceleratorError, earlier(#slot))
  EXPECT_LOST(memory_allocate, 1, TB_MEMORY_DEVICE, 1, nullptr, &out);
  EXPECT_LOST(memory_copy, 1, &byte, -1, &byte, 1, TB_COPY_HOST_TO_DEVICE, nullptr);
  EXPECT_LOST(memory_copy, 1, &byte, 0, &byte, 1, TB_COPY_PEER, nullptr);
  EXPECT_LOST(memory_copy, 0, &byte, 1, &byte, 1, TB_COPY_PEER, nullptr);
  EXPECT_LOST(memory_fill, 1, &byte, &byte, 1, 1, nullptr);
  EXPECT_LOST(memory_copy_2d, 1, &byte, 1, &byte, 1, 1, 1, TB_COPY_HOST_TO_DEVICE, nullptr);
  EXPECT_LOST(memory_info, 1, &bytes, &bytes);
  EXPECT_LOST(memory_map, 1, &byte, 1, TB_MAP_READ);
  EXPECT_LOST(stream_create, 1, 0);
  EXPECT_LOST(stream_synchronize, 1, nullptr);
  EXPECT_LOST(stream_wait_event, 1, nullptr, nullptr);
  EXPECT_LOST(stream_query, 1, nullptr);
  EXPECT_LOST(stream_host_function, 1, nullptr, [](void*) { ADD_FAILURE(); }, nullptr);
  EXPECT_LOST(event_create, 1, 0);
  EXPECT_LOST(event_record, 1, nullptr, nullptr);
  EXPECT_LOST(event_query, 1, nullptr);
  EXPECT_LOST(event_synchronize, 1, nullptr);
  EXPECT_LOST(event_elapsed, 1, nullptr, nullptr);
  EXPECT_LOST(device_synchronize, 1);
  EXPECT_LOST(peer_can_access, 1, 0);
#undef EXPECT_LOST
  api.memory_free(1, TB_MEMORY_DEVICE, nullptr, 1, nullptr);
  api.stream_destroy(1, nullptr);
  api.event_destroy(1, handle<tb_event>(0x20));
  EXPECT_EQ(calls(), Calls{});
  api.stream_synchronize(0, nullptr);
  EXPECT_EQ(calls(), Calls{"stream_synchronize"});
}

TEST_F(DeviceApiTest, EveryCallMayReportTheLoss) {
  tb_core_table table = asynchronous_table();
  table.memory_info = [](int32_t, uint64_t*, uint64_t*) { return enter("memory_info"); };
  for (const char* slot : {"memory_allocate", "memory_free", "memory_info", "event_query", "event_destroy"}) {
    auto& api = start(table);
    device_.fails = {{slot, TB_STATUS_DEVICE_LOST}};
    try {
      void* out = nullptr;
      uint64_t bytes = 0;
      api.memory_free(0, TB_MEMORY_DEVICE, nullptr, 1, nullptr);
      api.event_destroy(0, handle<tb_event>(0x20));
      api.event_query(0, nullptr);
      api.memory_info(0, &bytes, &bytes);
      api.memory_allocate(0, TB_MEMORY_DEVICE, 1, nullptr, &out);
    } catch (const c10::AcceleratorError& error) {
      EXPECT_EQ(error.get_error_code(), TB_STATUS_DEVICE_LOST);
    }
    device_.fails.clear();
    EXPECT_TRUE(api.is_lost(0)) << slot;
  }
}

// ---- forks ----

TEST_F(DeviceApiTest, AForkedChildIsRefused) {
  auto& api = start(asynchronous_table());
  api.after_fork_in_child(); // as in the child
  EXPECT_TRUE(api.in_bad_fork());
  void* out = nullptr;
  for (const int index : {0, 1, 7}) {
    EXPECT_THROWS(api.memory_allocate(index, TB_MEMORY_DEVICE, 1, nullptr, &out), c10::Error,
                  "Cannot use acme in a forked process: the driver does not survive a fork. To use acme with "
                  "multiprocessing, use the 'spawn' start method");
  }
  EXPECT_EQ(api.device_count(), 2);
  api.memory_free(0, TB_MEMORY_DEVICE, nullptr, 1, nullptr);
  api.event_destroy(0, handle<tb_event>(0x20));
  api.stream_destroy(0, nullptr);
  EXPECT_EQ(calls(), Calls{});
}

TEST_F(DeviceApiTest, AForkBeforeTheStartChangesNothing) {
  DeviceApi api("acme", synchronous_table());
  EXPECT_EQ(api.device_count(), 2);
  api.after_fork_in_child();
  EXPECT_FALSE(api.in_bad_fork());
  EXPECT_NO_THROW(api.properties(0));
}

} // namespace
} // namespace torch_backend
