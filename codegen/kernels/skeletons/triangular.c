// Columns of p0 become the solutions x of a x = column; an item has a column.
//
// p0 the columns, p1 the matrices a
//
// VALUE      how values are stored
// KEPT       rank of what tells columns apart
// BACKWARD   a is an upper triangle: the last row is solved first
// UNIT       its diagonal is of ones, and not read
// CONJUGATE  of the matrices that are given

typedef struct {
  i64 columns, size;
  i64 x_row;
  i64 a_row, a_column;
  i64 kept_sizes[KEPT];
  i64 kept_strides[2][KEPT];
} Args;

#define SUMS 4 // that do not wait for each other
#define X(i) TB_LOAD_AS(VALUE, p0, base[0] + (i) * (Index)args.x_row)
#define GIVEN(i, j) TB_LOAD_AS(VALUE, p1, base[1] + (i) * (Index)args.a_row + (j) * (Index)args.a_column)
#ifdef CONJUGATE
#define A(i, j) tb_c_conj(GIVEN(i, j))
#else
#define A(i, j) GIVEN(i, j)
#endif
#ifdef TB_COMPLEX
#define ZERO tb_real(0)
#define ADD tb_c_add
#define SUBTRACT tb_c_sub
#define MULTIPLY tb_c_mul
#define DIVIDE tb_c_div
#else
#define ZERO 0
#define ADD(x, y) ((x) + (y))
#define SUBTRACT(x, y) ((x) - (y))
#define MULTIPLY(x, y) ((x) * (y))
#define DIVIDE(x, y) ((x) / (y))
#endif

TB_KERNEL(triangular) {
  const Index size = (Index)args.size;
  TB_FOR(column, (Index)args.columns) {
    Index base[2];
    TB_LOCATE(base, 0, kept_sizes, kept_strides, KEPT - 1, column, 0, 2)
    for (Index solved = 0; solved < size; ++solved) {
#ifdef BACKWARD
      const Index i = size - 1 - solved, end = size;
      Index j = size - solved;
#else
      const Index i = solved, end = solved;
      Index j = 0;
#endif
      T sums[SUMS], x = X(i);
      for (int l = 0; l < SUMS; ++l) sums[l] = ZERO;
      for (; j + SUMS <= end; j += SUMS)
        for (int l = 0; l < SUMS; ++l) sums[l] = ADD(sums[l], MULTIPLY(A(i, j + l), X(j + l)));
      for (; j < end; ++j) x = SUBTRACT(x, MULTIPLY(A(i, j), X(j)));
      for (int l = 0; l < SUMS; ++l) x = SUBTRACT(x, sums[l]);
#ifndef UNIT
      x = DIVIDE(x, A(i, i));
#endif
      TB_STORE_AS(VALUE, p0, base[0] + i * (Index)args.x_row, x);
    }
  }
} TB_END
