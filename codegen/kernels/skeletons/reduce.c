// Reductions: the dimensions that are kept and those that are reduced are collapsed apart from each other.
//
// OUTPUTS, INPUTS            operands 0 to OUTPUTS - 1, and those after them
// KEPT, REDUCED              ranks; the last dimension of each is the inner one
// FIELDS, F0, F1, ...        what is kept between elements; init, step, merge and finish as the table has them
// VALUES(K)                  the inputs' elements at K(n), as step takes them
// NUMBERS                    the call's numbers, each with a comma before it
// STORE(K)                   finish, into the outputs at K(n)
// REDUCED_STEP_n, KEPT_STEP_n  stride of input n in the inner dimension
// COLUMNS                    neighbours are kept: several columns at once; else neighbours are reduced
// DENSE                      of COLUMNS, where a row's few elements are followed by the next row's: several rows at once
// GROUP, WIDTH               items of a block, and how many of them reduce together; 0: every item for itself
// PARTS                      what is reduced is divided, each part's state goes to PARTIAL; `reduce_parts` merges them

#define OPERANDS (OUTPUTS + INPUTS)

typedef struct {
  i64 outputs;
  i64 reduced;
  i64 parts;
  i64 part_size;
  i64 kept_sizes[KEPT];
  i64 kept_strides[OPERANDS][KEPT];
  i64 reduced_sizes[REDUCED];
  i64 reduced_strides[OPERANDS][REDUCED];
  i64 fields[4]; // where each field's values begin, in bytes
  tb_scalar scalars[4];
} Args;

#if FIELDS == 1
#define STATE(s, count) F0 s##0[count];
#define REFS(s, l) &s##0[l]
#define VALS(s, l) s##0[l]
#define EACH_FIELD(M) M(0)
#elif FIELDS == 2
#define STATE(s, count) F0 s##0[count]; F1 s##1[count];
#define REFS(s, l) &s##0[l], &s##1[l]
#define VALS(s, l) s##0[l], s##1[l]
#define EACH_FIELD(M) M(0) M(1)
#else
#define STATE(s, count) F0 s##0[count]; F1 s##1[count]; F2 s##2[count];
#define REFS(s, l) &s##0[l], &s##1[l], &s##2[l]
#define VALS(s, l) s##0[l], s##1[l], s##2[l]
#define EACH_FIELD(M) M(0) M(1) M(2)
#endif

#define AT_BASE(n) (base[n])
#define REDUCED_STEP(n) args.reduced_strides[n][REDUCED - 1]
#define KEPT_STEP(n) args.kept_strides[n][KEPT - 1]
#define AT_REDUCED(n) (place[n] + k * (Index)(REDUCED_STEP_##n))
#define AT_KEPT(n) (place[n] + k * (Index)(KEPT_STEP_##n))
#define AT_KEPT_BASE(n) (base[n] + k * (Index)args.kept_strides[n][KEPT - 1])
#define PARTIAL(f) ((TB_GLOBAL F##f*)(WORKSPACE + args.fields[f]))

#if GROUP
#define SHARED(f) TB_LOCAL_ARRAY(F##f, shared##f, GROUP);
#define FROM_OTHER(f) F##f other##f; TB_FROM_OTHER(other##f, a##f[0], mask, shared##f)
#define OTHER(f) other##f,
#define MERGE_ITEMS                             \
  TB_UNROLL                                     \
  for (int mask = 1; mask < WIDTH; mask *= 2) { \
    EACH_FIELD(FROM_OTHER)                      \
    tb_merge(EACH_FIELD(OTHER) REFS(a, 0));     \
  }
// `what` of [0, count) for the WIDTH items of each group; those for which nothing is left wait with the others.
#define DECLARE_ITEMS(count)                                \
  EACH_FIELD(SHARED)                                        \
  const Index lane = (Index)TB_LOCAL_ITEM & (WIDTH - 1);    \
  const Index at_once = GROUP / WIDTH;                      \
  const Index several_count = ((count) + at_once - 1) / at_once;
#define FOR_ITEMS(what, count)                                                      \
  TB_FOR_BLOCKS(several, several_count) {                                           \
    const Index wanted = several * at_once + (Index)TB_LOCAL_ITEM / WIDTH;          \
    const int is_there = wanted < (count);                                          \
    const Index what = is_there ? wanted : 0;
#else
#define DECLARE_ITEMS(count)
#define FOR_ITEMS(what, count) TB_FOR(what, count) {
#endif

#ifdef STAGE_2
TB_KERNEL(reduce_parts) {
  const i64 n = args.reduced;
  DECLARE_ITEMS((Index)args.outputs)
  FOR_ITEMS(o, (Index)args.outputs)
    Index base[OPERANDS];
    TB_LOCATE(base, 0, kept_sizes, kept_strides, KEPT - 1, o, 0, OUTPUTS)
    STATE(a, 1)
    tb_init(REFS(a, 0));
#define LOAD(f) PARTIAL(f)[p * (Index)args.outputs + o],
#if GROUP
    const Index parts = is_there ? (Index)args.parts : 0;
    for (Index p = lane; p < parts; p += WIDTH) tb_merge(EACH_FIELD(LOAD) REFS(a, 0));
    MERGE_ITEMS
    if (lane == 0 && is_there)
#else
    for (Index p = 0; p < (Index)args.parts; ++p) tb_merge(EACH_FIELD(LOAD) REFS(a, 0));
#endif
    {
      const int k = 0;
      (void)k;
      STORE(VALS(a, 0), AT_BASE)
    }
  }
} TB_END
#else

#ifdef PARTS
#define SAVE(f) PARTIAL(f)[part * (Index)args.outputs + o] = SAVED(f);
#endif

#ifdef COLUMNS
// ---- processors: columns side by side ----
#define TILE 1024
TB_KERNEL(reduce) {
  const i64 n = args.reduced;
  const Index inner = (Index)args.kept_sizes[KEPT - 1];
  const Index tiles = (inner + TILE - 1) / TILE;
  const Index units = (Index)args.outputs / inner * tiles;
#ifdef PARTS
  TB_FOR(w, units * (Index)args.parts) {
    const Index part = w / units;
    const Index unit = w - part * units;
    const Index begin = part * (Index)args.part_size;
    const Index end = begin + (Index)args.part_size < (Index)n ? begin + (Index)args.part_size : (Index)n;
#else
  TB_FOR(unit, units) {
    const Index begin = 0, end = (Index)n;
#endif
    const Index row = unit / tiles;
    const Index first = (unit - row * tiles) * TILE;
    const Index width = inner - first < TILE ? inner - first : TILE;
#ifdef DENSE
    const Index rows = TILE / inner;
#define ROW_OF(k) ((k) / inner)
#else
    const Index rows = 1;
#define ROW_OF(k) 0
#endif
    const Index lanes = rows * width;
    Index base[OPERANDS];
    TB_LOCATE(base, first * (Index)args.kept_strides[n][KEPT - 1], kept_sizes, kept_strides, KEPT - 2, row, 0, OPERANDS)
    STATE(a, TILE)
    STATE(t, TILE)
    for (Index k = 0; k < lanes; ++k) tb_init(REFS(a, k));
    for (Index k = 0; k < lanes; ++k) tb_init(REFS(t, k));
    Index until = begin + 256 * rows;
    for (Index r = begin; r < end; r += rows) {
      const Index most = end - r < rows ? (end - r) * width : lanes;
      Index place[OPERANDS];
      TB_LOCATE(place, base[n], reduced_sizes, reduced_strides, REDUCED - 1, r, OUTPUTS, OPERANDS)
      for (Index k = 0; k < most; ++k) tb_step(VALUES(AT_KEPT), r + ROW_OF(k) NUMBERS, REFS(a, k));
      if (r >= until) {
        for (Index k = 0; k < lanes; ++k) tb_merge(VALS(a, k), REFS(t, k));
        for (Index k = 0; k < lanes; ++k) tb_init(REFS(a, k));
        until = r + 256 * rows;
      }
    }
    for (Index k = 0; k < lanes; ++k) tb_merge(VALS(a, k), REFS(t, k));
    for (Index k = width; k < lanes; ++k) tb_merge(VALS(t, k), REFS(t, k - ROW_OF(k) * width));
#ifdef PARTS
#define SAVED(f) t##f[k]
    for (Index k = 0; k < width; ++k) {
      const Index o = row * inner + first + k;
      EACH_FIELD(SAVE)
    }
#else
    for (Index k = 0; k < width; ++k) {
      STORE(VALS(t, k), AT_KEPT_BASE)
    }
#endif
  }
} TB_END

#else
// ---- one output at a time ----
#ifdef TB_CHUNKED
#define LANES 32
#endif
#define FOLD 4096
TB_KERNEL(reduce) {
  const i64 n = args.reduced;
  const Index inner = (Index)args.reduced_sizes[REDUCED - 1];
  const Index outputs = (Index)args.outputs;
#ifdef PARTS
  const Index units = outputs * (Index)args.parts;
#else
  const Index units = outputs;
#endif
  DECLARE_ITEMS(units)
  FOR_ITEMS(w, units)
#ifdef PARTS
    const Index part = w / outputs;
    const Index o = w - part * outputs;
    const Index begin = part * (Index)args.part_size;
    const Index end = begin + (Index)args.part_size < (Index)n ? begin + (Index)args.part_size : (Index)n;
#else
    const Index o = w;
    const Index begin = 0, end = (Index)n;
#endif
    Index base[OPERANDS];
    TB_LOCATE(base, 0, kept_sizes, kept_strides, KEPT - 1, o, 0, OPERANDS)
    STATE(a, 1)
    tb_init(REFS(a, 0));
#if GROUP
    const Index stop = is_there ? end : begin;
#if REDUCED == 1
#define AHEAD 8 // elements that are read at once
    Index k = begin + lane;
    Index place[OPERANDS];
    for (int operand = OUTPUTS; operand < OPERANDS; ++operand) place[operand] = base[operand];
    while (stop - k > (AHEAD - 1) * WIDTH) {
      TB_UNROLL
      for (int j = 0; j < AHEAD; ++j, k += WIDTH) tb_step(VALUES(AT_REDUCED), k NUMBERS, REFS(a, 0));
    }
    for (; k < stop; k += WIDTH) tb_step(VALUES(AT_REDUCED), k NUMBERS, REFS(a, 0));
#else
    for (Index r = begin + lane; r < stop; r += WIDTH) {
      const Index row = r / inner;
      const Index k = r - row * inner;
      Index place[OPERANDS];
      TB_LOCATE(place, base[n], reduced_sizes, reduced_strides, REDUCED - 2, row, OUTPUTS, OPERANDS)
      tb_step(VALUES(AT_REDUCED), r NUMBERS, REFS(a, 0));
    }
#endif
    MERGE_ITEMS
    if (lane == 0 && is_there) {
#else
    Index row = begin / inner;
    Index first = begin - row * inner;
    STATE(c, 1)
    tb_init(REFS(c, 0));
    Index until = begin + FOLD;
#ifdef TB_CHUNKED
    const int by_lanes = end - begin >= 2 * LANES && inner >= LANES;
    STATE(v, LANES)
    STATE(t, LANES)
    if (by_lanes) {
      for (int l = 0; l < LANES; ++l) tb_init(REFS(t, l));
    }
#endif
    for (Index r = begin; r < end;) {
      const Index stop = inner - first < end - r ? inner : first + (end - r);
      Index place[OPERANDS];
      TB_LOCATE(place, base[n], reduced_sizes, reduced_strides, REDUCED - 2, row, OUTPUTS, OPERANDS)
      const Index shift = r - first;
      Index j = first;
#ifdef TB_CHUNKED
      while (by_lanes && j + LANES <= stop) {
        const Index pause = stop - j > FOLD ? j + FOLD : stop;
        for (int l = 0; l < LANES; ++l) tb_init(REFS(v, l));
        for (; j + LANES <= pause; j += LANES) {
          for (int l = 0; l < LANES; ++l) {
            const Index k = j + l;
            tb_step(VALUES(AT_REDUCED), shift + k NUMBERS, REFS(v, l));
          }
        }
        for (int l = 0; l < LANES; ++l) tb_merge(VALS(v, l), REFS(t, l));
      }
#endif
      for (Index k = j; k < stop; ++k) tb_step(VALUES(AT_REDUCED), shift + k NUMBERS, REFS(a, 0));
      r += stop - first;
      first = 0;
      ++row;
      if (r >= until) { // short sums of sums are more exact than long ones
        tb_merge(VALS(a, 0), REFS(c, 0));
        tb_init(REFS(a, 0));
        until = r + FOLD;
      }
    }
    tb_merge(VALS(c, 0), REFS(a, 0));
#ifdef TB_CHUNKED
    if (by_lanes) {
      for (int offset = LANES / 2; offset > 0; offset /= 2) {
        for (int l = 0; l < offset; ++l) tb_merge(VALS(t, l + offset), REFS(t, l));
      }
      tb_merge(VALS(t, 0), REFS(a, 0));
    }
#endif
    {
#endif
      const int k = 0;
      (void)k;
#ifdef PARTS
#define SAVED(f) a##f[0]
      EACH_FIELD(SAVE)
#else
      STORE(VALS(a, 0), AT_BASE)
#endif
    }
  }
} TB_END
#endif
#endif
