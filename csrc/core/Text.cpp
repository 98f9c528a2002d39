#include "csrc/core/Text.h"

#include <cstdint>
#include <cstring>
#include <utility>

namespace torch_backend {
namespace {

/// The length of the valid character at `at`, 0 if there is none. As in table 3-7 of the Unicode standard.
std::size_t character_at(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> unsigned { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const unsigned first = byte(at);
  const unsigned second = byte(at + 1);
  if (first < 0x80) {
    return 1;
  }
  if (first >= 0xC2 && first <= 0xDF) {
    return follows(at + 1) ? 2 : 0;
  }
  if ((first & 0xF0u) == 0xE0) {
    const bool too_long = first == 0xE0 && second < 0xA0;
    const bool surrogate = first == 0xED && second > 0x9F;
    return follows(at + 1) && follows(at + 2) && !too_long && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool too_long = first == 0xF0 && second < 0x90;
    const bool too_large = first == 0xF4 && second > 0x8F;
    return follows(at + 1) && follows(at + 2) && follows(at + 3) && !too_long && !too_large ? 4 : 0;
  }
  return 0;
}

} // namespace

std::string as_utf8(std::string text) {
  std::size_t at = 0;
  while (at < text.size() && character_at(text, at) > 0) {
    at += character_at(text, at);
  }
  if (at == text.size()) {
    return text;
  }
  std::string valid = text.substr(0, at);
  while (at < text.size()) {
    const std::size_t length = character_at(text, at);
    valid += length > 0 ? text.substr(at, length) : "\xEF\xBF\xBD";
    at += length > 0 ? length : 1;
  }
  return valid;
}

std::string as_utf8(const char* text, std::size_t max_bytes) {
  return text ? as_utf8(std::string(text, ::strnlen(text, max_bytes))) : std::string();
}

} // namespace torch_backend
