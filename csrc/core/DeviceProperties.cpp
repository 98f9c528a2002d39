#include "csrc/core/DeviceProperties.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/DType.h"
#include "csrc/core/Status.h"
#include "csrc/core/Text.h"

namespace torch_backend {
namespace {

constexpr uint64_t kMinAlignmentBytes = 64;
constexpr uint64_t kMaxAlignmentBytes = uint64_t{1} << 30;
constexpr uint64_t kMaxMemoryBytes = uint64_t{1} << 56; // no machine addresses more

/// The struct of the first minor version.
constexpr uint64_t kFirstSize =
    offsetof(tb_device_properties, driver_version) + sizeof(tb_device_properties::driver_version);

/// What a plugin must leave alone, right behind the struct that it fills.
constexpr std::size_t kGuardBytes = 256;
constexpr unsigned char kGuard = 0xA5;

struct Answer {
  tb_device_properties properties{};
  unsigned char guard[kGuardBytes];
};

using Faults = std::vector<std::string>;

bool is_power_of_two(uint64_t value) {
  return value != 0 && (value & (value - 1)) == 0;
}

void check_sizes(const tb_device_properties& properties, Faults& faults) {
  const uint64_t alignment = properties.allocation_alignment_bytes;
  if (!is_power_of_two(alignment) || alignment < kMinAlignmentBytes || alignment > kMaxAlignmentBytes) {
    faults.push_back(c10::str("an allocation alignment of ", alignment,
                              " bytes; it must be a power of two, at least 64 and at most 1 GiB"));
  }
  const uint64_t granularity = properties.allocation_granularity_bytes;
  if (granularity != 0 && (!is_power_of_two(granularity) || granularity > kMaxAlignmentBytes)) {
    faults.push_back(c10::str("an allocation granularity of ", granularity,
                              " bytes; it must be a power of two, or 0, and at most 1 GiB"));
  }
  const uint64_t memory = properties.total_memory_bytes;
  if (memory > kMaxMemoryBytes) {
    faults.push_back(
        c10::str("a total memory of ", memory, " bytes; it must be the size of the memory, or 0 if that is unknown"));
  }
  const uint64_t largest = properties.max_allocation_bytes;
  if (memory != 0 && largest > memory) {
    faults.push_back(c10::str("a max_allocation_bytes of ", largest, " with a total memory of ", memory,
                              " bytes; 0 means as much as there is"));
  }
  const uint64_t commit = properties.commit_granularity_bytes;
  const bool is_virtual = (properties.capabilities & TB_CAP_VIRTUAL_MEMORY) != 0;
  if (is_virtual ? !is_power_of_two(commit) || commit > kMaxAlignmentBytes : commit != 0) {
    faults.push_back(
        c10::str("a commit_granularity_bytes of ", commit, is_virtual ? " with" : " without",
                 " TB_CAP_VIRTUAL_MEMORY; it must be a power of two and at most 1 GiB with it, and 0 without"));
  }
  if (largest != 0 && largest < granularity) {
    faults.push_back(c10::str("a max_allocation_bytes of ", largest, " with an allocation granularity of ", granularity,
                              " bytes; nothing could be allocated"));
  }
}

/// What modules are launched with.
void check_limits(const tb_device_properties& properties, Faults& faults) {
  uint64_t room = 1;
  for (const uint64_t side : properties.max_block) {
    room = side == 0 || room > UINT64_MAX / side ? UINT64_MAX : room * side;
  }
  const uint64_t items = properties.max_block_items;
  if (items > room) {
    faults.push_back(c10::str("max_block_items of ", items, " with a max_block that has room for ", room));
  }
  if (items != 0 && properties.preferred_block_items > items) {
    faults.push_back(
        c10::str("preferred_block_items of ", properties.preferred_block_items, " with max_block_items of ", items));
  }
}

void check_numbers(const tb_device_properties& properties, Faults& faults) {
  const auto at_least = [&](int32_t value, int32_t least, const char* field) {
    if (value < least) {
      faults.push_back(c10::str("a ", field, " of ", value, "; it must be at least ", least));
    }
  };
  at_least(properties.capability_major, 0, "capability_major");
  at_least(properties.capability_minor, 0, "capability_minor");
  at_least(properties.multiprocessor_count, 0, "multiprocessor_count");
  at_least(properties.warp_size, 1, "warp_size");
  at_least(properties.numa_node, -1, "numa_node");
  if (properties.stream_priority_lowest < properties.stream_priority_highest) {
    faults.push_back(c10::str("stream priorities from ", properties.stream_priority_lowest, " (lowest) to ",
                              properties.stream_priority_highest,
                              " (highest); lower numbers are served first, so the highest must not be the larger one"));
  }
}

void check_texts(const tb_device_properties& properties, Faults& faults) {
  const auto ends = [&](const char* text, std::size_t room, const char* field) {
    if (::strnlen(text, room) == room) {
      faults.push_back(c10::str(field, " that does not end with a NUL within its ", room, " bytes"));
    }
  };
  ends(properties.name, sizeof(properties.name), "a name");
  ends(properties.arch, sizeof(properties.arch), "an arch");
  ends(properties.driver_version, sizeof(properties.driver_version), "a driver_version");
  if (properties.name[0] == '\0') {
    faults.emplace_back("an empty name");
  }
}

void check_dtypes(const tb_device_properties& properties, Faults& faults) {
  if (scalar_types_in(properties.dtype_mask) == 0) {
    faults.emplace_back("a dtype_mask without a dtype that PyTorch has; all zero means every dtype");
  }
  const auto& computed = properties.compute_dtype_mask;
  const uint64_t types = scalar_types_in(computed);
  if (types == 0) {
    faults.emplace_back("a compute_dtype_mask without a dtype that PyTorch has; all zero means all that are stored");
  }
  const bool says_some = std::any_of(std::begin(computed), std::end(computed), [](auto word) { return word != 0; });
  if (says_some && (types & ~scalar_types_in(properties.dtype_mask)) != 0) {
    faults.emplace_back("a compute_dtype_mask with dtypes that are not in dtype_mask: they are not even stored");
  }
}

/// Flags stand for slots that the core then calls.
void check_slots(const tb_device_properties& properties, const tb_core_table& table, Faults& faults) {
  const auto has = [&](uint64_t flag) { return (properties.capabilities & flag) != 0; };
  const auto refuse_if = [&](bool wrong, const char* what) {
    if (wrong) {
      faults.emplace_back(what);
    }
  };
  const bool async = table.stream_create != nullptr;
  refuse_if(has(TB_CAP_ASYNC) && !async, "TB_CAP_ASYNC is declared but the eight stream and event slots are not set");
  refuse_if(!has(TB_CAP_ASYNC) && async, "the stream and event slots are set but TB_CAP_ASYNC is not declared");
  refuse_if(has(TB_CAP_EVENT_TIMING) && !table.event_elapsed,
            "TB_CAP_EVENT_TIMING is declared but the slot event_elapsed is not set");
  refuse_if(has(TB_CAP_IPC) && !table.ipc_export, "TB_CAP_IPC is declared but the ipc slots are not set");
  refuse_if(has(TB_CAP_VIRTUAL_MEMORY) && !table.address_reserve,
            "TB_CAP_VIRTUAL_MEMORY is declared but address_reserve and the slots after it are not set");
  refuse_if(has(TB_CAP_HOST_COHERENT) && !has(TB_CAP_HOST_ACCESS),
            "TB_CAP_HOST_COHERENT is declared without TB_CAP_HOST_ACCESS, which it is about");
  refuse_if(has(TB_CAP_HOST_ACCESS) && !has(TB_CAP_HOST_COHERENT) && !table.memory_map,
            "TB_CAP_HOST_ACCESS without TB_CAP_HOST_COHERENT needs the slots memory_map and memory_unmap");
}

/// All of a faulty answer is told at once.
void check(const Answer& answer, const tb_core_table& table, const std::string& where) {
  const auto& properties = answer.properties;
  TORCH_CHECK(std::all_of(std::begin(answer.guard), std::end(answer.guard), [](auto byte) { return byte == kGuard; }),
              where, ": device_properties wrote past the ", sizeof(properties),
              " bytes that the caller's struct_size allows. Fill no more than that.");
  TORCH_CHECK(properties.struct_size >= kFirstSize && properties.struct_size <= sizeof(properties), where,
              ": device_properties says with struct_size that it has filled ", properties.struct_size,
              " bytes; the caller has room for ", sizeof(properties), ", and device ABI ", TB_ABI_MAJOR, ".0 has ",
              kFirstSize, ". Set struct_size to what was filled.");
  Faults faults;
  check_texts(properties, faults);
  check_sizes(properties, faults);
  check_numbers(properties, faults);
  check_limits(properties, faults);
  check_dtypes(properties, faults);
  check_slots(properties, table, faults);
  TORCH_CHECK(faults.empty(), where, ": device_properties reports what cannot be: ", c10::Join("; ", faults),
              ". See tb_device_properties in torch_backend/device.h.");
}

template <std::size_t room>
void make_utf8(char (&text)[room]) {
  std::string valid = as_utf8(text, room);
  while (valid.size() >= room || valid != as_utf8(valid)) { // what replaces a byte is longer than it
    valid.pop_back();
  }
  std::memset(text, 0, room);
  std::memcpy(text, valid.data(), valid.size());
}

} // namespace

tb_device_properties read_properties(const tb_core_table& table, const std::string& plugin, int device) {
  Answer answer;
  answer.properties.struct_size = sizeof(answer.properties);
  std::fill(std::begin(answer.guard), std::end(answer.guard), kGuard);
  const tb_status status = table.device_properties(device, &answer.properties);
  if (status != TB_STATUS_OK) {
    throw_status(status, plugin, "device_properties", device);
  }
  check(answer, table, c10::str(plugin, ":", device));
  auto properties = answer.properties;
  properties.capabilities &= kKnownCapabilities;
  make_utf8(properties.name);
  make_utf8(properties.arch);
  make_utf8(properties.driver_version);
  return properties;
}

} // namespace torch_backend
