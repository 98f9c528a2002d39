// The negative log likelihood of classes: `x` has a dimension of classes more than `target`. A target that is no class
// is an error, and has no gradient.
//
// RANK                  of the target's collapsed shape
// TYPE_n                how operand n is stored: the loss and its weight, target, x. BACKWARD: the gradient of x, which was
//                       zero, none, target, the gradient of the loss
// WEIGHT, TOTAL_WEIGHT  how p4, a weight for each class, and p5, by which the gradient is divided, are stored, where they
//                       are
//
// p6 is the error cell.

#ifdef WEIGHT
#define W(i) ((T)TB_LOAD_AS(WEIGHT, p4, i))
#else
#define W(i) ((T)1)
#endif

typedef struct {
  i64 count;
  i64 classes;
  i64 ignored;
  i64 class_stride;
  i64 weight_stride;
  i64 op;
  i64 sizes[RANK];
  i64 strides[4][RANK]; // of p0, p1, p2, p3
} Args;

TB_KERNEL(nll) {
  TB_FOR(element, (Index)args.count) {
    Index base[4];
    {
      Index rest = element;
      for (int n = 0; n < 4; ++n) base[n] = 0;
      for (int d = RANK - 1; d >= 0; --d) {
        const Index size = (Index)args.sizes[d];
        const Index next = d > 0 ? rest / size : 0;
        const Index here = d > 0 ? rest - next * size : rest;
        for (int n = 0; n < 4; ++n) base[n] += here * (Index)args.strides[n][d];
        rest = next;
      }
    }
    const i64 target = (i64)TB_LOAD_AS(TYPE_2, p2, base[2]);
    const int known = target >= 0 && target < args.classes;
    const Index at = (Index)(known ? target : 0);
    const T weight = W(at * (Index)args.weight_stride);
#ifdef BACKWARD
    if (known && target != args.ignored) {
      T grad = (T)TB_LOAD_AS(TYPE_3, p3, base[3]) * weight;
#ifdef TOTAL_WEIGHT
      grad = grad / (T)TB_LOAD_AS(TOTAL_WEIGHT, p5, 0);
#endif
      TB_STORE_AS(TYPE_0, p0, base[0] + at * (Index)args.class_stride, -grad);
    }
#else
    if (!known && target != args.ignored) tb_report(p6, TB_INDEX_OUT_OF_RANGE, args.op, target, args.classes);
    const T loss = known ? -(T)TB_LOAD_AS(TYPE_3, p3, base[3] + at * (Index)args.class_stride) * weight : (T)NAN;
    TB_STORE_AS(TYPE_0, p0, base[0], target == args.ignored ? (T)0 : loss);
#ifdef TYPE_1
    TB_STORE_AS(TYPE_1, p1, base[1], target == args.ignored ? (T)0 : weight);
#endif
#endif
  }
} TB_END
