#include "options.h"

namespace npu {
namespace {
options settled;
}

const options& settings() {
  return settled;
}

const char* const* option_keys() {
  static const char* const keys[] = {"path", nullptr};
  return keys;
}

void read_options() {
  const char* text = host().option("npu.path");
  settled.path = text ? text : "";
}

} // namespace npu
