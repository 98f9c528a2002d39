// Kernels that the device compiles: each specialization once, kept for as long as the process lives.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include <c10/util/FunctionRef.h>

#include "csrc/ops/compiled/engine/ValueType.h"
#include "torch_backend/device.h"

namespace torch_backend::compiled {

/// What tells one specialization of the kernels from all others: the skeleton's name and whatever its text depends on.
struct KernelKey {
  const void* kind = nullptr; // static storage: a skeleton, or an entry of a table
  std::array<uint64_t, 4> words{};

  bool operator==(const KernelKey& other) const {
    return kind == other.kind && words == other.words;
  }
};

/// The text of one specialization, before its skeleton.
class SourceText {
 public:
  explicit SourceText(const char* language) : language_(language) {}

  /// `#define name value`. Line ends in `value` are kept as one line.
  void define(std::string_view name, std::string_view value);
  void define(std::string_view name, int64_t value);
  /// T, TC and what belongs to them; see codegen/kernels/preludes/common.h, and complex.h.
  void compute_in(ValueType type);
  /// Index and UIndex: of 32 bits or of 64.
  void index_of(bool fits_32);
  void line(std::string_view text);
  /// The kernel's parameters: this many pointers p0, p1, ... and then, if `has_args`, the struct Args, as `args`.
  void parameters(int num_pointers, bool has_args = true);

  /// With preludes before it, and the skeletons that are named after it: "pointwise" or "random pointwise".
  std::string complete(const char* skeletons, bool chunked) const;

 private:
  std::string_view language_;
  std::string compute_; // goes before the common prelude
  std::string text_;
};

/// A function of the device, and how it is best launched.
struct Function {
  tb_function* handle = nullptr;
};

/// Whether the active device takes modules in a language that the kernels are written in.
bool has_modules();

/// How many pointers a function may take beside up to 300 bytes of numbers: OpenCL promises 1024 bytes of parameters, and
/// CUDA 4096.
int most_pointers();

/// Items of one block run one after the other: a launch has about as many blocks as the device has processors, and each
/// does a stretch of the work. Else neighbouring items do neighbouring elements. Starts the driver.
bool runs_in_stretches(int device);

/// The function called `name` of the specialization `key`. `write` is called where it has not been compiled for the device
/// yet; `skeletons` as SourceText::complete takes them. Blocks while it is compiled. Throws RuntimeError with the
/// compiler's messages. Threads: any; two that want the same wait for one compilation.
const Function& find_function(int device, const KernelKey& key, const char* skeletons, const char* name,
                              c10::function_ref<void(SourceText&)> write);

/// The same of a text that was written at run time: `body` goes after what `write` writes and the `texts`. The caller keeps
/// what it returns, which is compiled anew each time but for what is on disk.
Function compile_text(int device, const char* texts, const std::string& body, const char* name,
                      c10::function_ref<void(SourceText&)> write);

} // namespace torch_backend::compiled
