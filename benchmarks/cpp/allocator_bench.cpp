// Nanoseconds of one allocate and free pair that the cache serves.
//
//   allocator_bench [plugin.so]      (make test builds it: build/make/benchmarks/cpp/allocator_bench)
//
// Runs on a table of functions that hand out host memory, so that nothing but the allocator is measured; with a plugin
// also through PyTorch's allocator interface. Each figure is the best of several rounds; the last column compares with
// malloc and free in the same run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "csrc/core/DeviceApi.h"
#include "csrc/core/Plugin.h"
#include "csrc/memory/CachingAllocator.h"
#include "csrc/memory/DeviceAllocator.h"
#include "csrc/torch/Activate.h"

namespace tb = torch_backend;

namespace {

tb_core_table host_memory_table() {
  tb_core_table table{};
  table.struct_size = sizeof(table);
  table.device_count = [](int32_t* out) -> tb_status {
    *out = 1;
    return TB_STATUS_OK;
  };
  table.device_properties = [](int32_t, tb_device_properties* out) -> tb_status {
    std::strcpy(out->name, "allocator benchmark");
    out->total_memory_bytes = uint64_t{8} << 30;
    out->allocation_alignment_bytes = 64;
    out->warp_size = 1;
    return TB_STATUS_OK;
  };
  table.memory_allocate = [](int32_t, uint32_t, uint64_t size, tb_stream*, void** out) -> tb_status {
    *out = std::aligned_alloc(64, size);
    return *out ? TB_STATUS_OK : TB_STATUS_OUT_OF_MEMORY;
  };
  table.memory_free = [](int32_t, uint32_t, void* ptr, uint64_t, tb_stream*) -> tb_status {
    std::free(ptr);
    return TB_STATUS_OK;
  };
  table.memory_copy = [](int32_t, void*, int32_t, const void*, uint64_t, uint32_t, tb_stream*) -> tb_status {
    return TB_STATUS_OK;
  };
  return table;
}

constexpr int kPairs = 400'000;
constexpr int kRounds = 9;

double best_ns_per_pair(const std::function<void(int)>& pairs) {
  pairs(kPairs / 10);
  double best = 1e300;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    pairs(kPairs);
    const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count() / kPairs);
  }
  return best;
}

void report(const char* name, double ns, double baseline_ns) {
  std::printf("%-52s %8.1f ns %6.2f x malloc\n", name, ns, ns / baseline_ns);
}

} // namespace

int main(int argc, char** argv) {
  std::thread([] {}).join(); // a process that never had a second thread would skip the atomics
  const auto table = host_memory_table();
  tb::DeviceApi api("bench", table);
  tb::CachingAllocator allocator(api, 0);
  const tb::StreamRef stream;

  const auto pair_of = [&](std::size_t size) {
    return best_ns_per_pair([&, size](int count) {
      for (int i = 0; i < count; ++i) {
        allocator.free(allocator.allocate(size, stream));
      }
    });
  };
  const double baseline = best_ns_per_pair([](int count) {
    for (int i = 0; i < count; ++i) {
      void* volatile ptr = std::malloc(4096);
      std::free(ptr);
    }
  });
  report("malloc + free, 4 KiB", baseline, baseline);
  report("4 KiB, cut from a segment and merged again", pair_of(4096), baseline);
  report("16 MiB, a block that fits exactly", pair_of(std::size_t{16} << 20), baseline);

  // What a training step looks like: many live blocks of mixed sizes, freed in another order.
  std::vector<void*> live;
  const std::size_t sizes[] = {512, 4096, 65536, 300'000, std::size_t{2} << 20, std::size_t{5} << 20};
  const double mixed = best_ns_per_pair([&](int count) {
    for (int done = 0; done < count; done += 60) {
      for (int i = 0; i < 60; ++i) {
        live.push_back(allocator.allocate(sizes[static_cast<std::size_t>(i) % 6], stream));
      }
      for (std::size_t i = 0; i < 60; ++i) {
        allocator.free(live[i * 7 % 60]);
      }
      live.clear();
    }
  });
  report("mixed sizes, 60 live", mixed, baseline);

  if (argc < 2) {
    return 0;
  }
  tb::activate(tb::Plugin::load(argv[1]));
  auto& c10_allocator = tb::device_allocator();
  const auto data_ptr_pair = [&](std::size_t size) {
    return best_ns_per_pair([&, size](int count) {
      for (int i = 0; i < count; ++i) {
        const auto data = c10_allocator.allocate(size);
      }
    });
  };
  report("c10::DataPtr, 4 KiB", data_ptr_pair(4096), baseline);
  report("c10::DataPtr, 16 MiB", data_ptr_pair(std::size_t{16} << 20), baseline);
}
