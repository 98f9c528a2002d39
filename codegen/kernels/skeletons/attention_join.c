// Results of attention to some of the places each, put together: the last step where a few rows have many places.
//
// WIDTH      of a row
// TYPE       how the result is stored
//
// p0 the greatest score of each row and part, and the sum of its weights, [batch, part, head, row, 2]; p1 results, [batch,
// part, head, row, WIDTH], both of floats; p2 logarithms [batch, heads, rows], p3 the result.

typedef struct {
  i64 batches, heads, rows, parts;
  i64 out[4];
  i64 logarithms[2];
} Args;

TB_KERNEL(attention_join) {
  TB_FOR(i, (Index)(args.batches * args.heads * args.rows * WIDTH)) {
    Index batch = i;
    TB_SPLIT(batch, d, WIDTH)
    TB_SPLIT(batch, row, args.rows)
    TB_SPLIT(batch, head, args.heads)
    const Index step = (Index)(args.heads * args.rows), parts = (Index)args.parts;
    const Index first = batch * parts * step + head * (Index)args.rows + row;
    f32 top = -INFINITY;
    for (Index part = 0; part < parts; ++part) {
      const f32 own = TB_LOAD_f32(p0, 2 * (first + part * step));
      top = own > top ? own : top;
    }
    const f32 shift = top == -INFINITY ? 0 : top;
    f32 total = 0, sum = 0;
    for (Index part = 0; part < parts; ++part) {
      const Index at = first + part * step;
      const f32 weight = exp(TB_LOAD_f32(p0, 2 * at) - shift) * TB_LOAD_f32(p0, 2 * at + 1);
      total += weight;
      sum += weight * TB_LOAD_f32(p1, at * WIDTH + d);
    }
    TB_STORE_AS(TYPE, p3,
                (i64)batch * args.out[0] + (i64)head * args.out[1] + (i64)row * args.out[2] + (i64)d * args.out[3],
                total == 0 ? 0 : sum / total);
    if (d == 0) {
      TB_STORE_f32(p2, (i64)batch * args.logarithms[0] + (i64)head * args.logarithms[1] + row, shift + log(total));
    }
  }
} TB_END
