/* The services of tb_host without torch: what a device library needs to be opened by a process that has no core.
 *
 * torch_backend.abi.host loads this library through ctypes, which cannot serve a variadic function itself. */
#ifndef TORCH_BACKEND_CSRC_HOST_HOST_H_
#define TORCH_BACKEND_CSRC_HOST_HOST_H_

#include <stdint.h>

#include "torch_backend/device.h"

#define TB_HOST_LOG_TEXT_BYTES 1020

/* Longer texts are cut. */
typedef struct tb_host_log_line {
  int32_t level; /* TB_LOG_* */
  char text[TB_HOST_LOG_TEXT_BYTES];
} tb_host_log_line;

/* The services, for tb_plugin_entry. Static. */
TB_EXPORT const tb_host* tb_host_services(void);

/* What host->fail stored for the calling thread since the last call of this function, "" if nothing. Valid until this
 * thread's next call. */
TB_EXPORT const char* tb_host_take_error_text(void);

/* Set "<plugin>.<key>" for host->option; replaces an earlier value and the environment variable. Returns 0, or -1 if
 * there is no memory. */
TB_EXPORT int tb_host_set_option(const char* key, const char* value);

/* Hand out the oldest line of the log and forget it. Returns 1, or 0 if there is none. Of many lines that nobody takes
 * the oldest are lost. */
TB_EXPORT int tb_host_take_log_line(tb_host_log_line* out_line);

#endif
