#include "csrc/ops/packages/Constants.h"

#include <mutex>

namespace torch_backend::packages {
namespace {

/// By the package: what has been put in place of its functions is called with the package alone.
class All {
 public:
  void add(AOTInductorModelContainerHandle package, Constants& constants) {
    const std::lock_guard<std::mutex> lock(mutex_);
    constants_[package] = &constants;
  }
  void remove(AOTInductorModelContainerHandle package) {
    const std::lock_guard<std::mutex> lock(mutex_);
    constants_.erase(package);
  }
  Constants& of(AOTInductorModelContainerHandle package) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return *constants_.at(package);
  }

 private:
  std::mutex mutex_; // guards constants_
  std::unordered_map<AOTInductorModelContainerHandle, Constants*> constants_;
};

All& all() {
  static auto* instance = new All;
  return *instance;
}

TensorConstantMap& map_of(AOTInductorConstantMapHandle handle) {
  return *reinterpret_cast<TensorConstantMap*>(handle);
}

AOTIRuntimeError call_copy(AOTInductorModelContainerHandle package, AOTInductorConstantMapHandle given,
                           bool use_inactive, bool validate) {
  return all().of(package).copy(map_of(given), use_inactive, validate);
}

AOTIRuntimeError call_copy_inactive(AOTInductorModelContainerHandle package, AOTInductorConstantMapHandle given) {
  return all().of(package).copy(map_of(given), /*use_inactive=*/true, /*validate=*/true);
}

AOTIRuntimeError call_share(AOTInductorModelContainerHandle package, AOTInductorConstantMapHandle given,
                            bool use_inactive, bool validate) {
  return all().of(package).share(map_of(given), use_inactive, validate);
}

AOTIRuntimeError call_extract(AOTInductorModelContainerHandle package, AOTInductorConstantMapHandle found,
                              bool use_inactive) {
  return all().of(package).extract(map_of(found), use_inactive);
}

AOTIRuntimeError call_swap(AOTInductorModelContainerHandle package) {
  return all().of(package).swap();
}

} // namespace

ConstantFunctions Constants::intercept(AOTInductorModelContainerHandle package, Constants& constants) {
  all().add(package, constants);
  return {&call_copy, &call_copy_inactive, &call_share, &call_extract, &call_swap};
}

void Constants::forget(AOTInductorModelContainerHandle package) {
  all().remove(package);
}

} // namespace torch_backend::packages
