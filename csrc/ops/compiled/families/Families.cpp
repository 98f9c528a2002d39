#include "csrc/ops/compiled/families/Families.h"

#include <algorithm>

#include "csrc/ops/compiled/engine/Kernels.h"
#include "csrc/ops/compiled/engine/Modules.h"

#define TB_FOR_EACH_FAMILY(_) \
  _(columns)                  \
  _(indexed)                  \
  _(losses)                   \
  _(matmul)                   \
  _(moves)                    \
  _(multi_tensor)             \
  _(normalization)            \
  _(pointwise)                \
  _(pool)                     \
  _(random)                   \
  _(reductions)               \
  _(resample)                 \
  _(scans)                    \
  _(softmax)                  \
  _(sorting)

namespace torch_backend::compiled {

#define TB_DECLARE(family)    \
  namespace family {          \
  void add(Kernels& kernels); \
  }
TB_FOR_EACH_FAMILY(TB_DECLARE)
#undef TB_DECLARE

namespace {

KernelList all_kernels() {
  Kernels kernels;
#define TB_ADD(family) family::add(kernels);
  TB_FOR_EACH_FAMILY(TB_ADD)
#undef TB_ADD
  return kernels.take();
}

} // namespace

void load_kernels() {
  if (has_modules()) {
    add_kernels(all_kernels());
  }
}

std::vector<std::string> overloads() {
  std::vector<std::string> names;
  for (const auto& kernel : all_kernels()) {
    names.push_back(kernel->op());
  }
  std::sort(names.begin(), names.end());
  return names;
}

} // namespace torch_backend::compiled
