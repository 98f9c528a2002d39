#include "options.h"

#include <unistd.h>

#include <charconv>
#include <limits>
#include <string_view>

namespace xcpu {
namespace {

options settled;

constexpr uint32_t kMaxDelayUs = 10'000'000;

// All of `text` as a number of at most `max`.
bool parse_number(std::string_view text, uint64_t max, uint64_t* out_number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *out_number);
  return error == std::errc() && stop == end && *out_number <= max;
}

bool parse_devices(std::string_view text, int32_t* out_devices) {
  uint64_t number = 0;
  if (!parse_number(text, 64, &number) || number == 0) return false;
  *out_devices = static_cast<int32_t>(number);
  return true;
}

bool parse_threads(std::string_view text, uint32_t* out_threads) {
  uint64_t number = 0;
  if (!parse_number(text, 1024, &number) || number == 0) return false;
  *out_threads = static_cast<uint32_t>(number);
  return true;
}

bool parse_flag(std::string_view text, bool* out_flag) {
  *out_flag = text == "1";
  return text == "0" || text == "1";
}

bool parse_modules(std::string_view text, modules_mode* out_mode) {
  *out_mode = text == "1"              ? modules_mode::in_order
              : text == "side_by_side" ? modules_mode::side_by_side
                                       : modules_mode::off;
  return text == "0" || *out_mode != modules_mode::off;
}

bool parse_memory(std::string_view text, uint64_t* out_bytes) {
  constexpr std::string_view units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  const size_t digits = text.find_first_not_of("0123456789");
  uint32_t shift = 0;
  if (digits != std::string_view::npos) {
    const std::string_view unit = text.substr(digits);
    size_t power = 0;
    while (power < std::size(units) && units[power] != unit) ++power;
    if (power == std::size(units)) return false;
    shift = static_cast<uint32_t>(10 * power);
  }
  uint64_t number = 0;
  if (!parse_number(text.substr(0, digits), std::numeric_limits<uint64_t>::max() >> shift, &number)) return false;
  *out_bytes = number << shift;
  return number > 0;
}

bool parse_delay(std::string_view text, delay_range* out_delay) {
  const size_t dash = text.find('-');
  uint64_t low = 0, high = 0;
  if (!parse_number(text.substr(0, dash), kMaxDelayUs, &low)) return false;
  if (dash == std::string_view::npos)
    high = low;
  else if (!parse_number(text.substr(dash + 1), kMaxDelayUs, &high))
    return false;
  *out_delay = {static_cast<uint32_t>(low), static_cast<uint32_t>(high)};
  return low <= high;
}

uint64_t machine_memory_bytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Leaves *out_value alone if the option is not set. Empty counts as not set, so that a variable can be blanked.
template <typename Value>
result read(const char* key, const char* allowed, bool (*parse)(std::string_view, Value*), Value* out_value) {
  const char* text = host().option(key);
  if (!text || !*text) return {};
  if (parse(text, out_value)) return {};
  return failure(TB_STATUS_INVALID_ARGUMENT, "%s is \"%s\"; expected %s", key, text, allowed);
}

} // namespace

const options& settings() {
  return settled;
}

const char* const* option_keys() {
  static const char* const keys[] = {"devices", "memory",  "async",   "protect",        "ipc",   "delay_us", "fault",
                                     "ccl",     "modules", "threads", "virtual_memory", "races", "compiler", nullptr};
  return keys;
}

result read_options() {
  options o;
  o.memory_bytes = machine_memory_bytes();
  result r = read("xcpu.devices", "a whole number from 1 to 64", parse_devices, &o.devices);
  if (r.ok()) r = read("xcpu.memory", "a size such as 512MiB (B, KiB, MiB, GiB, TiB)", parse_memory, &o.memory_bytes);
  if (r.ok()) r = read("xcpu.async", "0 or 1", parse_flag, &o.async);
  if (r.ok()) r = read("xcpu.protect", "0 or 1", parse_flag, &o.protect);
  if (r.ok()) r = read("xcpu.ipc", "0 or 1", parse_flag, &o.ipc);
  if (r.ok()) r = read("xcpu.virtual_memory", "0 or 1", parse_flag, &o.virtual_memory);
  if (r.ok()) r = read("xcpu.delay_us", "microseconds, at most 10000000: N, or LOW-HIGH", parse_delay, &o.delay);
  if (r.ok()) r = read("xcpu.ccl", "0 or 1", parse_flag, &o.ccl);
  if (r.ok()) r = read("xcpu.modules", "0, 1 or side_by_side", parse_modules, &o.modules);
  if (r.ok()) r = read("xcpu.races", "0 or 1", parse_flag, &o.races);
  if (r.ok()) r = read("xcpu.compiler", "0 or 1", parse_flag, &o.compiler);
  if (r.ok()) r = read("xcpu.threads", "a whole number from 1 to 1024", parse_threads, &o.threads);
  if (!r.ok()) return r;
  if (o.delay.high_us > 0 && !o.async)
    return failure(TB_STATUS_INVALID_ARGUMENT, "xcpu.delay_us delays asynchronous work; set xcpu.async=1 as well");
  if (o.races && o.modules != modules_mode::side_by_side)
    return failure(TB_STATUS_INVALID_ARGUMENT, "xcpu.races is about items side by side; set xcpu.modules=side_by_side");
  settled = o;
  return {};
}

} // namespace xcpu
