// The lower triangles of small matrices become their Cholesky factors; a block does a matrix.
//
// p0 the matrices, p1 for each the number of its first minor that is not positive, as i32: 0 if none was before
//
// VALUE      how values are stored
// KEPT       rank of what tells matrices apart
// SIZE       most rows of one

typedef struct {
  i64 matrices, size;
  i64 row, column; // strides
  i64 minors;      // before this block of a larger matrix
  i64 kept_sizes[KEPT];
  i64 kept_strides[2][KEPT];
} Args;

#ifdef TB_CHUNKED
#define FOR_ROWS(i, first) for (Index i = (first); i < size; ++i)
#define FOR_MATRICES(matrix, count) TB_FOR(matrix, count)
#define ONE_ITEM
#else
#define FOR_ROWS(i, first) for (Index i = (first) + (Index)TB_LOCAL_ITEM; i < size; i += (Index)TB_BLOCK_ITEMS)
#define FOR_MATRICES(matrix, count) TB_FOR_BLOCKS(matrix, count)
#define ONE_ITEM if (TB_LOCAL_ITEM == 0)
#endif
#ifdef TB_COMPLEX
#define REAL(x) ((x).re)
#define OF_REAL(x) tb_real(x)
#define LESS_PRODUCT(x, y, z) tb_c_sub(x, tb_c_mul(y, tb_c_conj(z)))
#define OVER_REAL(x, y) tb_complex((x).re / (y).re, (x).im / (y).re)
#else
#define REAL(x) (x)
#define OF_REAL(x) (x)
#define LESS_PRODUCT(x, y, z) ((x) - (y) * (z))
#define OVER_REAL(x, y) ((x) / (y))
#endif
#define PLACE(i, j) (base[0] + (i) * (Index)args.row + (j) * (Index)args.column)

TB_KERNEL(cholesky) {
  TB_LOCAL_ARRAY(T, tile, SIZE)[SIZE + 1];
  const Index size = (Index)args.size;
  FOR_MATRICES(matrix, (Index)args.matrices) {
    Index base[2];
    TB_LOCATE(base, 0, kept_sizes, kept_strides, KEPT - 1, matrix, 0, 2)
    TB_BARRIER();
    FOR_ROWS(i, 0) {
      for (Index j = 0; j <= i; ++j) tile[i][j] = TB_LOAD_AS(VALUE, p0, PLACE(i, j));
    }
    for (Index j = 0; j < size; ++j) {
      TB_BARRIER();
      FOR_ROWS(i, j) {
        T sum = tile[i][j];
        for (Index k = 0; k < j; ++k) sum = LESS_PRODUCT(sum, tile[i][k], tile[j][k]);
        tile[i][j] = sum;
      }
      TB_BARRIER();
      ONE_ITEM {
        const int is_positive = REAL(tile[j][j]) > 0;
        if (!is_positive && TB_LOAD_i32(p1, base[1]) == 0) TB_STORE_i32(p1, base[1], (i32)(args.minors + j + 1));
        tile[j][j] = OF_REAL(sqrt(REAL(tile[j][j])));
      }
      TB_BARRIER();
      FOR_ROWS(i, j + 1) tile[i][j] = OVER_REAL(tile[i][j], tile[j][j]);
    }
    FOR_ROWS(i, 0) {
      for (Index j = 0; j <= i; ++j) TB_STORE_AS(VALUE, p0, PLACE(i, j), tile[i][j]);
    }
  }
} TB_END
