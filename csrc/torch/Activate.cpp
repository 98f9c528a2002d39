#include "csrc/torch/Activate.h"

#include <mutex>

#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>

#include "csrc/core/Runtime.h"
#include "csrc/core/generator/PhiloxGenerator.h"
#include "csrc/graph/Graph.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/memory/HostAllocator.h"
#include "csrc/ops/Register.h"
#include "csrc/ops/compiled/families/Families.h"
#include "csrc/ops/packages/Packages.h"
#include "csrc/ops/plugin/PluginKernels.h"
#include "csrc/profiler/Profilers.h"
#include "csrc/torch/DeviceGuard.h"
#include "csrc/torch/Hooks.h"

namespace torch_backend {

void activate(Plugin& plugin) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (active_plugin() != nullptr) {
    set_active_plugin(plugin); // throws unless it is the same
    return;
  }
  TORCH_CHECK(
      plugin.api().device_count() > 0, "'", plugin.name(), "' (", plugin.path(),
      ") finds no devices, so there is nothing to activate. Check that the hardware is present and its driver is "
      "loaded.");
  plugin.tables(); // throws if one cannot be used
  check_generator_registration();
  load_plugin_kernels(plugin);
  compiled::load_kernels();

  c10::register_privateuse1_backend(plugin.name());
  set_active_plugin(plugin);
  register_device_guard();
  register_hooks();
  register_device_allocator();
  register_host_allocator();
  register_operators();
  register_profilers();
  register_graphs();
  register_packages();
}

} // namespace torch_backend
