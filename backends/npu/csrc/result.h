// What all plugins have in common, under the names of this one, and its slots.
#pragma once

#include "common/slots.h"

namespace npu {

using namespace plugin;
PLUGIN_DECLARE_SLOTS

} // namespace npu
