// What the plugin's own functions return: a status and, on failure, the text that explains it.
#pragma once

#include <string>

#include "torch_backend/device.h"

namespace xcuda {

struct result {
  tb_status status = TB_STATUS_OK;
  std::string text;

  bool ok() const {
    return status == TB_STATUS_OK;
  }
};

result failure(tb_status status, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The core's services, known from the plugin's entry on.
void set_host(const tb_host* host);
const tb_host& host();

// Passes the text on to the core and returns the status. Call it last, on the thread that returns to the core.
tb_status report(const result& r);

} // namespace xcuda
