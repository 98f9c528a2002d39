// A thread that does one thing after the other, started when there is a first one.
#pragma once

#include <functional>
#include <memory>

namespace plugin {

class worker {
 public:
  using work = std::function<void()>;
  worker();
  // What is left is done; does not wait for it. May be the thread itself.
  ~worker();
  void push(work w);

 private:
  struct state;
  std::shared_ptr<state> state_;
};

} // namespace plugin
