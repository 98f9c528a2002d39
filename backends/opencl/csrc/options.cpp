#include "options.h"

#include <cstring>

namespace ocl {
namespace {

options settled;

template <typename Value>
struct choice {
  const char* word;
  Value value;
};

// Leaves *out_value alone if the option is not set. Empty counts as not set, so that a variable can be blanked.
template <typename Value, size_t N>
result read(const char* key, const choice<Value> (&choices)[N], Value* out_value) {
  const char* text = host().option(key);
  if (!text || !*text) return {};
  std::string allowed;
  for (const choice<Value>& c : choices) {
    if (std::strcmp(text, c.word) == 0) {
      *out_value = c.value;
      return {};
    }
    allowed += allowed.empty() ? c.word : std::string(", ") + c.word;
  }
  return failure(TB_STATUS_INVALID_ARGUMENT, "%s is \"%s\"; expected one of: %s", key, text, allowed.c_str());
}

constexpr choice<cl_device_type> kDeviceTypes[] = {{"all", CL_DEVICE_TYPE_ALL},
                                                   {"cpu", CL_DEVICE_TYPE_CPU},
                                                   {"gpu", CL_DEVICE_TYPE_GPU},
                                                   {"accelerator", CL_DEVICE_TYPE_ACCELERATOR}};
constexpr choice<memory_mode> kMemoryModes[] = {
    {"auto", memory_mode::automatic}, {"svm", memory_mode::svm}, {"buffer", memory_mode::buffer}};
constexpr choice<clblast_use> kClblastUses[] = {
    {"auto", clblast_use::automatic}, {"1", clblast_use::always}, {"0", clblast_use::never}};

} // namespace

const options& settings() {
  return settled;
}

const char* const* option_keys() {
  static const char* const keys[] = {"platform", "device_type", "memory", "clblast", nullptr};
  return keys;
}

result read_options() {
  options o;
  if (const char* text = host().option("ocl.platform")) o.platform = text;
  result r = read("ocl.device_type", kDeviceTypes, &o.device_type);
  if (r.ok()) r = read("ocl.memory", kMemoryModes, &o.memory);
  if (r.ok()) r = read("ocl.clblast", kClblastUses, &o.clblast);
  if (r.ok()) settled = o;
  return r;
}

} // namespace ocl
