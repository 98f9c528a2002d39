// Elements that are chosen, in order. Blocks have a chunk each: in the first launch they leave a bit for each element, and
// how many are set; in the next one they add up what the chunks before theirs have, and read the bits.
//
// ACTION_count   p0 the elements, p1 bits, p2 the count of each chunk
// others         p0 bits, p1 counts, and from p2 on what the action needs, see Compaction.h
//
// MASK           how the elements are stored
// CHOSEN         whether element i of p0 is one; without it, if it is not zero
// VECTOR         not 0: elements that are moved at once, with what define_wide() defines
// RANK           of the shape that places are in
// WORD           what an element that is moved is stored as
// GROUP          items of a block

typedef struct {
  i64 count;
  i64 chunks;
  i64 chunk;
  i64 op;
  i64 numbers[2];
#if RANK
  i64 sizes[RANK];
#endif
} Args;

#ifdef ACTION_count
#if VECTOR && defined(TB_HAS_VECTORS)
#define EACH VECTOR // elements side by side of each item
#define DECLARE WIDE_DECLARE WIDE_READ(0, VECTOR_PLACE) WIDE_SHADOWS(0)
#define VECTOR_PLACE(n) (first / EACH)
#define HERE j
#else
#define EACH 8
#define DECLARE
#define HERE (first + j)
#endif
#if EACH == 16
#define BITS u16
#else
#define BITS u8
#endif
#ifndef CHOSEN
#define CHOSEN TB_LOAD_AS(MASK, p0, i) != 0
#endif
#define CHOOSE(place, is_there)                  \
  TB_UNROLL                                      \
  for (int j = 0; j < EACH; ++j) {               \
    const Index i = place;                       \
    const u32 is_one = (is_there) && (CHOSEN);   \
    chosen |= is_one << j;                       \
    mine += is_one;                              \
  }
#else
#define EACH 8
#endif

// For the at-th one, which is element i: FETCH what is moved, PUT it where it goes.
#define FETCH(i, at)
#ifdef ACTION_places
#define PUT(i, at)                                                                                      \
  {                                                                                                     \
    Index rest = i;                                                                                     \
    for (int d = RANK - 1; d >= 0; --d) {                                                               \
      const Index next = d > 0 ? rest / (Index)args.sizes[d] : 0;                                       \
      TB_STORE_i64(p2, (at) * args.numbers[0] + d * args.numbers[1], rest - next * (Index)args.sizes[d]); \
      rest = next;                                                                                      \
    }                                                                                                   \
  }
#elif defined(ACTION_select)
#undef FETCH
#define FETCH(i, at) words[j] = TB_LOAD_PLAIN(WORD, p3, i);
#define PUT(i, at) TB_STORE_PLAIN(WORD, p2, at, words[j]);
#elif defined(ACTION_scatter)
#undef FETCH
#define FETCH(i, at)                                                   \
  if (at < args.numbers[0]) {                                          \
    words[j] = TB_LOAD_PLAIN(WORD, p3, at);                            \
  } else {                                                             \
    tb_report(p4, TB_TOO_FEW_ELEMENTS, args.op, at, args.numbers[0]);  \
  }
#define PUT(i, at) \
  if (at < args.numbers[0]) TB_STORE_PLAIN(WORD, p2, i, words[j]);
#elif defined(ACTION_unique)
#define ORDER(i) TB_LOAD_i32(p4, i)
#undef FETCH
#define FETCH(i, at) words[j] = TB_LOAD_PLAIN(WORD, p3, ORDER(i));
#define PUT(i, at)                             \
  TB_STORE_PLAIN(WORD, p2, at, words[j]);      \
  if (args.numbers[1]) TB_STORE_i64(p6, at, i);
#endif

TB_KERNEL(compaction) {
  TB_LOCAL_ARRAY(i64, shared, GROUP);
#ifndef ACTION_count
  TB_LOCAL_ARRAY(u16, places, GROUP * EACH);
#endif
  const int item = (int)TB_LOCAL_ITEM;
  TB_FOR_BLOCKS(c, (Index)args.chunks) {
    const Index begin = TB_LEAST(c * (Index)args.chunk, (Index)args.count);
    const Index end = begin + TB_LEAST((Index)args.chunk, (Index)args.count - begin);
#ifdef ACTION_count
    i64 found = 0;
    for (Index first = begin + item * EACH; first < end; first += GROUP * EACH) {
      u32 chosen = 0, mine = 0;
      if (first + EACH <= end) {
        DECLARE
        CHOOSE(HERE, 1)
      } else {
        CHOOSE(first + j, first + j < end)
      }
      TB_STORE_PLAIN(BITS, p1, first / EACH, (BITS)chosen);
      found += mine;
    }
    ADD_UP_ITEMS(i64, found)
    if (item == 0) TB_STORE_i64(p2, c, all);
#else
    i64 done = 0;
    for (Index k = item; k < c; k += GROUP) done += TB_LOAD_i64(p1, k);
    {
      ADD_UP_ITEMS(i64, done)
      done = all;
    }
    for (Index from = begin; from < end; from += GROUP * EACH) {
      const Index first = from + item * EACH;
      const u32 chosen = first < end ? TB_LOAD_u8(p0, first / EACH) : 0;
      int mine = 0;
      TB_UNROLL
      for (int j = 0; j < EACH; ++j) mine += (int)(chosen >> j & 1);
      ADD_UP_ITEMS(int, mine)
#ifdef ACTION_unique
      if (args.numbers[0]) {
        i64 at = done + before - 1;
        TB_UNROLL
        for (int j = 0; j < EACH; ++j) {
          at += chosen >> j & 1;
          if (first + j < end) TB_STORE_i64(p5, ORDER(first + j), at);
        }
      }
#endif
      if (all == 0) continue;
      // Neighbours of those that are chosen are moved by neighbouring items, whatever lies between them.
      TB_BARRIER();
      TB_UNROLL
      for (int j = 0; j < EACH; ++j) {
        if ((chosen >> j & 1) != 0) places[before++] = (u16)(item * EACH + j);
      }
      TB_BARRIER();
#define FOR_MINE(DO)                                       \
  TB_UNROLL                                                \
  for (int j = 0; j < EACH; ++j) {                         \
    const int k = j * GROUP + item;                        \
    if (k < all) { DO(from + places[k], done + k) }        \
  }
      WORD words[EACH]; // they are read before others are written, which could be the same
      FOR_MINE(FETCH)
      FOR_MINE(PUT)
      done += all;
    }
#endif
  }
} TB_END
