// Convolutions that take one channel of the image for each feature.
//
// VALUE            how values are stored, those of the weights [features, extent] and of the bias too, which are contiguous
// STRIDE           of the windows in the last dimension, where it is 1
// IMAGE_STEP       of the image in its last dimension
// BIAS             p3 has a number for each feature

typedef struct {
  i64 batches, channels; // of the result
  i64 image[3], windows[3], extent[3], stride[3], padding[3], dilation[3];
  i64 image_strides[5], window_strides[5];
  i64 features; // of each of the image's channels
} Args;

#ifndef STRIDE
#define STRIDE ((Index)args.stride[2])
#endif
#define WIDTH 256

TB_KERNEL(depthwise) {
  const Index extent_1 = (Index)args.extent[1], extent_2 = (Index)args.extent[2];
  TB_FOR(i, (Index)TB_PLACES(args.windows)) {
    Index rest = i;
    TB_SPLIT_ROW(rest, column, args.windows[2])
    TB_SPLIT(rest, h, args.windows[1])
    TB_SPLIT(rest, d, args.windows[0])
    TB_SPLIT(rest, feature, args.channels)
    const Index weights = feature * (Index)args.extent[0] * extent_1 * extent_2;
    const Index result = TB_PLACE(window_strides, rest, feature, d, h, 0);
    T first_value = 0;
#ifdef BIAS
    first_value = (T)TB_LOAD_AS(VALUE, p3, feature);
#endif
#ifdef TB_CHUNKED
    T sums[WIDTH];
    for (Index begin = 0; begin < (Index)args.windows[2]; begin += WIDTH) {
      const Index end = TB_LEAST(begin + WIDTH, (Index)args.windows[2]);
#else
    T sums[1];
    {
      const Index begin = column, end = column + 1;
#endif
      for (Index w = 0; w < end - begin; ++w) sums[w] = first_value;
      for (Index k = 0; k < (Index)args.extent[0] * extent_1; ++k) {
        const Index z = d * (Index)args.stride[0] - (Index)args.padding[0] + k / extent_1 * (Index)args.dilation[0];
        const Index y = h * (Index)args.stride[1] - (Index)args.padding[1] + k % extent_1 * (Index)args.dilation[1];
        if (z < 0 || z >= (Index)args.image[0] || y < 0 || y >= (Index)args.image[1]) continue;
        const Index from = TB_PLACE(image_strides, rest, feature / (Index)args.features, z, y, 0);
        for (Index kw = 0; kw < extent_2; ++kw) {
          const T weight = (T)TB_LOAD_AS(VALUE, p2, weights + k * extent_2 + kw);
          const Index offset = kw * (Index)args.dilation[2] - (Index)args.padding[2];
          const Index first = TB_MOST(TB_FIRST_WINDOW((Index)0, offset, STRIDE), begin);
          const Index stop = TB_LEAST(TB_FIRST_WINDOW((Index)args.image[2], offset, STRIDE), end);
          for (Index w = first; w < stop; ++w)
            sums[w - begin] += weight * (T)TB_LOAD_AS(VALUE, p1, from + (w * STRIDE + offset) * (Index)(IMAGE_STEP));
        }
      }
      for (Index w = begin; w < end; ++w)
        TB_STORE_AS(VALUE, p0, result + w * (Index)args.window_strides[4], sums[w - begin]);
    }
  }
} TB_END
