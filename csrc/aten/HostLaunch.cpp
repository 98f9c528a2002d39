#include "csrc/aten/HostLaunch.h"

#include <memory>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>

#include "csrc/core/AsyncError.h"
#include "csrc/core/Runtime.h"

namespace torch_backend {
namespace {

struct Work {
  std::function<void()> function;
  int device;
};

void run(void* arg) {
  const std::unique_ptr<Work> work(static_cast<Work*>(arg));
  try {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    work->function();
  } catch (...) {
    record_async_error(work->device, std::current_exception());
  }
}

} // namespace

void enqueue_host_work(const Stream& stream, std::function<void()> function) {
  auto work = std::make_unique<Work>(Work{std::move(function), stream.device_index()});
  device_api().stream_host_function(stream.device_index(), stream.handle(), run, work.get());
  work.release(); // `run`, which is called exactly once, deletes it
}

} // namespace torch_backend
