#include "table.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "../device.h"
#include "../stream.h"
#include "checksum.h"
#include "compiler.h"
#include "launch.h"
#include "library.h"
#include "temporary_directory.h"

struct tb_function {
  int32_t device;
  xcpu::modules::block_function code;
  std::shared_ptr<const xcpu::modules::library> of;
};

struct tb_module {
  const int32_t device;
  const std::shared_ptr<const xcpu::modules::library> code;
  const std::string image;
  std::mutex mutex; // guards functions
  std::map<std::string, tb_function> functions;
};

namespace xcpu::modules {
namespace {

constexpr char kSource[] = "c++", kImage[] = "image";

// What an image begins with. The shared object follows.
struct image_header {
  char magic[16];
  uint64_t version; // checksum of the compiler's
  uint64_t size_bytes;
  uint64_t checksum;
};

image_header header_of(std::string_view object) {
  return {"xcpu module, 1\n", checksum(compiler_version()), object.size(), checksum(object)};
}

std::string make_image(std::string_view object) {
  const image_header header = header_of(object);
  std::string image(reinterpret_cast<const char*>(&header), sizeof header);
  image += object;
  return image;
}

result check_module(int32_t device, const tb_module* module) {
  if (module->device == device) return {};
  return failure(TB_STATUS_INVALID_ARGUMENT, "a module of device %d is used as one of device %d", module->device,
                 device);
}

result unpack(std::string_view image, const temporary_directory& in, std::string* out_path) {
  const std::string_view object = image.substr(std::min(image.size(), sizeof(image_header)));
  const image_header expected = header_of(object);
  if (object.empty() || std::memcmp(image.data(), &expected, sizeof expected) != 0)
    return failure(TB_STATUS_UNSUPPORTED,
                   "module_load: %llu bytes that are not an image which this compiler made on this processor",
                   static_cast<unsigned long long>(image.size()));
  *out_path = in.file("module.so");
  write_file(*out_path, object);
  return {};
}

} // namespace

const char* const* formats() {
  static const char* const all[] = {kSource, nullptr};
  return all;
}

result module_load(int32_t device, const char* format, const void* image, uint64_t size_bytes, tb_module** out_module) {
  const std::string_view given(static_cast<const char*>(image), size_bytes);
  const temporary_directory directory;
  std::string path;
  result r;
  if (std::strcmp(format, kSource) == 0) {
    r = compile(given, directory, &path);
  } else if (std::strcmp(format, kImage) == 0) {
    r = unpack(given, directory, &path);
  } else {
    r = failure(TB_STATUS_UNSUPPORTED, "module_load: the format \"%s\" is not in module_formats", format);
  }
  std::shared_ptr<const library> code;
  if (r.ok()) r = library::open(path, &code);
  if (r.ok()) *out_module = new tb_module{device, std::move(code), make_image(read_file(path)), {}, {}};
  return r;
}

// Launches that are pending share the code.
result module_unload(int32_t device, tb_module* module) {
  result r = check_module(device, module);
  if (r.ok()) delete module;
  return r;
}

result module_function(int32_t device, tb_module* module, const char* name, tb_function** out_function) {
  result r = check_module(device, module);
  if (!r.ok()) return r;
  const block_function code = module->code->find(name);
  if (!code) return failure(TB_STATUS_INVALID_ARGUMENT, "the module has no function \"%s\" (extern \"C\")", name);
  const std::lock_guard<std::mutex> lock(module->mutex);
  *out_function = &module->functions.emplace(name, tb_function{device, code, module->code}).first->second;
  return {};
}

result module_launch(int32_t device, tb_function* function, const uint32_t* grid, const uint32_t* block,
                     const tb_launch_param* params, uint32_t num_params, tb_stream* stream) {
  result r = check_device(device);
  if (r.ok() && function->device != device)
    r = failure(TB_STATUS_INVALID_ARGUMENT, "a function of device %d is launched on device %d", function->device,
                device);
  if (!r.ok()) return r;
  if (!settings().async) {
    static thread_local launch now; // so that nothing is allocated
    r = now.set(function->code, grid, block, params, num_params);
    return r.ok() ? run_on_stream(slot::module_launch, device, stream, false, [] { return now.run(); }) : r;
  }
  auto later = std::make_shared<launch>();
  r = later->set(function->code, grid, block, params, num_params);
  if (!r.ok()) return r;
  return run_on_stream(slot::module_launch, device, stream, false,
                       [later = std::move(later), code = function->of] { return later->run(); });
}

result module_image(int32_t device, tb_module* module, void* out_image, uint64_t* size_bytes) {
  result r = check_module(device, module);
  if (!r.ok()) return r;
  if (*size_bytes >= module->image.size()) std::memcpy(out_image, module->image.data(), module->image.size());
  *size_bytes = module->image.size();
  return {};
}

} // namespace xcpu::modules
