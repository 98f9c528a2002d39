// The kernels that serve operators, by overload.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/ops/kernel/Kernel.h"

namespace torch_backend {

using KernelList = std::vector<std::unique_ptr<Kernel>>;

/// Asked for an overload that the table lists no kernel for, once; NULL if there is none. May throw ValueError.
using KernelFinder = std::function<std::unique_ptr<Kernel>(const std::string& overload)>;

/// Begin anew with what the device offers: `listed`, in its order, one for an overload, and what `find`, which may be
/// empty, knows beside them. Throws ValueError if a finder does, for one of the overloads that are defined now. Once, from activate; nothing is registered yet.
void set_kernels(KernelList listed, KernelFinder find);

/// Kernels of the core's own, after set_kernels: each serves its overload where the device offers none, else it is the
/// next of that.
void add_kernels(KernelList kernels);

/// The kernel for an overload ("aten::add.out", "aten::relu"); NULL if there is none. A finder's answer is remembered.
/// Throws what it throws. Threads: any.
const Kernel* find_kernel(const std::string& overload);

/// The overloads of set_kernels. What only its finder knows is not among them.
std::vector<std::string> listed_kernels();
/// Those of add_kernels.
std::vector<std::string> added_kernels();
bool has_kernel_finder();

} // namespace torch_backend
