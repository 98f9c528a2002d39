// Nanoseconds that a call of a plugin's kernel costs before the kernel does anything.
//
//   kernel_call_bench <plugin.so>      (make test builds it: build/make/benchmarks/cpp/kernel_call_bench)
//
// With examples/kernels as the plugin a structured operator is measured too: with its meta function, as PyTorch has it.
//
// Three one-element tensors and a kernel that returns at once. Each figure is the best of several rounds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <utility>

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "csrc/core/Plugin.h"
#include "csrc/core/Runtime.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/ops/kernel/BoxedKernel.h"
#include "csrc/ops/kernel/KernelCall.h"
#include "csrc/ops/kernel/KernelTable.h"
#include "csrc/torch/Activate.h"

namespace tb = torch_backend;

namespace {

tb_status nothing(const tb_kernel_context* /*context*/, const tb_arg* /*args*/, int32_t /*num_args*/) {
  return TB_STATUS_OK;
}

/// Calls it as a plugin's is called.
class Nothing final : public tb::Kernel {
 public:
  Nothing() : Kernel("bench::boxed.out", /*flags=*/0) {}

  tb::Source source() const override {
    return tb::Source::kPlugin;
  }
  tb_status run(const tb_kernel_context& context, const tb_arg* args, int32_t num_args) const override {
    return tb::device_api().call(context.device, op().c_str(), nothing, &context, args, num_args);
  }

 private:
  uint64_t dtypes_on(uint64_t device_types) const override {
    return device_types;
  }
};

at::Tensor& bare_out(const at::Tensor& /*a*/, const at::Tensor& /*b*/, at::Tensor& out) {
  return out;
}

at::Tensor meta(const at::Tensor& a, const at::Tensor& /*b*/) {
  return at::detail::empty_meta(a.sizes(), a.scalar_type());
}

double best_ns(const std::function<void(int)>& run) {
  constexpr int kCalls = 200'000;
  run(kCalls / 10);
  double best = 1e300;
  for (int round = 0; round < 9; ++round) {
    const auto start = std::chrono::steady_clock::now();
    run(kCalls);
    const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count() / kCalls);
  }
  return best;
}

using OutSignature = at::Tensor&(const at::Tensor&, const at::Tensor&, at::Tensor&);

c10::TypedOperatorHandle<OutSignature> out_operator(const char* name, const char* overload = "out") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<OutSignature>();
}

} // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: kernel_call_bench <plugin.so>\n");
    return 2;
  }
  tb::activate(tb::Plugin::load(argv[1]));
  const Nothing kernel;

  torch::Library definitions(torch::Library::DEF, "bench", std::nullopt, __FILE__, __LINE__);
  for (const char* name : {"bare", "boxed"}) {
    const std::string schema(name);
    definitions.def((schema + "(Tensor a, Tensor b) -> Tensor").c_str());
    definitions.def((schema + ".out(Tensor a, Tensor b, *, Tensor(a!) out) -> Tensor(a!)").c_str());
  }
  definitions.impl("boxed", c10::DispatchKey::Meta, TORCH_FN(meta));
  definitions.impl("bare.out", c10::DispatchKey::PrivateUse1, TORCH_FN(bare_out));
  const auto forms = tb::forms_of(out_operator("bench::boxed"), tb::OverloadIndex());
  definitions.impl("boxed.out",
                   torch::dispatch(c10::DispatchKey::PrivateUse1,
                                   torch::CppFunction::makeFromBoxedFunctor(std::make_unique<tb::BoxedKernel>(
                                       kernel, forms.at(0), forms.at(1), tb::add_next_source("bench::boxed.out")))));

  const auto tensor = [] {
    return at::detail::empty_generic({1}, &tb::device_allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                     at::kFloat, std::nullopt);
  };
  const at::Tensor a = tensor();
  const at::Tensor b = tensor();
  at::Tensor out = tensor();

  tb_tensor tensors[3]{};
  const tb_arg args[3] = {{TB_ARG_TENSOR, 0, {.p = &tensors[0]}},
                          {TB_ARG_TENSOR, 0, {.p = &tensors[1]}},
                          {TB_ARG_TENSOR, 0, {.p = &tensors[2]}}};
  const double direct = best_ns([&](int calls) {
    for (int i = 0; i < calls; ++i) {
      nothing(nullptr, args, 3);
    }
  });
  const auto called = [&](const tb::Kernel& which) {
    return best_ns([&](int calls) {
      for (int i = 0; i < calls; ++i) {
        tb::KernelCall call(which, 0);
        call.add(a);
        call.add(b);
        call.add_output(out);
        call.launch();
      }
    });
  };
  const double typed = called(kernel);
  const at::AutoDispatchBelowADInplaceOrView below_autograd; // whose part is PyTorch's own
  const auto dispatched = [&](const char* name) {
    const auto op = out_operator(name);
    return best_ns([&](int calls) {
      for (int i = 0; i < calls; ++i) {
        op.call(a, b, out);
      }
    });
  };
  const double bare = dispatched("bench::bare");
  const double boxed = dispatched("bench::boxed");
  std::printf("the kernel's function, arguments ready     %8.1f ns\n", direct);
  std::printf("KernelCall, 3 tensors                      %8.1f ns\n", typed);
  std::printf("dispatcher, out= with 3 tensors            %8.1f ns\n", bare);
  std::printf("... through the boxed adapter              %8.1f ns\n", boxed);
  if (const auto* own = tb::find_kernel("aten::mul.out")) {
    std::printf("KernelCall of the plugin's aten::mul.out   %8.1f ns\n", called(*own));
    std::printf("... through the dispatcher                 %8.1f ns\n", dispatched("aten::mul"));
  }
}
