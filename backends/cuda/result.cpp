#include "result.h"

#include <cstdarg>
#include <cstdio>

namespace xcuda {
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

void set_host(const tb_host* host) {
  the_host = host;
}

const tb_host& host() {
  return *the_host;
}

tb_status report(const result& r) {
  return r.text.empty() ? r.status : the_host->fail(r.status, "%s", r.text.c_str());
}

} // namespace xcuda
