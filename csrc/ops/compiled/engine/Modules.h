// Kernels that the device compiles: each specialization once, kept for as long as the process lives.
#pragma once

#include <cstdint>
#include <string>

#include <c10/util/FunctionRef.h>

#include "csrc/ops/compiled/engine/SourceText.h"
#include "csrc/ops/compiled/engine/Specialization.h"
#include "torch_backend/device.h"

namespace torch_backend::compiled {

/// A function of the device, and how it is best launched.
struct Function {
  tb_function* handle = nullptr;
};

/// Whether the active device takes modules in a language that the kernels are written in.
bool has_modules();
/// That language, as in module_formats; NULL without modules.
const char* module_format();

/// How many pointers a function may take beside up to 300 bytes of numbers: OpenCL promises 1024 bytes of parameters, and
/// CUDA 4096.
int most_pointers();

/// Items of one block run one after the other: a launch has about as many blocks as the device has processors, and each
/// does a stretch of the work. Else neighbouring items do neighbouring elements. Starts the driver.
bool runs_in_stretches(int device);

/// Whether texts for the device have tb_add_product_f16 and what else preludes/cuda.h has of matrix units. Starts the driver.
bool has_matrices(int device);

/// Whether blocks of a launch may wait for those that have begun before them, with TB_AWAIT.
bool blocks_take_turns(int device);

/// Whether find_function has thrown MissingImage for the device.
bool lacks_images(int device);

/// `wanted` as a function. Blocks while it is compiled, the first time for the device. Throws RuntimeError with the
/// compiler's messages, and MissingImage where nothing compiles it (Note [Images compiled ahead]). Threads: any; two that
/// want the same wait for one compilation. In a rehearsal (Note [Rehearsals]) nothing is compiled, and a function without a
/// handle stands for what is not.
const Function& find_function(int device, const Specialization& wanted);

/// A function of a text that was written at run time: `body` goes after what `write` writes and the `texts`, and has
/// TB_KERNEL(name). The caller keeps
/// what it returns, which is compiled anew each time but for what is on disk.
Function compile_text(int device, const char* texts, const std::string& body, const char* name,
                      c10::function_ref<void(SourceText&)> write);

} // namespace torch_backend::compiled
