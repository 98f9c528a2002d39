// What comes before a module's text, from the files of these names.
#pragma once

namespace plugin::simt {

extern const char kPreludeText[], kKernelAbiText[];

} // namespace plugin::simt
