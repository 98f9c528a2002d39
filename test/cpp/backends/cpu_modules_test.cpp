// Modules of the xcpu device: kernels.1 with xcpu.modules. What any device has to do is tested by the conformance kit.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/child_process.h"
#include "support/xcpu_modules_test.h"

namespace torch_backend::testing {
namespace {

// A variable of the environment while it lives.
class scoped_variable {
 public:
  scoped_variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) before_ = old;
    was_set_ = std::getenv(name) != nullptr;
    setenv(name, value.c_str(), 1);
  }
  ~scoped_variable() {
    if (was_set_) {
      setenv(name_, before_.c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  bool was_set_;
  std::string before_;
};

// Every block writes what it sees. Compiled once for all tests: see XcpuModulesTest::load_module.
constexpr char kSource[] = R"(
#include <cstdint>
#include <cstring>
#include <unistd.h>
using blocks = const uint32_t*;

// out[block] = factor * (index of the block) + offset, with a null that is passed on
struct numbers { char small; double factor; int16_t offset; };
extern "C" void scale(blocks block, blocks grid, blocks, void* const* params) {
  const uint32_t at = (block[2] * grid[1] + block[1]) * grid[0] + block[0];
  const numbers& n = *static_cast<const numbers*>(params[1]);
  static_cast<double*>(params[0])[at] = n.factor * at + n.offset + (params[2] ? 1000 : 0) + n.small;
}

// Local memory is the block's own: reverses `count` bytes of in, block by block.
extern "C" void reverse(blocks block, blocks, blocks, void* const* params) {
  unsigned char* local = static_cast<unsigned char*>(params[1]);
  const uint32_t count = *static_cast<const uint32_t*>(params[0]);
  const unsigned char* in = static_cast<const unsigned char*>(params[2]) + block[0] * count;
  unsigned char* out = static_cast<unsigned char*>(params[3]) + block[0] * count;
  for (uint32_t i = 0; i < count; ++i) local[i] = in[count - 1 - i];
  std::memcpy(out, local, count);
}

extern "C" void add(blocks, blocks, blocks, void* const* params) {
  *static_cast<int64_t*>(params[0]) += *static_cast<const int32_t*>(params[1]);
}

extern "C" void twice(blocks, blocks, blocks, void* const* params) {
  *static_cast<int64_t*>(params[0]) *= 2;
}

extern "C" void nap(blocks, blocks, blocks, void* const*) { usleep(20000); }

// Counts its runs, but not those in which another block has used its local memory.
extern "C" void slow(blocks block, blocks grid, blocks, void* const* params) {
  const uint32_t at = (block[2] * grid[1] + block[1]) * grid[0] + block[0];
  unsigned char* local = static_cast<unsigned char*>(params[2]);
  for (int i = 0; i < 1000; ++i) local[i] = static_cast<unsigned char>(at + i);
  usleep(1000);
  bool kept = true;
  for (int i = 0; i < 1000; ++i) kept = kept && local[i] == static_cast<unsigned char>(at + i);
  static_cast<int64_t*>(params[0])[at] += kept;
  static_cast<int64_t*>(params[1])[at] = gettid();
}
)";

// What the core's struct is like in C: the same on both sides.
struct numbers {
  char small;
  double factor;
  int16_t offset;
};

class XcpuModulesTest : public XcpuModules {
 protected:
  // kSource. The compiler is asked by the first test that gets here.
  tb_module* load_module(int32_t device = 0) {
    static std::string compiled;
    if (compiled.empty()) {
      tb_module* first = compile(kSource, device);
      compiled = image(first);
      return first;
    }
    return load_image(compiled, device);
  }
};

TEST_F(XcpuModulesTest, AreOfferedOnDemand) {
  load({});
  EXPECT_EQ(plugin->table("kernels.1"), nullptr);
  EXPECT_EQ(std::string(properties().driver_version), "");
}

TEST_F(XcpuModulesTest, TheDeviceThenHasNoHostAccess) {
  load_modules({{"protect", "1"}});
  const tb_device_properties p = properties();
  EXPECT_EQ(p.capabilities & (TB_CAP_HOST_ACCESS | TB_CAP_HOST_COHERENT | TB_CAP_PAGEABLE_ACCESS), 0u);
  EXPECT_EQ(core->memory_map, nullptr);
  EXPECT_EQ(p.max_block_items, 1u);
  EXPECT_EQ(p.preferred_block_items, 1u);
  EXPECT_GE(p.local_memory_bytes, 1u << 15);
  EXPECT_NE(std::string(p.driver_version), "");
  EXPECT_EQ(std::string(p.driver_version), std::string(properties().driver_version));
  ASSERT_NE(kernels->module_formats[0], nullptr);
  EXPECT_EQ(std::string(kernels->module_formats[0]), "c++");
  EXPECT_EQ(kernels->module_formats[1], nullptr);
}

TEST_F(XcpuModulesTest, FunctionsSeeTheirBlockAndParameters) {
  for (const option_map& mode : {option_map{}, option_map{{"async", "1"}}, option_map{{"protect", "1"}}}) {
    load_modules(mode);
    tb_function* scale = function(load_module(), "scale");
    unsigned char* out = allocate(0, 24 * sizeof(double) + 1) + 1; // at no multiple of anything
    const numbers n{3, 0.5, -7};
    EXPECT_OK(launch(scale, {pointer(out), value(n), pointer(nullptr)}, nullptr, {2, 3, 4}));
    std::vector<double> expected;
    for (int i = 0; i < 24; ++i) expected.push_back(0.5 * i - 7 + 3);
    EXPECT_EQ(numbers_at<double>(out, 24), expected);
    TearDown();
  }
}

TEST_F(XcpuModulesTest, BlocksHaveLocalMemoryThatIsAligned) {
  load_modules();
  tb_module* module = load_module();
  const bytes data = pattern(3 * 5000, 1);
  unsigned char *in = allocate(0, data.size()), *out = allocate(0, data.size());
  upload(0, in, data);
  const uint32_t count = 5000;
  EXPECT_OK(
      launch(function(module, "reverse"), {value(count), local(count), pointer(in), pointer(out)}, nullptr, {3, 1, 1}));
  bytes expected;
  for (int block = 0; block < 3; ++block)
    for (int i = 4999; i >= 0; --i) expected.push_back(data[block * 5000 + i]);
  EXPECT_EQ(download(0, out, data.size()), expected);
  tb_function* where = function(compile(R"(
    extern "C" void where(const unsigned*, const unsigned*, const unsigned*, void* const* params) {
      for (int i = 0; i < 2; ++i) static_cast<void**>(params[0])[i] = params[1 + i];
    })"),
                                "where");
  EXPECT_OK(launch(where, {pointer(out), local(1), local(64)}));
  const auto addresses = numbers_at<uint64_t>(out, 2);
  EXPECT_EQ(addresses[0] % 64, 0u);
  EXPECT_EQ(addresses[1] % 64, 0u);
  EXPECT_NE(addresses[0], addresses[1]);
}

TEST_F(XcpuModulesTest, WhatTheCompilerSaysIsTold) {
  load_modules();
  tb_module* module = nullptr;
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, try_load("int first = missing_name;\nint second = 3 +;\n", &module));
  EXPECT_EQ(module, nullptr);
  std::string text = take_failure_text();
  EXPECT_NE(text.find("missing_name"), std::string::npos) << text;
  EXPECT_NE(text.find("module.cpp:1:"), std::string::npos) << text;
  EXPECT_EQ(text.find("/module.cpp"), std::string::npos) << text;

  std::string many;
  for (int i = 0; i < 500; ++i) many += "int a" + std::to_string(i) + " = missing_" + std::to_string(i) + ";\n";
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, try_load(many, &module));
  text = take_failure_text();
  EXPECT_NE(text.find("missing_0"), std::string::npos) << text;
  EXPECT_NE(text.find("more bytes"), std::string::npos) << text;
  EXPECT_LT(text.size(), 5000u);
}

TEST_F(XcpuModulesTest, WithoutACompilerItSaysWhatToInstall) {
  const scoped_variable compiler("CXX", "/nowhere/c++ -O1");
  load_modules();
  EXPECT_EQ(std::string(properties().driver_version), "");
  tb_module* module = nullptr;
  EXPECT_STATUS(TB_STATUS_INTERNAL, try_load("int x;", &module));
  const std::string text = take_failure_text();
  for (const char* part : {"/nowhere/c++", "apt install g++", "CXX"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST_F(XcpuModulesTest, TheCompilerMayHaveArguments) {
  const scoped_variable compiler("CXX", " c++  -DSEVEN=7 ");
  load_modules();
  unsigned char* x = zeros(8);
  tb_module* module = compile(
      "extern \"C\" void seven(const unsigned*, const unsigned*, const unsigned*, void* const* params) "
      "{ *static_cast<long*>(params[0]) = SEVEN; }");
  EXPECT_OK(launch(function(module, "seven"), {pointer(x)}));
  EXPECT_EQ(number_at(x), 7);
}

TEST_F(XcpuModulesTest, NoFileIsLeft) {
  const std::string directory = std::filesystem::temp_directory_path() / "cpu_modules_test_XXXXXX";
  std::string made = directory;
  ASSERT_NE(mkdtemp(made.data()), nullptr);
  {
    const scoped_variable temporary("TMPDIR", made);
    load_modules();
    tb_module* module = nullptr;
    properties();
    const std::string bytes = image(compile("int x;"));
    EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, try_load("bad", &module));
    EXPECT_OK(try_load(bytes, &module, "image"));
    EXPECT_OK(kernels->module_unload(0, module));
    EXPECT_STATUS(TB_STATUS_UNSUPPORTED, try_load("bad", &module, "image"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(made));
  std::filesystem::remove_all(made);
}

TEST_F(XcpuModulesTest, OnlyFunctionsOfTheModuleAreFound) {
  load_modules();
  tb_module* module = load_module();
  tb_function* found = nullptr;
  for (const char* name : {"missing", "malloc", "exp", "dlopen", ""}) {
    EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, kernels->module_function(0, module, name, &found)) << name;
    EXPECT_NE(take_failure_text().find(name), std::string::npos);
  }
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(function(module, "add"), function(module, "add"));
}

TEST_F(XcpuModulesTest, LaunchesThatCannotBeAreRefused) {
  load_modules();
  tb_module* module = load_module();
  tb_function* scale = function(module, "scale");
  const auto text_of = [&](tb_status status) {
    EXPECT_EQ(status, TB_STATUS_INVALID_ARGUMENT);
    return take_failure_text();
  };
  EXPECT_NE(text_of(launch(scale, {}, nullptr, {1, 0, 1})).find("1 x 0 x 1 blocks"), std::string::npos);
  EXPECT_NE(text_of(launch(scale, {}, nullptr, {1, 1, 1}, {1, 2, 1})).find("max_block_items"), std::string::npos);
  EXPECT_NE(text_of(launch(scale, {local(200 << 10), local(200 << 10)})).find("local memory"), std::string::npos);
  EXPECT_NE(text_of(launch(scale, {{7, 0, nullptr}})).find("kind 7"), std::string::npos);
  const uint32_t one[] = {1, 1, 1};
  EXPECT_NE(text_of(kernels->module_launch(1, scale, one, one, nullptr, 0, nullptr)).find("device 0"),
            std::string::npos);
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, kernels->module_unload(1, module));
  tb_module* none = nullptr;
  EXPECT_STATUS(TB_STATUS_UNSUPPORTED, try_load("", &none, "opencl-c"));
  EXPECT_NE(take_failure_text().find("opencl-c"), std::string::npos);
}

TEST_F(XcpuModulesTest, ImagesAreLoadedAndWhatIsNoneIsRefused) {
  load_modules();
  tb_module* module = nullptr;
  const std::string good = image(load_module());
  std::vector<std::string> bad = {"", "x", std::string(100, 'x'), good.substr(0, 40), good.substr(0, good.size() - 1)};
  for (const size_t at : {size_t{0}, size_t{20}, size_t{30}, good.size() / 2, good.size() - 1}) {
    bad.push_back(good);
    bad.back()[at] ^= 1;
  }
  for (const std::string& each : bad) EXPECT_STATUS(TB_STATUS_UNSUPPORTED, try_load(each, &module, "image"));
  EXPECT_EQ(module, nullptr);

  std::string room(good.size(), 'r');
  uint64_t size = good.size() - 1;
  EXPECT_OK(kernels->module_image(0, load_module(), room.data(), &size));
  EXPECT_EQ(size, good.size());
  EXPECT_EQ(room, std::string(good.size(), 'r'));
}

TEST_F(XcpuModulesTest, ImagesOfAnotherCompilerAreRefused) {
  load_modules();
  const std::string good = image(load_module());
  TearDown();
  const scoped_variable compiler("CXX", "c++ -DOTHER");
  load_modules();
  tb_module* module = nullptr;
  EXPECT_STATUS(TB_STATUS_UNSUPPORTED, try_load(good, &module, "image"));
}

TEST_F(XcpuModulesTest, ThreadsLoadAndLaunchSideBySide) {
  load_modules();
  tb_function* shared = function(load_module(), "add");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([this, shared, t] {
      unsigned char* x = zeros(16);
      const std::string source =
          "extern \"C\" void mine(const unsigned*, const unsigned*, const unsigned*, void* const* params) "
          "{ *static_cast<long*>(params[0]) = " +
          std::to_string(t) + "; }";
      tb_module* module = nullptr;
      EXPECT_OK(try_load(source, &module));
      EXPECT_OK(launch(function(module, "mine"), {pointer(x)}));
      for (int32_t i = 0; i < 1000; ++i) EXPECT_OK(launch(shared, {pointer(x + 8), value(i)}));
      EXPECT_EQ(numbers_at<int64_t>(x, 2), (std::vector<int64_t>{t, 499500}));
      EXPECT_OK(kernels->module_unload(0, module));
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(XcpuModulesTest, LaunchesAreInStreamOrderWithParametersOfTheCall) {
  for (const char* delay : {"0", "0-200"}) {
    load_modules({{"async", "1"}, {"delay_us", delay}, {"protect", "1"}});
    tb_module* module = load_module();
    tb_function *add = function(module, "add"), *twice = function(module, "twice");
    tb_stream* stream = create_stream(0);
    unsigned char *a = zeros(8), *b = zeros(8);
    gate g;
    g.enqueue(core, 0, stream);
    int32_t number = 20;
    std::vector<tb_launch_param> params = {pointer(a), value(number)};
    EXPECT_OK(launch(add, params, stream));
    number = 1;
    EXPECT_OK(launch(add, params, stream));
    number = -1;
    params = {pointer(b), value(number)};
    EXPECT_OK(launch(twice, {pointer(a)}, stream));
    EXPECT_OK(core->memory_copy(0, b, 0, a, 8, TB_COPY_DEVICE_TO_DEVICE, stream));
    unload(module); // with all of it pending
    EXPECT_EQ(number_at(a), 0);
    g.open();
    EXPECT_OK(core->stream_synchronize(0, stream));
    EXPECT_EQ(number_at(b), 42);
    TearDown();
  }
}

TEST_F(XcpuModulesTest, LaunchesOfTwoStreamsRunSideBySide) {
  load_modules({{"async", "1"}});
  tb_function* add = function(load_module(), "add");
  tb_stream *held = create_stream(0), *free = create_stream(0);
  unsigned char* x = zeros(8);
  const int32_t one = 1;
  gate g;
  g.enqueue(core, 0, held);
  EXPECT_OK(launch(add, {pointer(x), value(one)}, held));
  EXPECT_OK(launch(add, {pointer(x), value(one)}, free));
  EXPECT_OK(core->stream_synchronize(0, free));
  EXPECT_EQ(number_at(x), 1);
  g.open();
  EXPECT_OK(core->stream_synchronize(0, held));
  EXPECT_EQ(number_at(x), 2);
}

TEST_F(XcpuModulesTest, AnAsynchronousLaunchDoesNotWaitForTheFunction) {
  load_modules({{"async", "1"}});
  tb_function* nap = function(load_module(), "nap");
  EXPECT_OK(launch(nap, {}));
  EXPECT_STATUS(TB_STATUS_NOT_READY, core->stream_query(0, nullptr));
  EXPECT_OK(core->stream_synchronize(0, nullptr));
}

TEST_F(XcpuModulesTest, BlocksAreSharedOutToThreads) {
  for (const option_map& mode : {option_map{{"threads", "4"}}, option_map{{"threads", "4"}, {"async", "1"}}}) {
    load_modules(mode);
    tb_function* slow = function(load_module(), "slow");
    constexpr uint32_t kBlocks = 40;
    unsigned char *counts = zeros(8 * kBlocks), *threads = zeros(8 * kBlocks);
    EXPECT_OK(launch(slow, {pointer(counts), pointer(threads), local(1000)}, nullptr, {5, 4, 2}));
    EXPECT_EQ(numbers_at<int64_t>(counts, kBlocks), std::vector<int64_t>(kBlocks, 1)) << "each once, undisturbed";
    const auto ran = numbers_at<int64_t>(threads, kBlocks);
    const std::set<int64_t> different(ran.begin(), ran.end());
    EXPECT_GT(different.size(), 1u);
    EXPECT_LE(different.size(), 4u);
    TearDown();
  }
}

TEST_F(XcpuModulesTest, OneThreadRunsAllBlocksInOrder) {
  load_modules({{"threads", "1"}});
  tb_function* slow = function(load_module(), "slow");
  unsigned char *counts = zeros(8 * 8), *threads = zeros(8 * 8);
  EXPECT_OK(launch(slow, {pointer(counts), pointer(threads), local(1000)}, nullptr, {8, 1, 1}));
  const auto ran = numbers_at<int64_t>(threads, 8);
  EXPECT_EQ(ran, std::vector<int64_t>(8, gettid()));
}

TEST_F(XcpuModulesTest, LaunchesOfSeveralThreadsShareTheThreads) {
  load_modules({{"threads", "3"}});
  tb_function* scale = function(load_module(), "scale");
  std::vector<std::thread> launching;
  for (int t = 0; t < 4; ++t)
    launching.emplace_back([this, scale, t] {
      constexpr size_t kBlocks = 300;
      unsigned char* out = allocate(0, kBlocks * sizeof(double));
      for (int turn = 0; turn < 100; ++turn) {
        const numbers n{0, t + 1.0, static_cast<int16_t>(turn)};
        EXPECT_OK(launch(scale, {pointer(out), value(n), pointer(nullptr)}, nullptr, {10, 30, 1}));
        const auto written = numbers_at<double>(out, kBlocks);
        for (size_t i = 0; i < kBlocks; ++i) ASSERT_EQ(written[i], (t + 1.0) * i + turn);
      }
    });
  for (std::thread& thread : launching) thread.join();
}

TEST_F(XcpuModulesTest, FaultsAreInjected) {
  load_modules({{"fault", ""}});
  tb_module* module = load_module();
  tb_function* add = function(module, "add");
  tb_module* other = nullptr;
  tb_function* none = nullptr;
  uint64_t size = 0;
  unsigned char* x = zeros(8);
  const int32_t one = 1;
  set_option("xcpu.fault",
             "module_load=OUT_OF_MEMORY,module_function=INTERNAL,module_image=UNSUPPORTED,module_launch=DEVICE_LOST,"
             "module_unload=INTERNAL");
  EXPECT_STATUS(TB_STATUS_OUT_OF_MEMORY, try_load("", &other));
  EXPECT_STATUS(TB_STATUS_INTERNAL, kernels->module_function(0, module, "add", &none));
  EXPECT_STATUS(TB_STATUS_UNSUPPORTED, kernels->module_image(0, module, nullptr, &size));
  EXPECT_STATUS(TB_STATUS_DEVICE_LOST, launch(add, {pointer(x), value(one)}));
  EXPECT_STATUS(TB_STATUS_INTERNAL, kernels->module_unload(0, module));
  set_option("xcpu.fault", "");
  EXPECT_EQ(number_at(x), 0);
}

TEST_F(XcpuModulesTest, AnAsynchronousFaultComesWithTheWait) {
  load_modules({{"async", "1"}, {"fault", ""}});
  tb_function* add = function(load_module(), "add");
  unsigned char* x = zeros(8);
  const int32_t one = 1;
  set_option("xcpu.fault", "module_launch=INTERNAL@1");
  EXPECT_OK(launch(add, {pointer(x), value(one)}));
  EXPECT_STATUS(TB_STATUS_INTERNAL, core->stream_synchronize(0, nullptr));
  EXPECT_EQ(number_at(x), 0);
  set_option("xcpu.fault", "module_launch=UNSUPPORTED");
  EXPECT_STATUS(TB_STATUS_UNSUPPORTED, launch(add, {pointer(x), value(one)}));
  set_option("xcpu.fault", "");
}

TEST_F(XcpuModulesTest, ProtectedMemoryIsOpenToFunctionsThatAreGivenIt) {
  load_modules({{"protect", "1"}});
  tb_module* module = load_module();
  tb_function* add = function(module, "add");
  unsigned char* a = zeros(8);
  const int32_t one = 1;
  EXPECT_OK(launch(add, {pointer(a), value(one)}));
  EXPECT_EQ(number_at(a), 1);
  int64_t on_host = 0;
  EXPECT_STATUS(TB_STATUS_INVALID_ARGUMENT, launch(add, {pointer(&on_host), value(one)}));
  EXPECT_NE(take_failure_text().find("not in device memory"), std::string::npos);
}

TEST_F(XcpuModulesTest, ProtectedMemoryFaultsInFunctionsThatAreNotGivenIt) {
  const auto stray = [this] {
    load_modules({{"protect", "1"}});
    unsigned char* memory = zeros(16);
    tb_module* module = compile(R"(
      extern "C" void stray(const unsigned*, const unsigned*, const unsigned*, void* const* params) {
        ++**static_cast<long* const*>(params[0]);
      })");
    return launch(function(module, "stray"), {value(memory)}) == TB_STATUS_OK ? 0 : 1;
  };
  EXPECT_EQ(run_in_child(stray), kSegmentationFault);
}

} // namespace
} // namespace torch_backend::testing
