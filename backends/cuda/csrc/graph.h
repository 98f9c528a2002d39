// What slots do while streams are captured.
#pragma once

#include <mutex>

#include "cu.h"
#include "result.h"

namespace xcuda {

struct device;

// The default stream never is. Pre: the device's context is the thread's.
bool is_captured(CUstream stream);

// As long as the caller has this no capture begins or ends, and no stream joins one.
std::unique_lock<std::mutex> hold_captures();

// Which makes the stream a part of the capture that the event was recorded in, if it was.
result wait_for_event(device& d, CUstream stream, CUevent event);

// For calls that the driver lets pass: fails, and the capture with it, if the stream is captured.
result refuse_if_captured(int32_t device, tb_stream* stream, const char* what);

// For device_synchronize: fails, and the captures of the device that mind it with it.
result refuse_while_captured(int32_t device);

} // namespace xcuda
