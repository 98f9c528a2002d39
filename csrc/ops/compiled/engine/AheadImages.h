// Images that were compiled before the program started, for devices whose driver compiles nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <c10/util/Exception.h>

namespace torch_backend::compiled {

/// Note [Images compiled ahead]
/// `torch-backend compile-kernels` runs a program and keeps the image of each text that it comes to, compiled by the device's
/// own module_load or by a command. Such images lie in $TORCH_BACKEND_IMAGES, else in the folder `images` beside the device's
/// library, and are found by the device (plugin, its version, arch), the language and the text: nothing of the driver, which
/// refuses what it cannot take. Where there is none and module_load answers UNSUPPORTED to source, the call goes to the next
/// kernel source.

/// Thrown by find_function: there is no image of a text, and the driver does not compile.
class MissingImage : public c10::NotImplementedError {
 public:
  using c10::NotImplementedError::NotImplementedError;
};
/// `reason` is the driver's text. The first of the process warns, as calls of what has no image are slow.
[[noreturn]] void throw_missing_image(int device, const std::string& function, const std::string& reason);

std::optional<std::string> find_ahead_image(int device, const char* format, const std::string& text);

/// From now on images go to `folder`, where they are found like a wheel's. `compiler` makes them, of a text; without one the
/// device's module_load does. For the process; before its first kernel.
void compile_ahead(std::string folder, std::function<std::string(const std::string& text)> compiler);
/// NULL unless compile_ahead was given one. What it throws is what the kernel's call raises.
const std::function<std::string(const std::string& text)>& ahead_compiler();
/// Nothing unless images are compiled ahead.
void keep_ahead_image(int device, const char* format, const std::string& text, const std::string& image);
bool compiles_ahead();
/// How many keep_ahead_image has kept.
uint64_t num_ahead_images();

} // namespace torch_backend::compiled
