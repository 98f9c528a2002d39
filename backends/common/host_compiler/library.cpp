#include "library.h"

#include <dlfcn.h>
#include <link.h>

namespace plugin {

result library::open(const std::string& path, std::shared_ptr<const library>* out_library) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = dlerror();
    return failure(TB_STATUS_UNSUPPORTED, "the module cannot be loaded: %s", why ? why : "no reason given");
  }
  *out_library = std::shared_ptr<const library>(new library(handle));
  return {};
}

library::~library() {
  dlclose(handle_);
}

// dlsym also looks in what the library needs, such as the C library.
void* library::find(const char* name) const {
  void* symbol = dlsym(handle_, name);
  const link_map *own = nullptr, *owner = nullptr;
  Dl_info info;
  if (!symbol || dlinfo(handle_, RTLD_DI_LINKMAP, &own) != 0 ||
      !dladdr1(symbol, &info, reinterpret_cast<void**>(const_cast<link_map**>(&owner)), RTLD_DL_LINKMAP))
    return nullptr;
  return own == owner ? symbol : nullptr;
}

} // namespace plugin
