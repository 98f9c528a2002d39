// What lies at the addresses that a plugin gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace torch_backend {

/// The process's memory as it is mapped when the object is made. A wrong size in a table makes what lies behind it look
/// like slots; to call one would end the process. Says yes to everything where the system does not tell.
class AddressSpace {
 public:
  AddressSpace();

  /// Whether `address` may be called.
  bool is_code(const void* address) const;
  /// Whether all of these bytes may be read.
  bool is_readable(const void* address, std::size_t size_bytes) const;
  /// Whether a C string starts there and ends before memory does.
  bool is_string(const char* address) const;

 private:
  struct Range {
    uintptr_t begin, end;
  };
  /// How many bytes of `ranges` follow from `address` on.
  static std::size_t extent(const std::vector<Range>& ranges, const void* address);

  bool known_ = false;
  std::vector<Range> code_; // both in order, adjacent ranges joined
  std::vector<Range> readable_;
};

} // namespace torch_backend
