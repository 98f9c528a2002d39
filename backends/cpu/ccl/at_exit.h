// What is done when the process ends in order, so that others can tell that from a crash.
#pragma once

namespace xcpu::ccl {

// Until at_exit_remove, `function(subject)` is called when the process exits; not in a process that was forked off.
void at_exit_add(void* subject, void (*function)(void* subject));
void at_exit_remove(void* subject);

} // namespace xcpu::ccl
