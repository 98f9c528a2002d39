#include "result.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace plugin {
namespace {
const tb_host* the_host = nullptr;
}

result failure(tb_status status, const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return {status, text};
}

const char* status_name(tb_status status) {
  switch (status) {
#define PLUGIN_CASE(name, value, text) \
  case value:                          \
    return #name + std::strlen("TB_STATUS_");
    TB_STATUS_LIST(PLUGIN_CASE)
#undef PLUGIN_CASE
  }
  return "unknown";
}

void set_host(const tb_host* host) {
  the_host = host;
}

const tb_host& host() {
  return *the_host;
}

tb_status report(const result& r) {
  return r.text.empty() ? r.status : the_host->fail(r.status, "%s", r.text.c_str());
}

} // namespace plugin
