// start + i * step, or from both ends: then the last one is the end itself. OUT is how elements are stored.

typedef struct {
  i64 count;
  i64 stride;
  tb_scalar scalars[3]; // start, step, end
} Args;

TB_KERNEL(range) {
  const T start = (T)TB_SCALAR(0), step = (T)TB_SCALAR(1), end = (T)TB_SCALAR(2);
  const Index count = (Index)args.count, stride = (Index)args.stride;
  TB_FOR(i, count) {
#ifdef TWO_ENDED
    TB_STORE_AS(OUT, p0, i * stride, i < count / 2 ? start + step * (T)i : end - step * (T)(count - 1 - i));
#else
    TB_STORE_AS(OUT, p0, i * stride, start + step * (T)i);
#endif
  }
} TB_END
