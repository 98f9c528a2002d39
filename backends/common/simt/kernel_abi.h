// What a compiled module shows of itself to whoever runs it.
#pragma once

struct simt_index {
  unsigned x, y, z;
};

struct simt_parameter {
  unsigned size; // 0 after the last one
  bool is_pointer;
};

struct simt_kernel {
  const char* name; // null after the last one
  void (*run)(void* const* parameters);
  const simt_parameter* parameters;
};

constexpr unsigned kSimtSharedBytes = 256 << 10, kSimtItems = 1024, kSimtWarp = 32; // of a block, at most; of a warp

enum simt_access { kSimtRead, kSimtWrite, kSimtAtomicRead, kSimtAtomicWrite };

// What an item calls.
struct simt_host {
  void (*wait_for_block)(); // returns when all items of the block have come
  void (*wait_for_warp)();  // those of its warp
  // Where races are looked for: what it does to memory, at a time between the barrier number `since` of its block and now.
  void (*access)(const void* at, unsigned long size_bytes, simt_access how, unsigned since);
  void (*fence)(); // what it has done comes before what whoever sees it does, of any block
};

// One item runs at a time, so that all this is its own, or its block's.
struct simt_module {
  simt_index *thread, *block, *block_size, *grid_size;
  unsigned* barriers; // that the block has passed
  const simt_host** host;
  unsigned char* shared;            // dynamic shared memory, kSimtSharedBytes
  const unsigned char *begin, *end; // of all that is static, in which shared memory is
  const simt_kernel* kernels;
};
