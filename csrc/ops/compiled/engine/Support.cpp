#include "csrc/ops/compiled/engine/Support.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <c10/util/BFloat16.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Half.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/Capture.h"
#include "csrc/core/ErrorCell.h"
#include "csrc/core/FailedWait.h"
#include "csrc/core/KernelHost.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/engine/KernelText.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Rehearsal.h"

namespace torch_backend::compiled {

uint64_t bits_of_number(const tb_arg& number, ValueType type) {
  switch (type) {
    case ValueType::b8:
      return double_of(number) != 0;
    case ValueType::f16:
      return c10::Half(static_cast<float>(double_of(number))).x;
    case ValueType::bf16:
      return c10::BFloat16(static_cast<float>(double_of(number))).x;
    case ValueType::f32:
      return std::bit_cast<uint32_t>(static_cast<float>(double_of(number)));
    case ValueType::f64:
      return std::bit_cast<uint64_t>(double_of(number));
    default:
      return static_cast<uint64_t>(int_of(number));
  }
}

int64_t scalar_of(const tb_arg& number, ValueType compute) {
  return is_floating(compute) ? scalar_of(double_of(number), compute) : int_of(number);
}

int64_t scalar_of(double number, ValueType compute) {
  switch (compute) {
    case ValueType::f32:
      return std::bit_cast<uint32_t>(static_cast<float>(number));
    case ValueType::f64:
      return std::bit_cast<int64_t>(number);
    default:
      return static_cast<int64_t>(number);
  }
}

void define_float8(SourceText& text) {
  text.define("E4M3FN_BEYOND", static_cast<int64_t>(c10::Float8_e4m3fn(INFINITY).x)); // by PyTorch's version
  text.line(kernel_text("float8"));
}

std::string load_text(ValueType type, ValueType compute, int operand) {
  if (is_complex(type) && !is_complex(compute)) {
    const auto part = c10::str("(T)TB_LOAD_", name_of(part_type(type)), "(p", operand, ", 2 * (K(", operand, "))");
    return c10::str("hypot(", part, "), ", part, " + 1))");
  }
  const char* convert = is_complex(type) ? "" : is_complex(compute) ? "tb_real(" : "(T)";
  return c10::str(convert, "TB_LOAD_", name_of(type), "(p", operand, ", K(", operand, "))",
                  is_complex(compute) && !is_complex(type) ? ")" : "");
}

bool has_repeats(const tb_tensor& tensor) {
  bool repeats = false;
  for (int32_t d = 0; d < tensor.ndim; ++d) {
    if (tensor.shape[d] == 0) {
      return false;
    }
    repeats = repeats || (tensor.shape[d] > 1 && tensor.strides[d] == 0);
  }
  return repeats;
}

bool is_of_vectors(const void* data, std::size_t element_bytes, int64_t elements, c10::ArrayRef<int64_t> strides,
                   c10::ArrayRef<int64_t> sizes) {
  const auto bytes = std::min<std::size_t>(static_cast<std::size_t>(elements) * element_bytes, kWideBytes);
  bool is = reinterpret_cast<uintptr_t>(data) % bytes == 0;
  for (std::size_t i = 0; i < strides.size(); ++i) {
    is = is && (strides[i] % elements == 0 || (!sizes.empty() && sizes[i] == 1));
  }
  return is;
}

void define_wide(SourceText& text, const char* pointer, c10::ArrayRef<WideOperand> operands, int64_t size,
                 int64_t ahead) {
  std::string declarations, reads, shadows, writes;
  for (const auto& operand : operands) {
    const auto name = c10::str(pointer, operand.number);
    const auto type = c10::str("tb_bytes<", size * static_cast<int64_t>(size_of(operand.type)), ">");
    const auto here = c10::str("here_", name, "[a]"),
               there = c10::str("((", type, "*)", name, ")[V(", operand.number, ")]");
    declarations += c10::str(type, " here_", name, "[", ahead, "]; ");
    reads += operand.is_read ? c10::str(here, " = ", there, "; ") : std::string();
    shadows += c10::str("char* const ", name, " = (char*)&", here, "; ");
    writes += operand.is_written ? c10::str(there, " = ", here, "; ") : std::string();
  }
  text.define("WIDE_DECLARE", declarations);
  text.define("WIDE_READ(a, V)", reads);
  text.define("WIDE_SHADOWS(a)", shadows);
  text.define("WIDE_WRITE(a, V)", writes);
}

char* workspace(const tb_kernel_context& context, int64_t size_bytes) {
  void* memory = nullptr;
  const auto status = context.host->alloc_workspace(static_cast<uint64_t>(size_bytes > 0 ? size_bytes : 1), &memory);
  if (status != TB_STATUS_OK) {
    throw NoWorkspace{status};
  }
  return static_cast<char*>(memory);
}

View dense_like(const tb_kernel_context& context, const View& view) {
  return view.is_contiguous() ? view
                              : View(workspace(context, view.numel() * view.element_bytes()), view.dtype, view.sizes);
}

void fill_bytes(const tb_kernel_context& context, void* memory, uint8_t value, int64_t size_bytes) {
  if (size_bytes > 0 && Rehearsal::goes_ahead()) {
    device_api().memory_fill(context.device, memory, &value, 1, static_cast<uint64_t>(size_bytes), context.stream);
  }
}

void read_back(const tb_kernel_context& context, const char* op, const void* memory, int64_t* numbers, int64_t count) {
  if (!Rehearsal::goes_ahead()) {
    throw Rehearsal::StartsAnew(); // what comes next depends on the numbers
  }
  auto& api = device_api();
  if (api.async()) {
    graph::refuse_in_capture(context.device, context.stream, op);
  }
  read_memory(api, context.device, numbers, memory, static_cast<std::size_t>(count) * sizeof(int64_t), context.stream);
}

void report_unless(const tb_kernel_context& context, const void* flags, int64_t count, const char* message) {
  static constexpr Skeleton kVerify{"verify", "verify"};
  Specialization wanted(kVerify);
  wanted.index_of(false).parameters(2);
  const int64_t args[] = {count, fallible_operator(message)};
  Launch launch(context);
  launch.pointer(flags);
  launch.pointer(error_cell(context.device));
  launch.value(args, sizeof args);
  launch.run(find_function(context.device, wanted), count);
  fallible_launch(context.device, context.stream);
}

} // namespace torch_backend::compiled
