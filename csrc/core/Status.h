// From a tb_status to a C++ exception, and the text a plugin gives with it.
#pragma once

#include <cstdarg>
#include <string>

#include "torch_backend/device.h"

namespace torch_backend {

/// "OUT_OF_MEMORY" for TB_STATUS_OUT_OF_MEMORY; "UNKNOWN(42)" for a value the ABI does not list.
std::string status_name(tb_status status);

/// Store a printf-formatted text for the calling thread and return `code`. What plugins call as tb_host::fail.
tb_status set_error_text(tb_status code, const char* format, std::va_list args);

/// The same for a text that is ready.
void set_error_text(std::string text);

/// The calling thread's error text, which is empty afterwards.
std::string take_error_text();

/// "xcpu:1: memory_copy failed: device lost (DEVICE_LOST): <the plugin's own text>". Takes the calling thread's text.
/// `device` -1 means the call names no device.
std::string describe_failure(tb_status status, const std::string& plugin, const char* slot, int device);

/// Throw what PyTorch raises for `status`: torch.OutOfMemoryError for OUT_OF_MEMORY, NotImplementedError for
/// UNSUPPORTED, torch.AcceleratorError (with the status as its code) for everything else. Takes the calling thread's
/// text.
[[noreturn]] void throw_status(tb_status status, const std::string& plugin, const char* slot, int device);

} // namespace torch_backend
