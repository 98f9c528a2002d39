#include "module.h"

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "device.h"
#include "nvrtc.h"
#include "stream.h"

struct tb_function {
  const xcuda::CUfunction handle;
};

struct tb_module {
  const xcuda::CUmodule handle;
  const std::string code;
  std::mutex mutex; // guards functions
  std::map<std::string, tb_function> functions;
};

namespace xcuda {
namespace {

constexpr char kSource[] = "cuda-c", kImage[] = "image";
constexpr uint32_t kSharedAlignment = 16; // no type needs more

// Whatever the driver does not like about an image: the source is the way out.
bool is_about_the_image(CUresult error) {
  switch (error) {
    case kCUDA_ERROR_INVALID_VALUE:
    case kCUDA_ERROR_INVALID_IMAGE:
    case kCUDA_ERROR_NO_BINARY_FOR_GPU:
    case kCUDA_ERROR_INVALID_PTX:
    case kCUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case kCUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return true;
    default:
      return false;
  }
}

// The driver reads an image's own headers for its size.
bool is_code(std::string_view code) {
  constexpr std::string_view kElf("\177ELF", 4);
  return code.size() > 64 && (code.substr(0, 4) == kElf || code.back() == '\0');
}

// A parameter's value: shared memory is an offset into the block's.
struct arguments {
  std::vector<void*> pointers;
  std::vector<const void*> addresses;
  std::vector<uint32_t> offsets;
  uint32_t shared_bytes = 0;

  // Kept by the thread, so that nothing is allocated.
  static arguments& of_thread() {
    static thread_local arguments all;
    return all;
  }

  result set(const tb_launch_param* params, uint32_t count) {
    pointers.resize(count);
    addresses.resize(count);
    offsets.resize(count);
    shared_bytes = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const tb_launch_param& p = params[i];
      switch (p.kind) {
        case TB_PARAM_VALUE:
          pointers[i] = const_cast<void*>(p.data);
          break;
        case TB_PARAM_POINTER:
          addresses[i] = p.data;
          pointers[i] = &addresses[i];
          break;
        case TB_PARAM_LOCAL:
          offsets[i] = shared_bytes;
          pointers[i] = &offsets[i];
          shared_bytes += (p.size_bytes + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
          break;
        default:
          return failure(TB_STATUS_INVALID_ARGUMENT, "module_launch: parameter %u is of kind %u", i, p.kind);
      }
    }
    return {};
  }
};

} // namespace

const char* const* module_formats() {
  static const char* const formats[] = {kSource, nullptr};
  return formats;
}

result module_load(int32_t device, const char* format, const void* image, uint64_t size_bytes, tb_module** out_module) {
  xcuda::device& d = device_at(device);
  const std::string_view given(static_cast<const char*>(image), size_bytes);
  const bool is_image = std::strcmp(format, kImage) == 0;
  std::string code;
  result r;
  if (std::strcmp(format, kSource) == 0)
    r = compile(given, d.properties.capability_major, d.properties.capability_minor, &code);
  else if (!is_image)
    r = failure(TB_STATUS_UNSUPPORTED, "module_load: format \"%s\" is neither \"%s\" nor \"%s\"", format, kSource,
                kImage);
  else if (is_code(given))
    code = given;
  else
    r = failure(TB_STATUS_UNSUPPORTED, "module_load: %llu bytes that are neither a cubin nor PTX",
                static_cast<unsigned long long>(size_bytes));
  if (!r.ok()) return r;
  const outside_captures outside;
  const context_scope scope(d);
  if (!scope.failure().ok()) return scope.failure();
  CUmodule handle = nullptr;
  const CUresult error = cu.ModuleLoadDataEx(&handle, code.data(), 0, nullptr, nullptr);
  r = check(error, "module_load");
  if (is_image && is_about_the_image(error)) r.status = TB_STATUS_UNSUPPORTED;
  if (r.ok()) *out_module = new tb_module{handle, std::move(code), {}, {}};
  return r;
}

// The driver would unload code that still runs.
result module_unload(int32_t device, tb_module* module) {
  result waited = wait_for_streams(device, "module_unload");
  const outside_captures outside;
  result r = call_on(device_at(device), "module_unload", [&] { return cu.ModuleUnload(module->handle); });
  delete module;
  return waited.ok() ? r : waited;
}

result module_function(int32_t device, tb_module* module, const char* name, tb_function** out_function) {
  const std::lock_guard<std::mutex> lock(module->mutex);
  auto found = module->functions.find(name);
  if (found == module->functions.end()) {
    CUfunction handle = nullptr;
    result r = call_on(device_at(device), "module_function",
                       [&] { return cu.ModuleGetFunction(&handle, module->handle, name); });
    if (!r.ok()) {
      r.text += std::string(", of \"") + name + "\"";
      return r;
    }
    found = module->functions.emplace(name, tb_function{handle}).first;
  }
  *out_function = &found->second;
  return {};
}

result module_launch(int32_t device, tb_function* function, const uint32_t grid[3], const uint32_t block[3],
                     const tb_launch_param* params, uint32_t num_params, tb_stream* stream) {
  xcuda::device& d = device_at(device);
  arguments& all = arguments::of_thread();
  result r = all.set(params, num_params);
  const context_scope scope(d);
  if (r.ok()) r = scope.failure();
  if (!r.ok()) return r;
  return check(cu.LaunchKernel(function->handle, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                               all.shared_bytes, handle_of(stream), all.pointers.data(), nullptr),
               "module_launch");
}

result module_image(int32_t, tb_module* module, void* out_image, uint64_t* size_bytes) {
  if (*size_bytes >= module->code.size()) std::memcpy(out_image, module->code.data(), module->code.size());
  *size_bytes = module->code.size();
  return {};
}

} // namespace xcuda
