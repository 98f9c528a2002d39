// Whether a table of a plugin can be used.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "csrc/core/AddressSpace.h"

namespace torch_backend {

/// Collects every fault of a table, so that a vendor sees all of them at once.
class TableCheck {
 public:
  using Slots = std::initializer_list<std::pair<const char*, const void*>>;

  /// A copy of the table at `offered`, as far as the plugin has filled it: the rest is zero, and struct_size ours. All zero,
  /// and a fault, where there is no memory, or less than `least_bytes` are filled.
  template <typename Table>
  Table read(const void* offered, uint64_t least_bytes = sizeof(uint64_t)) {
    Table table{};
    read(offered, &table, sizeof(table), least_bytes);
    table.struct_size = sizeof(table);
    return table;
  }

  /// Each is set.
  void require(Slots slots);
  /// They make sense only together; `why` says so.
  void all_or_none(Slots slots, const char* why);
  /// What is set points at code.
  void are_code(Slots slots);
  void add(std::string fault) {
    faults_.push_back(std::move(fault));
  }

  /// Throws ValueError, naming the faults, if there are any. `table`: "The core table of plugin 'acme'".
  void raise(const std::string& table) const;

  const AddressSpace& memory() const {
    return memory_;
  }

 private:
  void read(const void* offered, void* out_table, uint64_t size_bytes, uint64_t least_bytes);

  AddressSpace memory_;
  std::vector<std::string> faults_;
};

/// A slot for TableCheck::Slots.
#define TB_SLOT(table, slot) {#slot, reinterpret_cast<const void*>((table).slot)}
/// Slots of `table` for it, by the lists of slots.h: {TB_CORE_SLOTS(TB_LIST_SLOT)}.
#define TB_LIST_SLOT(slot) TB_SLOT(table, slot),

} // namespace torch_backend
