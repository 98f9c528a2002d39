// Scans: a reduction's result so far, at every element along one dimension.
//
// OUTPUTS, INPUTS, FIELDS, VALUES, NUMBERS, STORE  as in reduce.c
// KEPT      rank of the other dimensions
// COLUMNS   where items run one after the other: their inner one has neighbours, several columns at once
// GROUP     else: most items of a block, which do a line together. Without it every item does its own
// PARTS     lines are divided: the states of parts are in WORKSPACE; TOTALS: this launch writes them, and nothing else
// PUT, TAKE STORE in two halves, with the results in local memory in between

#define OPERANDS (OUTPUTS + INPUTS)

typedef struct {
  i64 lines;
  i64 count;
  i64 parts;
  i64 part_size;
  i64 fields[2]; // where each field's values begin, in bytes
  i64 kept_sizes[KEPT];
  i64 kept_strides[OPERANDS][KEPT];
  i64 strides[OPERANDS];
  tb_scalar scalars[4];
} Args;

#if FIELDS == 1
#define STATE(s, count) F0 s##0[count];
#define REFS(s, l) &s##0[l]
#define VALS(s, l) s##0[l]
#define EACH_FIELD(M) M(0)
#else
#define STATE(s, count) F0 s##0[count]; F1 s##1[count];
#define REFS(s, l) &s##0[l], &s##1[l]
#define VALS(s, l) s##0[l], s##1[l]
#define EACH_FIELD(M) M(0) M(1)
#endif

#ifdef TB_CHUNKED
#define AT_LINE(n) (base[l][n] + i * (Index)args.strides[n])
#define AT_COLUMN(n) (base[n] + i * (Index)args.strides[n] + (first + k) * (Index)args.kept_strides[n][KEPT - 1])

TB_KERNEL(scan) {
  const i64 n = args.count;
#ifdef COLUMNS
#define TILE 64
  const Index inner = (Index)args.kept_sizes[KEPT - 1];
  const Index tiles = (inner + TILE - 1) / TILE;
  TB_FOR(unit, (Index)args.lines / inner * tiles) {
    const Index row = unit / tiles;
    const Index first = (unit - row * tiles) * TILE;
    const Index width = inner - first < TILE ? inner - first : TILE;
    Index base[OPERANDS];
    TB_LOCATE(base, 0, kept_sizes, kept_strides, KEPT - 2, row, 0, OPERANDS)
    STATE(a, TILE)
    for (Index k = 0; k < width; ++k) tb_init(REFS(a, k));
    for (Index i = 0; i < (Index)n; ++i) {
      for (Index k = 0; k < width; ++k) {
        tb_step(VALUES(AT_COLUMN), i NUMBERS, REFS(a, k));
        STORE(VALS(a, k), AT_COLUMN)
      }
    }
  }
#else
#define LINES 8 // at once: a sum has to wait for the one before
#define STEPS 64
  // Elements are read before others are written: addresses that are alike would make the processor wait.
#define SCAN(count)                                                   \
  for (Index from = 0; from < (Index)n; from += STEPS) {              \
    const Index end = TB_LEAST(from + STEPS, (Index)n);               \
    T x[LINES][STEPS];                                                \
    for (int l = 0; l < (count); ++l)                                 \
      for (Index i = from; i < end; ++i) x[l][i - from] = VALUES(AT_LINE); \
    for (Index i = from; i < end; ++i)                                \
      for (int l = 0; l < (count); ++l) {                             \
        tb_step(x[l][i - from], i NUMBERS, REFS(a, l));               \
        STORE(VALS(a, l), AT_LINE)                                    \
      }                                                               \
  }
  TB_FOR(group, ((Index)args.lines + LINES - 1) / LINES) {
    const Index first = group * LINES;
    const int lines = (int)TB_LEAST((Index)args.lines - first, LINES);
    Index base[LINES][OPERANDS];
    STATE(a, LINES)
    for (int l = 0; l < lines; ++l) {
      TB_LOCATE(base[l], 0, kept_sizes, kept_strides, KEPT - 1, first + l, 0, OPERANDS)
      tb_init(REFS(a, l));
    }
    if (lines == LINES) {
      SCAN(LINES)
    } else {
      SCAN(lines)
    }
  }
#endif
} TB_END

#else
// ---- items side by side ----
#define AT(n) (base[n] + i * (Index)args.strides[n])
#define PARTIAL(f) ((TB_GLOBAL F##f*)(WORKSPACE + args.fields[f]))
#define FETCH(f) PARTIAL(f)[place],
#define SAVE(f) PARTIAL(f)[place] = a##f[0];

#if GROUP
// A block goes through a part of a line by tiles, whose elements it reads and writes side by side. In between each item has
// EACH neighbours, whose places in local memory are shifted so that items use different banks.
#define EACH 4
#define SHIFTED(k) ((k) + ((k) >> 5))
#define TILE (GROUP * EACH + (GROUP * EACH >> 5))
#define SHARED(f) TB_LOCAL_ARRAY(F##f, shared##f, GROUP);
#define SHARE(f) shared##f[item] = own##f[0];
#define OTHER(f) other##f[0] = shared##f[item - offset];
#define KEEP(f) own##f[0] = other##f[0];
#define SHARED_BEFORE(f) shared##f[item - 1],
#define SHARED_LAST(f) shared##f[live - 1],
// What comes after is empty, which merges with nothing.
#define SCAN_ITEMS(live)                                \
  EACH_FIELD(SHARE)                                     \
  for (Index offset = 1; offset < (live); offset *= 2) { \
    STATE(other, 1)                                     \
    TB_BARRIER();                                       \
    if (item >= offset) {                               \
      EACH_FIELD(OTHER)                                 \
    }                                                   \
    TB_BARRIER();                                       \
    if (item >= offset) {                               \
      tb_merge(VALS(own, 0), REFS(other, 0));             \
      EACH_FIELD(KEEP)                                  \
      EACH_FIELD(SHARE)                                 \
    }                                                   \
  }                                                     \
  TB_BARRIER();

TB_KERNEL(scan) {
  TB_LOCAL_ARRAY(T, tile, TILE);
#if OUTPUTS == 2
  TB_LOCAL_ARRAY(Index, tile_places, TILE);
#endif
  EACH_FIELD(SHARED)
  const i64 n = args.count;
  const Index item = (Index)TB_LOCAL_ITEM;
  const Index items = (Index)TB_BLOCK_ITEMS;
  const Index parts = (Index)args.parts;
  TB_FOR_BLOCKS(place, (Index)args.lines * parts) {
    const Index line = place / parts;
    const Index part = place - line * parts;
    const Index begin = part * (Index)args.part_size;
    const Index end = begin + TB_LEAST((Index)args.part_size, (Index)n - begin);
    Index base[OPERANDS];
    TB_LOCATE(base, 0, kept_sizes, kept_strides, KEPT - 1, line, 0, OPERANDS)
    STATE(a, 1) // of everything before the tile
    tb_init(REFS(a, 0));
#if defined(PARTS) && !defined(TOTALS)
    if (part > 0) {
      const Index share = (part + items - 1) / items;
      const Index live = (part + share - 1) / share;
      const Index stop = line * parts + TB_LEAST((item + 1) * share, part);
      STATE(own, 1)
      tb_init(REFS(own, 0));
      for (Index place = line * parts + item * share; place < stop; ++place) {
        tb_merge(EACH_FIELD(FETCH) REFS(own, 0));
      }
      SCAN_ITEMS(live)
      tb_merge(EACH_FIELD(SHARED_LAST) REFS(a, 0));
      TB_BARRIER();
    }
#endif
    for (Index from = begin; from < end; from += items * EACH) {
      const Index width = TB_LEAST(items * EACH, end - from);
      const Index live = (width + EACH - 1) / EACH;
      const Index first = item * EACH;
      T x[EACH];
      TB_UNROLL
      for (int j = 0; j < EACH; ++j) {
        const Index k = item + j * items;
        const Index i = from + k;
        if (k < width) x[j] = VALUES(AT);
      }
      TB_UNROLL
      for (int j = 0; j < EACH; ++j) {
        const Index k = item + j * items;
        if (k < width) tile[SHIFTED(k)] = x[j];
      }
      TB_BARRIER();
      STATE(own, 1)
      tb_init(REFS(own, 0));
      TB_UNROLL
      for (int j = 0; j < EACH; ++j) {
        if (first + j < width) {
          x[j] = tile[SHIFTED(first + j)];
          tb_step(x[j], from + first + j NUMBERS, REFS(own, 0));
        }
      }
      SCAN_ITEMS(live)
#ifndef TOTALS
      STATE(c, 1)
#define COPY(f) c##f[0] = a##f[0];
      EACH_FIELD(COPY)
      if (item > 0) tb_merge(EACH_FIELD(SHARED_BEFORE) REFS(c, 0));
      TB_UNROLL
      for (int j = 0; j < EACH; ++j) {
        if (first + j < width) {
          tb_step(x[j], from + first + j NUMBERS, REFS(c, 0));
          PUT(VALS(c, 0), SHIFTED(first + j))
        }
      }
#endif
      tb_merge(EACH_FIELD(SHARED_LAST) REFS(a, 0));
      TB_BARRIER();
#ifndef TOTALS
      TB_UNROLL
      for (int j = 0; j < EACH; ++j) {
        const Index k = item + j * items;
        const Index i = from + k;
        if (k < width) TAKE(SHIFTED(k), AT)
      }
#endif
    }
#ifdef TOTALS
    if (item == 0) {
      EACH_FIELD(SAVE)
    }
#endif
  }
} TB_END

#else
#define AHEAD 8 // elements that are read before others are written, which could be the same
#ifdef TOTALS
#define STEP(x)                       \
  tb_step(x, i NUMBERS, REFS(a, 0));
#else
#define STEP(x)                       \
  tb_step(x, i NUMBERS, REFS(a, 0));  \
  STORE(VALS(a, 0), AT)
#endif
TB_KERNEL(scan) {
  const i64 n = args.count;
  const Index lines = (Index)args.lines;
  TB_FOR(unit, lines * (Index)args.parts) {
    const Index part = unit / lines;
    const Index line = unit - part * lines;
    const Index begin = part * (Index)args.part_size;
    const Index end = begin + TB_LEAST((Index)args.part_size, (Index)n - begin);
    Index base[OPERANDS];
    TB_LOCATE(base, 0, kept_sizes, kept_strides, KEPT - 1, line, 0, OPERANDS)
    STATE(a, 1)
    tb_init(REFS(a, 0));
#if defined(PARTS) && !defined(TOTALS)
    for (Index place = line; place < unit; place += lines) {
      tb_merge(EACH_FIELD(FETCH) REFS(a, 0));
    }
#endif
    Index from = begin;
    for (; end - from >= AHEAD; from += AHEAD) {
      T x[AHEAD];
      TB_UNROLL
      for (int j = 0; j < AHEAD; ++j) {
        const Index i = from + j;
        x[j] = VALUES(AT);
      }
      TB_UNROLL
      for (int j = 0; j < AHEAD; ++j) {
        const Index i = from + j;
        STEP(x[j])
      }
    }
    for (Index i = from; i < end; ++i) {
      const T x = VALUES(AT);
      STEP(x)
    }
#ifdef TOTALS
    const Index place = unit;
    EACH_FIELD(SAVE)
#endif
  }
} TB_END
#endif
#endif
