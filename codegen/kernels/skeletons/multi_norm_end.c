// The norms of tensors of the parts that blocks have left, [TENSORS][blocks], as pointer 0; the results are the pointers
// after it, stored as RESULT.
typedef struct {
  i64 blocks;
} Args;
#define LARGER(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
TB_KERNEL(multi_norm_end) {
  TB_ADDRESSES(results, TENSORS, POINTERS)
  TB_FOR(t, (Index)TENSORS) {
    T sum = 0;
    for (Index b = 0; b < (Index)args.blocks; ++b) {
      const T x = TB_LOAD_AS(TB_T, p0, t * (Index)args.blocks + b);
#if NORM == 0
      sum = LARGER(sum, x);
#else
      sum += x;
#endif
    }
    TB_STORE_AS(RESULT, results[t], 0, NORM == 2 ? sqrt(sum) : sum);
  }
} TB_END
