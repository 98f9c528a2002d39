// Graphs of cuDNN's operations: what describes them, and what runs one.
#pragma once

#include <memory>
#include <vector>

#include "cudnn.h"
#include "kernel.h"
#include "result.h"

namespace xcuda {

// Descriptors that live as long as this. After the first error nothing is done any more.
class descriptors {
 public:
  descriptors() = default;
  descriptors(const descriptors&) = delete;
  descriptors& operator=(const descriptors&) = delete;
  ~descriptors();

  cudnnBackendDescriptor_t create(int type);
  template <typename T>
  void set(cudnnBackendDescriptor_t desc, int attribute, int type, const T* values, int64_t count = 1) {
    note(error_ ? error_ : dnn.BackendSetAttribute(desc, attribute, type, count, values), "cudnnBackendSetAttribute");
  }
  template <typename T>
  void set_value(cudnnBackendDescriptor_t desc, int attribute, int type, T value) {
    set(desc, attribute, type, &value);
  }
  void set(cudnnBackendDescriptor_t desc, int attribute, cudnnBackendDescriptor_t value) {
    set(desc, attribute, kCUDNN_TYPE_BACKEND_DESCRIPTOR, &value);
  }
  // How many there are of the `most` that are asked for.
  template <typename T>
  int64_t get(cudnnBackendDescriptor_t desc, int attribute, int type, T* values, int64_t most = 1) {
    int64_t count = 0;
    note(error_ ? error_ : dnn.BackendGetAttribute(desc, attribute, type, most, &count, values),
         "cudnnBackendGetAttribute");
    return error_ ? 0 : (count < most ? count : most);
  }
  void finalize(cudnnBackendDescriptor_t desc);
  // Of operations that are finalized.
  cudnnBackendDescriptor_t graph(cudnnHandle_t handle, const std::vector<cudnnBackendDescriptor_t>& operations);

  result outcome() const {
    return check_cudnn(error_, what_);
  }

 private:
  void note(cudnnStatus_t error, const char* what);

  std::vector<cudnnBackendDescriptor_t> all_;
  cudnnStatus_t error_ = 0;
  const char* what_ = "";
};

// Runs a graph. One thread.
class execution_plan {
 public:
  // By the first engine, best by cuDNN's own estimate, that a plan can be made of and that is allowed. Once; the graph is
  // needed as long as this.
  result make(cudnnHandle_t handle, cudnnBackendDescriptor_t graph, bool is_deterministic);
  // With the tensors that were called `names` at `data`: device memory, and on the host what is by value.
  result run(cudnnHandle_t handle, const tb_kernel_context& context, const std::vector<int64_t>& names,
             const std::vector<const void*>& data) const;

 private:
  result use(cudnnHandle_t handle, cudnnBackendDescriptor_t config, bool is_deterministic);

  descriptors found_;
  std::unique_ptr<descriptors> tried_; // with runs_
  cudnnBackendDescriptor_t runs_ = nullptr;
  int64_t workspace_bytes_ = 0;
};

} // namespace xcuda
