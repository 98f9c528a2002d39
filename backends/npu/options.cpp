#include "options.h"

#include <cstring>

namespace npu {
namespace {
options settled;
}

const options& settings() {
  return settled;
}

const char* const* option_keys() {
  static const char* const keys[] = {"path", "hf32", nullptr};
  return keys;
}

result read_options() {
  options o;
  if (const char* text = host().option("npu.path")) o.path = text;
  // Empty counts as not set, so that a variable can be blanked.
  if (const char* text = host().option("npu.hf32"); text && *text) {
    if (std::strcmp(text, "0") != 0 && std::strcmp(text, "1") != 0)
      return failure(TB_STATUS_INVALID_ARGUMENT, "npu.hf32 is \"%s\"; expected one of: 0, 1", text);
    o.hf32 = *text == '1';
  }
  settled = o;
  return {};
}

} // namespace npu
