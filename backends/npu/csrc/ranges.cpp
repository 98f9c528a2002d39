#include "ranges.h"

#include <dlfcn.h>

#include <vector>

#include "acl.h"
#include "common/boundary.h"

namespace npu {
namespace {

// mstx: a range ends by its number, which is 0 where msprof does not listen.
struct mstx_functions {
  uint64_t (*mstxRangeStartA)(const char* name, acl_stream stream);
  void (*mstxRangeEnd)(uint64_t range);
};

const mstx_functions& mstx() {
  static const mstx_functions found = [] {
    void* library = open_library("libms_tools_ext.so");
    mstx_functions f{};
    if (!library) return f;
    f.mstxRangeStartA = reinterpret_cast<decltype(f.mstxRangeStartA)>(dlsym(library, "mstxRangeStartA"));
    f.mstxRangeEnd = reinterpret_cast<decltype(f.mstxRangeEnd)>(dlsym(library, "mstxRangeEnd"));
    return f;
  }();
  return found;
}

thread_local std::vector<uint64_t> open_ranges;

result range_push(const char* name) {
  open_ranges.push_back(mstx().mstxRangeStartA(name, nullptr)); // of the host's time alone
  return {};
}

result range_pop() {
  if (open_ranges.empty()) return failure(TB_STATUS_INVALID_ARGUMENT, "range_pop: this thread has pushed no range");
  mstx().mstxRangeEnd(open_ranges.back());
  open_ranges.pop_back();
  return {};
}

template <typename... Arguments>
tb_status unsupported(Arguments...) {
  return TB_STATUS_UNSUPPORTED;
}

} // namespace

const tb_profiler_table* ranges() {
  static const tb_profiler_table table{sizeof table,
                                       unsupported,
                                       unsupported,
                                       unsupported,
                                       unsupported,
                                       unsupported,
                                       unsupported,
                                       boundary<range_push>::call,
                                       boundary<range_pop>::call};
  return mstx().mstxRangeStartA && mstx().mstxRangeEnd ? &table : nullptr;
}

} // namespace npu
