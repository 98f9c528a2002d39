// Columns of p0 become the solutions x of a x = column; an item has a column.
//
// p0 the columns, p1 the matrices a
//
// KEPT       rank of what tells columns apart
// BACKWARD   a is an upper triangle: the last row is solved first
// UNIT       its diagonal is of ones, and not read

typedef struct {
  i64 columns, size;
  i64 x_row;
  i64 a_row, a_column;
  i64 kept_sizes[KEPT];
  i64 kept_strides[2][KEPT];
} Args;

#ifdef BACKWARD
#define NUMBERED(n) (size - 1 - (n))
#else
#define NUMBERED(n) (n)
#endif
#define X(i) TB_LOAD_AS(TB_T, p0, base[0] + (i) * (Index)args.x_row)
#define A(i, j) TB_LOAD_AS(TB_T, p1, base[1] + (i) * (Index)args.a_row + (j) * (Index)args.a_column)

TB_KERNEL(triangular) {
  const Index size = (Index)args.size;
  TB_FOR(column, (Index)args.columns) {
    Index base[2];
    TB_LOCATE(base, 0, kept_sizes, kept_strides, KEPT - 1, column, 0, 2)
    for (Index n = 0; n < size; ++n) {
      const Index i = NUMBERED(n);
      T x = X(i);
      for (Index m = 0; m < n; ++m) x -= A(i, NUMBERED(m)) * X(NUMBERED(m));
#ifndef UNIT
      x /= A(i, i);
#endif
      TB_STORE_AS(TB_T, p0, base[0] + i * (Index)args.x_row, x);
    }
  }
} TB_END
