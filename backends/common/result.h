// What the plugin's own functions return: a status and, on failure, the text that explains it.
//
// The text is handed to host->fail only where a call returns to the core, because what fails on a worker thread is
// reported later, on another thread.
#pragma once

#include <string>

#include "torch_backend/device.h"

namespace plugin {

struct result {
  tb_status status = TB_STATUS_OK;
  std::string text;

  bool ok() const {
    return status == TB_STATUS_OK;
  }
};

result failure(tb_status status, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The name without its prefix, "OUT_OF_MEMORY".
const char* status_name(tb_status status);

// The core's services, known from the plugin's entry on.
void set_host(const tb_host* host);
const tb_host& host();

// Passes the text on to the core and returns the status. Call it last, on the thread that returns to the core.
tb_status report(const result& r);
// One that was reported already.
inline tb_status report(tb_status status) {
  return status;
}

} // namespace plugin
