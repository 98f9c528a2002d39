// Elements of a contiguous mask that are not zero, in order: blocks count those of their chunks, one block adds these up, and
// blocks go through their chunks again.
//
// p0 the mask, p1 counts before each chunk and in all, p2 and p3 as the action needs them, p4 the error cell
//
// MASK           how it is stored
// BYTES          of an element, which is moved as it is
// GROUP          items of a block
// PACKED         not 0: elements are bytes, and aligned by EACH
// ACTION_count, ACTION_scan, ACTION_places, ACTION_select, ACTION_scatter

typedef struct {
  i64 count;
  i64 chunks;
  i64 chunk;
  i64 op;
  i64 numbers[4];
  i64 sizes[RANK];
} Args;

#if BYTES == 16
typedef struct { i64 halves[2]; } WORD;
#elif BYTES == 8
typedef i64 WORD;
#elif BYTES == 4
typedef i32 WORD;
#elif BYTES == 2
typedef i16 WORD;
#else
typedef i8 WORD;
#endif

// before, all: of what the items before this one have, and of all of them.
#define ADD_UP_ITEMS(mine)                              \
  i64 before = 0, all = mine;                           \
  TB_UNROLL                                             \
  for (int mask = 1; mask < GROUP; mask *= 2) {         \
    i64 other;                                          \
    TB_FROM_OTHER(other, all, mask, shared)             \
    before += (item & mask) != 0 ? other : 0;           \
    all += other;                                       \
  }

#define EACH 8 // elements side by side of each item
// Which of those from `first` on are not zero, and how many.
#define CHOOSE(first)                                                              \
  u32 chosen = 0;                                                                  \
  i64 mine = 0;                                                                    \
  if (PACKED && first + EACH <= end) {                                             \
    const u64 bytes = TB_LOAD_PLAIN(u64, p0, first / EACH);                        \
    TB_UNROLL                                                                      \
    for (int j = 0; j < EACH; ++j) chosen |= (u32)((bytes >> 8 * j & 0xff) != 0) << j; \
  } else {                                                                         \
    TB_UNROLL                                                                      \
    for (int j = 0; j < EACH; ++j)                                                 \
      chosen |= (u32)(first + j < end && TB_LOAD_AS(MASK, p0, first + j) != 0) << j; \
  }                                                                                \
  TB_UNROLL                                                                        \
  for (int j = 0; j < EACH; ++j) mine += chosen >> j & 1;

#ifdef ACTION_places
#define ACT(i, at)                                                                                      \
  if (at < args.numbers[2]) {                                                                           \
    Index rest = i;                                                                                     \
    for (int d = RANK - 1; d >= 0; --d) {                                                               \
      const Index next = d > 0 ? rest / (Index)args.sizes[d] : 0;                                       \
      TB_STORE_i64(p2, at * args.numbers[0] + d * args.numbers[1], rest - next * (Index)args.sizes[d]); \
      rest = next;                                                                                      \
    }                                                                                                   \
  }
#elif defined(ACTION_select)
#define ACT(i, at) TB_STORE_PLAIN(WORD, p2, at, TB_LOAD_PLAIN(WORD, p3, i));
#else
#define ACT(i, at)                                                        \
  if (at < args.numbers[0]) {                                             \
    TB_STORE_PLAIN(WORD, p2, i, TB_LOAD_PLAIN(WORD, p3, at));             \
  } else {                                                                \
    tb_report(p4, TB_TOO_FEW_ELEMENTS, args.op, at, args.numbers[0]);     \
  }
#endif

TB_KERNEL(compaction) {
  TB_LOCAL_ARRAY(i64, shared, GROUP);
  const Index item = (Index)TB_LOCAL_ITEM;
  const Index items = (Index)TB_BLOCK_ITEMS;
  const Index chunks = (Index)args.chunks;
#ifdef ACTION_scan
  const Index share = (chunks + items - 1) / items;
  const Index first = TB_LEAST(item * share, chunks);
  const Index end = TB_LEAST(first + share, chunks);
  i64 mine = 0;
  for (Index c = first; c < end; ++c) mine += TB_LOAD_i64(p1, c);
  ADD_UP_ITEMS(mine)
  i64 at = before;
  for (Index c = first; c < end; ++c) {
    const i64 here = TB_LOAD_i64(p1, c);
    TB_STORE_i64(p1, c, at);
    at += here;
  }
  if (item == 0) TB_STORE_i64(p1, chunks, all);
#else
  TB_FOR_BLOCKS(c, chunks) {
    const Index begin = TB_LEAST(c * (Index)args.chunk, (Index)args.count);
    const Index end = begin + TB_LEAST((Index)args.chunk, (Index)args.count - begin);
#ifdef ACTION_count
    i64 found = 0;
#ifdef TB_CHUNKED
    for (Index i = begin; i < end; ++i) found += TB_LOAD_AS(MASK, p0, i) != 0;
#else
    for (Index first = begin + item * EACH; first < end; first += items * EACH) {
      CHOOSE(first)
      found += mine;
    }
#endif
    ADD_UP_ITEMS(found)
    (void)before;
    if (item == 0) TB_STORE_i64(p1, c, all);
#elif defined(TB_CHUNKED)
    i64 at = TB_LOAD_i64(p1, c);
    for (Index i = begin; i < end; ++i) {
      if (TB_LOAD_AS(MASK, p0, i) != 0) {
        ACT(i, at)
        ++at;
      }
    }
#else
    i64 done = TB_LOAD_i64(p1, c);
    for (Index from = begin; from < end; from += items * EACH) {
      const Index first = from + item * EACH;
      CHOOSE(first)
      ADD_UP_ITEMS(mine)
      i64 at = done + before;
#ifdef ACTION_select
      WORD words[EACH]; // they are read before others are written, which could be the same
      TB_UNROLL
      for (int j = 0; j < EACH; ++j) {
        if ((chosen >> j & 1) != 0) words[j] = TB_LOAD_PLAIN(WORD, p3, first + j);
      }
#undef ACT
#define ACT(i, at) TB_STORE_PLAIN(WORD, p2, at, words[j]);
#endif
      TB_UNROLL
      for (int j = 0; j < EACH; ++j) {
        if ((chosen >> j & 1) != 0) {
          ACT(first + j, at)
          ++at;
        }
      }
      done += all;
    }
#endif
  }
#endif
} TB_END
