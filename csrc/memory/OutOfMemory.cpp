#include "csrc/memory/OutOfMemory.h"

#include <sstream>

#include <c10/core/Allocator.h>

namespace torch_backend {

std::string out_of_memory_text(const OutOfMemoryReport& report) {
  using c10::CachingAllocator::format_size;
  const std::size_t unallocated = report.reserved - report.allocated;
  std::ostringstream text;
  text << report.device << " out of memory. Tried to allocate " << format_size(report.requested) << ". ";
  if (report.largest_request) {
    text << "The device gives at most " << format_size(*report.largest_request)
         << " in one piece (max_allocation_bytes), however much is free: use smaller tensors. ";
  }
  if (report.device_total > 0) {
    text << "The device has a total capacity of " << format_size(report.device_total);
    if (report.device_free) {
      text << ", of which " << format_size(*report.device_free) << " is free";
    }
    text << ". ";
  }
  text << "This process holds " << format_size(report.reserved) << ": " << format_size(report.allocated)
       << " allocated by PyTorch, and " << format_size(unallocated) << " reserved by PyTorch but unallocated";
  if (report.private_pools > 0) {
    text << " (" << format_size(report.private_pools) << " of all of it in private pools, e.g. of graphs)";
  }
  text << ". ";
  if (report.limit) {
    text << "torch." << report.module << ".set_per_process_memory_fraction limits this process to "
         << format_size(*report.limit) << (report.limit_hit ? ", which this request would exceed. " : ". ");
  }
  if (unallocated > report.requested) {
    text << "If the unallocated memory is large, it may be fragmented: set PYTORCH_ALLOC_CONF=expandable_segments:True "
            "if the device offers it, else max_split_size_mb:<n>, or call torch."
         << report.module << ".memory.empty_cache() where memory use is low. ";
  }
  text << "torch." << report.module << ".memory_summary() shows what holds it, torch." << report.module
       << ".memory._record_memory_history() where it was allocated.";
  if (!report.plugin_text.empty()) {
    text << " The device says: " << report.plugin_text;
  }
  return text.str();
}

} // namespace torch_backend
