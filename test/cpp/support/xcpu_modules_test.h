// What tests of modules of the xcpu device share: kernels.1 in a convenient form.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "support/xcpu_test.h"

namespace torch_backend::testing {

template <typename T>
tb_launch_param value(const T& of) {
  return {TB_PARAM_VALUE, sizeof(T), &of};
}
inline tb_launch_param pointer(const void* to) {
  return {TB_PARAM_POINTER, 0, to};
}
inline tb_launch_param local(uint32_t size_bytes) {
  return {TB_PARAM_LOCAL, size_bytes, nullptr};
}

class XcpuModules : public XcpuTest {
 protected:
  void TearDown() override {
    for (const auto& [module, device] : modules_) EXPECT_OK(kernels->module_unload(device, module));
    modules_.clear();
    XcpuTest::TearDown();
  }

  void load_modules(option_map more = {}) {
    more.try_emplace("modules", "1");
    load(more);
    kernels = static_cast<const tb_kernel_table*>(plugin->table("kernels.1"));
    ASSERT_NE(kernels, nullptr);
  }

  tb_device_properties properties() {
    tb_device_properties p = {};
    p.struct_size = sizeof p;
    EXPECT_OK(core->device_properties(0, &p));
    return p;
  }

  tb_status try_load(const std::string& text, tb_module** out_module, const char* format = nullptr,
                     int32_t device = 0) {
    if (!format) format = kernels->module_formats[0];
    return kernels->module_load(device, format, text.data(), text.size(), out_module);
  }
  tb_module* compile(const std::string& source, int32_t device = 0) {
    tb_module* module = nullptr;
    EXPECT_OK(try_load(source, &module, nullptr, device));
    return module ? (modules_[module] = device, module) : nullptr;
  }
  std::string image(tb_module* module) {
    uint64_t size = 0;
    EXPECT_OK(kernels->module_image(0, module, nullptr, &size));
    std::string bytes(size, '\0');
    EXPECT_OK(kernels->module_image(0, module, bytes.data(), &size));
    EXPECT_EQ(size, bytes.size());
    return bytes;
  }
  tb_module* load_image(const std::string& bytes, int32_t device = 0) {
    tb_module* module = nullptr;
    EXPECT_OK(try_load(bytes, &module, "image", device));
    return module ? (modules_[module] = device, module) : nullptr;
  }
  void unload(tb_module* module) {
    EXPECT_OK(kernels->module_unload(modules_.at(module), module));
    modules_.erase(module);
  }
  tb_function* function(tb_module* module, const char* name, int32_t device = 0) {
    tb_function* found = nullptr;
    EXPECT_OK(kernels->module_function(device, module, name, &found));
    return found;
  }

  tb_status launch(tb_function* what, const std::vector<tb_launch_param>& params, tb_stream* stream = nullptr,
                   std::vector<uint32_t> grid = {1, 1, 1}, std::vector<uint32_t> block = {1, 1, 1}) {
    return kernels->module_launch(0, what, grid.data(), block.data(), params.data(),
                                  static_cast<uint32_t>(params.size()), stream);
  }

  template <typename T>
  std::vector<T> numbers_at(const void* ptr, size_t count) {
    const bytes raw = download(0, ptr, count * sizeof(T));
    std::vector<T> all(count);
    std::copy(raw.begin(), raw.end(), reinterpret_cast<unsigned char*>(all.data()));
    return all;
  }
  int64_t number_at(const void* ptr) {
    return numbers_at<int64_t>(ptr, 1)[0];
  }
  unsigned char* zeros(uint64_t size) {
    unsigned char* ptr = allocate(0, size);
    upload(0, ptr, bytes(size, 0));
    return ptr;
  }

  const tb_kernel_table* kernels = nullptr;

 private:
  std::map<tb_module*, int32_t> modules_;
};

} // namespace torch_backend::testing
