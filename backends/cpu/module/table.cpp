#include "table.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "../device.h"
#include "../stream.h"
#include "common/host_compiler/checksum.h"
#include "common/host_compiler/library.h"
#include "common/host_compiler/temporary_directory.h"
#include "common/simt/program.h"
#include "launch.h"
#include "source.h"

struct tb_function {
  int32_t device;
  xcpu::modules::function_code code;
  std::shared_ptr<const void> of; // what the code lies in
};

struct tb_module {
  explicit tb_module(int32_t of) : device(of) {}

  const int32_t device;
  std::shared_ptr<const plugin::library> in_order;           // either,
  std::shared_ptr<const plugin::simt::program> side_by_side; // or
  std::string image;
  std::mutex mutex; // guards functions
  std::map<std::string, tb_function> functions;
};

namespace xcpu::modules {
namespace {

constexpr char kImage[] = "image";

// What an image begins with. The shared object follows.
struct image_header {
  char magic[16];
  uint64_t version; // checksum of the compiler's
  uint64_t size_bytes;
  uint64_t checksum;
};

image_header header_of(std::string_view object) {
  return {"xcpu module, 1\n", checksum(driver_version()), object.size(), checksum(object)};
}

std::string make_image(std::string_view object) {
  const image_header header = header_of(object);
  std::string image(reinterpret_cast<const char*>(&header), sizeof header);
  return image.append(object);
}

result check_module(int32_t device, const tb_module* module) {
  if (module->device == device) return {};
  return failure(TB_STATUS_INVALID_ARGUMENT, "a module of device %d is used as one of device %d", module->device,
                 device);
}

// Without a compiler here, images may be what another has made: shared objects as they are.
result unpack(std::string_view image, std::string* out_object) {
  constexpr std::string_view kElf("\177ELF", 4);
  if (!settings().compiler && image.substr(0, kElf.size()) == kElf) {
    *out_object = image;
    return {};
  }
  const std::string_view object = image.substr(std::min(image.size(), sizeof(image_header)));
  const image_header expected = header_of(object);
  if (object.empty() || std::memcmp(image.data(), &expected, sizeof expected) != 0)
    return failure(TB_STATUS_UNSUPPORTED,
                   "module_load: %llu bytes that are not an image which this compiler made on this processor",
                   static_cast<unsigned long long>(image.size()));
  *out_object = object;
  return {};
}

result open(const std::string& object, tb_module* to) {
  if (settings().modules == modules_mode::side_by_side) return simt::program::open(object, &to->side_by_side);
  const temporary_directory directory;
  const std::string path = directory.file("module.so");
  write_file(path, object);
  return library::open(path, &to->in_order);
}

tb_function find(const tb_module& module, const char* name) {
  if (const auto& program = module.side_by_side)
    return {module.device, {nullptr, program->find(name), program.get()}, program};
  return {module.device, {reinterpret_cast<block_function>(module.in_order->find(name))}, module.in_order};
}

} // namespace

const char* const* formats() {
  static const char* const all[] = {source_format(), nullptr};
  return all;
}

result module_load(int32_t device, const char* format, const void* image, uint64_t size_bytes, tb_module** out_module) {
  const std::string_view given(static_cast<const char*>(image), size_bytes);
  std::string object;
  result r;
  if (std::strcmp(format, source_format()) == 0 && !settings().compiler) {
    r = failure(TB_STATUS_UNSUPPORTED, "xcpu.compiler is 0");
  } else if (std::strcmp(format, source_format()) == 0) {
    r = compile(given, &object);
  } else if (std::strcmp(format, kImage) == 0) {
    r = unpack(given, &object);
  } else {
    r = failure(TB_STATUS_UNSUPPORTED, "module_load: the format \"%s\" is not in module_formats", format);
  }
  auto made = std::make_unique<tb_module>(device);
  if (r.ok()) {
    r = open(object, made.get());
    if (!r.ok() && std::strcmp(format, kImage) != 0) r.status = TB_STATUS_INTERNAL; // it was made here
  }
  if (!r.ok()) return r;
  made->image = make_image(object);
  *out_module = made.release();
  return {};
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
  tb_function found = find(*module, name);
  if (!found.code.in_order && !found.code.side_by_side)
    return failure(TB_STATUS_INVALID_ARGUMENT, "the module has no function \"%s\" (extern \"C\")", name);
  const std::lock_guard<std::mutex> lock(module->mutex);
  *out_function = &module->functions.emplace(name, std::move(found)).first->second;
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
                       [later = std::move(later), of = function->of] { return later->run(); });
}

result module_image(int32_t device, tb_module* module, void* out_image, uint64_t* size_bytes) {
  result r = check_module(device, module);
  if (!r.ok()) return r;
  if (*size_bytes >= module->image.size()) std::memcpy(out_image, module->image.data(), module->image.size());
  *size_bytes = module->image.size();
  return {};
}

} // namespace xcpu::modules
