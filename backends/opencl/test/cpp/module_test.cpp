// Modules of the ocl device: every kind of parameter, images, errors, launches from several threads.
#include <numeric>
#include <thread>

#include "ocl_test.h"

namespace torch_backend::testing {
namespace {

constexpr char kSource[] = R"(
__kernel void scale(__global char* in_base, ulong in_offset, __global char* out_base, ulong out_offset, float factor,
                    long count) {
  __global const float* in = (__global const float*)(in_base + in_offset);
  __global float* out = (__global float*)(out_base + out_offset);
  const size_t i = get_global_id(0);
  if (i < count) out[i] = in[i] * factor;
}

// The sum of each block, by way of memory that its items share. An input of NULL counts as ones.
__kernel void sum(__global char* in_base, ulong in_offset, __global char* out_base, ulong out_offset,
                  __local float* shared) {
  __global const float* in = (__global const float*)(in_base + in_offset);
  __global float* out = (__global float*)(out_base + out_offset);
  const size_t item = get_local_id(0), block = get_group_id(0) + get_num_groups(0) * get_group_id(1);
  shared[item] = in_base ? in[block * get_local_size(0) + item] : 1.0f;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (item == 0) {
    float total = 0;
    for (size_t i = 0; i < get_local_size(0); ++i) total += shared[i];
    out[block] = total;
  }
}
)";

template <typename T>
tb_launch_param value(const T& v) {
  return {TB_PARAM_VALUE, sizeof v, &v};
}
tb_launch_param pointer(const void* address) {
  return {TB_PARAM_POINTER, 0, address};
}
tb_launch_param local(uint32_t size) {
  return {TB_PARAM_LOCAL, size, nullptr};
}

std::vector<float> numbers(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

class OclModuleTest : public OclTest {
 protected:
  tb_module* load(const std::string& source) {
    tb_module* module = nullptr;
    EXPECT_OK(kernels->module_load(0, "opencl-c", source.data(), source.size(), &module));
    return module;
  }
  tb_function* find(tb_module* module, const char* name) {
    tb_function* function = nullptr;
    EXPECT_OK(kernels->module_function(0, module, name, &function));
    return function;
  }
  tb_status launch(tb_function* function, uint32_t blocks_x, uint32_t blocks_y, uint32_t items,
                   const std::vector<tb_launch_param>& params, tb_stream* stream = nullptr) {
    const uint32_t grid[] = {blocks_x, blocks_y, 1}, block[] = {items, 1, 1};
    return kernels->module_launch(0, function, grid, block, params.data(), static_cast<uint32_t>(params.size()),
                                  stream);
  }
  // `scale` on the second half of a range, which is another address than an allocation's.
  void expect_scale_works(tb_module* module) {
    constexpr size_t count = 1000;
    float* memory = allocate<float>(2 * count);
    upload(memory, numbers(2 * count));
    const float factor = 2;
    const int64_t n = count;
    EXPECT_OK(
        launch(find(module, "scale"), 16, 1, 64, {pointer(memory), pointer(memory + count), value(factor), value(n)}));
    const std::vector<float> result = download(memory, 2 * count);
    EXPECT_EQ(result[count - 1], count);
    EXPECT_EQ(result[count], 2);
    EXPECT_EQ(result[2 * count - 1], 2 * count);
    release(memory, 2 * count);
  }
};
INSTANTIATE_OCL_TEST(OclModuleTest);

TEST_P(OclModuleTest, TakesValuesAndPointers) {
  tb_module* module = load(kSource);
  expect_scale_works(module);
  EXPECT_OK(kernels->module_unload(0, module));
}

TEST_P(OclModuleTest, TakesLocalMemoryAndNull) {
  tb_module* module = load(kSource);
  tb_function* sum = find(module, "sum");
  float* in = allocate<float>(6 * 32);
  float* out = allocate<float>(6);
  upload(in, numbers(6 * 32));
  EXPECT_OK(launch(sum, 2, 3, 32, {pointer(in), pointer(out), local(32 * sizeof(float))}));
  for (size_t block = 0; block < 6; ++block)
    EXPECT_EQ(download(out, 6)[block], static_cast<float>(32 * 33 / 2 + 32 * 32 * block)) << block;
  EXPECT_OK(launch(sum, 6, 1, 16, {pointer(nullptr), pointer(out), local(16 * sizeof(float))}));
  EXPECT_EQ(download(out, 6), std::vector<float>(6, 16.0f));
  release(in, 6 * 32);
  release(out, 6);
  EXPECT_OK(kernels->module_unload(0, module));
}

TEST_P(OclModuleTest, GivesAnImageThatItTakes) {
  tb_module* module = load(kSource);
  uint64_t size = 0;
  ASSERT_OK(kernels->module_image(0, module, nullptr, &size));
  ASSERT_GT(size, 0u);
  std::vector<char> image(size + 1, 'x');
  uint64_t room = size - 1;
  EXPECT_OK(kernels->module_image(0, module, image.data(), &room));
  EXPECT_EQ(room, size);
  EXPECT_EQ(image[0], 'x') << "something was written where there was not enough room";
  EXPECT_OK(kernels->module_image(0, module, image.data(), &room));
  EXPECT_EQ(room, size);
  EXPECT_EQ(image[size], 'x');
  EXPECT_OK(kernels->module_unload(0, module));

  tb_module* again = nullptr;
  ASSERT_OK(kernels->module_load(0, "image", image.data(), size, &again));
  expect_scale_works(again);
  EXPECT_OK(kernels->module_unload(0, again));
}

TEST_P(OclModuleTest, RefusesAnImageOfSomethingElse) {
  const std::string image(5000, 'q');
  tb_module* module = nullptr;
  EXPECT_STATUS(TB_STATUS_UNSUPPORTED, kernels->module_load(0, "image", image.data(), image.size(), &module));
  EXPECT_EQ(module, nullptr);
  EXPECT_FALSE(take_failure_text().empty());
  EXPECT_STATUS(TB_STATUS_UNSUPPORTED, kernels->module_load(0, "cuda-c", image.data(), image.size(), &module));
}

TEST_P(OclModuleTest, TellsWhatTheCompilerSays) {
  const std::string source = "__kernel void broken() { undeclared_name = 1; }";
  tb_module* module = nullptr;
  EXPECT_STATUS(TB_STATUS_INTERNAL, kernels->module_load(0, "opencl-c", source.data(), source.size(), &module));
  EXPECT_NE(take_failure_text().find("undeclared_name"), std::string::npos);
  EXPECT_EQ(module, nullptr);
}

TEST_P(OclModuleTest, RefusesWrongNamesAndParameters) {
  tb_module* module = load(kSource);
  tb_function* function = nullptr;
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, kernels->module_function(0, module, "missing", &function));
  EXPECT_NE(take_failure_text().find("missing"), std::string::npos);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(find(module, "scale"), find(module, "scale"));
  const int64_t n = 1;
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT,
                launch(find(module, "scale"), 1, 1, 1, {pointer(nullptr), pointer(nullptr), value(n), value(n)}));
  EXPECT_FALSE(take_failure_text().empty());
  EXPECT_OK(kernels->module_unload(0, module));
}

// Each thread has its own stream and memory, all the same function: a launch has the parameters of its own call.
TEST_P(OclModuleTest, LaunchesFromSeveralThreads) {
  tb_module* module = load(kSource);
  tb_function* scale = find(module, "scale");
  constexpr size_t count = 256, launches = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([this, scale, t] {
      tb_stream* stream = nullptr;
      EXPECT_OK(core->stream_create(0, 0, &stream));
      float* memory = allocate<float>(launches * count);
      const std::vector<float> ones(count, 1.0f);
      EXPECT_OK(core->memory_copy(0, memory, -1, ones.data(), count * sizeof(float), TB_COPY_HOST_TO_DEVICE, stream));
      for (size_t i = 1; i < launches; ++i) {
        const float factor = i % 2 ? 2.0f + t : 1 / (2.0f + t);
        const int64_t n = count;
        EXPECT_OK(launch(scale, 4, 1, 64,
                         {pointer(memory + (i - 1) * count), pointer(memory + i * count), value(factor), value(n)},
                         stream));
      }
      std::vector<float> last(count);
      EXPECT_OK(core->memory_copy(-1, last.data(), 0, memory + (launches - 1) * count, count * sizeof(float),
                                  TB_COPY_DEVICE_TO_HOST, stream));
      EXPECT_OK(core->stream_synchronize(0, stream));
      for (const float v : last) EXPECT_NEAR(v, 2.0f + t, 1e-3f);
      release(memory, launches * count);
      EXPECT_OK(core->stream_destroy(0, stream));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_OK(kernels->module_unload(0, module));
}

TEST_P(OclModuleTest, LaunchesCompleteThoughTheModuleIsUnloaded) {
  tb_module* module = load(kSource);
  tb_function* scale = find(module, "scale");
  constexpr size_t count = 1 << 20;
  float* memory = allocate<float>(count);
  upload(memory, std::vector<float>(count, 1.0f));
  const float factor = 2;
  const int64_t n = count;
  for (int i = 0; i < 20; ++i)
    EXPECT_OK(launch(scale, count / 64, 1, 64, {pointer(memory), pointer(memory), value(factor), value(n)}));
  EXPECT_OK(kernels->module_unload(0, module));
  EXPECT_EQ(download(memory, count)[count - 1], 1 << 20);
  release(memory, count);
}

} // namespace
} // namespace torch_backend::testing
