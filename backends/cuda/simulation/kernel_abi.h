// What a compiled module shows of itself to the simulated driver.
#pragma once

struct sim_index {
  unsigned x, y, z;
};

struct sim_parameter {
  unsigned size; // 0 after the last one
  bool is_pointer;
};

struct sim_kernel {
  const char* name; // null after the last one
  void (*run)(void** parameters);
  const sim_parameter* parameters;
};

constexpr unsigned kSimSharedBytes = 256 << 10;

// One item runs at a time; when it comes to a barrier it calls `barrier`, which returns when the others are there.
struct sim_module {
  sim_index *thread, *block, *block_size, *grid_size;
  void (**barrier)();
  unsigned char* shared; // dynamic shared memory, kSimSharedBytes
  const sim_kernel* kernels;
};
