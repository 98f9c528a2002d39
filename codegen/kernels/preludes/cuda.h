// The dialect of the kernels in CUDA C++.

// Names that are not used, or only set: texts serve many operators, and each uses of them what it needs.
#pragma nv_diag_suppress 177, 550

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

#define TB_HAS_f64 1
#define TB_DEVICE static __device__ __forceinline__
#define TB_GLOBAL
#define TB_PRIVATE
#define TB_CONSTANT static __constant__ const
#define TB_CONSTANT_TABLE(type, name, count) const type name[count] // within a function
#define TB_LOCAL
#define TB_LOCAL_ARRAY(type, name, count) __shared__ type name[count]
#define TB_BARRIER() __syncthreads()
#define TB_GLOBAL_BARRIER() __syncthreads()
#define TB_STORE_FENCE() tb_fence()
#define TB_INDEPENDENT
#define TB_UNROLL _Pragma("unroll")
#define TB_FMA(x, y, z) fma(x, y, z) // x * y + z, of T where that is floating, whatever the compiler may fuse
// What the neighbour has whose number differs in the bits of `mask`, below TB_SHUFFLED.
#define TB_SHUFFLED 32
#define TB_SHUFFLE(x, mask) __shfl_xor_sync(0xffffffffu, x, mask)
#define TB_BLOCK blockIdx.x
#define TB_BLOCKS gridDim.x
#define TB_LOCAL_ITEM threadIdx.x
#define TB_BLOCK_ITEMS blockDim.x

// What one access moves, or several.
#define TB_HAS_VECTORS 1
template <int size>
struct alignas(size < 16 ? size : 16) tb_bytes {
  u32 words[size / 4];
};
typedef tb_bytes<16> w128;

#define tb_bits_f32(x) __float_as_uint(x)
#define tb_f32_of_bits(x) __uint_as_float(x)

TB_DEVICE float tb_load_half(u16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
TB_DEVICE u16 tb_store_half(float x) { u16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
#define tb_f32_of_half(x) tb_load_half(x)
#define tb_half_of_f32(x) tb_store_half(x)
#define TB_LOAD_f16(p, i) tb_load_half(((const u16*)(p))[i])
#define TB_STORE_f16(p, i, x) (((u16*)(p))[i] = tb_store_half((float)(x)))
#define TB_ROUND_f16(x) tb_load_half(tb_store_half(x))
#define tb_mul_hi(a, b) __umulhi((u32)(a), (u32)(b))
#ifndef INFINITY
#define INFINITY (__int_as_float(0x7f800000))
#define NAN (__int_as_float(0x7fc00000))
#endif
#define TB_ATOMIC_ADD_i32(p, x) atomicAdd((i32*)(p), (i32)(x))
#define TB_ATOMIC_ADD_u32(p, x) atomicAdd((u32*)(p), (u32)(x))
#define TB_ADDS_OF_ALL_WORDS 1 // of TB_ATOMIC_ADD: f32 and f64 too; sums of f32 flush subnormals
#define TB_ATOMIC_ADD_i64(p, x) atomicAdd((u64*)(p), (u64)(i64)(x))
#define TB_ATOMIC_ADD_f32(p, x) atomicAdd((f32*)(p), (f32)(x))
#define TB_ATOMIC_ADD_f64(p, x) atomicAdd((f64*)(p), (f64)(x))
// Halves are added in pairs, of which the other one gets -0.0, which leaves it as it is. TB_DEFINE_ADD_HALF(bf16) defines
// tb_add_bf16 where TB_ADDS_bf16.
#define TB_ADDS_f16 1
#define TB_ADDS_bf16 (__CUDA_ARCH__ >= 900)
#define TB_DEFINE_ADD_HALF(type)                                                                                          \
  TB_DEVICE void tb_add_##type(char* p, f32 x) {                                                                          \
    u16 half;                                                                                                             \
    TB_STORE_##type(&half, 0, x);                                                                                         \
    const size_t is_high = (size_t)p & 2;                                                                                 \
    const u32 pair = is_high ? (u32)half << 16 | 0x8000u : 0x80000000u | half;                                            \
    asm volatile("red.global.add.noftz." #type "x2 [%0], %1;"                                                             \
                 : : "l"(__cvta_generic_to_global(p - is_high)), "r"(pair) : "memory");                                   \
  }
#define TB_COMPARE_EXCHANGE_32(p, old, value) atomicCAS((u32*)(p), (u32)(old), (u32)(value))
#define TB_COMPARE_EXCHANGE_64(p, old, value) atomicCAS((u64*)(p), (u64)(old), (u64)(value))

// What a block leaves for others: what it has stored is there when the word, which was 0, is not. To wait for it is for blocks
// that have taken a number after the other one has, as no block has to run before another.
#define TB_PUBLISH(at) { tb_fence(); *(volatile u32*)(at) = 1; }
#define TB_AWAIT(at) { while (*(volatile u32*)(at) == 0) {} tb_fence(); }
TB_DEVICE void tb_fence() { asm volatile("fence.acq_rel.gpu;" : : : "memory"); }

// Matrix units. The 32 items of a warp come here together and have a part each, of 16 x 16 halves `a`, 16 x 8 `b` and 16 x 8
// floats `sums`, as PTX lays them out: "Matrix fragments for mma.m16n8k16 with floating point type", and "ldmatrix" for what is
// fetched from local memory, four matrices of 8 x 8, where item n knows where row n % 8 of matrix n / 8 is, of 16 aligned bytes.
#if __CUDA_ARCH__ >= 800
#define TB_DEFINE_ADD_PRODUCT(type)                                                                                       \
  TB_DEVICE void tb_add_product_##type(f32& s0, f32& s1, f32& s2, f32& s3, const u32* a, u32 b0, u32 b1) {                \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." #type "." #type                                                 \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                   \
                 : "+f"(s0), "+f"(s1), "+f"(s2), "+f"(s3)                                                                 \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                         \
  }
TB_DEFINE_ADD_PRODUCT(f16)
TB_DEFINE_ADD_PRODUCT(bf16)
TB_DEVICE void tb_fetch_matrices(u32* to, const u16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"((u32)__cvta_generic_to_shared(row)));
}
TB_DEVICE void tb_fetch_transposed(u32* to, const u16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"((u32)__cvta_generic_to_shared(row)));
}
// To local memory, 16 bytes or as many zeros, at any time until what the item has begun before the last `but` calls of
// tb_begin_group is waited for.
TB_DEVICE void tb_begin_fetch(u16* to, const char* from, int is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
      : : "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(is_there ? 16 : 0) : "memory");
}
TB_DEVICE void tb_begin_group() { asm volatile("cp.async.commit_group;" : : : "memory"); }
#define tb_await_groups(but) asm volatile("cp.async.wait_group %0;" : : "n"(but) : "memory")
// 2 to the power of x, as exact as halves are.
TB_DEVICE f32 tb_exp2_of_halves(f32 x) { f32 y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
// Two floats as halves in one word.
TB_DEVICE u32 tb_pair_f16(f32 low, f32 high) {
  u32 pair; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low)); return pair;
}
TB_DEVICE u32 tb_pair_bf16(f32 low, f32 high) {
  u32 pair; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low)); return pair;
}
#endif
