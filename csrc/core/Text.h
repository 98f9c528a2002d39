// Text that a plugin gives.
#pragma once

#include <cstddef>
#include <string>

namespace torch_backend {

/// `text` with U+FFFD in place of every byte that is not part of valid UTF-8: Python refuses such bytes, and a driver's
/// message in another encoding must not hide behind that.
std::string as_utf8(std::string text);

/// The same of a C string; "" for NULL. Reads at most `max_bytes`.
std::string as_utf8(const char* text, std::size_t max_bytes);

/// As many bytes of a plugin's string as are looked at.
constexpr std::size_t kMaxTextBytes = 1 << 16;

} // namespace torch_backend
