// Scans: a reduction's result so far, at every element along one dimension.
//
// OUTPUTS, INPUTS, FIELDS, VALUES, NUMBERS, STORE  as in reduce.c
// KEPT      rank of the other dimensions
// COLUMNS   where items run one after the other: their inner one has neighbours, several columns at once
// GROUP     else: items of a block, which do a line together, EACH elements at once. Without it every item does its own
// VECTOR    not 0: elements that are moved at once, as lines are aligned and of whole vectors: WIDE_DECLARE and others, as
//           define_wide() has them
// PARTS     lines are divided: the states of parts are in WORKSPACE; TOTALS: this launch writes them, and nothing else
// IN_TURN   instead there is one launch: blocks take their parts in turn, and wait for what those before have left
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
#define SET(to, from) to##0[0] = from##0[0];
#define EACH_FIELD(M) M(0)
#else
#define STATE(s, count) F0 s##0[count]; F1 s##1[count];
#define REFS(s, l) &s##0[l], &s##1[l]
#define VALS(s, l) s##0[l], s##1[l]
#define SET(to, from) to##0[0] = from##0[0]; to##1[0] = from##1[0];
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
#define PLACE(n) (base[n] + i * (Index)args.strides[n])
#define PARTIAL(f) ((TB_GLOBAL F##f*)(WORKSPACE + args.fields[f]))
#define FETCH(f) PARTIAL(f)[place],
#define SAVE(f) PARTIAL(f)[place] = a##f[0];

#if GROUP
// A block goes through a part of a line by tiles, whose elements it reads and writes side by side. In between each item has
// EACH neighbours, whose places in local memory are shifted so that items use different banks.
#define SHIFTED(k) ((k) + ((k) >> 5))
#define TILE (GROUP * EACH + (GROUP * EACH >> 5))
#define SHARED(f) TB_LOCAL_ARRAY(F##f, shared##f, GROUP);
#if defined(TB_SHUFFLE) && !defined(TB_COMPLEX)
#define NEAR TB_SHUFFLED
#define OTHER_NEAR(f) other##f[0] = TB_SHUFFLE(all##f[0], mask);
#else
#define NEAR 1
#define OTHER_NEAR(f)
#endif
#define SHARE(f) shared##f[item] = all##f[0];
#define OTHER(f) other##f[0] = shared##f[item ^ mask];
// before, all: of the `own` of the items before this one, and of all items, in their order.
#define ADD_UP_ITEMS                             \
  STATE(before, 1)                               \
  STATE(all, 1)                                  \
  tb_init(REFS(before, 0));                      \
  SET(all, own)                                  \
  TB_UNROLL                                      \
  for (int mask = 1; mask < GROUP; mask *= 2) {  \
    const int is_later = (item & mask) != 0;     \
    STATE(other, 1)                              \
    STATE(low, 1)                                \
    STATE(high, 1)                               \
    if (mask < NEAR) {                           \
      EACH_FIELD(OTHER_NEAR)                     \
    } else {                                     \
      TB_BARRIER();                              \
      EACH_FIELD(SHARE)                          \
      TB_BARRIER();                              \
      EACH_FIELD(OTHER)                          \
    }                                            \
    SET(low, all)                                \
    SET(high, other)                             \
    if (is_later) {                              \
      SET(low, other)                            \
      SET(high, all)                             \
    }                                            \
    tb_merge(VALS(high, 0), REFS(low, 0));       \
    SET(all, low)                                \
    if (is_later) {                              \
      tb_merge(VALS(before, 0), REFS(other, 0)); \
      SET(before, other)                         \
    }                                            \
  }

#define VECTOR_PLACE(n) ((base[n] + from) / PER + vector)
// DO for the vectors of the tile that this item moves, and for the elements of one.
#define FOR_VECTORS(DO)                     \
  TB_UNROLL                                 \
  for (int v = 0; v < EACH / PER; ++v) {    \
    const Index vector = item + v * GROUP;  \
    if (vector * PER < width) { DO }        \
  }
#define FOR_ELEMENTS(DO)                            \
  TB_UNROLL                                         \
  for (int j = 0; j < PER; ++j) {                   \
    const Index k = vector * PER + j, i = from + k; \
    (void)i;                                        \
    DO                                              \
  }

// What parts leave, and after it what GROUP of them have together, which the last one leaves. All merge them in one order,
// whenever they come: sums are the same each time.
#define IS_THERE(at) ((TB_GLOBAL u32*)WORKSPACE + 2 + (at))
#define LEAVE(f) PARTIAL(f)[where] = all##f[0];
#define LEFT(f) PARTIAL(f)[where],
#define LEAVE_ALL(at)                \
  {                                  \
    const Index where = (at);        \
    EACH_FIELD(LEAVE)                \
    TB_PUBLISH(IS_THERE(where))      \
  }
#define TAKE_UP(at)                               \
  {                                               \
    const Index where = (at);                     \
    TB_AWAIT(IS_THERE(where))                     \
    tb_merge(EACH_FIELD(LEFT) REFS(own, 0));      \
  }

TB_KERNEL(scan) {
  TB_LOCAL_ARRAY(T, tile, TILE);
#if OUTPUTS == 2
  TB_LOCAL_ARRAY(Index, tile_places, TILE);
#endif
  EACH_FIELD(SHARED)
  const i64 n = args.count;
  const Index item = (Index)TB_LOCAL_ITEM;
  const Index parts = (Index)args.parts;
#ifdef IN_TURN
  TB_LOCAL_ARRAY(u32, turn, 1);
  if (item == 0) turn[0] = TB_ATOMIC_ADD_u32(WORKSPACE, 1);
  TB_BARRIER();
  {
    const Index place = (Index)turn[0];
#else
  TB_FOR_BLOCKS(place, (Index)args.lines * parts) {
#endif
    const Index line = place / parts;
    const Index part = place - line * parts;
    const Index begin = part * (Index)args.part_size;
    const Index end = begin + TB_LEAST((Index)args.part_size, (Index)n - begin);
    Index base[OPERANDS];
    TB_LOCATE(base, 0, kept_sizes, kept_strides, KEPT - 1, line, 0, OPERANDS)
    STATE(a, 1) // of everything before the tile
    tb_init(REFS(a, 0));
#if defined(PARTS) && !defined(TOTALS) && !defined(IN_TURN)
    if (part > 0) {
      const Index share = (part + GROUP - 1) / GROUP;
      const Index stop = line * parts + TB_LEAST((item + 1) * share, part);
      STATE(own, 1)
      tb_init(REFS(own, 0));
      for (Index place = line * parts + item * share; place < stop; ++place) {
        tb_merge(EACH_FIELD(FETCH) REFS(own, 0));
      }
      ADD_UP_ITEMS
      SET(a, all)
    }
#endif
    for (Index from = begin; from < end; from += GROUP * EACH) {
      const Index width = TB_LEAST(GROUP * EACH, end - from);
      const Index first = item * EACH;
      T x[EACH];
      {
        DECLARE
        FOR_VECTORS(READ)
        FOR_VECTORS(SHADOWS FOR_ELEMENTS(x[v * PER + j] = VALUES(HERE);))
        FOR_VECTORS(FOR_ELEMENTS(tile[SHIFTED(k)] = x[v * PER + j];))
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
      ADD_UP_ITEMS
#ifdef IN_TURN
      const Index group = part / GROUP, of_group = part - group * GROUP;
      const Index first_group = (Index)args.lines * parts + line * (parts / GROUP);
      STATE(here, 1)
      SET(here, all)
      if (item == 0) LEAVE_ALL(place)
      {
        STATE(own, 1)
        tb_init(REFS(own, 0));
        if (item < of_group) TAKE_UP(place - of_group + item)
        ADD_UP_ITEMS
        SET(a, all)
        tb_merge(VALS(here, 0), REFS(all, 0));
        if (item == 0 && of_group == GROUP - 1) LEAVE_ALL(first_group + group)
      }
      if (group > 0) {
        const Index share = (group + GROUP - 1) / GROUP;
        const Index stop = TB_LEAST((item + 1) * share, group);
        STATE(own, 1)
        tb_init(REFS(own, 0));
        for (Index before_it = item * share; before_it < stop; ++before_it) TAKE_UP(first_group + before_it)
        ADD_UP_ITEMS
        tb_merge(VALS(a, 0), REFS(all, 0));
        SET(a, all)
      }
#endif
#ifndef TOTALS
      STATE(c, 1)
      SET(c, a)
      tb_merge(VALS(before, 0), REFS(c, 0));
      TB_UNROLL
      for (int j = 0; j < EACH; ++j) {
        if (first + j < width) {
          tb_step(x[j], from + first + j NUMBERS, REFS(c, 0));
          PUT(VALS(c, 0), SHIFTED(first + j))
        }
      }
#endif
      tb_merge(VALS(all, 0), REFS(a, 0));
      TB_BARRIER();
#ifndef TOTALS
      {
        DECLARE
        FOR_VECTORS({ SHADOWS FOR_ELEMENTS(TAKE(SHIFTED(k), HERE)) } WRITE)
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
  STORE(VALS(a, 0), PLACE)
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
        x[j] = VALUES(PLACE);
      }
      TB_UNROLL
      for (int j = 0; j < AHEAD; ++j) {
        const Index i = from + j;
        STEP(x[j])
      }
    }
    for (Index i = from; i < end; ++i) {
      const T x = VALUES(PLACE);
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
