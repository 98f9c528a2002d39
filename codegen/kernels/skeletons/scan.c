// Scans: a reduction's result so far, at every element along one dimension.
//
// OUTPUTS, INPUTS, FIELDS, VALUES, NUMBERS, STORE  as in reduce.c
// KEPT      rank of the other dimensions
// COLUMNS   their inner one has neighbours: several columns at once

#define OPERANDS (OUTPUTS + INPUTS)

typedef struct {
  i64 lines;
  i64 count;
  i64 kept_sizes[KEPT];
  i64 kept_strides[OPERANDS][KEPT];
  i64 strides[OPERANDS];
  tb_scalar scalars[4];
} Args;

#if FIELDS == 1
#define STATE(s, count) F0 s##0[count];
#define REFS(s, l) &s##0[l]
#define VALS(s, l) s##0[l]
#else
#define STATE(s, count) F0 s##0[count]; F1 s##1[count];
#define REFS(s, l) &s##0[l], &s##1[l]
#define VALS(s, l) s##0[l], s##1[l]
#endif

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
#ifdef TB_CHUNKED
#define LINES 8 // at once: a sum has to wait for the one before
#define STEPS 64
#else
#define LINES 1
#define STEPS 1
#endif
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
