// Elementwise: every operand has one place for each element of the output.
//
// OPERANDS, RANK  of the collapsed shape; the last dimension is the inner one
// SCALARS         numbers that came with the call
// APPLY(K)        compute one element; K(n) is the place of operand n's
// STEP_n          stride of operand n in the inner dimension: a number where it is known, else a name of LOCALS
// LOCALS          declarations of what is the same for all elements

typedef struct {
  i64 count;
  i64 sizes[RANK];
  i64 strides[OPERANDS][RANK];
  tb_scalar scalars[SCALARS];
} Args;

#define PLACE(n) (base[n] + k * (Index)(STEP_##n))

#if RANK == 1
#define PLACE_1(n) (k * (Index)(STEP_##n))
TB_KERNEL(pointwise) {
  LOCALS
  TB_INDEPENDENT
  TB_FOR(k, (Index)args.count) {
    APPLY(PLACE_1)
  }
} TB_END
#else
#define LOCATE(row)                                                        \
  Index base[OPERANDS];                                                    \
  {                                                                        \
    Index rest = (row);                                                    \
    for (int n = 0; n < OPERANDS; ++n) base[n] = 0;                        \
    for (int d = RANK - 2; d >= 0; --d) {                                  \
      const Index size = (Index)args.sizes[d];                             \
      const Index next = d > 0 ? rest / size : 0;                          \
      const Index here = d > 0 ? rest - next * size : rest;                \
      for (int n = 0; n < OPERANDS; ++n) base[n] += here * (Index)args.strides[n][d]; \
      rest = next;                                                         \
    }                                                                      \
  }
TB_KERNEL(pointwise) {
  LOCALS
  const Index inner = (Index)args.sizes[RANK - 1];
#ifdef TB_CHUNKED
  const Index count = (Index)args.count;
  Index first = (Index)TB_ITEM * TB_STRETCH(count);
  const Index end = first + TB_STRETCH(count) < count ? first + TB_STRETCH(count) : count;
  Index row = first / inner;
  Index begin = first - row * inner;
  while (first < end) {
    const Index stop = inner - begin < end - first ? inner : begin + end - first;
    LOCATE(row)
    TB_INDEPENDENT
    for (Index k = begin; k < stop; ++k) {
      APPLY(PLACE)
    }
    first += stop - begin;
    begin = 0;
    ++row;
  }
#else
  TB_FOR(i, (Index)args.count) {
    const Index row = i / inner;
    const Index k = i - row * inner;
    LOCATE(row)
    APPLY(PLACE)
  }
#endif
} TB_END
#endif
