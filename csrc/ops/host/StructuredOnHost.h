// ATen's CPU kernels of structured operators, called on the device's tensors without the dispatcher.
#pragma once

#include <utility>

#include <ATen/TensorIterator.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "csrc/ops/dispatch/StructuredKernel.h"
#include "csrc/ops/tensor/Alias.h"

namespace torch_backend {

/// Note [Structured kernels on the host]
/// ATen's pointwise operators are TensorIterators: built by the meta function over the device's tensors, they hold data
/// pointers, and ATen's CPU loops run over these. All that tells them from CPU tensors is the device that the iterator
/// remembers of its operands, by which DispatchStub chooses the loop. For CPU tensors the iterator also converts operands
/// to the common dtype, by temporaries, which for others it leaves to the kernel.
///
/// Make `iterator`'s operands look like the host's, with temporaries where the dtypes differ. False, with nothing
/// changed, where that cannot be done here: an output of another dtype, or an input whose converted copy would have other
/// strides.
bool run_on_host(at::TensorIteratorBase& iterator);

/// The tensors of one call as CPU tensors on the same memory, for kernels that are no loops of an iterator. The results
/// of its calls live as long as it does.
class CpuAliases {
 public:
  CpuAliases() : store_(AliasStore::of_this_thread()) {}
  ~CpuAliases();
  CpuAliases(const CpuAliases&) = delete;
  CpuAliases& operator=(const CpuAliases&) = delete;

  const at::Tensor& tensor(const at::Tensor& tensor) {
    return add(tensor);
  }
  at::ITensorListRef list(const at::ITensorListRef& tensors);
  /// For a new tensor, which nothing else refers to.
  const at::Tensor& output(const at::Tensor& tensor);

 private:
  const at::Tensor& add(const at::Tensor& tensor);

  static constexpr std::size_t kMost = CommonDevice::kMaxAliases + 4; // references to them last

  AliasStore& store_;
  c10::SmallVector<at::Tensor, kMost> aliases_;
  c10::SmallVector<std::pair<std::size_t, c10::TensorImpl*>, 4> outputs_; // alias, original
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
};

} // namespace torch_backend
