#include "options.h"

#include <array>
#include <iterator>

namespace xcuda {
namespace {

options settled;

struct option_switch {
  const char* key;
  bool options::* value;
};

constexpr option_switch kSwitches[] = {
    {"xcuda.fmad", &options::fmad},
    {"xcuda.stream_alloc", &options::stream_alloc},
};
constexpr size_t kPrefixLength = sizeof "xcuda." - 1;

// Empty counts as not set, so that a variable can be blanked.
result read_switch(const option_switch& s, options* o) {
  const char* set = host().option(s.key);
  const std::string text = set ? set : "";
  if (text == "0" || text == "1") o->*s.value = text == "1";
  if (text.empty() || text == "0" || text == "1") return {};
  return failure(TB_STATUS_INVALID_ARGUMENT, "%s is \"%s\"; expected one of: 0, 1", s.key, set);
}

} // namespace

const options& settings() {
  return settled;
}

const char* const* option_keys() {
  static const auto keys = [] {
    std::array<const char*, std::size(kSwitches) + 2> all{"library_path"}; // and a null behind them
    for (size_t i = 0; i < std::size(kSwitches); ++i) all[i + 1] = kSwitches[i].key + kPrefixLength;
    return all;
  }();
  return keys.data();
}

result read_options() {
  options o;
  if (const char* text = host().option("xcuda.library_path")) o.library_path = text;
  for (const option_switch& each : kSwitches)
    if (result r = read_switch(each, &o); !r.ok()) return r;
  settled = o;
  return {};
}

} // namespace xcuda
