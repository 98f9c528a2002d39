#include "csrc/ops/kernel/KernelTable.h"

#include <mutex>
#include <unordered_map>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>

#include "csrc/core/InterpreterLock.h"

namespace torch_backend {
namespace {

struct Table {
  std::mutex mutex;                                                     // guards by_overload
  std::unordered_map<std::string, std::unique_ptr<Kernel>> by_overload; // NULL: asked for, not offered
  std::vector<std::string> listed, added;
  KernelFinder find;
};

Table& table() {
  static auto* instance = new Table;
  return *instance;
}

/// Under the mutex.
const Kernel* find_in(Table& all, const std::string& overload) {
  const auto known = all.by_overload.find(overload);
  if (known != all.by_overload.end()) {
    return known->second.get();
  }
  auto found = all.find ? all.find(overload) : nullptr;
  return all.by_overload.emplace(overload, std::move(found)).first->second.get();
}

} // namespace

void set_kernels(KernelList listed, KernelFinder find) {
  auto& all = table();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.by_overload.clear(); // of a plugin whose activation failed
  all.listed.clear();
  all.added.clear();
  all.find = std::move(find);
  for (auto& kernel : listed) {
    all.listed.push_back(kernel->op());
    all.by_overload.emplace(kernel->op(), std::move(kernel));
  }
  if (all.find) {
    for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
      find_in(all, c10::toString(name));
    }
  }
}

void add_kernels(KernelList added) {
  auto& all = table();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (auto& kernel : added) {
    all.added.push_back(kernel->op());
    auto& place = all.by_overload[kernel->op()];
    if (place) {
      place->set_next(std::move(kernel));
    } else {
      place = std::move(kernel);
    }
  }
}

const Kernel* find_kernel(const std::string& overload) {
  auto& all = table();
  const WithoutInterpreterLock unlocked;
  const std::lock_guard<std::mutex> lock(all.mutex);
  return find_in(all, overload);
}

std::vector<std::string> listed_kernels() {
  return table().listed;
}

std::vector<std::string> added_kernels() {
  return table().added;
}

bool has_kernel_finder() {
  return static_cast<bool>(table().find);
}

} // namespace torch_backend
