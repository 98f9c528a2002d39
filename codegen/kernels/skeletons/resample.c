// Images of another size: each element of the result is a sum of weighted elements of the image, by dimension; an element
// of the image gathers its gradient from those that it is part of.
//
// VALUE      how values are stored
// MODE       0 nearest, 1 nearest by centres, 2 linear, 3 cubic; 4 mirrored at the border, 5 the border repeated
// BACKWARD   p0 is the image's gradient, p1 that of the result

typedef struct {
  i64 batches, channels;
  i64 image[3], result[3], padding[3]; // padding: before the image, where borders are extended
  i64 aligns_corners;
  i64 image_strides[5], result_strides[5];
  tb_scalar scalars[3]; // elements of the image for one of the result
} Args;


#if MODE == 2
#define TAPS 2
#elif MODE == 3
#define TAPS 4
#else
#define TAPS 1
#endif

typedef struct {
  Index at[TAPS];
  T weight[TAPS];
} Taps;

#if MODE == 3
TB_DEVICE T near_weight(T x) { return ((TC(1.25)) * x - TC(2.25)) * x * x + 1; }
TB_DEVICE T far_weight(T x) { return ((TC(-0.75) * x - TC(-3.75)) * x + TC(-6.0)) * x - TC(-3.0); }
#endif

// The elements of the image in one dimension that element `o` of the result is made of.
TB_DEVICE Taps taps_of(Index o, Index size, Index result, Index padding, T scale, int aligns_corners) {
  Taps taps;
#if MODE == 0
  const Index at = size == result ? o : result == 2 * size ? o / 2 : (Index)floor((T)o * scale);
  taps.at[0] = TB_LEAST(at, size - 1);
  taps.weight[0] = 1;
#elif MODE == 1
  taps.at[0] = TB_LEAST((Index)floor(((T)o + TC(0.5)) * scale), size - 1);
  taps.weight[0] = 1;
#elif MODE == 2
  T source = aligns_corners ? (T)o * scale : ((T)o + TC(0.5)) * scale - TC(0.5);
  if (source < 0) source = 0;
  taps.at[0] = TB_LEAST((Index)source, size - 1);
  taps.at[1] = TB_LEAST(taps.at[0] + 1, size - 1);
  T part = source - (T)taps.at[0];
  if (part > 1) part = 1;
  if (size == result) part = 0;
  if (size == result) taps.at[0] = o;
  taps.weight[0] = 1 - part;
  taps.weight[1] = part;
#elif MODE == 3
  const T source = aligns_corners ? (T)o * scale : ((T)o + TC(0.5)) * scale - TC(0.5);
  const Index before = (Index)floor(source);
  const T part = source - (T)before;
  for (int t = 0; t < 4; ++t) taps.at[t] = TB_MOST(TB_LEAST(before - 1 + t, size - 1), 0);
  taps.weight[0] = far_weight(part + 1);
  taps.weight[1] = near_weight(part);
  taps.weight[2] = near_weight(1 - part);
  taps.weight[3] = far_weight(2 - part);
#else
  Index at = o - padding;
#if MODE == 4
  at = at < 0 ? -at : at;
  at = at >= size ? 2 * (size - 1) - at : at;
#else
  at = TB_MOST(TB_LEAST(at, size - 1), 0);
#endif
  taps.at[0] = at;
  taps.weight[0] = 1;
#endif
  return taps;
}
#define TAPS_OF(d, o) \
  taps_of(o, (Index)args.image[d], (Index)args.result[d], (Index)args.padding[d], (T)TB_SCALAR(d), (int)args.aligns_corners)

#ifndef BACKWARD
TB_KERNEL(resample) {
  TB_FOR(i, (Index)TB_PLACES(args.result)) {
    Index rest = i;
    TB_SPLIT_ROW(rest, w, args.result[2])
    TB_SPLIT(rest, h, args.result[1])
    TB_SPLIT(rest, d, args.result[0])
    TB_SPLIT(rest, channel, args.channels)
    const Taps down = TAPS_OF(1, h), deep = TAPS_OF(0, d);
    TB_FOR_ROW(w, args.result[2]) {
      const Taps across = TAPS_OF(2, w);
#if TAPS == 1
      const T sum = (T)TB_LOAD_AS(VALUE, p1, TB_PLACE(image_strides, rest, channel, deep.at[0], down.at[0], across.at[0]));
#else
      T sum = 0;
      for (int z = 0; z < (args.image[0] == 1 && args.result[0] == 1 ? 1 : TAPS); ++z) {
        T plane = 0;
        for (int y = 0; y < (args.image[1] == 1 && args.result[1] == 1 ? 1 : TAPS); ++y) {
          T row = 0;
          for (int x = 0; x < TAPS; ++x)
            row += across.weight[x] *
                   (T)TB_LOAD_AS(VALUE, p1, TB_PLACE(image_strides, rest, channel, deep.at[z], down.at[y], across.at[x]));
          plane += row * (args.image[1] == 1 && args.result[1] == 1 ? 1 : down.weight[y]);
        }
        sum += plane * (args.image[0] == 1 && args.result[0] == 1 ? 1 : deep.weight[z]);
      }
#endif
      TB_STORE_AS(VALUE, p0, TB_PLACE(result_strides, rest, channel, d, h, w), sum);
    }
  }
} TB_END

#else

// Of the result's elements, those that may be made of element `x` of the image.
#if MODE >= 4
#define IS_AT_BORDER(d, x) ((x) <= extent##d || (x) >= (Index)args.image[d] - 1 - extent##d)
#define FIRST(d, x) (IS_AT_BORDER(d, x) ? (Index)0 : TB_MOST((x) + (Index)args.padding[d], (Index)0))
#define LAST(d, x) \
  (IS_AT_BORDER(d, x) ? (Index)args.result[d] - 1 : TB_LEAST((x) + (Index)args.padding[d], (Index)args.result[d] - 1))
#define EXTENT(d) \
  TB_MOST((Index)args.padding[d], (Index)args.result[d] - (Index)args.image[d] - (Index)args.padding[d])
#else
#define REACH TC(0.5) + (TAPS == 1 ? 1 : TAPS / 2)
#define IS_SAME(d) (args.image[d] == args.result[d])
#define FIRST(d, x) ((x) == 0 || TB_SCALAR(d) <= 0 ? (Index)0 : TB_MOST((Index)floor(((T)(x) - (REACH)) / (T)TB_SCALAR(d)) - 1, (Index)0))
#define LAST(d, x)                                                                                   \
  ((x) == (Index)args.image[d] - 1 || TB_SCALAR(d) <= 0                                              \
       ? (Index)args.result[d] - 1                                                                   \
       : TB_LEAST((Index)ceil(((T)(x) + (REACH)) / (T)TB_SCALAR(d)) + 1, (Index)args.result[d] - 1))
#endif

TB_DEVICE T weight_of(Taps taps, Index x) {
  T sum = 0;
  for (int t = 0; t < TAPS; ++t) sum += taps.at[t] == x ? taps.weight[t] : (T)0;
  return sum;
}
#define WEIGHT(d, o, x) (args.image[d] == 1 && args.result[d] == 1 ? (T)1 : weight_of(TAPS_OF(d, o), x))

TB_KERNEL(resample) {
#if MODE >= 4
  const Index extent0 = EXTENT(0), extent1 = EXTENT(1), extent2 = EXTENT(2);
#endif
  const Index count = (Index)(args.batches * args.channels * args.image[0] * args.image[1] * args.image[2]);
  TB_FOR(i, count) {
    Index rest = i;
    TB_SPLIT(rest, x, args.image[2])
    TB_SPLIT(rest, y, args.image[1])
    TB_SPLIT(rest, z, args.image[0])
    TB_SPLIT(rest, channel, args.channels)
    const Index first_d = FIRST(0, z), last_d = LAST(0, z), first_h = FIRST(1, y), last_h = LAST(1, y);
    const Index first_w = FIRST(2, x), last_w = LAST(2, x);
    T sum = 0;
    for (Index d = first_d; d <= last_d; ++d) {
      const T deep = WEIGHT(0, d, z);
      if (deep == 0) continue;
      for (Index h = first_h; h <= last_h; ++h) {
        const T down = WEIGHT(1, h, y);
        if (down == 0) continue;
        for (Index w = first_w; w <= last_w; ++w) {
          const T across = WEIGHT(2, w, x);
          if (across != 0)
            sum += deep * down * across * (T)TB_LOAD_AS(VALUE, p1, TB_PLACE(result_strides, rest, channel, d, h, w));
        }
      }
    }
    TB_STORE_AS(VALUE, p0, TB_PLACE(image_strides, rest, channel, z, y, x), sum);
  }
} TB_END
#endif
