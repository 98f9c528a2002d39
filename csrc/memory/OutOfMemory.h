// What an out-of-memory error says.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace torch_backend {

struct OutOfMemoryReport {
  std::string device; // "xcpu:0"
  std::string module; // "xcpu": torch.<module> is where the user finds the functions the text names
  std::size_t requested = 0;
  std::optional<std::size_t> largest_request; // that the device can serve in one piece, if this one was larger
  std::size_t device_total = 0;               // 0 = unknown
  std::optional<std::size_t> device_free;     // by the driver
  std::size_t allocated = 0;                  // by tensors
  std::size_t reserved = 0;                   // from the plugin
  std::size_t private_pools = 0;              // part of reserved
  std::optional<std::size_t> limit;           // of set_per_process_memory_fraction
  bool limit_hit = false;                     // the plugin was not even asked
  std::string plugin_text;
};

std::string out_of_memory_text(const OutOfMemoryReport& report);

} // namespace torch_backend
