// Rows of a contiguous tensor in order.
//
// p0, p1  keys and places of the step; p2, p3 those that it makes
//
// STEP_runs    p0 the elements: keys and places, each stretch of RUN sorted; side by side, each of args.width, and of rows that
//              are no longer the first args.kept
// STEP_merge   two sorted runs of args.width each become one
// STEP_top     p0 the elements: the first K places of each row, without sorting the rest
// STEP_finish  p0 the elements, p1 places, p2 values, p3 int64 indices, p4 keys: `args.kept` of each row from args.first on
// STEP_counts  p0 where values begin: p2 the count of each
//
// TILE, ITEMS  side by side: elements that a block sorts near, powers of 2, and its items

typedef struct {
  i64 rows;
  i64 size;
  i64 width;
  i64 kept;
  i64 first;
  i64 total;
} Args;

#define RUN 16
TB_KERNEL(sort) {
#if defined(STEP_runs) && !defined(TB_CHUNKED)
  // As runs of 1, 2, 4, ... are merged: each element counts those of the other run that go before it. What there is not goes
  // last.
#define PER (TILE / ITEMS)
#define EACH(n) TB_UNROLL for (int n = 0; n < PER; ++n)
#define AT(n) ((n) * ITEMS + item)
  TB_LOCAL_ARRAY(KEY, keys, 2 * TILE);
  TB_LOCAL_ARRAY(u16, places, 2 * TILE);
  const int item = (int)TB_LOCAL_ITEM, run = (int)args.width;
  const Index runs = ((Index)args.size + run - 1) / run; // of a row
  const Index total = (Index)args.rows * runs;
  TB_FOR_BLOCKS(tile, (total + TILE / run - 1) / (TILE / run)) {
    TB_BARRIER();
    EACH(n) {
      const Index which = tile * (TILE / run) + AT(n) / run, row = which / runs;
      const Index here = (which - row * runs) * run + AT(n) % run;
      keys[AT(n)] = which < total && here < (Index)args.size ? tb_key((T)LOAD(p0, row * (Index)args.size + here)) : ~(KEY)0;
      places[AT(n)] = (u16)(AT(n) % run);
    }
    int from = 0;
    for (int width = 1; width < run; width *= 2) {
      TB_BARRIER();
      KEY key[PER];
      int others[PER], before[PER];
      EACH(n) {
        key[n] = keys[from + AT(n)];
        others[n] = from + ((AT(n) & ~(2 * width - 1)) | (AT(n) & width ? 0 : width));
        before[n] = 0;
      }
      for (int step = width; step > 0; step /= 2) {
        EACH(n) {
          const int more = before[n] + step;
          const KEY there = keys[others[n] + TB_LEAST(more, width) - 1];
          before[n] = more <= width && (AT(n) & width ? there <= key[n] : there < key[n]) ? more : before[n];
        }
      }
      const int to = TILE - from;
      EACH(n) {
        const int place = to + (AT(n) & ~width) + before[n];
        keys[place] = key[n];
        places[place] = places[from + AT(n)];
      }
      from = to;
    }
    TB_BARRIER();
    EACH(n) {
      const Index which = tile * (TILE / run) + AT(n) / run, row = which / runs;
      const Index first = (which - row * runs) * run, here = first + AT(n) % run;
      if (which < total && here < (Index)args.kept) {
        KEYS(p2)[row * (Index)args.kept + here] = keys[from + AT(n)];
        PLACES(p3)[row * (Index)args.kept + here] = (i32)(first + places[from + AT(n)]);
      }
    }
  }
#elif defined(STEP_runs)
  const Index runs = ((Index)args.size + RUN - 1) / RUN;
  TB_FOR(item, (Index)args.rows * runs) {
    const Index row = item / runs;
    const Index first = (item - row * runs) * RUN;
    const Index base = row * (Index)args.size + first;
    const int count = (Index)args.size - first < RUN ? (int)((Index)args.size - first) : RUN;
    KEY keys[RUN];
    i32 places[RUN];
    for (int i = 0; i < count; ++i) {
      const KEY key = tb_key((T)LOAD(p0, base + i));
      int at = i;
      for (; at > 0 && keys[at - 1] > key; --at) {
        keys[at] = keys[at - 1];
        places[at] = places[at - 1];
      }
      keys[at] = key;
      places[at] = (i32)(first + i);
    }
    for (int i = 0; i < count; ++i) {
      KEYS(p2)[base + i] = keys[i];
      PLACES(p3)[base + i] = places[i];
    }
  }
#elif defined(STEP_merge)
#ifdef TB_CHUNKED
  const Index width = (Index)args.width;
  const Index pairs = ((Index)args.size + 2 * width - 1) / (2 * width);
  TB_FOR(item, (Index)args.rows * pairs) {
    const Index row = item / pairs;
    const Index start = row * (Index)args.size;
    const Index end = start + (Index)args.size;
    Index a = start + (item - row * pairs) * 2 * width;
    const Index a_end = a + width < end ? a + width : end;
    Index b = a_end;
    const Index b_end = b + width < end ? b + width : end;
    Index to = a;
    TB_GLOBAL const KEY* keys = KEYS(p0);
    TB_GLOBAL const i32* places = PLACES(p1);
    while (a < a_end && b < b_end) {
      const int second = keys[b] < keys[a];
      const Index from = second ? b : a;
      KEYS(p2)[to] = keys[from];
      PLACES(p3)[to] = places[from];
      ++to;
      b += second;
      a += !second;
    }
    for (; a < a_end; ++a, ++to) {
      KEYS(p2)[to] = keys[a];
      PLACES(p3)[to] = places[a];
    }
    for (; b < b_end; ++b, ++to) {
      KEYS(p2)[to] = keys[b];
      PLACES(p3)[to] = places[b];
    }
  }
#else
  // Each element counts those of the other run that go before it.
  TB_FOR(i, (Index)args.total) {
    const Index row = i / (Index)args.size;
    const Index start = row * (Index)args.size;
    const Index here = i - start;
    const Index width = (Index)args.width;
    const Index pair = here / (2 * width) * (2 * width);
    const int second = here - pair >= width;
    const KEY key = KEYS(p0)[i];
    Index low = second ? pair : pair + width;
    Index high = low + width;
    if (low > (Index)args.size) low = (Index)args.size;
    if (high > (Index)args.size) high = (Index)args.size;
    const Index other = low;
    while (low < high) {
      const Index middle = low + (high - low) / 2;
      const KEY there = KEYS(p0)[start + middle];
      if (second ? there <= key : there < key) low = middle + 1;
      else high = middle;
    }
    const Index to = start + (second ? here - width : here) + (low - other);
    KEYS(p2)[to] = key;
    PLACES(p3)[to] = PLACES(p1)[i];
  }
#endif
#elif defined(STEP_top)
  TB_FOR(row, (Index)args.rows) {
    const Index start = row * (Index)args.size;
    KEY keys[K];
    i32 places[K];
    int have = 0;
    KEY worst = 0;
    for (Index i = 0; i < (Index)args.size; ++i) {
      const KEY key = tb_key((T)LOAD(p0, start + i));
      if (have == K && key >= worst) continue;
      int at = have < K ? have++ : K - 1;
      for (; at > 0 && keys[at - 1] > key; --at) {
        keys[at] = keys[at - 1];
        places[at] = places[at - 1];
      }
      keys[at] = key;
      places[at] = (i32)i;
      worst = keys[have - 1];
    }
    for (int i = 0; i < K; ++i) {
      KEYS(p2)[row * K + i] = keys[i];
      PLACES(p3)[row * K + i] = places[i];
    }
  }
#elif defined(STEP_finish)
  TB_FOR(i, (Index)(args.rows * args.kept)) {
    const Index row = i / (Index)args.kept;
    // Rows of args.width places each.
    Index at = row * (Index)args.width + (Index)args.first + (i - row * (Index)args.kept);
#ifdef MEDIAN
    {
      Index low = row * (Index)args.width, high = low + (Index)args.size;
      const Index begin = low;
      while (low < high) {
        const Index middle = low + (high - low) / 2;
        if (IS_NAN_KEY(KEYS(p4)[middle])) high = middle;
        else low = middle + 1;
      }
      const Index numbers = low - begin;
      at = begin + (numbers == (Index)args.size ? (numbers - 1) / 2 : MEDIAN);
    }
#endif
    const i32 place = PLACES(p1)[at];
    TB_STORE_PLAIN(WORD, p2, i, TB_LOAD_PLAIN(WORD, p0, row * (Index)args.size + place));
    TB_STORE_i64(p3, i, place);
  }
#elif defined(STEP_keys)
  TB_FOR(i, (Index)args.total) {
    KEYS(p2)[i] = tb_key((T)LOAD(p0, i));
    PLACES(p3)[i] = (i32)i;
  }
#else
  TB_FOR(j, (Index)args.kept) {
    TB_STORE_i64(p2, j, (j + 1 < (Index)args.kept ? TB_LOAD_i64(p0, j + 1) : args.total) - TB_LOAD_i64(p0, j));
  }
#endif
} TB_END
