// The simulated libms_tools_ext.so: ranges, written to the file that ASCEND_SIM_RANGES names.
#include <cstdio>
#include <cstdlib>
#include <set>

#include "runtime.h"

namespace {

std::mutex mutex; // guards what follows
uint64_t last = 0;
std::set<uint64_t> begun;

const sim::leftovers at_the_end{"ranges", [] { return begun.size(); }};

void write(const char* what, uint64_t range, const char* name) {
  const char* path = std::getenv("ASCEND_SIM_RANGES");
  FILE* file = path ? std::fopen(path, "a") : nullptr;
  if (!file) return;
  std::fprintf(file, "%s %lu%s%s\n", what, static_cast<unsigned long>(range), *name ? " " : "", name);
  std::fclose(file);
}

} // namespace

SIM_API uint64_t mstxRangeStartA(const char* name, void*) {
  if (!name) {
    sim::refuse(sim::kInvalid, "mstxRangeStartA without a name");
    return 0;
  }
  const std::lock_guard<std::mutex> lock(mutex);
  begun.insert(++last);
  write("begin", last, name);
  return last;
}

SIM_API void mstxRangeEnd(uint64_t range) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (begun.erase(range) == 0)
    sim::refuse(sim::kInvalid, "mstxRangeEnd of %lu, which is none or has ended", static_cast<unsigned long>(range));
  write("end", range, "");
}
