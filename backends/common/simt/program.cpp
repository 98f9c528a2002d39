#include "program.h"

#include <cstring>

#include "../host_compiler/temporary_directory.h"
#include "block.h"

namespace plugin::simt {
namespace {

constexpr unsigned char kUnwritten = 0xD5;
constexpr uint32_t kGuardBytes = 64; // behind dynamic shared memory

result failed(const simt_kernel& kernel, const std::string& why) {
  return {TB_STATUS_INTERNAL, std::string(kernel.name) + ": " + why};
}

} // namespace

result program::open(std::string object, std::shared_ptr<const program>* out_program) {
  std::shared_ptr<program> made(new program(std::move(object)));
  result r = made->open_copy(&made->first_);
  if (!r.ok()) return r;
  made->idle_.push_back(made->first_);
  *out_program = std::move(made);
  return {};
}

// A file of its own: the same one would not be loaded twice.
result program::open_copy(copy* out_copy) const {
  const temporary_directory directory;
  const std::string path = directory.file("module.so");
  write_file(path, object_);
  result r = library::open(path, &out_copy->code);
  if (!r.ok()) return r;
  out_copy->module = static_cast<const simt_module*>(out_copy->code->find("simt_this_module"));
  return out_copy->module ? result() : failure(TB_STATUS_UNSUPPORTED, "code that was not made for items side by side");
}

const simt_kernel* program::find(std::string_view name) const {
  for (const simt_kernel* each = first_.module->kernels; each->name; ++each)
    if (each->name == name) return each;
  return nullptr;
}

result program::run(const simt_kernel& kernel, const launch_shape& shape, void* const* parameters, uint64_t first,
                    uint64_t end, races* looked_for) const {
  copy mine{};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_.empty()) {
      mine = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!mine.module)
    if (result r = open_copy(&mine); !r.ok()) return r;
  const simt_module& code = *mine.module;
  const auto& [grid, size, shared_bytes] = shape;
  *code.grid_size = grid;
  block running(code, code.kernels[&kernel - first_.module->kernels], parameters, size, looked_for);
  result r;
  for (uint64_t i = first; i < end && r.ok(); ++i) {
    const uint64_t row = i / grid.x;
    *code.block = {static_cast<unsigned>(i % grid.x), static_cast<unsigned>(row % grid.y),
                   static_cast<unsigned>(row / grid.y)};
    std::memset(code.shared, kUnwritten, shared_bytes + kGuardBytes);
    const std::string wrong = running.run(static_cast<uint32_t>(i));
    if (!wrong.empty()) r = failed(kernel, wrong);
    for (uint32_t n = 0; n < kGuardBytes; ++n)
      if (code.shared[shared_bytes + n] != kUnwritten && r.ok())
        r = failed(kernel, "it writes behind its " + std::to_string(shared_bytes) + " bytes of shared memory");
  }
  if (r.ok() && looked_for && !looked_for->found().empty()) r = {TB_STATUS_INTERNAL, looked_for->found()};
  if (!r.ok()) return r; // what items have left in the middle of something is not used again
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(mine));
  return r;
}

} // namespace plugin::simt
