// What every call goes through on its way in and out.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>

#include "forked_child.h"
#include "result.h"

namespace plugin {

// A function of the plugin, which returns a result or a status, as a slot: calls, reports, and lets no exception out.
template <auto Function>
struct boundary;

template <typename Result, typename... Args, Result (*Function)(Args...)>
struct boundary<Function> {
  static tb_status call(Args... args) noexcept {
    try {
      if (in_forked_child()) return report(forked_child_failure());
      return report(Function(args...));
    } catch (const std::bad_alloc&) {
      return host().fail(TB_STATUS_OUT_OF_MEMORY, "the host is out of memory");
    } catch (const std::invalid_argument& e) {
      return host().fail(TB_STATUS_INVALID_ARGUMENT, "%s", e.what());
    } catch (const std::exception& e) {
      return host().fail(TB_STATUS_INTERNAL, "%s", e.what());
    }
  }
};

} // namespace plugin
