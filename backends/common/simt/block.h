// The items of a block, side by side on one thread: in the order of their numbers from one barrier to the next, each that
// waits on a stack of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fiber.h"
#include "kernel_abi.h"
#include "races.h"

namespace plugin::simt {

class block {
 public:
  // `looked_for` may be null.
  block(const simt_module& code, const simt_kernel& kernel, void* const* parameters, simt_index size,
        races* looked_for);
  ~block();
  block(const block&) = delete;
  block& operator=(const block&) = delete;

  // What is wrong if items do not come where others wait; "" if all have ended. The number is that among the grid's blocks.
  std::string run(uint32_t number);

 private:
  enum class state { kNoItem, kAtBarrier, kAtWarp };
  struct strand; // runs items, one after the other, and is used again once they have ended
  using strands = std::vector<std::unique_ptr<strand>>;
  static strands& idle();
  static const simt_host kHost;

  uint32_t items() const {
    return size_.x * size_.y * size_.z;
  }
  void start(uint32_t warp);
  std::string run_warp(uint32_t warp);
  std::string run_warps(bool first);
  void resume(strand* s);
  [[noreturn]] static void work();
  void wait(state where);
  void access(const void* at, size_t size_bytes, simt_access how, uint32_t since);

  const simt_module& code_;
  const simt_kernel& kernel_;
  void* const* const parameters_;
  const simt_index size_;
  races* const races_;
  uint32_t number_ = 0;
  uint32_t next_ = 0, end_ = 0; // items that have not begun, of the warp that begins
  strand* current_ = nullptr;
  std::vector<strands> warps_; // what waits, by warp
};

} // namespace plugin::simt
