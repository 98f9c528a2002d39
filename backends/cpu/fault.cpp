#include "fault.h"

#include <charconv>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

namespace xcpu {
namespace {

constexpr const char* kKey = "xcpu.fault";

struct rule {
  slot where;
  std::optional<int32_t> device; // every device unless set
  tb_status status;
  uint64_t nth; // 1 is the first call since the option took its value; 0: every call
  uint64_t calls = 0;
};

struct rule_set {
  std::mutex mutex; // guards both
  std::string text; // what the rules were made from
  std::vector<rule> rules;
};

// Never destroyed: worker threads may outlast static destruction.
rule_set& active() {
  static rule_set& set = *new rule_set;
  return set;
}

bool parse_slot(std::string_view text, slot* out_slot) {
#define XCPU_MATCH(name)    \
  if (text == #name) {      \
    *out_slot = slot::name; \
    return true;            \
  }
  XCPU_SLOTS(XCPU_MATCH)
#undef XCPU_MATCH
  return false;
}

bool parse_status(std::string_view text, tb_status* out_status) {
  for (tb_status status = 1; status < TB_STATUS_COUNT_; ++status) {
    *out_status = status;
    if (text == status_name(status)) return true;
  }
  return false;
}

template <typename Number>
bool parse_number(std::string_view text, Number* out_number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *out_number);
  return error == std::errc() && stop == end;
}

// slot[:device]=STATUS[@n]
bool parse_rule(std::string_view text, rule* out_rule) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view left = text.substr(0, equals), right = text.substr(equals + 1);
  const size_t colon = left.find(':'), at = right.find('@');
  *out_rule = {};
  if (!parse_slot(left.substr(0, colon), &out_rule->where)) return false;
  if (colon != std::string_view::npos) {
    int32_t device = 0;
    if (!parse_number(left.substr(colon + 1), &device) || device < 0) return false;
    out_rule->device = device;
  }
  if (!parse_status(right.substr(0, at), &out_rule->status)) return false;
  if (at == std::string_view::npos) return true;
  return parse_number(right.substr(at + 1), &out_rule->nth) && out_rule->nth > 0;
}

result parse_rules(std::string_view text, std::vector<rule>* out_rules) {
  out_rules->clear();
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string item(text.substr(0, comma));
    rule next;
    if (!parse_rule(item, &next))
      return failure(TB_STATUS_INVALID_ARGUMENT,
                     "%s: \"%s\" is not slot[:device]=STATUS[@n], with a slot that xcpu offers and a status such as "
                     "OUT_OF_MEMORY",
                     kKey, item.c_str());
    out_rules->push_back(next);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return {};
}

bool fires(rule& r, slot s, int32_t device) {
  if (r.where != s || (r.device && *r.device != device)) return false;
  return ++r.calls == r.nth || r.nth == 0;
}

} // namespace

const char* slot_name(slot s) {
  static constexpr const char* names[] = {
#define XCPU_NAME(name) #name,
      XCPU_SLOTS(XCPU_NAME)
#undef XCPU_NAME
  };
  return names[static_cast<int>(s)];
}

result read_faults() {
  const char* text = host().option(kKey);
  if (!text) return {};
  rule_set& set = active();
  detail::faults_enabled = true;
  set.text = text;
  return parse_rules(text, &set.rules);
}

bool detail::faults_enabled = false;

result detail::next_fault(slot s, int32_t device) {
  rule_set& set = active();
  const char* option = host().option(kKey);
  const std::string_view text = option ? option : "";
  const std::lock_guard<std::mutex> lock(set.mutex);
  if (text != set.text) {
    // The text is kept only once it is understood, so that every call says what is wrong with it.
    if (result r = parse_rules(text, &set.rules); !r.ok()) return r;
    set.text = text;
  }
  result r;
  for (rule& candidate : set.rules)
    if (fires(candidate, s, device) && r.ok())
      r = failure(candidate.status, "%s fails with %s because %s asks for it (call %llu)", slot_name(s),
                  status_name(candidate.status), kKey, static_cast<unsigned long long>(candidate.calls));
  return r;
}

} // namespace xcpu
