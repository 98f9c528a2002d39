// Elements at places that tensors of indices name: read from there, or written to.
//
// p0 is what lies here, with a place for each element of the loop; p1 what lies there, its dimensions that indices choose
// left out; p2, ... the indices, one of them for each dimension they choose; then, with SCALED, how often each row occurs;
// last the error cell.
//
// RANK, OPERANDS  of the loop's collapsed shape; p0, p1 and the indices
// STEP_n          stride of operand n in the inner dimension, where it is known
// FIND            TB_FIND(n) for each index, which is stored as INDEX_n
// HOISTED         no index changes along the inner dimension
// WRAPS           negative indices count from the end
// READS           here = there. Else there = here, or
// COMBINE(a, b)   there = COMBINE(there, here), computed in T; THERE_TYPE, HERE_TYPE are how they are stored, and with
//                 FACTOR what lies here is multiplied by a number first
// ADD(p, x)       the same in one instruction, where the device has that; HALVES: where the device has TB_ADDS_ of
//                 THERE_TYPE
// WORD            what is moved as it is, of as many bytes as the dtype
// VALUE           a number in place of what lies here

typedef struct {
  i64 count;
  i64 sizes[RANK];
  i64 strides[OPERANDS][RANK];
  i64 extents[OPERANDS];
  i64 steps[OPERANDS];
  i64 op;
  i64 skipped;
  i64 word;
  tb_scalar scalars[1];
} Args;

#define STEP(n) args.strides[n][RANK - 1]
#define PLACE(n) (base[n] + k * (Index)(STEP_##n))

#ifdef WRAPS
#define TB_WRAP(index, n) index += index < 0 ? args.extents[n] : 0;
#else
#define TB_WRAP(index, n)
#endif
#define TB_FIND(n)                                                              \
  {                                                                             \
    i64 index = (i64)TB_LOAD_AS(INDEX_##n, p##n, PLACE(n));                     \
    const i64 wanted = index;                                                   \
    TB_WRAP(index, n)                                                           \
    if ((u64)index >= (u64)args.extents[n]) {                                   \
      tb_report(CELL, TB_INDEX_OUT_OF_RANGE, args.op, wanted, args.extents[n]); \
      found = 0;                                                                \
    } else {                                                                    \
      found &= index != args.skipped;                                           \
      there += (Index)index * (Index)args.steps[n];                             \
      row_there = (Index)index;                                                 \
    }                                                                           \
  }

#ifdef COMBINE
#ifdef VALUE
#define HERE ((T)TB_SCALAR(0))
#elif defined(SCALED)
#define HERE ((T)TB_LOAD_AS(HERE_TYPE, p0, PLACE(0)) / (T)TB_LOAD_i32(COUNTS, row_there))
#elif defined(FACTOR)
#define HERE ((T)TB_LOAD_AS(HERE_TYPE, p0, PLACE(0)) * (T)TB_SCALAR(0))
#else
#define HERE ((T)TB_LOAD_AS(HERE_TYPE, p0, PLACE(0)))
#endif
#if defined(ADD) && defined(TB_ADDS_OF_ALL_WORDS)
#define ACT(place) ADD((TB_GLOBAL T*)p1 + (place), HERE);
#elif defined(HALVES) && TB_PASTE(TB_ADDS_, THERE_TYPE)
#define DEFINE_ADD(type) TB_DEFINE_ADD_HALF(type)
DEFINE_ADD(THERE_TYPE)
#define ACT(place) TB_PASTE(tb_add_, THERE_TYPE)(p1 + (place) * 2, HERE);
#elif defined(ATOMIC_UNION)
// The containing word is exchanged until nobody has changed it in between.
TB_DEVICE void tb_update(TB_GLOBAL char* p, Index place, T x) {
#if ATOMIC_BYTES == 8
  TB_GLOBAL u64* at = (TB_GLOBAL u64*)p + place;
  u64 old = *(volatile TB_GLOBAL u64*)at;
  for (;;) {
    ATOMIC_UNION now;
    now.word = old;
    now.value = COMBINE(now.value, x);
    const u64 was = TB_COMPARE_EXCHANGE_64(at, old, now.word);
    if (was == old) return;
    old = was;
  }
#else
  TB_GLOBAL char* address = p + place * ATOMIC_BYTES;
  const u32 inside = ((u32)(size_t)address & 3u) * 8u;
  TB_GLOBAL u32* at = (TB_GLOBAL u32*)(address - inside / 8u);
  const u32 mask = ATOMIC_BYTES == 4 ? 0xffffffffu : ((1u << (ATOMIC_BYTES * 8 % 32)) - 1u) << inside;
  u32 old = *(volatile TB_GLOBAL u32*)at;
  for (;;) {
    const u32 part = (old & mask) >> inside;
    const T value = (T)VALUE_OF_BITS(part);
    const T combined = COMBINE(value, x);
    const u32 now = (old & ~mask) | (((u32)BITS_OF_VALUE(combined) << inside) & mask);
    const u32 was = TB_COMPARE_EXCHANGE_32(at, old, now);
    if (was == old) return;
    old = was;
  }
#endif
}
#define ACT(place) tb_update(p1, place, HERE);
#else
#define ACT(place)                                       \
  {                                                      \
    const T value = (T)TB_LOAD_AS(THERE_TYPE, p1, place); \
    const T x = HERE;                                     \
    TB_STORE_AS(THERE_TYPE, p1, place, COMBINE(value, x)); \
  }
#endif
#elif defined(READS)
#define ACT(place) TB_STORE_PLAIN(WORD, p0, PLACE(0), TB_LOAD_PLAIN(WORD, p1, place));
#elif defined(VALUE)
#define ACT(place) TB_STORE_PLAIN(WORD, p1, place, (WORD)args.word);
#else
#define ACT(place) TB_STORE_PLAIN(WORD, p1, place, TB_LOAD_PLAIN(WORD, p0, PLACE(0)));
#endif

#define EACH                           \
  Index there = 0, row_there = 0;      \
  int found = 1;                       \
  (void)row_there;                     \
  FIND

TB_KERNEL(indexed) {
  TB_FOR_ROWS((Index)args.count, (Index)args.sizes[RANK - 1]) {
    Index base[OPERANDS];
    TB_LOCATE(base, 0, sizes, strides, RANK - 2, row, 0, OPERANDS)
#ifdef HOISTED
    const Index k = 0;
    EACH
    if (found) {
      for (Index k = begin; k < stop; ++k) {
        ACT(PLACE(1) + there)
      }
    }
    (void)k;
#else
    for (Index k = begin; k < stop; ++k) {
      EACH
      if (found) ACT(PLACE(1) + there)
    }
#endif
  }
} TB_END
