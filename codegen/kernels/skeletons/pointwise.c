// Elementwise: every operand has one place for each element of the output.
//
// OPERANDS, RANK  of the collapsed shape; the last dimension is the inner one
// SCALARS         numbers that came with the call
// APPLY(K)        compute one element; K(n) is the place of operand n's
// STEP_n          stride of operand n in the inner dimension: a number where it is known, else one of LOCALS
// LOCALS          declarations of what is the same for all elements
// VECTOR          not 0: elements of a row that an item reads before it writes any, as rows of all operands are aligned and
//                 side by side or the same: WIDE_DECLARE and others, as define_wide() has them

typedef struct {
  i64 count;
  i64 sizes[RANK];
  i64 strides[OPERANDS][RANK];
  tb_scalar scalars[SCALARS];
} Args;

#define STEP(n) step##n
#define PLACE(n) (base[n] + k * (Index)(STEP_##n))

#if VECTOR && defined(TB_HAS_VECTORS)
#define DO_VECTOR               \
  WIDE_DECLARE                  \
  WIDE_READ(0, VECTOR_AT)       \
  {                             \
    WIDE_SHADOWS(0)             \
    TB_UNROLL                   \
    for (int j = 0; j < VECTOR; ++j) { \
      APPLY(PLACE_HERE)         \
    }                           \
  }                             \
  WIDE_WRITE(0, VECTOR_AT)
#endif

#if RANK == 1
#define PLACE_1(n) (k * (Index)(STEP_##n))
TB_KERNEL(pointwise) {
  LOCALS
#ifdef DO_VECTOR
#define PLACE_HERE(n) (j * (STEP_##n))
#define VECTOR_AT(n) vector
  const Index vectors = (Index)args.count / VECTOR;
  TB_FOR(vector, vectors) { DO_VECTOR }
  TB_FOR(rest, (Index)args.count - vectors * VECTOR) {
    const Index k = vectors * VECTOR + rest;
    APPLY(PLACE_1)
  }
#else
  TB_INDEPENDENT
  TB_FOR(k, (Index)args.count) {
    APPLY(PLACE_1)
  }
#endif
} TB_END
#else
TB_KERNEL(pointwise) {
  LOCALS
#ifdef DO_VECTOR
#define PLACE_HERE(n) (STEP_##n ? (Index)j : base[n])
#define VECTOR_AT(n) (base[n] / VECTOR + k)
  const Index vectors = (Index)args.sizes[RANK - 1] / VECTOR;
  TB_FOR(vector, (Index)args.count / VECTOR) {
    const Index row = vector / vectors, k = vector - row * vectors;
    Index base[OPERANDS];
    TB_LOCATE(base, 0, sizes, strides, RANK - 2, row, 0, OPERANDS)
    DO_VECTOR
  }
#else
  TB_FOR_ROWS((Index)args.count, (Index)args.sizes[RANK - 1]) {
    Index base[OPERANDS];
    TB_LOCATE(base, 0, sizes, strides, RANK - 2, row, 0, OPERANDS)
    TB_INDEPENDENT
    for (Index k = begin; k < stop; ++k) {
      APPLY(PLACE)
    }
  }
#endif
} TB_END
#endif
