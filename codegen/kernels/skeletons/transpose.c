// A copy whose source lies along another dimension than its destination: both are read and written where neighbouring items
// have neighbours, a square near in between. The last dimension is the destination's inner one, the one before it the source's.
//
// TYPE, RANK  of elements; of the shape, at least 2
// EDGE        of a square, a power of 2
// ITEMS       side by side: items of a block, a power of 2

typedef struct {
  i64 batches;
  i64 sizes[RANK];
  i64 strides[2][RANK]; // 1 but in 0, RANK - 1 and 1, RANK - 2
} Args;

#define ROWS ((Index)args.sizes[RANK - 2])
#define COLUMNS ((Index)args.sizes[RANK - 1])
#define ROW_STEP ((Index)args.strides[0][RANK - 2])
#define COLUMN_STEP ((Index)args.strides[1][RANK - 1])

TB_KERNEL(transpose) {
  const Index down = (ROWS + EDGE - 1) / EDGE, across = (COLUMNS + EDGE - 1) / EDGE;
#ifndef TB_CHUNKED
  TB_LOCAL_ARRAY(TYPE, square, EDGE * (EDGE + 1));
  const int item = (int)TB_LOCAL_ITEM;
#endif
  TB_FOR_BLOCKS(unit, (Index)args.batches * down * across) {
    const Index above = unit / across, batch = above / down;
    const Index row = (above - batch * down) * EDGE, column = (unit - above * across) * EDGE;
    Index base[2];
#if RANK == 2
    base[0] = base[1] = 0;
#else
    TB_LOCATE(base, 0, sizes, strides, RANK - 3, batch, 0, 2)
#endif
    const Index to = base[0] + row * ROW_STEP + column, from = base[1] + row + column * COLUMN_STEP;
    const Index rows = TB_LEAST((Index)EDGE, ROWS - row), columns = TB_LEAST((Index)EDGE, COLUMNS - column);
#ifdef TB_CHUNKED
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < columns; ++j)
        TB_STORE_AS(TYPE, p0, to + i * ROW_STEP + j, TB_LOAD_AS(TYPE, p1, from + i + j * COLUMN_STEP));
#else
    TB_BARRIER();
    TB_UNROLL
    for (int n = 0; n < EDGE * EDGE / ITEMS; ++n) {
      const int i = (n * ITEMS + item) % EDGE, j = (n * ITEMS + item) / EDGE;
      if (i < rows && j < columns) square[j * (EDGE + 1) + i] = TB_LOAD_AS(TYPE, p1, from + i + j * COLUMN_STEP);
    }
    TB_BARRIER();
    TB_UNROLL
    for (int n = 0; n < EDGE * EDGE / ITEMS; ++n) {
      const int i = (n * ITEMS + item) / EDGE, j = (n * ITEMS + item) % EDGE;
      if (i < rows && j < columns) TB_STORE_AS(TYPE, p0, to + i * ROW_STEP + j, square[j * (EDGE + 1) + i]);
    }
#endif
  }
} TB_END
