// The threads that the blocks of a launch are shared out to (xcpu.threads).
#pragma once

#include <cstdint>

namespace xcpu::modules {

// Some of what a crew does: the pieces `first` to `end - 1`. Must not throw.
using range_function = void (*)(const void* of, uint64_t first, uint64_t end);

// Calls `run` for ranges that together are 0 to count - 1, in this thread and in others that have nothing to do. Returns
// when all of it is done. Several calls at once share no threads: one has the others, the rest run alone.
void share_out(uint64_t count, range_function run, const void* of);

} // namespace xcpu::modules
