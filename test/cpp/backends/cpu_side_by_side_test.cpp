// Modules of the xcpu device whose items run side by side, as a GPU's, and what is found of races between them.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "support/xcpu_modules_test.h"

namespace torch_backend::testing {
namespace {

constexpr char kKernels[] = R"(
// out[0] += the sum of in, by all items
extern "C" __global__ void sum(const float* in, float* out, int count) {
  __shared__ float parts[256];
  float own = 0;
  for (int i = threadIdx.x; i < count; i += blockDim.x) own += in[i];
  parts[threadIdx.x] = own;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(out, parts[0]);
}

// Of each warp, which has all of it. The second warp does twice as much, which is none of the first one's business.
extern "C" __global__ void sums_of_warps(float* out) {
  float x = threadIdx.x;
  for (int turn = 0; turn <= threadIdx.x / 32; ++turn)
    for (int mask = 1; mask < 32; mask *= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
  out[threadIdx.x] = x;
}

extern "C" __global__ void indices(unsigned* out) {
  const unsigned item = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[item + block * blockDim.x * blockDim.y * blockDim.z] = item | block << 16;
}

struct numbers { char small; double factor; short offset; };
extern "C" __global__ void parameters(double* out, const char* none, unsigned first, numbers n, unsigned second) {
  extern __shared__ unsigned char local[];
  local[first + threadIdx.x] = 1;
  local[second + threadIdx.x] = 2;
  __syncthreads();
  const unsigned other = blockDim.x - 1 - threadIdx.x;
  out[threadIdx.x] = n.factor * local[first + other] + n.offset + local[second + other] * n.small + (none ? 1000 : 0);
}

extern "C" __global__ void behind(unsigned at) {
  extern __shared__ unsigned char local[];
  local[at + 112] = 1;
}

extern "C" __global__ void early(int* out) {
  if (threadIdx.x < 5) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

extern "C" __global__ void divided(float* out) {
  float x = threadIdx.x;
  if (threadIdx.x % 2) x = __shfl_xor_sync(0xffffffffu, x, 2);
  out[threadIdx.x] = x;
}

extern "C" __global__ void add(long long* out, int number) { out[blockIdx.x] += number; }

// The other end's number, many times over, while other launches use the same code.
extern "C" __global__ void reversed(int* out, int offset) {
  __shared__ int all[64];
  int own = threadIdx.x + offset;
  for (int turn = 0; turn < 101; ++turn) {
    all[threadIdx.x] = own;
    __syncthreads();
    own = all[63 - threadIdx.x];
    __syncthreads();
  }
  out[blockIdx.x * 64 + threadIdx.x] = own;
}
)";

class XcpuSideBySideTest : public XcpuModules {
 protected:
  void load_modules(option_map more = {}) {
    more["modules"] = "side_by_side";
    XcpuModules::load_modules(more);
  }
  // kKernels.
  tb_module* load_module() {
    static std::string compiled;
    if (!compiled.empty()) return load_image(compiled);
    tb_module* first = compile(kKernels);
    compiled = image(first);
    return first;
  }
  // The failure of a launch that is expected to fail with its work.
  std::string failure_of(tb_function* what, const std::vector<tb_launch_param>& params, uint32_t blocks,
                         uint32_t items) {
    EXPECT_STATUS(TB_STATUS_INTERNAL, launch(what, params, nullptr, {blocks, 1, 1}, {items, 1, 1}));
    return take_failure_text();
  }
};

void expect_parts(const std::string& text, const std::vector<const char*>& parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST_F(XcpuSideBySideTest, TheDeviceIsLikeAGpu) {
  load_modules();
  const tb_device_properties p = properties();
  EXPECT_EQ(p.warp_size, 32);
  EXPECT_EQ(p.max_block_items, 1024u);
  EXPECT_EQ(p.max_block[0], 1024u);
  EXPECT_EQ(p.preferred_block_items, 256u);
  EXPECT_EQ(p.local_memory_bytes, 48u << 10);
  EXPECT_GE(p.capability_major, 8);
  EXPECT_EQ(std::string(kernels->module_formats[0]), "cuda-c");
  EXPECT_EQ(kernels->module_formats[1], nullptr);
  const std::string version = p.driver_version;
  TearDown();
  for (const option_map& other :
       {option_map{{"modules", "1"}}, option_map{{"modules", "side_by_side"}, {"races", "1"}}}) {
    XcpuModules::load_modules(other);
    EXPECT_NE(std::string(properties().driver_version), version) << "images are not the same";
    TearDown();
  }
}

TEST_F(XcpuSideBySideTest, ItemsMeetAtBarriers) {
  for (const option_map& mode :
       {option_map{}, option_map{{"async", "1"}}, option_map{{"protect", "1"}}, option_map{{"threads", "3"}}}) {
    load_modules(mode);
    const std::vector<float> in(5000, 0.5f);
    unsigned char *there = allocate(0, in.size() * 4), *out = zeros(4);
    const auto* raw = reinterpret_cast<const unsigned char*>(in.data());
    upload(0, there, bytes(raw, raw + in.size() * 4));
    const int32_t count = 5000;
    EXPECT_OK(launch(function(load_module(), "sum"), {pointer(there), pointer(out), value(count)}, nullptr, {10, 1, 1},
                     {256, 1, 1}));
    EXPECT_EQ(numbers_at<float>(out, 1)[0], 25000.0f);
    TearDown();
  }
}

TEST_F(XcpuSideBySideTest, WarpsShuffleOnTheirOwn) {
  load_modules();
  unsigned char* out = zeros(80 * 4);
  EXPECT_OK(launch(function(load_module(), "sums_of_warps"), {pointer(out)}, nullptr, {1, 1, 1}, {64, 1, 1}));
  const auto sums = numbers_at<float>(out, 64);
  for (int item = 0; item < 64; ++item) EXPECT_EQ(sums[item], item < 32 ? 496.0f : 1520.0f * 32) << item;
}

TEST_F(XcpuSideBySideTest, IndicesHaveThreeDimensions) {
  load_modules();
  unsigned char* out = zeros(24 * 24 * 4);
  EXPECT_OK(launch(function(load_module(), "indices"), {pointer(out)}, nullptr, {2, 3, 4}, {4, 2, 3}));
  const auto numbers = numbers_at<uint32_t>(out, 24 * 24);
  for (uint32_t i = 0; i < 24 * 24; ++i) EXPECT_EQ(numbers[i], i % 24 | i / 24 << 16);
}

TEST_F(XcpuSideBySideTest, ParametersAreThoseOfTheFormat) {
  load_modules();
  struct {
    char small;
    double factor;
    int16_t offset;
  } n{3, 0.5, -7};
  unsigned char* out = zeros(40 * 8);
  tb_function* parameters = function(load_module(), "parameters");
  const auto given = [&](const void* none) {
    return std::vector<tb_launch_param>{pointer(out), pointer(none), local(40), value(n), local(40)};
  };
  EXPECT_OK(launch(parameters, given(nullptr), nullptr, {1, 1, 1}, {40, 1, 1}));
  EXPECT_EQ(numbers_at<double>(out, 40), std::vector<double>(40, 0.5 - 7 + 6));
  EXPECT_OK(launch(parameters, given(out), nullptr, {1, 1, 1}, {40, 1, 1}));
  EXPECT_EQ(numbers_at<double>(out, 40), std::vector<double>(40, 1000 + 0.5 - 7 + 6));
  auto params = given(out);
  params.pop_back();
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, launch(parameters, params));
  expect_parts(take_failure_text(), {"parameters", "4 parameters"});
  params = given(out);
  params[3].size_bytes = 8;
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, launch(parameters, params));
  expect_parts(take_failure_text(), {"parameter 3", "24 bytes", "given 8"});
}

TEST_F(XcpuSideBySideTest, LaunchesThatCannotBeAreRefused) {
  load_modules();
  tb_function* indices = function(load_module(), "indices");
  for (const std::vector<uint32_t>& block : std::vector<std::vector<uint32_t>>{
           {1025, 1, 1}, {1, 1025, 1}, {1, 1, 65}, {32, 33, 1}, {0, 1, 1}, {65536, 65536, 1}}) {
    EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, launch(indices, {pointer(nullptr)}, nullptr, {1, 1, 1}, block));
    expect_parts(take_failure_text(), {"1024 x 1024 x 64", "max_block_items"});
  }
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, launch(function(load_module(), "behind"), {local((48 << 10) + 1)}));
  expect_parts(take_failure_text(), {"local memory", "49152"});
}

TEST_F(XcpuSideBySideTest, WhatTheCompilerSaysIsTold) {
  load_modules();
  tb_module* module = nullptr;
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, try_load("int first = missing_name;\n", &module));
  expect_parts(take_failure_text(), {"missing_name", "module.cu:1:"});
  for (const char* bad : {"extern \"C\" __global__ void f", "void f() { asm(\"f", "extern __shared__ f"}) {
    EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, try_load(bad, &module)) << bad;
    expect_parts(take_failure_text(), {"module.cu:"});
  }
  EXPECT_STATUS(TB_STATUS_UNSUPPORTED, try_load("", &module, "c++"));
  tb_function* none = nullptr;
  for (const char* name : {"missing", "sum_of", "simt_this_module", ""})
    EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, kernels->module_function(0, load_module(), name, &none)) << name;
}

TEST_F(XcpuSideBySideTest, ItemsThatDoNotComeAreFound) {
  load_modules();
  tb_module* module = load_module();
  unsigned char* out = zeros(80 * 4);
  expect_parts(failure_of(function(module, "early"), {pointer(out)}, 1, 64),
               {"early", "item 32 waits at a barrier", "5 of the block's 64"});
  expect_parts(failure_of(function(module, "divided"), {pointer(out)}, 1, 64),
               {"divided", "16 of the 32 items of warp 0"});
  expect_parts(failure_of(function(module, "behind"), {local(100)}, 1, 1), {"behind", "112 bytes of shared memory"});
  EXPECT_OK(launch(function(module, "sums_of_warps"), {pointer(out)}, nullptr, {1, 1, 1}, {32, 1, 1}));
  EXPECT_EQ(numbers_at<float>(out, 32), std::vector<float>(32, 496));
}

TEST_F(XcpuSideBySideTest, LaunchesOfAModuleRunAtTheSameTime) {
  load_modules({{"async", "1"}, {"threads", "2"}});
  tb_function* reversed = function(load_module(), "reversed");
  constexpr int kStreams = 4, kBlocks = 20;
  std::vector<unsigned char*> outs;
  for (int32_t n = 0; n < kStreams; ++n) {
    outs.push_back(zeros(kBlocks * 64 * 4));
    tb_stream* stream = create_stream(0);
    for (int turn = 0; turn < 5; ++turn)
      EXPECT_OK(launch(reversed, {pointer(outs.back()), value(n)}, stream, {kBlocks, 1, 1}, {64, 1, 1}));
  }
  EXPECT_OK(core->device_synchronize(0));
  for (int n = 0; n < kStreams; ++n) {
    const auto numbers = numbers_at<int32_t>(outs[n], kBlocks * 64);
    for (int i = 0; i < kBlocks * 64; ++i) ASSERT_EQ(numbers[i], 63 - i % 64 + n);
  }
}

TEST_F(XcpuSideBySideTest, AModuleMayGoWithLaunchesPending) {
  load_modules({{"async", "1"}});
  tb_module* module = load_module();
  unsigned char* x = zeros(8);
  const int32_t seven = 7;
  gate g;
  g.enqueue(core, 0, nullptr);
  EXPECT_OK(launch(function(module, "add"), {pointer(x), value(seven)}));
  unload(module);
  g.open();
  EXPECT_OK(core->stream_synchronize(0, nullptr));
  EXPECT_EQ(number_at(x), 7);
}

// ---- races ----

// A text with what makes it racy, which the macro RACY turns on.
struct racy_text {
  const char* kernel;
  uint32_t blocks, items;
  std::vector<const char*> parts; // of what is said
};

constexpr char kRacy[] = R"(
#ifdef RACY
#define FINE(x)
#define BAD(x) x
#else
#define FINE(x) x
#define BAD(x)
#endif
#define HERE threadIdx.x
#define EVERYWHERE (blockIdx.x * blockDim.x + threadIdx.x)
#define KERNEL(name) extern "C" __global__ void name(int* out)

KERNEL(missing_barrier) {
  __shared__ int all[64];
  all[HERE] = HERE;
  FINE(__syncthreads();)
  out[HERE] = all[63 - HERE];
}
KERNEL(second_barrier) { // that between what is read and what is written next
  __shared__ int one[1];
  for (int turn = 0; turn < 3; ++turn) {
    if (HERE == 0) one[0] = turn;
    __syncthreads();
    out[HERE] = one[0];
    FINE(__syncthreads();)
  }
}
KERNEL(a_shuffle_is_no_barrier) {
  __shared__ int all[32];
  all[HERE] = HERE;
  int x = __shfl_xor_sync(0xffffffffu, (int)HERE, 1);
  FINE(__syncthreads();)
  out[HERE] = all[x];
}
KERNEL(bytes_of_a_word) {
  __shared__ unsigned char all[68];
  all[HERE] = 1;
  all[HERE BAD(+ 1)] = HERE;
  __syncthreads();
  out[HERE] = all[HERE];
}
KERNEL(counted_and_read) {
  __shared__ int count;
  if (HERE == 0) count = 0;
  __syncthreads();
  atomicAdd(&count, 1);
  FINE(__syncthreads();)
  out[HERE] = count;
}
KERNEL(not_atomic) {
  FINE(atomicAdd(out, 1);)
  BAD(*out += 1;)
}
KERNEL(one_of_two_writers) { out[HERE BAD(/ 2)] = HERE; }
KERNEL(global_without_barrier) {
  out[HERE] = 1;
  FINE(__syncthreads();)
  out[64 + HERE] = out[63 - HERE];
}
KERNEL(blocks_write) { out[EVERYWHERE BAD(% 20)] = EVERYWHERE; }
KERNEL(blocks_read) {
  if (HERE == 0) out[blockIdx.x BAD(+ 1)] = 7;
  if (HERE == 0) out[10 + blockIdx.x] = out[blockIdx.x];
}
KERNEL(copied_too_late) { // a copy that has begun is not there before it is waited for
  extern __shared__ int unused[];
  alignas(16) __shared__ int all[32 * 4];
  if (HERE < 32)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
      : : "r"((unsigned)__cvta_generic_to_shared(all + HERE * 4)), "l"(out + HERE * 4), "r"(16) : "memory");
  asm volatile("cp.async.commit_group;" : : : "memory");
  FINE(asm volatile("cp.async.wait_group %0;" : : "n"(0) : "memory");)
  __syncthreads();
  const int x = all[127 - HERE];
  __syncthreads();
  BAD(asm volatile("cp.async.wait_group %0;" : : "n"(0) : "memory");)
  out[128 + HERE] = x;
}
// What is no race in either form.
KERNEL(same_flag) { if (HERE % 3 == 0) *out = 7; }
KERNEL(compare_exchange) {
  int old = *(volatile int*)out;
  for (int was; (was = atomicCAS(out, old, old + 1)) != old;) old = was;
}
)";

class XcpuRacesTest : public XcpuSideBySideTest {
 protected:
  void load_texts(option_map more = {}) {
    more["races"] = "1";
    load_modules(more);
    racy_ = compile(std::string("#define RACY\n") + kRacy);
    mended_ = compile(kRacy);
  }
  tb_module *racy_ = nullptr, *mended_ = nullptr;
};

TEST_F(XcpuRacesTest, AreFoundAndNothingElse) {
  load_texts();
  const char *barrier = "no barrier is between them", *blocks = "nothing orders the blocks";
  const racy_text all[] = {
      {"missing_barrier",
       1,
       64,
       {"shared memory", "item 32 of block 0 writes 4 bytes", "item 31 of block 0 has read", barrier}},
      {"second_barrier", 1, 64, {"shared memory", "item 0 of block 0", barrier}},
      {"a_shuffle_is_no_barrier", 1, 32, {"shared memory", "reads 4 bytes", barrier}},
      {"bytes_of_a_word", 1, 64, {"shared memory", "writes 1 bytes", barrier}},
      {"counted_and_read", 1, 64, {"shared memory", "atomically", barrier}},
      {"not_atomic", 1, 64, {"global memory", barrier}},
      {"one_of_two_writers", 1, 64, {"global memory", "item 1 of block 0 writes", "item 0", "has written", barrier}},
      {"global_without_barrier", 1, 64, {"global memory", barrier}},
      {"blocks_write", 2, 16, {"global memory", "item 4 of block 1", "item 0 of block 0", blocks}},
      {"blocks_read", 3, 32, {"global memory", "item 0 of block 1 reads", "item 0 of block 0 has written", blocks}},
      {"copied_too_late", 1, 128, {"shared memory", "has read", barrier}},
  };
  for (const racy_text& each : all) {
    unsigned char* out = zeros(4096);
    tb_function* mended = function(mended_, each.kernel);
    EXPECT_OK(launch(mended, {pointer(out)}, nullptr, {each.blocks, 1, 1}, {each.items, 1, 1})) << each.kernel;
    const std::string text = failure_of(function(racy_, each.kernel), {pointer(out)}, each.blocks, each.items);
    expect_parts(text, each.parts);
    expect_parts(text, {each.kernel, "a race in"});
  }
}

TEST_F(XcpuRacesTest, SameValuesAndAtomicOnesAreNone) {
  load_texts();
  for (const char* kernel : {"same_flag", "compare_exchange"})
    for (tb_module* module : {racy_, mended_}) {
      unsigned char* out = zeros(4);
      EXPECT_OK(launch(function(module, kernel), {pointer(out)}, nullptr, {3, 1, 1}, {64, 1, 1})) << kernel;
      EXPECT_EQ(numbers_at<int32_t>(out, 1)[0], std::string(kernel) == "same_flag" ? 7 : 3 * 64);
    }
}

// As a fault on a GPU: the stream has the error, once, and goes on.
TEST_F(XcpuRacesTest, AreErrorsOfTheStream) {
  load_texts({{"async", "1"}});
  unsigned char* out = zeros(4096);
  const std::vector<uint32_t> blocks = {1, 1, 1}, items = {64, 1, 1};
  EXPECT_OK(launch(function(racy_, "missing_barrier"), {pointer(out)}, nullptr, blocks, items));
  EXPECT_STATUS(TB_STATUS_INTERNAL, core->stream_synchronize(0, nullptr));
  expect_parts(take_failure_text(), {"missing_barrier", "a race in shared memory"});
  EXPECT_OK(launch(function(mended_, "missing_barrier"), {pointer(out)}, nullptr, blocks, items));
  EXPECT_OK(core->stream_synchronize(0, nullptr));
  EXPECT_EQ(numbers_at<int32_t>(out, 1)[0], 63);
}

TEST_F(XcpuRacesTest, AreFoundAmongSeveralLaunchesAtOnce) {
  load_texts({{"async", "1"}});
  tb_function* mended = function(mended_, "missing_barrier");
  tb_function* racy = function(racy_, "missing_barrier");
  tb_stream *good = create_stream(0), *bad = create_stream(0);
  unsigned char *a = zeros(4096), *b = zeros(4096);
  for (int turn = 0; turn < 20; ++turn) {
    EXPECT_OK(launch(mended, {pointer(a)}, good, {1, 1, 1}, {64, 1, 1}));
    EXPECT_OK(launch(racy, {pointer(b)}, bad, {1, 1, 1}, {64, 1, 1}));
  }
  EXPECT_OK(core->stream_synchronize(0, good));
  EXPECT_STATUS(TB_STATUS_INTERNAL, core->stream_synchronize(0, bad));
}

} // namespace
} // namespace torch_backend::testing
