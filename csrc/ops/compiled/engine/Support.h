// What launchers of several families need: arguments, workspaces, copies of views.
#pragma once

#include <cstdint>
#include <string>

#include <c10/util/ArrayRef.h>

#include "csrc/ops/compiled/engine/Arguments.h"
#include "csrc/ops/compiled/engine/Kernels.h"
#include "csrc/ops/compiled/engine/SourceText.h"
#include "csrc/ops/compiled/engine/ValueType.h"
#include "csrc/ops/compiled/engine/View.h"
#include "torch_backend/device.h"

namespace torch_backend::compiled {

constexpr tb_dtype kInt64{TB_DTYPE_INT, 64, 1};
constexpr tb_dtype kInt32{TB_DTYPE_INT, 32, 1};

/// The number as the dtype's bits, in the lowest bytes.
uint64_t bits_of_number(const tb_arg& number, ValueType type);
/// The number as an eight-byte field of struct Args, for TB_SCALAR of a kernel that computes in `compute`.
int64_t scalar_of(const tb_arg& number, ValueType compute);
int64_t scalar_of(double number, ValueType compute);

/// Thrown where a workspace cannot be had; `status` is for the kernel to return.
struct NoWorkspace {
  tb_status status;
};
/// `TB_LOAD_f32(p2, K(2))` as a T, where kernels compute in `compute`: real numbers of complex ones are their sizes.
std::string load_text(ValueType type, ValueType compute, int operand);
/// Whether several elements are one and the same, as of an expanded tensor; without elements, whatever its strides say, none.
bool has_repeats(const tb_tensor& tensor);
/// Neighbours in operand `number`, that an item moves at once where vectors can be moved.
struct WideOperand {
  int number;
  ValueType type;
  bool is_read; // may be true of what is only written: the compiler finds out
  bool is_written;
};
/// What one access moves, which is how operands must be aligned.
constexpr int kWideBytes = 16;
/// Whether an operand at `data` can be moved by vectors of `elements` where its elements lie side by side: it is aligned for
/// them, and the other `strides` lead from vector to vector. Those of a dimension of `sizes` with one place do not matter.
bool is_of_vectors(const void* data, std::size_t element_bytes, int64_t elements, c10::ArrayRef<int64_t> strides = {},
                   c10::ArrayRef<int64_t> sizes = {});
/// For vectors of `size` elements, of which an item has `ahead` at once: WIDE_DECLARE declares what it has, WIDE_READ(a, V)
/// has each operand's vector V(number) as its a-th, WIDE_SHADOWS(a) declares `pointer`number to be where that is, and
/// WIDE_WRITE(a, V) writes it back.
void define_wide(SourceText& text, const char* pointer, c10::ArrayRef<WideOperand> operands, int64_t size,
                 int64_t ahead = 1);
/// The loads and stores of float8.
void define_float8(SourceText& text);
/// Device memory until the kernel's call is over. Throws NoWorkspace.
char* workspace(const tb_kernel_context& context, int64_t size_bytes);
/// A contiguous view of the same shape and dtype: this one, or undefined memory of the call. Throws NoWorkspace.
View dense_like(const tb_kernel_context& context, const View& view);
void fill_bytes(const tb_kernel_context& context, void* memory, uint8_t value, int64_t size_bytes);
/// `count` 64-bit numbers from the device, after waiting for the stream; fails a capture of it, naming `op`.
void read_back(const tb_kernel_context& context, const char* op, const void* memory, int64_t* numbers, int64_t count);

/// The device raises `message`, of static storage, unless all of `count` flags are set: bools side by side.
void report_unless(const tb_kernel_context& context, const void* flags, int64_t count, const char* message);

/// A kernel that may throw NoWorkspace.
template <KernelFunction kBody>
tb_status guarded(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t num_args) {
  try {
    return kBody(entry, context, args, num_args);
  } catch (const NoWorkspace& failure) {
    return failure.status;
  }
}

} // namespace torch_backend::compiled
