// One dimension of images of another size: each element of the result is a weighted mean of the window of the image that
// it stands for; an element of the image gathers its gradient from those that it is part of.
//
// LOADED, STORED  how values are stored
// MODE       2 linear, 3 cubic, 6 Lanczos
// AXIS       the dimension
// BACKWARD   p0 is the image's gradient, p1 that of the result

typedef struct {
  i64 batches, channels;
  i64 image[3], result[3], padding[3];
  i64 aligns_corners;
  i64 image_strides[5], result_strides[5];
  tb_scalar scalars[3]; // elements of the image for one of the result
} Args;

#if MODE == 2
#define REACH TC(1.0)
TB_DEVICE T filter(T x) {
  x = fabs(x);
  return x < 1 ? 1 - x : (T)0;
}
#elif MODE == 3
#define REACH TC(2.0)
TB_DEVICE T filter(T x) {
  x = fabs(x);
  return x < 1   ? (TC(1.5) * x - TC(2.5)) * x * x + 1
         : x < 2 ? (((x - 5) * x + 8) * x - 4) * TC(-0.5)
                 : (T)0;
}
#else
#define REACH TC(3.0)
TB_DEVICE T sinc(T x) {
  return x == 0 ? (T)1 : sin(x * TC(3.141592653589793)) / (x * TC(3.141592653589793));
}
TB_DEVICE T filter(T x) {
  return x > -3 && x < 3 ? sinc(x) * sinc(x / 3) : (T)0;
}
#endif

typedef struct {
  Index first, end; // elements of the image
  T center, step;
} Window;

TB_DEVICE Window window_of(Index o, Index size, T scale) {
  Window window;
  const T support = scale >= 1 ? REACH * scale : REACH;
  window.center = scale * ((T)o + TC(0.5));
  window.first = TB_MOST((Index)(window.center - support + TC(0.5)), (Index)0);
  window.end = TB_LEAST((Index)(window.center + support + TC(0.5)), size);
  window.step = scale >= 1 ? 1 / scale : (T)1;
  return window;
}
#define WEIGHT(window, k) filter(((T)(k) - window.center + TC(0.5)) * window.step)

#ifdef BACKWARD
TB_DEVICE T total_of(Window window) {
  T total = 0;
  for (Index k = window.first; k < window.end; ++k) total += WEIGHT(window, k);
  return total == 0 ? (T)1 : total;
}
#define MADE image
#define MADE_STRIDES image_strides
#define READ_STRIDES result_strides
#else
#define MADE result
#define MADE_STRIDES result_strides
#define READ_STRIDES image_strides
#endif

#if AXIS == 1
#define ALONG(y, x) (y)
#define LINE(y, x) TB_PLACE(READ_STRIDES, rest, channel, 0, 0, x)
#else
#define ALONG(y, x) (x)
#define LINE(y, x) TB_PLACE(READ_STRIDES, rest, channel, 0, y, 0)
#endif

TB_KERNEL(antialias) {
  const T scale = (T)TB_SCALAR(AXIS);
  const Index size = (Index)args.image[AXIS], step = (Index)args.READ_STRIDES[2 + AXIS];
  TB_FOR(i, (Index)TB_PLACES(args.MADE)) {
    Index rest = i;
    TB_SPLIT_ROW(rest, x, args.MADE[2])
    TB_SPLIT(rest, y, args.MADE[1])
    TB_SPLIT(rest, channel, args.channels)
    TB_FOR_ROW(x, args.MADE[2]) {
      const Index at = ALONG(y, x), from = LINE(y, x);
      T sum = 0;
#ifdef BACKWARD
      // The result's elements whose windows may reach here.
      const Index last = (Index)args.result[AXIS] - 1;
      const T reach = (scale >= 1 ? REACH * scale : REACH) + 1;
      const Index begin = scale > 0 ? TB_MOST((Index)(((T)at - reach) / scale) - 2, (Index)0) : 0;
      const Index end = scale > 0 ? TB_LEAST((Index)(((T)at + reach) / scale) + 2, last) : last;
      for (Index o = begin; o <= end; ++o) {
        const Window window = window_of(o, size, scale);
        if (at >= window.first && at < window.end)
          sum += WEIGHT(window, at) / total_of(window) * (T)TB_LOAD_AS(LOADED, p1, from + o * step);
      }
#else
      const Window window = window_of(at, size, scale);
      T total = 0;
      for (Index k = window.first; k < window.end; ++k) {
        const T weight = WEIGHT(window, k);
        total += weight;
        sum += weight * (T)TB_LOAD_AS(LOADED, p1, from + k * step);
      }
      if (total != 0) sum /= total;
#endif
      TB_STORE_AS(STORED, p0, TB_PLACE(MADE_STRIDES, rest, channel, 0, y, x), sum);
    }
  }
} TB_END
