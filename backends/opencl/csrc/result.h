// What all plugins have in common, under the names of this one.
#pragma once

#include "common/result.h"

namespace ocl {

using namespace plugin;

} // namespace ocl
