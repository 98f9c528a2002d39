// The largest of each window of an image or the mean, and gradients: an element of the image gathers from its windows.
//
// VALUE      how values are stored
// MAXIMUM    with the place of each, counted through one image's channel; else the mean
// ADAPTIVE   windows divide the image evenly
// BACKWARD   p0 is the image's gradient, p1 that of the result
// SCATTER    each window adds to the largest element's gradient; the image's channels are contiguous, and computed in T

typedef struct {
  i64 batches, channels;
  i64 image[3], windows[3], extent[3], stride[3], padding[3], dilation[3];
  i64 image_strides[5], window_strides[5], index_strides[5];
  i64 counts_padding, divisor;
} Args;

#define IMAGE(d) ((Index)args.image[d])
#define WINDOWS(d) ((Index)args.windows[d])

#ifdef ADAPTIVE
#define STEP(d) 1
#define START(d, o) ((Index)((i64)(o) * args.image[d] / args.windows[d]))
#define END(d, o) ((Index)((((i64)(o) + 1) * args.image[d] + args.windows[d] - 1) / args.windows[d]))
#define FIRST(d, x) ((Index)((i64)(x) * args.windows[d] / args.image[d]))
#define LAST(d, x) ((Index)((((i64)(x) + 1) * args.windows[d] + args.image[d] - 1) / args.image[d]) - 1)
#else
#define STEP(d) ((Index)args.dilation[d])
#define REACH(d) (((Index)args.extent[d] - 1) * STEP(d) + 1)
#define BEGIN(d, o) ((o) * (Index)args.stride[d] - (Index)args.padding[d])
#define START(d, o) (BEGIN(d, o) < 0 ? BEGIN(d, o) + (-BEGIN(d, o) + STEP(d) - 1) / STEP(d) * STEP(d) : BEGIN(d, o))
#define END(d, o) TB_LEAST(BEGIN(d, o) + REACH(d), IMAGE(d))
#define FIRST(d, x)                                  \
  ((x) + (Index)args.padding[d] < REACH(d) ? (Index)0 \
                                          : ((x) + (Index)args.padding[d] - REACH(d)) / (Index)args.stride[d] + 1)
#define LAST(d, x) TB_LEAST(((x) + (Index)args.padding[d]) / (Index)args.stride[d], WINDOWS(d) - 1)
#endif

#ifndef MAXIMUM
// Of a window, in elements.
TB_DEVICE T divisor_of(Args args, Index d, Index h, Index w) {
  if (args.divisor != 0) return (T)args.divisor;
#ifndef ADAPTIVE
  if (args.counts_padding != 0)
    return (T)((TB_LEAST(BEGIN(0, d) + REACH(0), IMAGE(0) + (Index)args.padding[0]) - BEGIN(0, d)) *
               (TB_LEAST(BEGIN(1, h) + REACH(1), IMAGE(1) + (Index)args.padding[1]) - BEGIN(1, h)) *
               (TB_LEAST(BEGIN(2, w) + REACH(2), IMAGE(2) + (Index)args.padding[2]) - BEGIN(2, w)));
#endif
  return (T)((END(0, d) - START(0, d)) * (END(1, h) - START(1, h)) * (END(2, w) - START(2, w)));
}
#endif

#ifndef BACKWARD
TB_KERNEL(pool) {
  TB_FOR(i, (Index)TB_PLACES(args.windows)) {
    Index rest = i;
    TB_SPLIT_ROW(rest, w, args.windows[2])
    TB_SPLIT(rest, h, args.windows[1])
    TB_SPLIT(rest, d, args.windows[0])
    TB_SPLIT(rest, channel, args.channels)
    const Index from = TB_PLACE(image_strides, rest, channel, 0, 0, 0);
    const Index start_z = START(0, d), end_z = END(0, d), start_y = START(1, h), end_y = END(1, h);
    TB_FOR_ROW(w, args.windows[2]) {
      const Index start_x = START(2, w), end_x = END(2, w);
#ifdef MAXIMUM
      Index at = (start_z * IMAGE(1) + start_y) * IMAGE(2) + start_x;
      T best = (T)(SMALLEST);
#else
      T sum = 0;
#endif
      for (Index z = start_z; z < end_z; z += STEP(0))
        for (Index y = start_y; y < end_y; y += STEP(1))
          for (Index x = start_x; x < end_x; x += STEP(2)) {
            const T value = (T)TB_LOAD_AS(VALUE, p1, from + z * (Index)args.image_strides[2] +
                                                         y * (Index)args.image_strides[3] + x * (Index)args.image_strides[4]);
#ifdef MAXIMUM
            if (value > best || value != value) {
              best = value;
              at = (z * IMAGE(1) + y) * IMAGE(2) + x;
            }
#else
            sum += value;
#endif
          }
#ifdef MAXIMUM
      TB_STORE_AS(VALUE, p0, TB_PLACE(window_strides, rest, channel, d, h, w), best);
      TB_STORE_i64(p2, TB_PLACE(index_strides, rest, channel, d, h, w), at);
#else
      TB_STORE_AS(VALUE, p0, TB_PLACE(window_strides, rest, channel, d, h, w), sum / divisor_of(args, d, h, w));
#endif
    }
  }
} TB_END

#elif defined(SCATTER)
TB_KERNEL(pool) {
  const Index size = (Index)(args.image[0] * args.image[1] * args.image[2]);
  TB_FOR(i, (Index)(args.batches * args.channels)) {
    Index rest = i;
    TB_SPLIT(rest, channel, args.channels)
    TB_GLOBAL T* to = (TB_GLOBAL T*)p0 + TB_PLACE(image_strides, rest, channel, 0, 0, 0);
    for (Index k = 0; k < size; ++k) to[k] = 0;
    for (Index d = 0; d < WINDOWS(0); ++d)
      for (Index h = 0; h < WINDOWS(1); ++h)
        for (Index w = 0; w < WINDOWS(2); ++w) {
          const i64 at = TB_LOAD_i64(p2, TB_PLACE(index_strides, rest, channel, d, h, w));
          if ((u64)at < (u64)size) to[at] += (T)TB_LOAD_AS(VALUE, p1, TB_PLACE(window_strides, rest, channel, d, h, w));
        }
  }
} TB_END

#else
TB_KERNEL(pool) {
  TB_FOR(i, (Index)TB_PLACES(args.image)) {
    Index rest = i;
    TB_SPLIT_ROW(rest, x, args.image[2])
    TB_SPLIT(rest, y, args.image[1])
    TB_SPLIT(rest, z, args.image[0])
    TB_SPLIT(rest, channel, args.channels)
    const Index first_d = FIRST(0, z), last_d = LAST(0, z), first_h = FIRST(1, y), last_h = LAST(1, y);
    TB_FOR_ROW(x, args.image[2]) {
      const Index first_w = FIRST(2, x), last_w = LAST(2, x);
#ifdef MAXIMUM
      const i64 here = ((i64)z * args.image[1] + y) * args.image[2] + x;
#endif
      T sum = 0;
      for (Index d = first_d; d <= last_d; ++d)
        for (Index h = first_h; h <= last_h; ++h)
          for (Index w = first_w; w <= last_w; ++w) {
#ifdef MAXIMUM
            if (TB_LOAD_i64(p2, TB_PLACE(index_strides, rest, channel, d, h, w)) == here)
              sum += (T)TB_LOAD_AS(VALUE, p1, TB_PLACE(window_strides, rest, channel, d, h, w));
#else
            sum += (T)TB_LOAD_AS(VALUE, p1, TB_PLACE(window_strides, rest, channel, d, h, w)) / divisor_of(args, d, h, w);
#endif
          }
      TB_STORE_AS(VALUE, p0, TB_PLACE(image_strides, rest, channel, z, y, x), sum);
    }
  }
} TB_END
#endif
