// Long rows in order: for each digit of the keys, from the lowest on, keys and places are moved to where that digit has
// its turn, and those that are alike stay as they were. A row has parts, which are the work of a block each.
//
// STEP_tally   p0 keys, p1 how many of each digit a part has: [row, digit, part]
// STEP_before  p0 these: how many the parts before have; p1 how many the row has: [row, digit]
// STEP_move    p0, p1 keys and places, p2, p3 where they go, p4, p5 what STEP_before leaves
//
// FIRST        p0 are the elements, of which each is in its place
// GROUP, EACH  items of a block, a multiple of 32, and elements of each in a tile, 8

typedef struct {
  i64 rows;
  i64 size;
  i64 parts;
  i64 part_size;
  i64 shift; // of the digit
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
    for (int digit = item; digit < DIGITS; digit += GROUP) counts[digit] = 0;
    TB_BARRIER();
    FOR_TILES
      KEY keys[EACH];
      FOR_MINE {
        if (MINE < width) keys[j] = KEY_AT(from + MINE);
      }
      FOR_MINE {
        if (MINE < width) TB_ATOMIC_ADD_LOCAL_u32(counts + DIGIT(keys[j]), 1);
      }
    }
    TB_BARRIER();
    for (int digit = item; digit < DIGITS; digit += GROUP) NUMBERS(p1)[TALLY(digit)] = counts[digit];
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
