// The dialect of the kernels in OpenCL C 1.2.
typedef char i8;
typedef uchar u8;
typedef short i16;
typedef ushort u16;
typedef int i32;
typedef uint u32;
typedef long i64;
typedef ulong u64;
typedef float f32;
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double f64;
#define TB_HAS_f64 1
#endif
typedef ulong2 w128;
#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif

#define TB_DEVICE static inline
#define TB_GLOBAL __global
#define TB_PRIVATE __private
#define TB_CONSTANT __constant
#define TB_CONSTANT_TABLE(type, name, count) const type name[count] // within a function
#define TB_LOCAL __local
#define TB_LOCAL_ARRAY(type, name, count) __local type name[count]
#define TB_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define TB_GLOBAL_BARRIER() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define TB_STORE_FENCE() write_mem_fence(CLK_GLOBAL_MEM_FENCE)
#define TB_INDEPENDENT
#ifdef __clang__
#define TB_UNROLL _Pragma("unroll")
#else
#define TB_UNROLL
#endif
#define TB_FMA(x, y, z) mad(x, y, z)
#define TB_BLOCK get_group_id(0)
#define TB_BLOCKS get_num_groups(0)
#define TB_LOCAL_ITEM get_local_id(0)
#define TB_BLOCK_ITEMS get_local_size(0)

#ifdef __AVX512F__
#define TB_VECTOR_BYTES 64
#endif
typedef float8 f32x8;
typedef float16 f32x16;
#ifdef TB_HAS_f64
typedef double4 f64x4;
typedef double8 f64x8;
#endif
typedef int8 i32x8;
typedef int16 i32x16;
typedef long4 i64x4;
typedef long8 i64x8;
#define tb_at_f32x8(p) vload8(0, p)
#define tb_at_f32x16(p) vload16(0, p)
#define tb_at_f64x4(p) vload4(0, p)
#define tb_at_f64x8(p) vload8(0, p)
#define tb_at_i32x8(p) vload8(0, p)
#define tb_at_i32x16(p) vload16(0, p)
#define tb_at_i64x4(p) vload4(0, p)
#define tb_at_i64x8(p) vload8(0, p)
#define TB_VECTOR_AT(V, p) TB_PASTE(tb_at_, V)(p)
#define TB_ZEROS(V) ((V)(0))
#if defined(__clang__) && (defined(__x86_64__) || defined(__aarch64__)) // whose prefetch() does nothing
#define TB_READ_AHEAD(p) __builtin_prefetch((const void*)(size_t)(p))
#else
#define TB_READ_AHEAD(p) prefetch(p, 1)
#endif
#define TB_PAIR_SUMS(V, x, y) ((V)((x).even, (y).even) + (V)((x).odd, (y).odd)) // the sums of neighbours, of x, then of y
#define TB_CONTRACTED

#define tb_bits_f32(x) as_uint(x)
#define tb_f32_of_bits(x) as_float(x)

#define TB_LOAD_f16(p, i) vload_half((i), (TB_GLOBAL const half*)(p))
#define TB_STORE_f16(p, i, x) vstore_half_rte((float)(x), (i), (TB_GLOBAL half*)(p))
static inline float tb_round_f16(float x) { u16 y; vstore_half_rte(x, 0, (half*)&y); return vload_half(0, (const half*)&y); }
#define TB_ROUND_f16(x) tb_round_f16(x)
TB_DEVICE float tb_f32_of_half(u16 x) { return vload_half(0, (const TB_PRIVATE half*)&x); }
TB_DEVICE u16 tb_half_of_f32(float x) { u16 y; vstore_half_rte(x, 0, (TB_PRIVATE half*)&y); return y; }
#define tb_mul_hi(a, b) mul_hi((u32)(a), (u32)(b))
#define TB_ATOMIC_ADD_i32(p, x) atomic_add((volatile TB_GLOBAL i32*)(p), (i32)(x))
#define TB_ATOMIC_ADD_u32(p, x) atomic_add((volatile TB_GLOBAL u32*)(p), (u32)(x))
#define TB_ATOMIC_ADD_LOCAL_u32(p, x) atomic_add((volatile TB_LOCAL u32*)(p), (u32)(x))
#define TB_COMPARE_EXCHANGE_32(p, old, value) atomic_cmpxchg((volatile TB_GLOBAL u32*)(p), old, value)
#define TB_COMPARE_EXCHANGE_64(p, old, value) atom_cmpxchg((volatile TB_GLOBAL u64*)(p), old, value)
