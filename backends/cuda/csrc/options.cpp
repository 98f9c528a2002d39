#include "options.h"

namespace xcuda {
namespace {

options settled;

// Empty counts as not set, so that a variable can be blanked.
result read_switch(const char* key, bool* out_value) {
  const char* set = host().option(key);
  const std::string text = set ? set : "";
  if (text == "0" || text == "1") *out_value = text == "1";
  if (text.empty() || text == "0" || text == "1") return {};
  return failure(TB_STATUS_INVALID_ARGUMENT, "%s is \"%s\"; expected one of: 0, 1", key, set);
}

} // namespace

const options& settings() {
  return settled;
}

const char* const* option_keys() {
  static const char* const keys[] = {"library_path", "fmad", "stream_alloc", nullptr};
  return keys;
}

result read_options() {
  options o;
  if (const char* text = host().option("xcuda.library_path")) o.library_path = text;
  result r = read_switch("xcuda.fmad", &o.fmad);
  if (r.ok()) r = read_switch("xcuda.stream_alloc", &o.stream_alloc);
  if (r.ok()) settled = o;
  return r;
}

} // namespace xcuda
