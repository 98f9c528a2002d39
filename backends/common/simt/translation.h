// CUDA C++ as C++ that the host's compiler takes.
#pragma once

#include <string>

namespace plugin::simt {

// `text` is what the preprocessor makes of prelude.h and a module's text. The result shows itself as `simt_this_module`.
std::string translate(std::string text);

} // namespace plugin::simt
