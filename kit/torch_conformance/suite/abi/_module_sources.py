"""The functions that the tests of modules launch, in each language that the core writes: see tb_launch_param.

sum(out, mixed, small, wide)       out[i] is a sum of all that the values hold, and i
shift(out, in, add)                out[i] = in[i] + add in bytes; 200 in place of in[i] if `in` is NULL
reverse(first, second, data, n)    turns around n bytes of data for each block, with two kinds of local memory
where(out)                         out[item] is where the item is in the grid
advance(data, add)                 data[0] = 3 * data[0] + add
"""

import ctypes


class Mixed(ctypes.Structure):
    """What `sum` takes: fields with gaps between them, and behind the last."""

    _fields_ = (
        ("a", ctypes.c_int8),
        ("b", ctypes.c_int32),
        ("c", ctypes.c_int16),
        ("d", ctypes.c_int64),
        ("e", ctypes.c_float),
        ("f", ctypes.c_uint8 * 3),
    )


_SUM = """v.a + 3 * v.b + 5 * v.c + 7 * (int)v.d + 11 * (int)v.e + 13 * v.f[0] + 17 * v.f[1] + 19 * v.f[2]
      + 23 * small + 29 * (int)(wide >> 32)"""

_CXX = """
#include <cstdint>
using index = const uint32_t*;
struct mixed { int8_t a; int32_t b; int16_t c; int64_t d; float e; uint8_t f[3]; };

#define FUNCTION(name) extern "C" void name(index block, index grid, index size, void* const* params)
#define UNUSED (void)block, (void)grid, (void)size, (void)params
#define ITEMS(x) for (uint32_t x = block[0] * size[0]; x < (block[0] + 1) * size[0]; ++x)

FUNCTION(sum) {
  UNUSED;
  int32_t* out = static_cast<int32_t*>(params[0]);
  const mixed& v = *static_cast<const mixed*>(params[1]);
  const uint8_t small = *static_cast<const uint8_t*>(params[2]);
  const int64_t wide = *static_cast<const int64_t*>(params[3]);
  ITEMS(i) out[i] = SUM + (int)i;
}
FUNCTION(shift) {
  UNUSED;
  uint8_t* out = static_cast<uint8_t*>(params[0]);
  const uint8_t* in = static_cast<const uint8_t*>(params[1]);
  const int32_t add = *static_cast<const int32_t*>(params[2]);
  ITEMS(i) out[i] = (uint8_t)((in ? in[i] : 200) + add);
}
FUNCTION(reverse) {
  UNUSED;
  uint8_t *first = static_cast<uint8_t*>(params[0]), *second = static_cast<uint8_t*>(params[1]);
  const uint32_t n = *static_cast<const uint32_t*>(params[3]);
  uint8_t* data = static_cast<uint8_t*>(params[2]) + (uint64_t)block[0] * n;
  for (uint32_t i = 0; i < n; ++i) first[i] = data[i];
  for (uint32_t i = 0; i < n; ++i) second[i] = (uint8_t)i;
  for (uint32_t i = 0; i < n; ++i) data[i] = first[n - 1 - i] ^ second[i];
}
FUNCTION(where) {
  UNUSED;
  uint32_t* out = static_cast<uint32_t*>(params[0]);
  const uint32_t width = grid[0] * size[0], height = grid[1] * size[1];
  for (uint32_t z = block[2] * size[2]; z < (block[2] + 1) * size[2]; ++z)
    for (uint32_t y = block[1] * size[1]; y < (block[1] + 1) * size[1]; ++y)
      ITEMS(x) out[(z * height + y) * width + x] = x + 1000 * y + 1000000 * z;
}
FUNCTION(advance) {
  UNUSED;
  int32_t* data = static_cast<int32_t*>(params[0]);
  data[0] = 3 * data[0] + *static_cast<const int32_t*>(params[1]);
}
""".replace("SUM", _SUM)

_OPENCL = """
typedef struct { char a; int b; short c; long d; float e; uchar f[3]; } mixed;

__kernel void sum(__global char* out, ulong out_at, mixed v, uchar small, long wide) {
  const int i = (int)get_global_id(0);
  ((__global int*)(out + out_at))[i] = SUM + i;
}
__kernel void shift(__global char* out, ulong out_at, __global char* in, ulong in_at, int add) {
  const size_t i = get_global_id(0);
  ((__global uchar*)(out + out_at))[i] = (uchar)((in ? ((__global uchar*)(in + in_at))[i] : 200) + add);
}
__kernel void reverse(__local uchar* first, __local uchar* second, __global char* in, ulong in_at, uint n) {
  __global uchar* data = (__global uchar*)(in + in_at) + (ulong)get_group_id(0) * n;
  const uint item = (uint)get_local_id(0), items = (uint)get_local_size(0);
  for (uint i = item; i < n; i += items) {
    first[i] = data[i];
    second[i] = (uchar)i;
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  for (uint i = item; i < n; i += items) data[i] = first[n - 1 - i] ^ second[i];
}
__kernel void where(__global char* out, ulong out_at) {
  const uint x = (uint)get_global_id(0), y = (uint)get_global_id(1), z = (uint)get_global_id(2);
  const uint width = (uint)get_global_size(0), height = (uint)get_global_size(1);
  ((__global uint*)(out + out_at))[(z * height + y) * width + x] = x + 1000 * y + 1000000 * z;
}
__kernel void advance(__global char* data, ulong at, int add) {
  __global int* number = (__global int*)(data + at);
  number[0] = 3 * number[0] + add;
}
""".replace("SUM", _SUM)

_CUDA = """
struct mixed { signed char a; int b; short c; long long d; float e; unsigned char f[3]; };
extern __shared__ unsigned char shared[];

#define ITEM(d) (blockIdx.d * blockDim.d + threadIdx.d)

extern "C" __global__ void sum(int* out, mixed v, unsigned char small, long long wide) {
  const int i = (int)ITEM(x);
  out[i] = SUM + i;
}
extern "C" __global__ void shift(unsigned char* out, const unsigned char* in, int add) {
  const unsigned i = ITEM(x);
  out[i] = (unsigned char)((in ? in[i] : 200) + add);
}
extern "C" __global__ void reverse(unsigned first_at, unsigned second_at, unsigned char* in, unsigned n) {
  unsigned char *first = shared + first_at, *second = shared + second_at;
  unsigned char* data = in + (unsigned long long)blockIdx.x * n;
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
    first[i] = data[i];
    second[i] = (unsigned char)i;
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) data[i] = first[n - 1 - i] ^ second[i];
}
extern "C" __global__ void where(unsigned* out) {
  const unsigned x = ITEM(x), y = ITEM(y), z = ITEM(z);
  out[(z * gridDim.y * blockDim.y + y) * gridDim.x * blockDim.x + x] = x + 1000 * y + 1000000 * z;
}
extern "C" __global__ void advance(int* data, int add) {
  data[0] = 3 * data[0] + add;
}
""".replace("SUM", _SUM)

SOURCES = {"c++": _CXX, "opencl-c": _OPENCL, "cuda-c": _CUDA}
"""By their format. Every module of these has all functions."""

_CONSTANTS = {
    "c++": """
extern "C" void write_value(const unsigned*, const unsigned*, const unsigned*, void* const* params) {
  *static_cast<int*>(params[0]) = VALUE;
}
""",
    "opencl-c": """
__kernel void write_value(__global char* out, ulong at) { *(__global int*)(out + at) = VALUE; }
""",
    "cuda-c": """
extern "C" __global__ void write_value(int* out) { *out = VALUE; }
""",
}


def constant_source(language: str, value: str) -> str:
    """A module whose one function, write_value(out), writes `value` to out[0]."""
    return _CONSTANTS[language].replace("VALUE", value)


def sum_of(mixed: Mixed, small: int, wide: int) -> int:
    """What `sum` adds up, but for the item's number."""
    numbers = (mixed.a, mixed.b, mixed.c, mixed.d, int(mixed.e), *mixed.f, small, wide >> 32)
    return sum(factor * number for factor, number in zip((1, 3, 5, 7, 11, 13, 17, 19, 23, 29), numbers, strict=True))
