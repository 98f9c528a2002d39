// What all plugins have in common, under the names of this one.
#pragma once

#include "common/result.h"

namespace xcuda {

using namespace plugin;

} // namespace xcuda
