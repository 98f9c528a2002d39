/* tb_host.log. */
#ifndef TORCH_BACKEND_CSRC_HOST_LOG_H_
#define TORCH_BACKEND_CSRC_HOST_LOG_H_

#include <stdint.h>

void tb_host_log(int32_t level, const char* text);

#endif
