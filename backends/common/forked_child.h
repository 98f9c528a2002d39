// A driver's threads and connections do not come along when a process forks: in the child every call has to fail.
#pragma once

#include "result.h"

namespace plugin {

// From here on, children of this process are noticed. Call it once, when the device is first used; the name is that in
// the failure's text.
result watch_forks(const char* device_name);

// Any thread; a load of one flag.
bool in_forked_child();

result forked_child_failure();

} // namespace plugin
