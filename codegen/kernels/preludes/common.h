// What follows every language's own prelude: loads and stores of each dtype, and how a range is divided.
//
// A kernel computes in T: f32 for the half types, i32 for the small integers, else the dtype itself. TC(0.5) is a constant
// of it. Index is the type of counts and of offsets in elements; UIndex has its bits without the sign.

#define TB_PASTE_(a, b) a##b
#define TB_PASTE(a, b) TB_PASTE_(a, b)

#define TB_LEAST(a, b) ((a) < (b) ? (a) : (b))
#define TB_MOST(a, b) ((a) > (b) ? (a) : (b))

// Of a type that is a macro.
#define TB_LOAD_AS_(type, p, i) TB_LOAD_##type(p, i)
#define TB_LOAD_AS(type, p, i) TB_LOAD_AS_(type, p, i)
#define TB_STORE_AS_(type, p, i, x) TB_STORE_##type(p, i, x)
#define TB_STORE_AS(type, p, i, x) TB_STORE_AS_(type, p, i, x)

#define TB_LOAD_PLAIN(type, p, i) (((TB_GLOBAL const type*)(p))[i])
#define TB_LOAD_b8(p, i) (TB_LOAD_PLAIN(u8, p, i) != 0)
#define TB_LOAD_u8(p, i) TB_LOAD_PLAIN(u8, p, i)
#define TB_LOAD_i8(p, i) TB_LOAD_PLAIN(i8, p, i)
#define TB_LOAD_i16(p, i) TB_LOAD_PLAIN(i16, p, i)
#define TB_LOAD_i32(p, i) TB_LOAD_PLAIN(i32, p, i)
#define TB_LOAD_i64(p, i) TB_LOAD_PLAIN(i64, p, i)
#define TB_LOAD_u16(p, i) TB_LOAD_PLAIN(u16, p, i)
#define TB_LOAD_u32(p, i) TB_LOAD_PLAIN(u32, p, i)
#define TB_LOAD_u64(p, i) TB_LOAD_PLAIN(u64, p, i)
#define TB_LOAD_f32(p, i) TB_LOAD_PLAIN(f32, p, i)
#define TB_LOAD_f64(p, i) TB_LOAD_PLAIN(f64, p, i)
#define TB_LOAD_w128(p, i) TB_LOAD_PLAIN(w128, p, i)
#define TB_LOAD_bf16(p, i) tb_f32_of_bits((u32)TB_LOAD_PLAIN(u16, p, i) << 16)

TB_DEVICE u16 tb_round_bf16(float x) {
  const u32 bits = tb_bits_f32(x);
  return x != x ? (u16)0x7fc0 : (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define TB_STORE_PLAIN(type, p, i, x) (((TB_GLOBAL type*)(p))[i] = (x))
#define TB_STORE_b8(p, i, x) TB_STORE_PLAIN(u8, p, i, (x) != 0)
#define TB_STORE_u8(p, i, x) TB_STORE_PLAIN(u8, p, i, (u8)(i64)(x))
#define TB_STORE_i8(p, i, x) TB_STORE_PLAIN(i8, p, i, (i8)(i64)(x))
#define TB_STORE_i16(p, i, x) TB_STORE_PLAIN(i16, p, i, (i16)(i64)(x))
#define TB_STORE_i32(p, i, x) TB_STORE_PLAIN(i32, p, i, (i32)(x))
#define TB_STORE_i64(p, i, x) TB_STORE_PLAIN(i64, p, i, (i64)(x))
#define TB_STORE_u16(p, i, x) TB_STORE_PLAIN(u16, p, i, (u16)(i64)(x))
#define TB_STORE_u32(p, i, x) TB_STORE_PLAIN(u32, p, i, (u32)(i64)(x))
#define TB_STORE_u64(p, i, x) TB_STORE_PLAIN(u64, p, i, (u64)(x))
#define TB_STORE_f32(p, i, x) TB_STORE_PLAIN(f32, p, i, (f32)(x))
#define TB_STORE_f64(p, i, x) TB_STORE_PLAIN(f64, p, i, (f64)(x))
#define TB_STORE_w128(p, i, x) TB_STORE_PLAIN(w128, p, i, x)
#define TB_STORE_bf16(p, i, x) TB_STORE_PLAIN(u16, p, i, tb_round_bf16((float)(x)))

// To the values of a dtype that is not computed in.
#define TB_ROUND_b8(x) ((T)((x) != 0))
#define TB_ROUND_u8(x) ((T)(u8)(x))
#define TB_ROUND_i8(x) ((T)(i8)(x))
#define TB_ROUND_i16(x) ((T)(i16)(x))
#define TB_ROUND_u16(x) ((T)(u16)(x))
#define TB_ROUND_u32(x) ((T)(u32)(x))
#define TB_ROUND_bf16(x) tb_f32_of_bits((u32)tb_round_bf16(x) << 16)
#define TB_ROUND_f32(x) (x)
#define TB_ROUND_f64(x) (x)

// TB_V is the dtype whose values are computed, where that matters.
#define TB_V_BITS TB_PASTE(TB_BITS_, TB_V)
#define TB_V_SIGNED TB_PASTE(TB_SIGNED_, TB_V)
#define TB_V_MAX TB_PASTE(TB_MAX_, TB_V)
#define TB_V_ROUND TB_PASTE(TB_ROUND_, TB_V)
#define TB_V_DIGITS TB_PASTE(TB_DIGITS_, TB_V)
#define TB_V_LEAST_EXPONENT TB_PASTE(TB_LEAST_EXPONENT_, TB_V)
#define TB_BITS_b8 8
#define TB_BITS_u8 8
#define TB_BITS_i8 8
#define TB_BITS_i16 16
#define TB_BITS_i32 32
#define TB_BITS_i64 64
#define TB_BITS_u16 16
#define TB_BITS_u32 32
#define TB_BITS_u64 64
#define TB_SIGNED_b8 0
#define TB_SIGNED_u8 0
#define TB_SIGNED_i8 1
#define TB_SIGNED_i16 1
#define TB_SIGNED_i32 1
#define TB_SIGNED_i64 1
#define TB_SIGNED_u16 0
#define TB_SIGNED_u32 0
#define TB_SIGNED_u64 0
#define TB_MAX_f16 65504.0f
#define TB_MAX_bf16 3.3895313892515355e38f
#define TB_MAX_f32 3.4028234663852886e38f
#define TB_MAX_f64 1.7976931348623157e308
#define TB_DIGITS_f16 11
#define TB_DIGITS_bf16 8
#define TB_DIGITS_f32 24
#define TB_DIGITS_f64 53
#define TB_LEAST_EXPONENT_f16 -24
#define TB_LEAST_EXPONENT_bf16 -133
#define TB_LEAST_EXPONENT_f32 -149
#define TB_LEAST_EXPONENT_f64 -1074

#ifdef TB_T_f64
#define TC(x) x
#else
#define TC(x) x##f
#endif

// One number of a launch: every value of an argument struct is eight bytes wide.
typedef union {
  f32 f32_;
  i64 i64_;
#ifdef TB_HAS_f64
  f64 f64_;
#endif
} tb_scalar;

// What this item does of [0, count): neighbours at once where items run together, else a stretch. Only these loops divide
// work. A step from the last element may be beyond what Index holds, so steps are taken and compared without the sign.
#define TB_ITEM ((UIndex)TB_BLOCK * (UIndex)TB_BLOCK_ITEMS + (UIndex)TB_LOCAL_ITEM)
#define TB_ITEMS ((UIndex)TB_BLOCKS * (UIndex)TB_BLOCK_ITEMS)
// This item's part of memory that has so many elements for each.
#define TB_OWN(p, elements) ((p) + (Index)TB_ITEM * (elements))
#ifdef TB_CHUNKED
#define TB_STRETCH(count) (((UIndex)(count) + TB_ITEMS - 1) / TB_ITEMS)
#define TB_FIRST(count) ((Index)TB_LEAST(TB_ITEM * TB_STRETCH(count), (UIndex)(count)))
#define TB_LAST(count) ((Index)TB_LEAST((TB_ITEM + 1) * TB_STRETCH(count), (UIndex)(count)))
#define TB_IS_BEFORE(i, end) ((i) < (end))
#define TB_NEXT(i, steps) ((i) + (steps))
#else
#define TB_FIRST(count) ((Index)TB_ITEM)
#define TB_LAST(count) (count)
#define TB_IS_BEFORE(i, end) ((UIndex)(i) < (UIndex)(end))
#define TB_NEXT(i, steps) ((Index)((UIndex)(i) + (UIndex)(steps) * TB_ITEMS))
#endif
#define TB_FOR(i, count) \
  for (Index i = TB_FIRST(count), tb_end_##i = TB_LAST(count); TB_IS_BEFORE(i, tb_end_##i); i = TB_NEXT(i, 1))

// What this block does of [0, count), its items together. There may be a block for each, and then more items than UIndex
// counts.
#define TB_FOR_BLOCKS(i, count) \
  for (Index i = (Index)TB_BLOCK; (UIndex)i < (UIndex)(count); i = (Index)((UIndex)i + (UIndex)TB_BLOCKS))

// Sets `to` to the x of the item of this block whose number differs in the bit `mask`. All items of the block come here
// together; `shared` has a place for each.
#define TB_FROM_OTHER_SHARED(to, x, mask, shared) \
  TB_BARRIER();                                   \
  shared[TB_LOCAL_ITEM] = x;                      \
  TB_BARRIER();                                   \
  to = shared[TB_LOCAL_ITEM ^ (mask)];
#ifdef TB_SHUFFLE
#define TB_FROM_OTHER(to, x, mask, shared)        \
  if ((mask) < TB_SHUFFLED) {                     \
    to = TB_SHUFFLE(x, mask);                     \
  } else {                                        \
    TB_FROM_OTHER_SHARED(to, x, mask, shared)     \
  }
#else
#define TB_FROM_OTHER TB_FROM_OTHER_SHARED
#endif

// Rows of `inner` elements: for those that this item does of [0, count), the elements of `row` from `begin` to `stop`.
#ifdef TB_CHUNKED
#define TB_FOR_ROWS(count, inner)                                                                           \
  for (Index tb_at = TB_FIRST(count), tb_end = TB_LAST(count),                                             \
             row = tb_at / (inner), begin = tb_at - row * (inner), stop = 0;                               \
       tb_at < tb_end && (stop = TB_LEAST((inner), begin + (tb_end - tb_at)), 1);                          \
       tb_at += stop - begin, begin = 0, ++row)
#else
#define TB_FOR_ROWS(count, inner) \
  TB_FOR(tb_at, count)            \
  for (Index row = tb_at / (inner), begin = tb_at - row * (inner), stop = begin + 1; begin < stop; stop = 0)
#endif

// to[n] = from + the offset of place `index` in operand n, of those in [first, last); args.sizes and args.strides have the
// dimensions, up to `last_dim`.
#define TB_LOCATE(to, from, sizes, strides, last_dim, index, first, last)                \
  {                                                                                      \
    Index tb_rest = (index);                                                             \
    for (int n = (first); n < (last); ++n) to[n] = from;                                 \
    for (int d = (last_dim); d >= 0; --d) {                                              \
      const Index size = (Index)args.sizes[d];                                           \
      const Index next = d > 0 ? tb_rest / size : 0;                                     \
      const Index here = d > 0 ? tb_rest - next * size : tb_rest;                        \
      for (int n = (first); n < (last); ++n) to[n] += here * (Index)args.strides[n][d];  \
      tb_rest = next;                                                                    \
    }                                                                                    \
  }

// Takes the innermost dimension off a number of a place.
#define TB_SPLIT(rest, what, size)           \
  const Index what = (rest) % (Index)(size); \
  (rest) /= (Index)(size);
// Images [batches, channels, size 0, size 1, size 2]: TB_FOR over what TB_PLACES counts, of which TB_SPLIT_ROW takes off the
// last dimension unless TB_FOR_ROW walks along it.
#ifdef TB_CHUNKED
#define TB_PLACES(size) (args.batches * args.channels * (size)[0] * (size)[1])
#define TB_SPLIT_ROW(rest, x, size)
#define TB_FOR_ROW(x, size) for (Index x = 0; x < (Index)(size); ++x)
#else
#define TB_PLACES(size) (args.batches * args.channels * (size)[0] * (size)[1] * (size)[2])
#define TB_SPLIT_ROW(rest, x, size) TB_SPLIT(rest, x, size)
#define TB_FOR_ROW(x, size)
#endif
#define TB_PLACE(strides, batch, channel, z, y, x)                                                         \
  ((batch) * (Index)args.strides[0] + (channel) * (Index)args.strides[1] + (z) * (Index)args.strides[2] + \
   (y) * (Index)args.strides[3] + (x) * (Index)args.strides[4])

// The first of windows `stride` apart whose element `offset` after its start is not before `at`.
#define TB_FIRST_WINDOW(at, offset, stride) ((at) - (offset) <= 0 ? 0 : ((at) - (offset) + (stride) - 1) / (stride))

// What the host finds at its next wait, as csrc/core/ErrorCell.h lays it out. The first error stays.
#define TB_INDEX_OUT_OF_RANGE 1
#define TB_TOO_FEW_ELEMENTS 2
#define TB_INVALID_VALUE 3
TB_DEVICE void tb_report(TB_GLOBAL char* cell, i32 code, i64 op, i64 index, i64 size) {
  if (TB_COMPARE_EXCHANGE_32(cell, 0, 1) == 0) {
    TB_STORE_i64(cell, 1, op);
    TB_STORE_i64(cell, 2, index);
    TB_STORE_i64(cell, 3, size);
    TB_STORE_FENCE();
    TB_STORE_i32(cell, 1, code);
  }
}
