#include "csrc/core/Status.h"

#include <cstdio>
#include <vector>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/Text.h"

namespace torch_backend {
namespace {

struct StatusEntry {
  tb_status value;
  const char* name;
  const char* text;
};

#define TB_STATUS_ENTRY(name, value, text) {value, #name, text},
constexpr StatusEntry kStatuses[] = {TB_STATUS_LIST(TB_STATUS_ENTRY)};
#undef TB_STATUS_ENTRY

const StatusEntry* find_status(tb_status status) {
  for (const auto& entry : kStatuses) {
    if (entry.value == status) {
      return &entry;
    }
  }
  return nullptr;
}

thread_local std::string error_text;

} // namespace

std::string status_name(tb_status status) {
  constexpr std::size_t kPrefixLength = sizeof("TB_STATUS_") - 1;
  const auto* entry = find_status(status);
  return entry ? std::string(entry->name + kPrefixLength) : c10::str("UNKNOWN(", status, ")");
}

tb_status set_error_text(tb_status code, const char* format, std::va_list args) {
  if (!format) {
    return code;
  }
  std::va_list measured;
  va_copy(measured, args);
  const int length = std::vsnprintf(nullptr, 0, format, measured);
  va_end(measured);
  if (length < 0) {
    set_error_text(format);
    return code;
  }
  std::vector<char> buffer(static_cast<std::size_t>(length) + 1);
  std::vsnprintf(buffer.data(), buffer.size(), format, args);
  set_error_text(std::string(buffer.data(), static_cast<std::size_t>(length)));
  return code;
}

void set_error_text(std::string text) {
  error_text = as_utf8(std::move(text));
}

std::string take_error_text() {
  std::string text;
  text.swap(error_text);
  return text;
}

std::string describe_failure(tb_status status, const std::string& plugin, const char* slot, int device) {
  const auto* entry = find_status(status);
  const std::string text = take_error_text();
  const std::string where = device < 0 ? plugin : c10::str(plugin, ":", device);
  return c10::str(where, ": ", slot, " failed: ", entry ? entry->text : "a status that the ABI does not list", " (",
                  status_name(status), ")", text.empty() ? "" : ": ", text);
}

void throw_status(tb_status status, const std::string& plugin, const char* slot, int device) {
  std::string message = describe_failure(status, plugin, slot, device);
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  switch (status) {
    case TB_STATUS_OUT_OF_MEMORY:
      throw c10::OutOfMemoryError(here, std::move(message));
    case TB_STATUS_UNSUPPORTED:
      throw c10::NotImplementedError(here, std::move(message));
    default:
      throw c10::AcceleratorError(here, status, std::move(message));
  }
}

} // namespace torch_backend
