// What simulated drivers have in common: refusals that are written down, settings, faults and delays on demand.
//
// All are read from variables of the environment that begin with the simulation's prefix: PREFIX_LOG, PREFIX_FAIL,
// PREFIX_DELAY_US.
#pragma once

#include <string>

namespace sim {

#pragma GCC visibility push(default) // a simulation may be several libraries, one of which has them

// "CUDA_SIM". Each simulation defines it.
extern const char* const kPrefix;

// The variable PREFIX_`name`; null if it is not set or empty.
const char* setting(const char* name);
int setting(const char* name, int otherwise);

// Appends the text to the file that PREFIX_LOG names. Returns the code.
__attribute__((format(printf, 2, 3))) int refuse(int code, const char* format, ...);
// The thread's last refusal.
std::string& refusal();

// The error that PREFIX_FAIL wants of this call of `name`: "cuMemAlloc=2,task:7=700": of every call, or of the seventh. 0 if
// none.
int injected_fault(const char* name);

// Waits for as long as PREFIX_DELAY_US says, "low-high": drawn anew by each call.
void delay();

#pragma GCC visibility pop

} // namespace sim
