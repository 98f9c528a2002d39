// Windows of an image as columns of a matrix, and the sums of what columns say of each element of the image.
//
// IMAGE            how values are stored, those of the columns too
// STRIDE           of the windows in the last dimension, where it is 1
// GATHER           the image is written, from the columns

typedef struct {
  i64 batches, channels;
  i64 image[3], windows[3], extent[3], stride[3], padding[3], dilation[3];
  i64 image_strides[5];
  i64 column_strides[2]; // by batch, by row; the windows of one row lie side by side
} Args;

#ifndef STRIDE
#define STRIDE ((Index)args.stride[2])
#endif
#define FIRST_WINDOW(at, offset) TB_FIRST_WINDOW(at, offset, STRIDE)

#ifndef GATHER

TB_KERNEL(columns) {
  const Index across = (Index)args.windows[2];
#ifdef TB_CHUNKED
  const Index count = (Index)(args.channels * args.extent[0] * args.extent[1] * args.extent[2] * args.batches * args.windows[0] * args.windows[1]);
#else
  const Index count = (Index)(args.channels * args.extent[0] * args.extent[1] * args.extent[2] * args.batches * args.windows[0] * args.windows[1] * args.windows[2]);
#endif
  TB_FOR(i, count) {
    Index rest = i;
#ifndef TB_CHUNKED
    TB_SPLIT(rest, window, args.windows[2])
#endif
    TB_SPLIT(rest, h, args.windows[1])
    TB_SPLIT(rest, d, args.windows[0])
    TB_SPLIT(rest, batch, args.batches)
    const Index row = rest;
    TB_SPLIT(rest, kw, args.extent[2])
    TB_SPLIT(rest, kh, args.extent[1])
    TB_SPLIT(rest, kd, args.extent[0])
    const Index y = h * (Index)args.stride[1] - (Index)args.padding[1] + kh * (Index)args.dilation[1];
    const Index z = d * (Index)args.stride[0] - (Index)args.padding[0] + kd * (Index)args.dilation[0];
    const Index offset = kw * (Index)args.dilation[2] - (Index)args.padding[2];
    const Index to = batch * (Index)args.column_strides[0] + row * (Index)args.column_strides[1] +
                     (d * (Index)args.windows[1] + h) * across;
    const Index from = batch * (Index)args.image_strides[0] + rest * (Index)args.image_strides[1] +
                       z * (Index)args.image_strides[2] + y * (Index)args.image_strides[3];
    const int is_inside = y >= 0 && y < (Index)args.image[1] && z >= 0 && z < (Index)args.image[0];
#ifdef TB_CHUNKED
    const Index first = is_inside ? TB_LEAST(FIRST_WINDOW((Index)0, offset), across) : across;
    const Index end = is_inside ? TB_MOST(first, TB_LEAST(FIRST_WINDOW((Index)args.image[2], offset), across)) : across;
    for (Index w = 0; w < first; ++w) TB_STORE_AS(IMAGE, p0, to + w, (T)0);
    for (Index w = first; w < end; ++w)
      TB_STORE_AS(IMAGE, p0, to + w, TB_LOAD_AS(IMAGE, p1, from + (w * STRIDE + offset) * (Index)(IMAGE_STEP)));
    for (Index w = end; w < across; ++w) TB_STORE_AS(IMAGE, p0, to + w, (T)0);
#else
    const Index x = window * STRIDE + offset;
    T value = 0;
    if (is_inside && x >= 0 && x < (Index)args.image[2]) value = TB_LOAD_AS(IMAGE, p1, from + x * (Index)(IMAGE_STEP));
    TB_STORE_AS(IMAGE, p0, to + window, value);
#endif
  }
} TB_END

#else

#define WIDTH 256
TB_KERNEL(columns) {
  const Index across = (Index)args.windows[2];
#ifdef TB_CHUNKED
  const Index pieces = ((Index)args.image[2] + WIDTH - 1) / WIDTH;
#else
  const Index pieces = (Index)args.image[2];
#endif
  const Index count = (Index)args.batches * (Index)args.channels * (Index)args.image[0] * (Index)args.image[1] * pieces;
  TB_FOR(i, count) {
    Index rest = i;
    TB_SPLIT(rest, piece, pieces)
    TB_SPLIT(rest, y, args.image[1])
    TB_SPLIT(rest, z, args.image[0])
    TB_SPLIT(rest, channel, args.channels)
    const Index batch = rest;
    const Index to = batch * (Index)args.image_strides[0] + channel * (Index)args.image_strides[1] +
                     z * (Index)args.image_strides[2] + y * (Index)args.image_strides[3];
#ifdef TB_CHUNKED
    const Index begin = piece * WIDTH;
    const Index stop = TB_LEAST(begin + WIDTH, (Index)args.image[2]);
    T sums[WIDTH];
    for (Index x = 0; x < stop - begin; ++x) sums[x] = 0;
#else
    T sum = 0;
#endif
    for (Index kd = 0; kd < (Index)args.extent[0]; ++kd) {
      const Index dz = z + (Index)args.padding[0] - kd * (Index)args.dilation[0];
      const Index d = dz / (Index)args.stride[0];
      if (dz < 0 || d * (Index)args.stride[0] != dz || d >= (Index)args.windows[0]) continue;
      for (Index kh = 0; kh < (Index)args.extent[1]; ++kh) {
        const Index dy = y + (Index)args.padding[1] - kh * (Index)args.dilation[1];
        const Index h = dy / (Index)args.stride[1];
        if (dy < 0 || h * (Index)args.stride[1] != dy || h >= (Index)args.windows[1]) continue;
        for (Index kw = 0; kw < (Index)args.extent[2]; ++kw) {
          const Index row = ((channel * (Index)args.extent[0] + kd) * (Index)args.extent[1] + kh) * (Index)args.extent[2] + kw;
          const Index from = batch * (Index)args.column_strides[0] + row * (Index)args.column_strides[1] +
                             (d * (Index)args.windows[1] + h) * across;
          const Index offset = kw * (Index)args.dilation[2] - (Index)args.padding[2];
#ifdef TB_CHUNKED
          const Index first = FIRST_WINDOW(begin, offset);
          const Index end = TB_LEAST(FIRST_WINDOW(stop, offset), across);
          for (Index w = first; w < end; ++w)
            sums[w * STRIDE + offset - begin] += (T)TB_LOAD_AS(IMAGE, p1, from + w);
#else
          const Index dx = piece - offset;
          const Index w = dx / STRIDE;
          if (dx >= 0 && w * STRIDE == dx && w < across) sum += (T)TB_LOAD_AS(IMAGE, p1, from + w);
#endif
        }
      }
    }
#ifdef TB_CHUNKED
    for (Index x = begin; x < stop; ++x) TB_STORE_AS(IMAGE, p0, to + x * (Index)(IMAGE_STEP), sums[x - begin]);
#else
    TB_STORE_AS(IMAGE, p0, to + piece * (Index)(IMAGE_STEP), sum);
#endif
  }
} TB_END
#endif
