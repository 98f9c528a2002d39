// Long rows in order: for each digit of the keys, from the lowest on, keys and places are moved to where that digit has
// its turn, and those that are alike stay as they were. A row has parts, which are the work of a block each.
//
// STEP_tally   p0 keys, p1 how many of each digit a part has: [row, digit, part]
// STEP_before  p0 these: how many the parts before have; p1 how many the row has: [row, digit]
// STEP_move    p0, p1 keys and places, p2, p3 where they go, p4, p5 what STEP_before leaves
//
// The first args.kept of a row are found by the keys' digits from the highest on: a digit that all of them but the last have, or
// what comes before it, tells which of the next digits matter. A state of a row says how its last key begins, and how many of
// those that begin so are among the first.
//
// STEP_narrow  p0 elements, p1 totals of the digit before, p2 states without it, p3 states with it, p4 totals of this one
// STEP_count   likewise, p4 how many of each part come before the last key, and how many have it: [row, part]
// STEP_gather  p0 elements, p1 states, p2 these counts, p3 elements, p4 places, of the first in the order of their places but for
//              those of the last key, which come last. STEP_last has the last one alone
// STEP_locate  p0 places among what was gathered, which become those of p1
//
// FIRST        p0 are the elements, of which each is in its place; FIRST_DIGIT: there is none before
// FIRST_BIT    of the digits, below and above which keys are all the same; HIGHER_BITS are above them
// GROUP, EACH  items of a block, a multiple of 32, and elements of each in a tile, 8

typedef struct {
  i64 rows;
  i64 size;
  i64 parts;
  i64 part_size;
  i64 shift; // of the digit
  i64 kept;
} Args;

#define DIGITS 256 // a multiple of GROUP
#define DIGIT(key) ((int)((key) >> (int)args.shift & (DIGITS - 1)))
#define TALLY(digit) ((row * DIGITS + (digit)) * parts + part)
#define NUMBERS(p) ((TB_GLOBAL u32*)(p))
#ifdef FIRST
#define KEY_AT(i) tb_key((T)LOAD(p0, i))
#define PLACE_AT(i) (i32)((i) - start)
#else
#define KEY_AT(i) KEYS(p0)[i]
#define PLACE_AT(i) PLACES(p1)[i]
#endif
#ifndef TB_ATOMIC_ADD_LOCAL_u32
#define TB_ATOMIC_ADD_LOCAL_u32 TB_ATOMIC_ADD_u32
#endif

#define TILE (GROUP * EACH)
#define FOR_MINE TB_UNROLL for (int j = 0; j < EACH; ++j)
#define MINE (j * GROUP + item) // neighbours are those of neighbouring items
#define FOR_PARTS                                                                                \
  TB_FOR_BLOCKS(unit, (Index)args.rows * parts) {                                                \
    const Index row = unit / parts, part = unit - row * parts;                                   \
    const Index start = row * (Index)args.size;                                                  \
    const Index begin = start + part * (Index)args.part_size;                                    \
    const Index end = begin + TB_LEAST((Index)args.part_size, start + (Index)args.size - begin); \
    (void)start;
#define FOR_TILES                                      \
  for (Index from = begin; from < end; from += TILE) { \
    const int width = (int)TB_LEAST(TILE, end - from);

// How many keys of the part that are meant have each digit.
#define COUNT_DIGITS(IS_MEANT)                                                                       \
  for (int digit = item; digit < DIGITS; digit += GROUP) counts[digit] = 0;                          \
  TB_BARRIER();                                                                                      \
  FOR_TILES                                                                                          \
    KEY keys[EACH];                                                                                  \
    FOR_MINE {                                                                                       \
      if (MINE < width) keys[j] = KEY_AT(from + MINE);                                               \
    }                                                                                                \
    FOR_MINE {                                                                                       \
      if (MINE < width && (IS_MEANT)) TB_ATOMIC_ADD_LOCAL_u32(counts + DIGIT(keys[j]), 1);           \
    }                                                                                                \
  }                                                                                                  \
  TB_BARRIER();

typedef struct {
  u64 prefix;
  i64 left;
} State;
#define STATES(p) ((TB_GLOBAL State*)(p))
// `state` of the row, with the digit before; the first part of the row leaves it for others.
#ifdef FIRST_DIGIT
#define NEXT_STATE                  \
  State state;                      \
  state.prefix = 0;                 \
  state.left = args.kept;
#else
#define NEXT_STATE                                                                            \
  State state = STATES(p2)[row];                                                              \
  {                                                                                           \
    TB_GLOBAL const u32* const totals = NUMBERS(p1) + row * DIGITS;                           \
    const int digits = DIGITS / GROUP;                                                        \
    u32 mine = 0;                                                                             \
    for (int n = 0; n < digits; ++n) mine += totals[item * digits + n];                       \
    ADD_UP_ITEMS(u32, mine)                                                                   \
    for (int n = 0; n < digits; ++n) {                                                        \
      const u32 here = totals[item * digits + n];                                             \
      if ((i64)before < state.left && state.left <= (i64)before + here) {                     \
        chosen[0] = (u32)(item * digits + n);                                                 \
        chosen[1] = before;                                                                   \
      }                                                                                       \
      before += here;                                                                         \
    }                                                                                         \
    TB_BARRIER();                                                                             \
    state.prefix |= (u64)chosen[0] << (int)(args.shift + 8);                                  \
    state.left -= chosen[1];                                                                  \
    TB_BARRIER();                                                                             \
  }
#endif
#define LEAVE_STATE \
  if (part == 0 && item == 0) STATES(p3)[row] = state;
#define DIGITS_FROM(bit, key) ((KEY)((key) << HIGHER_BITS) >> HIGHER_BITS >> (int)(bit))
// Less and equal ones: two numbers of 32 bits.
#define PAIR_OF(key, last) ((u64)(DIGITS_FROM(FIRST_BIT, key) < (last)) | (u64)(DIGITS_FROM(FIRST_BIT, key) == (last)) << 32)

// Places in local memory are shifted, so that items use different banks for elements side by side too.
#define SHIFTED(k) ((k) + ((k) >> 5))
#define NEAR(k) near[SHIFTED(k)]
#define NEAR_MINE near[here + j * SHIFTED(GROUP)] // NEAR(MINE)
#define NEAR_BEFORE near[here_before + j * SHIFTED(GROUP)]
#define NEAR_AFTER near[here_after + j * SHIFTED(GROUP)]
#define NEAR_IN_TURN near[in_turn + j] // NEAR(item * EACH + j)

TB_KERNEL(radix) {
  const int item = (int)TB_LOCAL_ITEM;
  const Index parts = (Index)args.parts;
#ifdef STEP_tally
  TB_LOCAL_ARRAY(u32, counts, DIGITS);
  FOR_PARTS
    COUNT_DIGITS(1)
    for (int digit = item; digit < DIGITS; digit += GROUP) NUMBERS(p1)[TALLY(digit)] = counts[digit];
  }
#elif defined(STEP_narrow)
  TB_LOCAL_ARRAY(u32, shared, GROUP);
  TB_LOCAL_ARRAY(u32, chosen, 2);
  TB_LOCAL_ARRAY(u32, counts, DIGITS);
  FOR_PARTS
    (void)start;
    NEXT_STATE
    LEAVE_STATE
#ifdef FIRST_DIGIT
    COUNT_DIGITS(1)
#else
    COUNT_DIGITS(DIGITS_FROM(args.shift + 8, keys[j]) == DIGITS_FROM(args.shift + 8, (KEY)state.prefix))
#endif
    for (int digit = item; digit < DIGITS; digit += GROUP) {
      if (counts[digit] != 0) TB_ATOMIC_ADD_u32(NUMBERS(p4) + row * DIGITS + digit, counts[digit]);
    }
    TB_BARRIER();
  }
#elif defined(STEP_count)
  TB_LOCAL_ARRAY(u32, shared, GROUP);
  TB_LOCAL_ARRAY(u32, chosen, 2);
  TB_LOCAL_ARRAY(u64, pairs, GROUP);
  FOR_PARTS
    (void)start;
    NEXT_STATE
    LEAVE_STATE
    const KEY last = DIGITS_FROM(FIRST_BIT, (KEY)state.prefix);
    u64 mine = 0;
    FOR_TILES
      FOR_MINE {
        if (MINE < width) {
          const KEY key = KEY_AT(from + MINE);
          mine += PAIR_OF(key, last);
        }
      }
    }
#define shared pairs
    ADD_UP_ITEMS(u64, mine)
#undef shared
    if (item == 0) ((TB_GLOBAL u64*)p4)[unit] = all;
    TB_BARRIER();
  }
#elif defined(STEP_gather) || defined(STEP_last)
  TB_LOCAL_ARRAY(u64, shared, GROUP);
  FOR_PARTS
    const State state = STATES(p1)[row];
    const KEY last = DIGITS_FROM(FIRST_BIT, (KEY)state.prefix);
    u64 done = 0;
    for (Index i = item; i < part; i += GROUP) done += ((TB_GLOBAL const u64*)p2)[row * parts + i];
    {
      ADD_UP_ITEMS(u64, done)
      done = all;
    }
    FOR_TILES
      u64 pairs[EACH], mine = 0;
      FOR_MINE {
        const int i = item * EACH + j;
        pairs[j] = 0;
        if (i < width) {
          const KEY key = KEY_AT(from + i);
          pairs[j] = PAIR_OF(key, last);
        }
        mine += pairs[j];
      }
      ADD_UP_ITEMS(u64, mine)
      before += done;
      FOR_MINE {
        const Index i = from + item * EACH + j;
        const i64 equal = (i64)(before >> 32), less = (i64)(before & 0xffffffffu);
#ifdef STEP_last
        const int is_chosen = pairs[j] >> 32 != 0 && equal == state.left - 1;
        const Index to = row;
        (void)less;
#else
        const int is_chosen = (pairs[j] & 1) != 0 || (pairs[j] != 0 && equal < state.left);
        const Index to = row * (Index)args.kept + (Index)((pairs[j] & 1) != 0 ? less : args.kept - state.left + equal);
#endif
        if (is_chosen) {
          TB_STORE_AS(WORD, p3, to, TB_LOAD_AS(WORD, p0, i));
          PLACES(p4)[to] = (i32)(i - start);
        }
        before += pairs[j];
      }
      done += all;
    }
  }
#elif defined(STEP_locate)
  (void)parts;
  TB_FOR(i, (Index)(args.rows * args.kept)) {
    const Index begin = i / (Index)args.kept * (Index)args.kept;
    PLACES(p0)[i] = PLACES(p1)[begin + PLACES(p0)[i]];
  }
#elif defined(STEP_before)
  TB_LOCAL_ARRAY(u32, shared, GROUP);
  const Index share = (parts + GROUP - 1) / GROUP;
  TB_FOR_BLOCKS(line, (Index)args.rows * DIGITS) {
    TB_GLOBAL u32* const tallies = NUMBERS(p0) + line * parts;
    const Index first = TB_LEAST(item * share, parts), stop = TB_LEAST(first + share, parts);
    u32 mine = 0;
    for (Index i = first; i < stop; ++i) mine += tallies[i];
    ADD_UP_ITEMS(u32, mine)
    for (Index i = first; i < stop; ++i) {
      const u32 here = tallies[i];
      tallies[i] = before;
      before += here;
    }
    if (item == 0) NUMBERS(p1)[line] = all;
  }
#else
  TB_LOCAL_ARRAY(u64, shared, GROUP);
  TB_LOCAL_ARRAY(KEY, near, SHIFTED(TILE));
  TB_LOCAL_ARRAY(Index, next, DIGITS);  // where the next element of a digit goes
  TB_LOCAL_ARRAY(Index, ahead, DIGITS); // less what number it has in the tile, in the order of the digits
  const int here = SHIFTED(item), here_before = SHIFTED(item - 1), here_after = SHIFTED(item + 1);
  const int in_turn = SHIFTED(item * EACH);
  FOR_PARTS
    {
      u32 mine = 0;
      const int digits = DIGITS / GROUP, first = item * digits;
      for (int n = 0; n < digits; ++n) mine += NUMBERS(p5)[row * DIGITS + first + n];
      ADD_UP_ITEMS(u32, mine)
      for (int n = 0; n < digits; ++n) {
        next[first + n] = start + (Index)(before + NUMBERS(p4)[TALLY(first + n)]);
        before += NUMBERS(p5)[row * DIGITS + first + n];
      }
    }
    FOR_TILES
      KEY keys[EACH];
      TB_BARRIER();
      FOR_MINE {
        // What there is not comes last of the last digit.
        keys[j] = MINE < width ? KEY_AT(from + MINE) : 0;
        NEAR_MINE = (KEY)((u32)(MINE < width ? DIGIT(keys[j]) : DIGITS - 1) | (u32)MINE << 8);
      }
      // Digits and where they were are put in order by two bits at a time: four counts are one number.
      for (int bit = 0; bit < 8; bit += 2) {
        u32 mine[EACH];
        u64 counts = 0;
#define FIELD(x) ((int)((x) >> bit & 3) * 16)
        TB_BARRIER();
        FOR_MINE {
          mine[j] = (u32)NEAR_IN_TURN;
          counts += (u64)1 << FIELD(mine[j]);
        }
        ADD_UP_ITEMS(u64, counts)
        u64 at = before + (all << 16) + (all << 32) + (all << 48);
        TB_BARRIER();
        FOR_MINE {
          NEAR((int)(at >> FIELD(mine[j]) & 0xffff)) = mine[j];
          at += (u64)1 << FIELD(mine[j]);
        }
      }
      TB_BARRIER();
      u32 was[EACH];
      u32 lasts = 0;
      FOR_MINE {
        was[j] = (u32)NEAR_MINE;
        const int digit = (int)(was[j] & 0xff);
        lasts |= (u32)(MINE < width && (MINE + 1 == width || (int)(NEAR_AFTER & 0xff) != digit)) << j;
        if (MINE < width && (MINE == 0 || (int)(NEAR_BEFORE & 0xff) != digit)) ahead[digit] = next[digit] - MINE;
      }
      TB_BARRIER();
      Index to[EACH];
      FOR_MINE {
        to[j] = ahead[was[j] & 0xff] + MINE;
        NEAR_MINE = keys[j];
      }
      TB_BARRIER();
      FOR_MINE {
        if (MINE < width) KEYS(p2)[to[j]] = NEAR((int)(was[j] >> 8));
        if (lasts >> j & 1) next[was[j] & 0xff] = to[j] + 1;
      }
      TB_BARRIER();
      FOR_MINE NEAR_MINE = (KEY)(MINE < width ? PLACE_AT(from + MINE) : 0);
      TB_BARRIER();
      FOR_MINE {
        if (MINE < width) PLACES(p3)[to[j]] = (i32)NEAR((int)(was[j] >> 8));
      }
    }
  }
#endif
} TB_END
