#include "csrc/ops/compiled/engine/GraphKernel.h"

#include <algorithm>
#include <string_view>

#include <c10/util/Exception.h>

#include "csrc/core/CallSpan.h"
#include "csrc/core/Capture.h"
#include "csrc/core/ErrorCell.h"
#include "csrc/core/Runtime.h"
#include "csrc/core/Stream.h"
#include "csrc/ops/compiled/engine/Launch.h"

namespace torch_backend::compiled {
namespace {

constexpr int kMostNumbers = 64;

/// "fused_add_mul" of "graph_fused_add_mul_3": kernels of one text are compiled once.
std::string_view without_number(std::string_view name) {
  constexpr std::string_view kStart = "graph_";
  name.remove_prefix(name.substr(0, kStart.size()) == kStart ? kStart.size() : 0);
  const auto last = name.find_last_not_of("0123456789");
  return last != std::string_view::npos && last + 1 < name.size() && name[last] == '_' ? name.substr(0, last) : name;
}

} // namespace

GraphKernel::GraphKernel(Text text) : text_(std::move(text)) {
  TORCH_CHECK_VALUE(text_.num_pointers >= 0 && text_.num_pointers < Launch::kMaxParameters - 2,
                    "A kernel takes at most ", Launch::kMaxParameters - 3, " tensors; ", text_.name, " has ",
                    text_.num_pointers, ".");
  TORCH_CHECK_VALUE(text_.num_numbers >= 0 && text_.num_numbers < kMostNumbers, "A kernel takes at most ",
                    kMostNumbers - 1, " numbers; ", text_.name, " has ", text_.num_numbers, ".");
}

const Function& GraphKernel::compile(int device) {
  TORCH_CHECK(has_modules(), device_api().name(), " takes no modules, so ", text_.name, " cannot be compiled for it.");
  auto& slot = slots_.at(static_cast<std::size_t>(device));
  if (C10_LIKELY(slot.ready.load(std::memory_order_acquire))) {
    return slot.function;
  }
  const std::lock_guard<std::mutex> lock(slot.mutex);
  if (!slot.ready.load(std::memory_order_relaxed)) {
    slot.function = compile_text(device, text_.texts.c_str(), text_.body, "graph_kernel", [&](SourceText& text) {
      text.call_it(without_number(text_.name));
      text.compute_in(text_.compute_type);
      text.index_of(text_.is_32_bit);
      text.line("typedef struct { tb_scalar n[" + std::to_string(text_.num_numbers + 1) + "]; } Args;");
      text.define("GROUP", block_items(device));
      text.parameters(text_.num_pointers + (text_.may_fail ? 1 : 0));
    });
    slot.ready.store(true, std::memory_order_release);
  }
  return slot.function;
}

void GraphKernel::launch(int device, int64_t units, int64_t cost, const void* const* pointers, const int64_t* words) {
  if (units <= 0) {
    return;
  }
  const auto& function = compile(device);
  auto& api = device_api();
  api.check_usable(device, text_.name.c_str());
  auto* const stream = api.async() ? current_stream(static_cast<c10::DeviceIndex>(device)).handle() : nullptr;
  static const int64_t op = fallible_operator("a graph of torch.compile");
  std::array<int64_t, kMostNumbers> args{op};
  std::copy_n(words, text_.num_numbers, args.begin() + 1);
  Launch launch({sizeof(tb_kernel_context), device, 0, stream, nullptr, {}});
  for (int i = 0; i < text_.num_pointers; ++i) {
    launch.pointer(pointers[i]);
  }
  if (text_.may_fail) {
    launch.pointer(error_cell(device));
  }
  launch.value(args.data(), static_cast<std::size_t>(text_.num_numbers + 1) * sizeof(int64_t));
  CallSpan span("kernel_launch", device);
  span.kernel(stream, text_.name);
  if (text_.per_block > 0) {
    launch.run_blocks(function, (units - 1) / text_.per_block + 1, block_items(device));
  } else {
    launch.run(function, units, cost);
  }
  span.enqueued();
  graph::add_step(device, stream, text_.name.c_str());
  if (text_.may_fail) {
    fallible_launch(device, stream);
  }
}

} // namespace torch_backend::compiled
