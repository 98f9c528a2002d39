// The norms of tensors, of the parts in pointer 0 that follow one another; the results are the pointers after it, stored as
// RESULT.
typedef struct {
  i64 stops[TENSORS]; // where the tensor's parts end
} Args;
#define LARGER(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#if NORM == 0
#define JOIN(a, b) LARGER(a, b)
#else
#define JOIN(a, b) ((a) + (b))
#endif
TB_KERNEL(multi_norm_end) {
  TB_LOCAL_ARRAY(T, shared, BLOCK);
  TB_FOR_BLOCKS(t, TENSORS) {
    T sum = 0;
    for (Index part = (t > 0 ? (Index)args.stops[t - 1] : 0) + (Index)TB_LOCAL_ITEM; part < (Index)args.stops[t];
         part += BLOCK) {
      const T x = TB_LOAD_AS(TB_T, p0, part);
      sum = JOIN(sum, x);
    }
    TB_UNROLL
    for (int mask = 1; mask < BLOCK; mask *= 2) {
      T other;
      TB_FROM_OTHER(other, sum, mask, shared)
      sum = JOIN(sum, other);
    }
    CHOOSE_RESULT
    if (TB_LOCAL_ITEM == 0) TB_STORE_AS(RESULT, result, 0, NORM == 2 ? sqrt(sum) : sum);
  }
} TB_END
