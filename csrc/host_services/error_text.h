/* tb_host.fail. */
#ifndef TORCH_BACKEND_CSRC_HOST_ERROR_TEXT_H_
#define TORCH_BACKEND_CSRC_HOST_ERROR_TEXT_H_

#include "torch_backend/device.h"

tb_status tb_host_fail(tb_status code, const char* format, ...);

#endif
