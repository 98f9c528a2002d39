// Rows whose elements are side by side, each read as often as it takes while it is near: first sums or a maximum over the
// row (A), then sums that need those (B), then every element of the output.
//
// OUTPUTS, INPUTS   operands 0 to OUTPUTS - 1, and those after them
// KEPT              rank of what tells rows apart
// LOADS             declares x0, x1, ..., the inputs' elements number k
// CONSTANTS         declares what LOADS uses of operands that are the same in all the row
// A_SUMS, TERM_A    adds to S(0), S(1) for one element; 0: the maximum of A_VALUE
// B_SUMS, TERM_B    the same; 0: nothing to sum
// DERIVE_A, DERIVE_B  declare what the next steps use of the sums a and b
// MAP               sets out from x0, ...
// STORE_OUT, STORE_ROW  the element `out`, and after all the values of the row
// GROUP             most items of a block, which do a row together

#define OPERANDS (OUTPUTS + INPUTS)

typedef struct {
  i64 rows;
  i64 count;
  i64 kept_sizes[KEPT];
  i64 kept_strides[OPERANDS][KEPT];
  tb_scalar scalars[2];
} Args;

#ifdef TB_CHUNKED
#define LANES 32
#define SUM_PASS(SUMS, TERM, total)                               \
  T total[SUMS];                                                  \
  {                                                               \
    T lanes[SUMS][LANES];                                         \
    for (int s = 0; s < SUMS; ++s)                                \
      for (int l = 0; l < LANES; ++l) lanes[s][l] = 0;            \
    Index j = 0;                                                  \
    for (; j + LANES <= count; j += LANES)                        \
      for (int l = 0; l < LANES; ++l) {                           \
        const Index k = j + l;                                    \
        LOADS TERM                                                \
      }                                                           \
    for (Index k = j; k < count; ++k) {                           \
      const int l = (int)(k - j);                                 \
      LOADS TERM                                                  \
    }                                                             \
    for (int offset = LANES / 2; offset > 0; offset /= 2)               \
      for (int s = 0; s < SUMS; ++s)                              \
        for (int l = 0; l < offset; ++l) lanes[s][l] += lanes[s][l + offset]; \
    for (int s = 0; s < SUMS; ++s) total[s] = lanes[s][0];        \
  }
#define S(s) lanes[s][l]
#define EACH_ELEMENT for (Index k = 0; k < count; ++k)
#else
#define SUM_PASS(SUMS, TERM, total)                               \
  T total[SUMS];                                                  \
  {                                                               \
    for (int s = 0; s < SUMS; ++s) total[s] = 0;                  \
    T* const sums = total;                                        \
    EACH_ELEMENT { LOADS TERM }                                   \
    for (int s = 0; s < SUMS; ++s) {                              \
      TB_BARRIER();                                               \
      shared[item] = total[s];                                    \
      for (Index offset = items / 2; offset > 0; offset /= 2) {         \
        TB_BARRIER();                                             \
        if (item < offset) shared[item] += shared[item + offset];     \
      }                                                           \
      TB_BARRIER();                                               \
      total[s] = shared[0];                                       \
    }                                                             \
  }
#define S(s) sums[s]
#define EACH_ELEMENT for (Index k = item; k < count; k += items)
#endif

TB_KERNEL(rows) {
  const Index count = (Index)args.count;
  const T n = (T)args.count;
#ifdef TB_CHUNKED
  TB_FOR(row, (Index)args.rows) {
#else
  TB_LOCAL_ARRAY(T, shared, GROUP);
  const Index item = (Index)TB_LOCAL_ITEM;
  const Index items = (Index)TB_BLOCK_ITEMS;
  TB_FOR_BLOCKS(row, (Index)args.rows) {
#endif
    Index base[OPERANDS];
    TB_LOCATE(base, 0, kept_sizes, kept_strides, KEPT - 1, row, 0, OPERANDS)
    CONSTANTS
#if A_SUMS > 0
    SUM_PASS(A_SUMS, TERM_A, a)
#elif defined(TB_CHUNKED)
    T a[1];
    {
      T lanes[LANES];
      for (int l = 0; l < LANES; ++l) lanes[l] = (T)(-INFINITY);
      Index j = 0;
      for (; j + LANES <= count; j += LANES)
        for (int l = 0; l < LANES; ++l) {
          const Index k = j + l;
          LOADS
          lanes[l] = A_VALUE > lanes[l] ? A_VALUE : lanes[l];
        }
      for (Index k = j; k < count; ++k) {
        LOADS
        lanes[0] = A_VALUE > lanes[0] ? A_VALUE : lanes[0];
      }
      for (int offset = LANES / 2; offset > 0; offset /= 2)
        for (int l = 0; l < offset; ++l) lanes[l] = lanes[l + offset] > lanes[l] ? lanes[l + offset] : lanes[l];
      a[0] = lanes[0];
    }
#else
    T a[1];
    a[0] = (T)(-INFINITY);
    EACH_ELEMENT {
      LOADS
      a[0] = A_VALUE > a[0] ? A_VALUE : a[0];
    }
    TB_BARRIER();
    shared[item] = a[0];
    for (Index offset = items / 2; offset > 0; offset /= 2) {
      TB_BARRIER();
      if (item < offset) shared[item] = shared[item + offset] > shared[item] ? shared[item + offset] : shared[item];
    }
    TB_BARRIER();
    a[0] = shared[0];
#endif
    DERIVE_A
#if B_SUMS > 0
    SUM_PASS(B_SUMS, TERM_B, b)
    DERIVE_B
#endif
    EACH_ELEMENT {
      LOADS
      T out;
      MAP
      STORE_OUT
    }
#ifndef TB_CHUNKED
    if (item == 0)
#endif
    {
      STORE_ROW
    }
  }
} TB_END
