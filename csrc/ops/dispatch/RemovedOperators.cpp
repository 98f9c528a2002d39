#include "csrc/ops/dispatch/RemovedOperators.h"

#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "csrc/core/InterpreterLock.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Stream.h"

namespace torch_backend {
namespace {

struct Known {
  std::mutex mutex; // guards defined
  std::unordered_map<c10::OperatorHandle, std::shared_ptr<std::atomic<bool>>> defined;
};

Known& known() {
  static auto* instance = new Known;
  return *instance;
}

std::shared_ptr<std::atomic<bool>> forget(const c10::OperatorHandle& op) {
  auto& all = known();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.defined.find(op);
  if (found == all.defined.end()) {
    return nullptr;
  }
  auto flag = std::move(found->second);
  all.defined.erase(found);
  return flag;
}

/// Errors of the work stay where they are: whoever removes an operator has not asked for them.
void wait_for_all_work() noexcept {
  auto& api = device_api();
  const WithoutInterpreterLock unlocked; // kernels may be functions of Python
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    try {
      for (const auto& stream : all_streams(device)) {
        api.stream_synchronize(device, stream.handle());
      }
    } catch (const std::exception&) { // a lost device runs nothing any more
    }
  }
}

/// PyTorch's own operators go when the process does: nobody calls them again, and there is no Python to wait with.
std::atomic<bool> process_ends{false};

class Listener final : public c10::OpRegistrationListener {
 public:
  void onOperatorRegistered(const c10::OperatorHandle& /*op*/) override {}
  void onOperatorDeregistered(const c10::OperatorHandle& op) override {
    if (const auto flag = forget(op)) {
      if (!process_ends.load() && device_api().async()) {
        wait_for_all_work();
      }
      flag->store(false);
    }
  }
};

/// For as long as the process lives.
void listen() {
  static auto* const registration = new c10::RegistrationHandleRAII(
      c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Listener>()));
  static const int at_exit = std::atexit([] { process_ends.store(true); });
  static_cast<void>(registration);
  static_cast<void>(at_exit);
}

} // namespace

StillDefined still_defined(const c10::OperatorHandle& op) {
  listen();
  auto& all = known();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto& flag = all.defined[op];
  if (!flag) {
    flag = std::make_shared<std::atomic<bool>>(true);
  }
  return flag;
}

} // namespace torch_backend
