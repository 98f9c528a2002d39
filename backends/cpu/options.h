// The user's settings, "xcpu.<key>", read once at load. README.md lists them.
#pragma once

#include <cstdint>

#include "result.h"

namespace xcpu {

struct delay_range {
  uint32_t low_us = 0, high_us = 0;
};

// How modules run the items of a block: none is offered, one item has all its block's work, or many wait for each other.
enum class modules_mode { off, in_order, side_by_side };

struct options {
  int32_t devices = 2;
  uint64_t memory_bytes = 0; // of each device; the machine's memory unless set
  bool async = false;
  bool protect = false;
  bool ipc = false;
  bool virtual_memory = true;
  delay_range delay;
  bool ccl = false;
  modules_mode modules = modules_mode::off;
  bool races = false;
  bool compiler = true; // else modules are loaded from images alone
  uint32_t threads = 1; // that run the blocks of one launch

  bool has_modules() const {
    return modules != modules_mode::off;
  }
};

// Settled by read_options; constant afterwards.
const options& settings();

// The keys there are, for tb_plugin.
const char* const* option_keys();

// On failure nothing is settled and the text says what is allowed.
result read_options();

} // namespace xcpu
