#include "loss.h"

#include <array>
#include <atomic>
#include <thread>
#include <utility>

namespace xcpu {
namespace {

struct life {
  std::atomic<bool> lost{false};
  std::atomic<int> running{0}; // of until_lost's work
};

// Never destroyed: worker threads may outlast static destruction.
life& life_of(int32_t device) {
  static auto& all = *new std::array<life, 64>;
  return all[device];
}

} // namespace

queue::work until_lost(int32_t device, queue::work work) {
  return [device, work = std::move(work)] {
    life& its = life_of(device);
    ++its.running; // before the look at `lost`: either this sees the loss, or the loss waits for this
    result r = its.lost ? failure(TB_STATUS_DEVICE_LOST, "the device was lost before this ran") : work();
    --its.running;
    return r;
  };
}

void lose(int32_t device) {
  life& its = life_of(device);
  its.lost = true;
  while (its.running != 0) std::this_thread::yield();
}

} // namespace xcpu
