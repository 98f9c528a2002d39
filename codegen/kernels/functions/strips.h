// Products of matrices where items run one after the other: TB_STRIP_PRODUCT(name, ROW, STEP) defines a function that adds one
// of STRIP rows by PANEL columns to `sums`, which it keeps in registers meanwhile. Of the left side rows are ROW elements apart
// and neighbours of a row STEP; the right one is packed, so that the innermost loop reads vectors one after the other.
//
// T_BYTES         the size of T

#ifdef TB_CHUNKED
#ifndef TB_VECTOR_BYTES
#define TB_VECTOR_BYTES 32
#endif
#if TB_VECTOR_BYTES == 64
#define STRIP 12
#define TB_EACH_OF_STRIP(X, row) \
  X(0, row) X(1, row) X(2, row) X(3, row) X(4, row) X(5, row) X(6, row) X(7, row) X(8, row) X(9, row) X(10, row) X(11, row)
#else
#define STRIP 6
#define TB_EACH_OF_STRIP(X, row) X(0, row) X(1, row) X(2, row) X(3, row) X(4, row) X(5, row)
#endif
#define LANES (TB_VECTOR_BYTES / T_BYTES)
#if TB_VECTOR_BYTES == 64 && T_BYTES == 4
#define V TB_PASTE(TB_T, x16)
#elif TB_VECTOR_BYTES == 32 && T_BYTES == 8
#define V TB_PASTE(TB_T, x4)
#else
#define V TB_PASTE(TB_T, x8)
#endif
#define PANEL (2 * LANES)

#ifdef __clang__
#pragma STDC FP_CONTRACT ON
#endif
#define TB_STRIP_LOAD(i, row) V x##i = sums[2 * i], y##i = sums[2 * i + 1];
#define TB_STRIP_ADD(i, row) x##i += left[i * (row)] * r0; y##i += left[i * (row)] * r1;
#define TB_STRIP_STORE(i, row) sums[2 * i] = x##i; sums[2 * i + 1] = y##i;
#define TB_STRIP_PRODUCT(name, ROW, STEP)                                                                             \
  TB_CONTRACTED TB_DEVICE void name(Index depth, TB_LOCAL const T* left, TB_LOCAL const V* right, TB_LOCAL V* sums) { \
    TB_EACH_OF_STRIP(TB_STRIP_LOAD, ROW)                                                                              \
    for (Index k = 0; k < depth; ++k) {                                                                               \
      const V r0 = right[0], r1 = right[1];                                                                           \
      TB_EACH_OF_STRIP(TB_STRIP_ADD, ROW)                                                                             \
      left += STEP;                                                                                                   \
      right += 2;                                                                                                     \
    }                                                                                                                 \
    TB_EACH_OF_STRIP(TB_STRIP_STORE, ROW)                                                                             \
  }
#endif
