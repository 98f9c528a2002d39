// Attention without a matrix of scores, as FlashAttention-2 has it (Dao, 2023): softmax(scale * query @ key^T + bias) @ value and
// its gradients, a tile of scores at a time. Goes after "philox strips". Queries [batch, heads, rows, WIDTH_A], keys [batch,
// heads / shared, places, WIDTH_A], values [batch, heads / shared, places, WIDTH_B] of any strides.
//
// A block has a tile of rows of one side, its own, and goes along those of the other side: what it adds up is its own alone, so
// that sums have one order. Each of a row's A is multiplied with the other side's for scores, each B for gradients of weights.
//
// FORWARD         the result, and the logarithm of each row's sum. The sums' weights are relative to the greatest score so far
// GRAD_QUERY      own are queries; also writes two numbers of each row: delta, the sum of the result times its gradient, and what
//                 weights that the row's logarithm gives are to be multiplied by. It is 1 but for rounding, which in a row whose
//                 scores are all near the least float, as only a bias makes them, loses how many there are. Side by side, and
//                 without a bias, it is the row's logarithm
// GRAD_KEYS       own are keys, after GRAD_QUERY; writes the gradients of values too
// TYPE, BIAS      how values are stored; BIAS where there is one, and b8 where it says what stays
// CAUSAL          not 0: keys after the query's place are left out, and where it is moved on by args.latest
// WINDOW          not 0: so are those that lie before the query's place and args.earliest
// VARLEN          not 0: rows of all sequences lie one after the other, from p12 on queries and from p13 on keys, of which p14
//                 says how many if USED; the last places of both are the same
// PAGED           not 0: keys and values are [page, head, place in it, element], and p15 [sequence, number] are its pages
// DROPOUT         not 0: weight i, counted along [batch, heads, rows, places], is dropped as element i of a mask by random.c is
// STEP_query, ... how far neighbours of a row are apart
// OWN_MOST, OTHERS_MOST  rows of a tile
// PARTS           not 0, of FORWARD: a block has some of the places, and writes floats that attention_join.c puts together
// MATRICES        not 0: matrix units multiply, of values of two bytes; STAGES tiles of the other side are near, at most 2
//
// p0 query, p1 key, p2 value, p3 bias, p4 logarithms [batch, heads, rows], p5 result, p6 seed, p7 offset, p8 gradient of the
// result, p9 those of each row, and OTHERS_MOST more, p10 gradient of query or key, p11 that of value.

typedef struct {
  i64 batches, heads, shared, rows, places;
  i64 query[4], key[4], value[4], out[4], bias[4]; // strides by batch, head, row and element, of bias by place
  i64 grad_out[4], grad_query[4], grad_key[4], grad_value[4];
  i64 logarithms[2]; // by batch and head
  i64 below; // a number that is less than it keeps a weight
  i64 parts, part_size; // of the places
  i64 earliest, latest;
  i64 pages, page; // of a sequence at most, and places of each
  tb_scalar scalars[2]; // scale, and what weights that stay are multiplied by
} Args;

#define SCALE ((T)TB_SCALAR(0))
#define KEEP_SCALE ((T)TB_SCALAR(1))

// Of the batch and head at hand.
#define HERE(p, what, batch, head) ((p) + (BEGIN_##what(batch) + (i64)(head) * args.what[1]) * TYPE_BYTES)
#if VARLEN
#define BEGIN_OF_ROWS(what, batch) (first_of_rows * args.what[2])
#define BEGIN_OF_PLACES(what, batch) (first_of_places * args.what[2])
#define LOGARITHMS(batch, head) (first_of_rows + (head) * args.logarithms[1])
#define DELTAS(batch, head) LOGARITHMS(batch, head)
#else
#define BEGIN_OF_ROWS(what, batch) ((i64)(batch) * args.what[0])
#define BEGIN_OF_PLACES BEGIN_OF_ROWS
#define LOGARITHMS(batch, head) ((batch) * args.logarithms[0] + (head) * args.logarithms[1])
#define DELTAS(batch, head) (((batch) * args.heads + (head)) * args.rows)
#endif
#define BEGIN_query(batch) BEGIN_OF_ROWS(query, batch)
#define BEGIN_out(batch) BEGIN_OF_ROWS(out, batch)
#define BEGIN_grad_out(batch) BEGIN_OF_ROWS(grad_out, batch)
#define BEGIN_grad_query(batch) BEGIN_OF_ROWS(grad_query, batch)
#define BEGIN_key(batch) BEGIN_OF_PLACES(key, batch)
#define BEGIN_value(batch) BEGIN_OF_PLACES(value, batch)
#define BEGIN_grad_key(batch) BEGIN_OF_PLACES(grad_key, batch)
#define BEGIN_grad_value(batch) BEGIN_OF_PLACES(grad_value, batch)
#define ROW_OF(what, row) ((row) * (Index)args.what[2])
#if PAGED
#define ROW_OF_PAGES(what, row)                                                                              \
  (TB_LOAD_i32(p15, batch * args.pages + (row) / (Index)args.page) * (Index)args.what[0] +                   \
   (row) % (Index)args.page * (Index)args.what[2])
#else
#define ROW_OF_PAGES ROW_OF
#endif
#define ROW_OF_query(row) ROW_OF(query, row)
#define ROW_OF_out(row) ROW_OF(out, row)
#define ROW_OF_grad_out(row) ROW_OF(grad_out, row)
#define ROW_OF_grad_query(row) ROW_OF(grad_query, row)
#define ROW_OF_key(row) ROW_OF_PAGES(key, row)
#define ROW_OF_value(row) ROW_OF_PAGES(value, row)
#define ROW_OF_grad_key(row) ROW_OF(grad_key, row)
#define ROW_OF_grad_value(row) ROW_OF(grad_value, row)
#define AT_(what, row, d) (ROW_OF_##what(row) + (d) * (Index)(STEP_##what))
#define LOAD_(what, row, d) ((T)TB_LOAD_AS(TYPE, what, AT_(what, row, d)))
#define LOAD(what, row, d) LOAD_(what, row, d)
#define STORE(what, row, d, x) TB_STORE_AS(RESULT, what, AT_(what, row, d), x)
#if PARTS
#define RESULT f32
#define RESULT_BYTES 4
#else
#define RESULT TYPE
#define RESULT_BYTES TYPE_BYTES
#endif

#if VARLEN
#define ROWS number_of_rows
#define PLACES number_of_places
#define LATEST latest
#define SEQUENCE                                                                                             \
  const i64 first_of_rows = TB_LOAD_i32(p12, batch);                                                         \
  const i64 first_of_places = PAGED ? 0 : TB_LOAD_i32(p13, batch);                                           \
  const Index ROWS = (Index)(TB_LOAD_i32(p12, batch + 1) - first_of_rows);                                   \
  const Index PLACES = (Index)(USED ? TB_LOAD_i32(p14, batch) : TB_LOAD_i32(p13, batch + 1) - first_of_places); \
  const Index latest = PLACES - ROWS + (Index)args.latest, earliest = PLACES - ROWS + (Index)args.earliest;  \
  (void)latest;                                                                                              \
  (void)earliest;
#define IS_BESIDE_SEQUENCE(first) ((first) >= (Index)OWN_ROWS)
#else
#define ROWS args.rows
#define PLACES args.places
#define LATEST 0
#define SEQUENCE
#define IS_BESIDE_SEQUENCE(first) 0
#endif

#if GRAD_KEYS
#define OWN_A key
#define OWN_B value
#define OTHER_A query
#define OTHER_B grad_out
#define OWN_ROWS PLACES
#define OTHER_ROWS ROWS
#define MOST_OWN_ROWS args.places
#define QUERY_OF(own, other) (other)
#define KEY_OF(own, other) (own)
#define HEADS (args.heads / args.shared)
#define FIRST_OTHER(first) (CAUSAL ? TB_LEAST(TB_MOST((first) - LATEST, 0), (Index)ROWS) : 0)
#define LAST_OTHER(last) (WINDOW ? TB_LEAST((last) - EARLIEST, (Index)ROWS) : (Index)ROWS)
#else
#define OWN_A query
#define OWN_B grad_out
#define OTHER_A key
#define OTHER_B value
#define OWN_ROWS ROWS
#define OTHER_ROWS PLACES
#define MOST_OWN_ROWS args.rows
#define QUERY_OF(own, other) (own)
#define KEY_OF(own, other) (other)
#define HEADS args.heads
#define FIRST_OTHER(first) (WINDOW ? TB_MOST((first) + EARLIEST, 0) : 0)
#define LAST_OTHER(last) (CAUSAL ? TB_LEAST((last) + LATEST, (Index)PLACES) : (Index)PLACES)
#endif
#if WINDOW
#define EARLIEST earliest
#else
#define EARLIEST 0
#endif
#define BACKWARD (GRAD_QUERY || GRAD_KEYS)

#if !defined(BIAS)
#define BIASED(x, q, k) (x)
#elif BIAS_SELECTS
#define BIASED(x, q, k) (TB_LOAD_AS(BIAS, bias, BIAS_AT(q, k)) ? (x) : (T)(-INFINITY))
#else
#define BIASED(x, q, k) ((x) + (T)TB_LOAD_AS(BIAS, bias, BIAS_AT(q, k)))
#endif
#define BIAS_AT(q, k) ((q) * (Index)args.bias[2] + (k) * (Index)args.bias[3])
#define SCALED(x, q, k) BIASED((x) * scale, q, k)
#define IS_LEFT_OUT(q, k) ((CAUSAL && (k) > (q) + LATEST) || (WINDOW && (k) < (q) + EARLIEST))
#define SCORE(x, q, k) (IS_LEFT_OUT(q, k) ? (T)(-INFINITY) : SCALED(x, q, k))

#if DROPOUT
TB_DEVICE int is_kept(u64 seed, u64 offset, u64 i, i64 below) {
  u32 w[4];
  tb_philox(seed, offset / 4, i / 4, w);
  const u32 low = i & 1 ? w[1] : w[0], high = i & 1 ? w[3] : w[2];
  return (i64)(i & 2 ? high : low) < below;
}
#define KEPT(x, q, k) \
  (is_kept(seed, offset, ((u64)(weights_before + (i64)(q))) * (u64)args.places + (u64)(k), args.below) ? (x) * KEEP_SCALE : 0)
#else
#define KEPT(x, q, k) (x)
#endif

#if PARTS
#define BATCHES (args.batches * args.parts)
#else
#define BATCHES args.batches
#endif
// A tile's place: causal ones from those with the most work on, and heads beside each other.
#define LOCATE                                                                              \
  const Index heads = (Index)(BATCHES * HEADS);                                             \
  const Index turn = tile / heads;                                                          \
  const Index first = (CAUSAL && !GRAD_KEYS ? tiles - 1 - turn : turn) * OWN_MOST;          \
  const i64 batch_and_part = (i64)(tile % heads) / HEADS;                                   \
  const i64 batch = PARTS ? batch_and_part / args.parts : batch_and_part;                   \
  const i64 own_head = (i64)(tile % heads) % HEADS;                                         \
  SEQUENCE                                                                                  \
  if (IS_BESIDE_SEQUENCE(first)) continue;                                                  \
  const Index own_count = TB_LEAST((Index)OWN_MOST, (Index)OWN_ROWS - first);               \
  const Index which = (Index)(batch_and_part - batch * args.parts);                         \
  const Index begin_part = PARTS ? which * (Index)args.part_size : 0;                       \
  const Index begin_others = PARTS ? begin_part : FIRST_OTHER(first);                       \
  const Index last_other = LAST_OTHER(first + own_count);                                   \
  const Index end_others = PARTS ? TB_LEAST(begin_part + (Index)args.part_size, last_other) : last_other;
// Of all heads that a block comes to, one after the other.
#if GRAD_KEYS
#define FOR_HEADS for (i64 head = own_head * args.shared; head < (own_head + 1) * args.shared; ++head)
#else
#define FOR_HEADS for (i64 head = own_head; head <= own_head; ++head)
#endif
#define TENSORS                                                                              \
  TB_GLOBAL char* const query = HERE(p0, query, batch, head);                                \
  TB_GLOBAL char* const key = HERE(p1, key, batch, head / args.shared);                      \
  TB_GLOBAL char* const value = HERE(p2, value, batch, head / args.shared);                  \
  const i64 logarithms = LOGARITHMS(batch, head);                                            \
  TENSORS_OF_BIAS TENSORS_OF_DROPOUT TENSORS_OF_GRADIENTS
#ifdef BIAS
#define TENSORS_OF_BIAS TB_GLOBAL char* const bias = p3 + (batch * args.bias[0] + head * args.bias[1]) * BIAS_BYTES;
#else
#define TENSORS_OF_BIAS
#endif
#if DROPOUT
#define TENSORS_OF_DROPOUT                                                                          \
  const u64 seed = (u64)TB_LOAD_i64(p6, 0), offset = (u64)TB_LOAD_i64(p7, 0);                       \
  const i64 weights_before = (batch * args.heads + head) * args.rows;
#else
#define TENSORS_OF_DROPOUT
#endif
#if BACKWARD
#define TENSORS_OF_GRADIENTS                                          \
  TB_GLOBAL char* const grad_out = HERE(p8, grad_out, batch, head);   \
  const i64 deltas = DELTAS(batch, head);
#else
#define TENSORS_OF_GRADIENTS
#endif
// Weights of a row without any are 0, and so are those of a row that there is not.
#define LOGARITHM(to, row)                                     \
  T to = (T)TB_LOAD_f32(p4, logarithms + (i64)(row));          \
  to = to == (T)(-INFINITY) ? (T)INFINITY : to;

#if GRAD_QUERY
#define RESULTS TB_GLOBAL char* const grad_query = HERE(p10, grad_query, batch, own_head);
#elif GRAD_KEYS
#define RESULTS                                                                   \
  TB_GLOBAL char* const grad_key = HERE(p10, grad_key, batch, own_head);          \
  TB_GLOBAL char* const grad_value = HERE(p11, grad_value, batch, own_head);
#else
#define RESULTS
#endif

#ifdef TB_CHUNKED

// A lane is an own row: tiles of scores are [other][own], in panels of PANEL own rows, and so are sums, [element][own].
#define PADDED(width) (((width) + STRIP - 1) / STRIP * STRIP)
#define PITCH_A PADDED(WIDTH_A)
#define PITCH_B PADDED(WIDTH_B)
TB_STRIP_PRODUCT(add_scores_A, PITCH_A, 1)
TB_STRIP_PRODUCT(add_elements_A, 1, PITCH_A)
TB_STRIP_PRODUCT(add_scores_B, PITCH_B, 1)
TB_STRIP_PRODUCT(add_elements_B, 1, PITCH_B)

#define NEAR(name, count)                           \
  TB_LOCAL_ARRAY(V, name##_of, (count) / LANES);    \
  TB_LOCAL T* const name = (TB_LOCAL T*)name##_of;
#define FILL(to, count, x) for (Index i = 0; i < (count); ++i) to[i] = (x);
#define FETCH_OWN(W, to, what)                                                                     \
  for (Index i = 0; i < panels * PANEL; ++i)                                                       \
    for (Index d = 0; d < WIDTH_##W; ++d)                                                          \
      to[(i / PANEL * WIDTH_##W + d) * PANEL + i % PANEL] = i < own_count ? LOAD(what, first + i, d) : 0;
#define FETCH_OTHERS(W, to, what)                                                                  \
  for (Index i = 0; i < strips * STRIP; ++i) {                                                     \
    TB_LOCAL T* const row = to + i * PITCH_##W;                                                    \
    if (i < others) {                                                                              \
      for (Index d = 0; d < WIDTH_##W; ++d) row[d] = LOAD(what, begin + i, d);                     \
    } else {                                                                                       \
      for (Index d = 0; d < WIDTH_##W; ++d) row[d] = 0;                                            \
    }                                                                                              \
  }
// The elements that there are not, of all rows.
#define FILL_PADDING(W, to)                                                                        \
  for (Index i = 0; i < OTHERS_MOST; ++i)                                                          \
    for (Index d = WIDTH_##W; d < PITCH_##W; ++d) to[i * PITCH_##W + d] = 0;
#define FETCH_SCORES(W, to, own, other)                                                            \
  for (Index panel = 0; panel < panels; ++panel) {                                                 \
    FILL((to + panel * OTHERS_MOST * PANEL), strips * STRIP * PANEL, 0)                            \
    for (Index strip = 0; strip < strips; ++strip)                                                 \
      add_scores_##W(WIDTH_##W, other + strip * STRIP * PITCH_##W, own##_of + panel * WIDTH_##W * 2, \
                     to##_of + (panel * OTHERS_MOST + strip * STRIP) * 2);                         \
  }
#define ADD_ELEMENTS(W, to, weights, other)                                                        \
  for (Index panel = 0; panel < panels; ++panel)                                                   \
    for (Index d = 0; d < PITCH_##W; d += STRIP)                                                   \
      add_elements_##W(others, other + d, weights##_of + panel * OTHERS_MOST * 2, to##_of + (panel * PITCH_##W + d) * 2);
#define STORE_SUMS(W, to, sums, factor)                                                            \
  for (Index i = 0; i < own_count; ++i)                                                            \
    for (Index d = 0; d < WIDTH_##W; ++d)                                                          \
      STORE(to, first + i, d, sums[(i / PANEL * PITCH_##W + d) * PANEL + i % PANEL] * (factor));
// Of the panel; `own` is a row that there is.
#define FOR_LANES for (Index l = 0; l < PANEL; ++l)
#define OWN_OF_LANE TB_LEAST(first + panel * PANEL + l, (Index)OWN_ROWS - 1)

TB_KERNEL(attention) {
  NEAR(own_a, OWN_MOST * WIDTH_A)
  NEAR(scores, OWN_MOST * OTHERS_MOST)
  TB_LOCAL_ARRAY(T, other_a, OTHERS_MOST * PITCH_A);
  TB_LOCAL_ARRAY(T, other_b, OTHERS_MOST * PITCH_B);
  FILL_PADDING(A, other_a)
  FILL_PADDING(B, other_b)
#if FORWARD || GRAD_KEYS
  NEAR(sums_b, OWN_MOST * PITCH_B)
#endif
#if BACKWARD
  NEAR(sums_a, OWN_MOST * PITCH_A)
  NEAR(own_b, OWN_MOST * WIDTH_B)
  NEAR(changes, OWN_MOST * OTHERS_MOST)
#endif
#if !GRAD_KEYS
  TB_LOCAL_ARRAY(T, tops, OWN_MOST); // FORWARD: the greatest score of each row; GRAD_QUERY: its logarithm
  TB_LOCAL_ARRAY(T, totals, OWN_MOST); // FORWARD: the sum of its weights; GRAD_QUERY: its delta
#endif
#if GRAD_QUERY
  TB_LOCAL_ARRAY(T, given, OWN_MOST); // the sum of the weights that a row's logarithm gives
#endif
  const T scale = SCALE;
  const Index tiles = ((Index)MOST_OWN_ROWS + OWN_MOST - 1) / OWN_MOST;
  TB_FOR_BLOCKS(tile, tiles * (Index)(BATCHES * HEADS)) {
    LOCATE
    const Index panels = (own_count + PANEL - 1) / PANEL;
#if FORWARD
    FILL(tops, OWN_MOST, (T)(-INFINITY))
    FILL(totals, OWN_MOST, 0)
#endif
#if FORWARD || GRAD_KEYS
    FILL(sums_b, panels * PITCH_B * PANEL, 0)
#endif
#if BACKWARD
    FILL(sums_a, panels * PITCH_A * PANEL, 0)
#endif
    FOR_HEADS {
      TENSORS
#if GRAD_KEYS
      if (head == own_head * args.shared)
#endif
      {
        FETCH_OWN(A, own_a, OWN_A)
#if BACKWARD
        FETCH_OWN(B, own_b, OWN_B)
#endif
      }
#if GRAD_QUERY
      TB_GLOBAL char* const out = HERE(p5, out, batch, head);
      for (Index i = 0; i < panels * PANEL; ++i) {
        tops[i] = (T)INFINITY;
        totals[i] = 0;
        given[i] = 0;
        if (i < own_count) {
          LOGARITHM(logarithm, first + i)
          T delta = 0;
          for (Index d = 0; d < WIDTH_B; ++d)
            delta += own_b[(i / PANEL * WIDTH_B + d) * PANEL + i % PANEL] * LOAD(out, first + i, d);
          TB_STORE_f32(p9, 2 * (deltas + (i64)(first + i)), delta);
          tops[i] = logarithm;
          totals[i] = delta;
        }
      }
#endif
      for (Index begin = begin_others; begin < end_others; begin += OTHERS_MOST) {
        const Index others = TB_LEAST((Index)OTHERS_MOST, end_others - begin);
        const Index strips = (others + STRIP - 1) / STRIP;
        FETCH_OTHERS(A, other_a, OTHER_A)
        FETCH_OTHERS(B, other_b, OTHER_B)
        FETCH_SCORES(A, scores, own_a, other_a)
#if BACKWARD
        FETCH_SCORES(B, changes, own_b, other_b)
#endif
        for (Index panel = 0; panel < panels; ++panel) {
#if FORWARD
          TB_LOCAL T* const top = tops + panel * PANEL;
          TB_LOCAL T* const total = totals + panel * PANEL;
          T shift[PANEL], factor[PANEL];
          FOR_LANES factor[l] = top[l];
          for (Index j = 0; j < others; ++j) {
            TB_LOCAL T* const s = scores + (panel * OTHERS_MOST + j) * PANEL;
            FOR_LANES {
              const T x = SCORE(s[l], OWN_OF_LANE, begin + j);
              s[l] = x;
              top[l] = x > top[l] ? x : top[l];
            }
          }
          FOR_LANES {
            shift[l] = top[l] == (T)(-INFINITY) ? 0 : top[l];
            factor[l] = exp(factor[l] - shift[l]);
            total[l] *= factor[l];
          }
          for (Index j = 0; j < others; ++j) {
            TB_LOCAL T* const s = scores + (panel * OTHERS_MOST + j) * PANEL;
            FOR_LANES {
              const T weight = exp(s[l] - shift[l]);
              total[l] += weight;
              s[l] = KEPT(weight, OWN_OF_LANE, begin + j);
            }
          }
          for (Index d = 0; d < PITCH_B; ++d)
            FOR_LANES sums_b[(panel * PITCH_B + d) * PANEL + l] *= factor[l];
#else
          for (Index j = 0; j < others; ++j) {
            TB_LOCAL T* const s = scores + (panel * OTHERS_MOST + j) * PANEL;
            TB_LOCAL T* const change = changes + (panel * OTHERS_MOST + j) * PANEL;
#if GRAD_KEYS
            LOGARITHM(logarithm, begin + j)
            const T delta = (T)TB_LOAD_f32(p9, 2 * (deltas + (i64)(begin + j)));
            const T part = (T)TB_LOAD_f32(p9, 2 * (deltas + (i64)(begin + j)) + 1);
#else
            const T part = 1;
#endif
            FOR_LANES {
#if GRAD_QUERY
              const T logarithm = tops[panel * PANEL + l], delta = totals[panel * PANEL + l];
#endif
              const Index q = QUERY_OF(OWN_OF_LANE, begin + j), k = KEY_OF(OWN_OF_LANE, begin + j);
              const T weight = exp(SCORE(s[l], q, k) - logarithm) * part;
#if GRAD_QUERY
              given[panel * PANEL + l] += weight;
#endif
              s[l] = KEPT(weight, q, k);
              change[l] = weight * (KEPT(change[l], q, k) - delta);
            }
          }
#endif
        }
#if FORWARD || GRAD_KEYS
        ADD_ELEMENTS(B, sums_b, scores, other_b)
#endif
#if BACKWARD
        ADD_ELEMENTS(A, sums_a, changes, other_a)
#endif
      }
#if FORWARD
      TB_GLOBAL char* const out = HERE(p5, out, batch, head);
      STORE_SUMS(B, out, sums_b, totals[i] == 0 ? 0 : 1 / totals[i])
      for (Index i = 0; i < own_count; ++i)
        TB_STORE_f32(p4, logarithms + (i64)(first + i), tops[i] == (T)(-INFINITY) ? log(totals[i]) : tops[i] + log(totals[i]));
#elif GRAD_QUERY
      for (Index i = 0; i < own_count; ++i) {
        given[i] = given[i] == 0 ? 0 : 1 / given[i];
        TB_STORE_f32(p9, 2 * (deltas + (i64)(first + i)) + 1, given[i]);
      }
#endif
    }
    RESULTS
#if GRAD_QUERY
    STORE_SUMS(A, grad_query, sums_a, SCALE * given[i])
#elif GRAD_KEYS
    STORE_SUMS(A, grad_key, sums_a, SCALE)
    STORE_SUMS(B, grad_value, sums_b, 1)
#endif
  }
} TB_END

#else

#ifdef TB_HAS_VECTORS
#define QUAD tb_bytes<16>
#else
#define QUAD float4
#endif
#define NEAR(type, name, count)                                         \
  TB_LOCAL_ARRAY(QUAD, name##_of, ((count) * (int)sizeof(type) + 15) / 16); \
  TB_LOCAL type* const name = (TB_LOCAL type*)name##_of;
#define UNROLLED(i, count) TB_UNROLL for (int i = 0; i < (count); ++i)

#if MATRICES

// A warp has ROWS_EACH * 8 own rows, as matrix units want them: an item has of each 16 two that are 8 apart, and of each 8 rows
// of the other side, and of each 8 elements, two that are neighbours. All that is multiplied lies near, and weights are as the
// item that has made them needs them.
#define OTHERS_EACH (OTHERS_MOST / 4)
#define PADDED(W) ((WIDTH_##W + 15) / 16 * 16)
#define PITCH(W) (PADDED(W) + 8) // so that neighbouring rows do not lie in the same banks
#define EACH_A (PADDED(A) / 4)
#define EACH_B (PADDED(B) / 4)
#define PLACE(n) ((n) / 2 * 8 + across * 2 + (n) % 2)
#define OWN_ROW(i) (item / 32 * ROWS_EACH * 8 + (i) / 2 * 16 + (i) % 2 * 8 + down % 8)
#define OTHER_ROW(j) PLACE(j)
#define ELEMENT(W, e) PLACE(e)
// Scores are multiplied by UNIT. That of a bias could overflow.
#ifdef BIAS
#define UNIT 1
#define EXP(x) tb_exp2_of_halves((x) * TC(1.4426950408889634))
#else
#define UNIT TC(1.4426950408889634)
#define EXP(x) tb_exp2_of_halves(x)
#endif

#if BACKWARD
#define NEAR_OWN_B NEAR(u16, near_own_B, OWN_MOST * PITCH(B))
#define FETCH_OWN_B FETCH(near_own_B, B, OWN_B, first, (Index)OWN_ROWS, OWN_MOST)
#else
#define NEAR_OWN_B
#define FETCH_OWN_B
#endif
#define LOCALS                                        \
  NEAR(u16, near_own_A, OWN_MOST * PITCH(A))          \
  NEAR(u16, near_other_A, STAGES * OTHERS_MOST * PITCH(A)) \
  NEAR(u16, near_other_B, STAGES * OTHERS_MOST * PITCH(B)) \
  NEAR_OWN_B
// `count` rows, those before `last`, and 0 for what there is not.
#if VECTORS
#define FETCH(to, W, what, first_row, last, count)                                                  \
  UNROLLED(turn, ((count) * (PADDED(W) / 8) + ITEMS - 1) / ITEMS) {                                 \
    const int i = turn * ITEMS + item, row = i / (PADDED(W) / 8), d = i % (PADDED(W) / 8) * 8;      \
    const int is_there = (first_row) + row < (last) && d < WIDTH_##W;                               \
    if (row < (count))                                                                              \
      tb_begin_fetch(to + row * PITCH(W) + d, is_there ? what + (i64)AT_(what, (first_row) + row, d) * TYPE_BYTES : what, \
                     is_there);                                                                     \
  }
#else
#define FETCH(to, W, what, first_row, last, count)                                                  \
  for (int i = item; i < (count) * PADDED(W); i += ITEMS) {                                         \
    const int row = i / PADDED(W), d = i % PADDED(W);                                               \
    const int is_there = (first_row) + row < (last) && d < WIDTH_##W;                               \
    (to)[row * PITCH(W) + d] = is_there ? ((const u16*)what)[(i64)AT_(what, (first_row) + row, d)] : (u16)0; \
  }
#endif
#define FETCH_OWN                                                     \
  TB_BARRIER();                                                       \
  FETCH(near_own_A, A, OWN_A, first, (Index)OWN_ROWS, OWN_MOST)       \
  FETCH_OWN_B
#define BEGIN_TILE(from, stage)                                                                                  \
  FETCH(near_other_A + (stage) * (OTHERS_MOST * PITCH(A)), A, OTHER_A, from, (Index)OTHER_ROWS, OTHERS_MOST)     \
  FETCH(near_other_B + (stage) * (OTHERS_MOST * PITCH(B)), B, OTHER_B, from, (Index)OTHER_ROWS, OTHERS_MOST)     \
  tb_begin_group();
// The next tile comes while this one is worked on.
#define FETCH_OTHERS                                                                       \
  const int stage = (int)((begin - begin_others) / OTHERS_MOST % STAGES);                  \
  TB_BARRIER();                                                                            \
  if (STAGES == 1 || begin == begin_others) {                                              \
    BEGIN_TILE(begin, stage)                                                               \
  }                                                                                        \
  if (STAGES > 1 && begin + OTHERS_MOST < end_others) {                                    \
    BEGIN_TILE(begin + OTHERS_MOST, 1 - stage)                                             \
    tb_await_groups(1);                                                                    \
  } else {                                                                                 \
    tb_await_groups(0);                                                                    \
  }                                                                                        \
  TB_BARRIER();

#define PAIR(x) TB_PASTE(tb_pair_, TYPE)((x)[0], (x)[1])
// To ROWS_EACH rows of `to`, the 16 columns from 4 * n of what an item has of them.
#define ADD_PRODUCTS(to, n, left, right)                                                            \
  UNROLLED(m, ROWS_EACH / 2) UNROLLED(half, 2) {                                                    \
    T* const top = to[2 * m] + 4 * (n) + 2 * half;                                                  \
    T* const bottom = to[2 * m + 1] + 4 * (n) + 2 * half;                                           \
    TB_PASTE(tb_add_product_, TYPE)(top[0], top[1], bottom[0], bottom[1], left[m], right[2 * half], right[2 * half + 1]); \
  }
#define ADD_SCORES(W, to, own, other)                                                               \
  UNROLLED(k, PADDED(W) / 16) {                                                                     \
    u32 left[ROWS_EACH / 2][4];                                                                     \
    UNROLLED(m, ROWS_EACH / 2)                                                                      \
      tb_fetch_matrices(left[m], near_own_##W + (item / 32 * ROWS_EACH * 8 + m * 16 + item % 16) * PITCH(W) +  \
                                     k * 16 + item / 16 % 2 * 8);                                   \
    UNROLLED(n, OTHERS_MOST / 16) {                                                                 \
      u32 right[4];                                                                                 \
      tb_fetch_matrices(right, near_other_##W + (stage * OTHERS_MOST + n * 16 + item / 16 % 2 * 8 + item % 8) * PITCH(W) + \
                                   k * 16 + item / 8 % 2 * 8);                                      \
      ADD_PRODUCTS(to, n, left, right)                                                              \
    }                                                                                               \
  }
#define ADD_ELEMENTS(W, to, weights, other)                                                         \
  UNROLLED(k, OTHERS_MOST / 16) {                                                                   \
    u32 left[ROWS_EACH / 2][4];                                                                     \
    UNROLLED(m, ROWS_EACH / 2) UNROLLED(part, 4)                                                    \
      left[m][part] = PAIR(weights[2 * m + part % 2] + 4 * k + part / 2 * 2);                       \
    UNROLLED(n, PADDED(W) / 16) {                                                                   \
      u32 right[4];                                                                                 \
      tb_fetch_transposed(right, near_other_##W + (stage * OTHERS_MOST + k * 16 + item % 16) * PITCH(W) + n * 16 + item / 16 % 2 * 8); \
      ADD_PRODUCTS(to, n, left, right)                                                              \
    }                                                                                               \
  }

#else

// Items lie in a square, or in twice as many rows, of SIDE columns: each has ROWS_EACH own rows beside each other and
// OTHERS_EACH of the other side, which lie SIDE apart, and of sums elements of its own rows. Both sides come DEPTH elements at a
// time where scores are made, and the other side SIDE rows at a time where it is added up.
#define OTHERS_EACH 4
#define PITCH_OWN (OWN_MOST + 4)
#define PITCH_OTHER (OTHERS_MOST + 4)
#define EACH_A ((WIDTH_A + SIDE - 1) / SIDE)
#define EACH_B ((WIDTH_B + SIDE - 1) / SIDE)
#define OWN_ROW(i) (down * ROWS_EACH + (i))
#define OTHER_ROW(j) (across + (j) * SIDE)
// Four elements beside each other are one access.
#define TOGETHER(W) (EACH_##W % 4 == 0 ? 4 : 1)
#define ELEMENT(W, e) ((e) / TOGETHER(W) * SIDE * TOGETHER(W) + across * TOGETHER(W) + (e) % TOGETHER(W))
#define UNIT 1
#define EXP(x) exp(x)
#define LOCALS                                              \
  NEAR(T, own_part, TB_MOST(DEPTH, SIDE) * PITCH_OWN)       \
  NEAR(T, other_part, DEPTH * PITCH_OTHER)                  \
  NEAR(T, rows_part, SIDE * SIDE * TB_MOST(EACH_A, EACH_B))
#define FETCH_OWN
#define FETCH_OTHERS

// Elements [from, from + span) of `count` rows, those before `last`, and 0 for what there is not: PUT(row, d, x) each.
#if VECTORS && defined(TB_HAS_VECTORS)
#define PER (16 / TYPE_BYTES)
#define FETCH(what, first_row, last, count, from, span, width, PUT)                                          \
  for (int i = item; i < (count) * ((span) / PER); i += ITEMS) {                                             \
    const int row = i / ((span) / PER), d = i % ((span) / PER) * PER;                                        \
    tb_bytes<16> here = {};                                                                                  \
    if ((first_row) + row < (last) && (from) + d < (width))                                                  \
      here = *(const tb_bytes<16>*)(what + (i64)AT_(what, (first_row) + row, (from) + d) * TYPE_BYTES);      \
    UNROLLED(e, PER) PUT(row, d + e, (T)TB_LOAD_AS(TYPE, (char*)&here, e));                                  \
  }
#else
#define FETCH(what, first_row, last, count, from, span, width, PUT)                                          \
  for (int i = item; i < (count) * (span); i += ITEMS) {                                                     \
    const int row = i / (span), d = i % (span);                                                              \
    PUT(row, d, (first_row) + row < (last) && (from) + d < (width) ? LOAD(what, (first_row) + row, (from) + d) : (T)0); \
  }
#endif
#define PUT_OWN(row, d, x) own_part[(d) * PITCH_OWN + (row)] = x
#define PUT_OTHER(row, d, x) other_part[(d) * PITCH_OTHER + (row) % SIDE * OTHERS_EACH + (row) / SIDE] = x
#define PUT_ROW(row, d, x) rows_part[(row) * pitch + (d)] = x

#define ADD_SCORES(W, to, own, other)                                                                        \
  for (int from = 0; from < WIDTH_##W; from += DEPTH) {                                                      \
    TB_BARRIER();                                                                                            \
    FETCH(own, first, (Index)OWN_ROWS, OWN_MOST, from, DEPTH, WIDTH_##W, PUT_OWN)                            \
    FETCH(other, begin, (Index)OTHER_ROWS, OTHERS_MOST, from, DEPTH, WIDTH_##W, PUT_OTHER)                   \
    TB_BARRIER();                                                                                            \
    UNROLLED(d, DEPTH) {                                                                                     \
      T x[ROWS_EACH], y[OTHERS_EACH];                                                                        \
      UNROLLED(i, ROWS_EACH) x[i] = own_part[d * PITCH_OWN + down * ROWS_EACH + i];                          \
      UNROLLED(j, OTHERS_EACH) y[j] = other_part[d * PITCH_OTHER + across * OTHERS_EACH + j];                \
      UNROLLED(i, ROWS_EACH) UNROLLED(j, OTHERS_EACH) to[i][j] = TB_FMA(x[i], y[j], to[i][j]);               \
    }                                                                                                        \
  }
#define ADD_ELEMENTS(W, to, weights, other)                                                                  \
  UNROLLED(j, OTHERS_EACH)                                                                                   \
  if (begin + j * SIDE < end_others) {                                                                       \
    const int pitch = EACH_##W * SIDE;                                                                       \
    TB_BARRIER();                                                                                            \
    UNROLLED(i, ROWS_EACH) own_part[across * PITCH_OWN + down * ROWS_EACH + i] = weights[i][j];              \
    FETCH(other, begin + j * SIDE, (Index)OTHER_ROWS, SIDE, 0, WIDTH_##W, WIDTH_##W, PUT_ROW)                \
    TB_BARRIER();                                                                                            \
    for (int other_row = 0; other_row < SIDE; ++other_row) {                                                 \
      T x[ROWS_EACH];                                                                                        \
      UNROLLED(i, ROWS_EACH) x[i] = own_part[other_row * PITCH_OWN + down * ROWS_EACH + i];                  \
      UNROLLED(e, EACH_##W) {                                                                                \
        const T y = rows_part[other_row * pitch + ELEMENT(W, e)];                                            \
        UNROLLED(i, ROWS_EACH) to[i][e] = TB_FMA(x[i], y, to[i][e]);                                         \
      }                                                                                                      \
    }                                                                                                        \
  }
#endif

#define STORE_SUMS(W, to, sums, factor)                                                                      \
  UNROLLED(i, ROWS_EACH) {                                                                                   \
    const Index own = first + OWN_ROW(i);                                                                    \
    UNROLLED(e, EACH_##W)                                                                                    \
      if (own < (Index)OWN_ROWS && ELEMENT(W, e) < WIDTH_##W) STORE(to, own, ELEMENT(W, e), sums[i][e] * (factor)); \
  }
#define CLEAR(what, each) UNROLLED(i, ROWS_EACH) UNROLLED(j, each) what[i][j] = 0;
#define JOIN(x, OF)                                        \
  TB_UNROLL                                                \
  for (int mask = 1; mask < SIDE; mask *= 2) {             \
    T other;                                               \
    TB_FROM_OTHER(other, x, mask, shared)                  \
    x = OF(x, other);                                      \
  }
#define GREATER(x, y) ((y) > (x) ? (y) : (x))
#define SUM(x, y) ((x) + (y))
#ifdef BIAS
#define HAS_PARTS 1
#else
#define HAS_PARTS 0
#endif
#ifdef TB_HAS_VECTORS
#define LOAD_TWO(a, b, p, n)                                 \
  {                                                          \
    const tb_bytes<8> two = ((const tb_bytes<8>*)(p))[n];    \
    a = tb_f32_of_bits(two.words[0]);                        \
    b = tb_f32_of_bits(two.words[1]);                        \
  }
#else
#define LOAD_TWO(a, b, p, n)          \
  a = TB_LOAD_f32(p, 2 * (n));        \
  b = TB_LOAD_f32(p, 2 * (n) + 1);
#endif
// Most tiles are whole: only the others look at each place. A bias is read where there is one.
#ifdef BIAS
#define IS_THERE(j) (OTHER_OF(j) < end_others)
#else
#define IS_THERE(j) 1
#endif
#define SCALE_AND_LEAVE_OUT                                                                                  \
  UNROLLED(i, ROWS_EACH) UNROLLED(j, OTHERS_EACH) {                                                          \
    const Index q = QUERY_OF(OWN_OF(i), OTHER_OF(j)), k = KEY_OF(OWN_OF(i), OTHER_OF(j));                    \
    (void)q;                                                                                                 \
    (void)k;                                                                                                 \
    scores[i][j] = IS_THERE(j) ? SCALED(scores[i][j], q, k) : (T)(-INFINITY);                                \
  }                                                                                                          \
  if (begin + OTHERS_MOST > end_others || WINDOW || (CAUSAL && HAS_LATER(first, begin)))                     \
    UNROLLED(i, ROWS_EACH) UNROLLED(j, OTHERS_EACH)                                                          \
      if (OTHER_OF(j) >= end_others || IS_LEFT_OUT(QUERY_OF(OWN_OF(i), OTHER_OF(j)), KEY_OF(OWN_OF(i), OTHER_OF(j)))) \
        scores[i][j] = (T)(-INFINITY);
// Whether a tile has keys that are later than some of its queries.
#define HAS_LATER(own, other) (KEY_OF((own) + OWN_MOST, (other) + OTHERS_MOST) > QUERY_OF(own, other) + LATEST + 1)
// The places of score [i][j]; beyond the last they are rows that there are.
#define OWN_OF(i) TB_LEAST(first + OWN_ROW(i), (Index)OWN_ROWS - 1)
#define OTHER_OF(j) (begin + OTHER_ROW(j))

TB_KERNEL(attention) {
  LOCALS
#if !GRAD_KEYS
  TB_LOCAL_ARRAY(T, shared, ITEMS);
#endif
  const int item = (int)TB_LOCAL_ITEM;
  const int across = item % SIDE, down = item / SIDE;
  const T scale = SCALE * UNIT;
  const Index tiles = ((Index)MOST_OWN_ROWS + OWN_MOST - 1) / OWN_MOST;
  TB_FOR_BLOCKS(tile, tiles * (Index)(BATCHES * HEADS)) {
    LOCATE
#if FORWARD || GRAD_KEYS
    T sums_b[ROWS_EACH][EACH_B];
    CLEAR(sums_b, EACH_B)
#endif
#if BACKWARD
    T sums_a[ROWS_EACH][EACH_A];
    CLEAR(sums_a, EACH_A)
#endif
#if !GRAD_KEYS
    T tops[ROWS_EACH], totals[ROWS_EACH]; // FORWARD: as where items run one after the other
    UNROLLED(i, ROWS_EACH) {
      tops[i] = (T)(-INFINITY);
      totals[i] = 0;
    }
#endif
#if GRAD_QUERY
    T given[ROWS_EACH];
    UNROLLED(i, ROWS_EACH) given[i] = HAS_PARTS ? 0 : 1;
#endif
    FOR_HEADS {
      TENSORS
#if GRAD_KEYS
      TB_GLOBAL const char* const of_rows = p9 + deltas * 8;
#endif
      if (!GRAD_KEYS || head == own_head * args.shared) {
        FETCH_OWN
      }
#if GRAD_QUERY
      TB_GLOBAL char* const out = HERE(p5, out, batch, head);
      UNROLLED(i, ROWS_EACH) {
        LOGARITHM(logarithm, OWN_OF(i))
        T sum = 0;
        for (int d = across; d < WIDTH_B; d += SIDE) sum += LOAD(grad_out, OWN_OF(i), d) * LOAD(out, OWN_OF(i), d);
        JOIN(sum, SUM)
        tops[i] = logarithm * UNIT;
        totals[i] = sum;
        if (across == 0 && first + OWN_ROW(i) < (Index)OWN_ROWS) {
          TB_STORE_f32(p9, 2 * (deltas + (i64)OWN_OF(i)), sum);
          if (!HAS_PARTS) TB_STORE_f32(p9, 2 * (deltas + (i64)OWN_OF(i)) + 1, logarithm);
        }
      }
#endif
      for (Index begin = begin_others; begin < end_others; begin += OTHERS_MOST) {
        FETCH_OTHERS
        T scores[ROWS_EACH][OTHERS_EACH];
        CLEAR(scores, OTHERS_EACH)
        ADD_SCORES(A, scores, OWN_A, OTHER_A)
#if BACKWARD
        T changes[ROWS_EACH][OTHERS_EACH];
        CLEAR(changes, OTHERS_EACH)
        ADD_SCORES(B, changes, OWN_B, OTHER_B)
#endif
#if FORWARD
        SCALE_AND_LEAVE_OUT
        UNROLLED(i, ROWS_EACH) {
          T top = tops[i];
          UNROLLED(j, OTHERS_EACH) top = GREATER(top, scores[i][j]);
          JOIN(top, GREATER)
          const T shift = top == (T)(-INFINITY) ? 0 : top;
          const T factor = EXP(tops[i] - shift);
          tops[i] = top;
          totals[i] *= factor;
          UNROLLED(j, OTHERS_EACH) {
            const T weight = EXP(scores[i][j] - shift);
            totals[i] += weight;
            scores[i][j] = KEPT(weight, OWN_OF(i), OTHER_OF(j));
          }
          if (factor != 1)
            UNROLLED(e, EACH_B) sums_b[i][e] *= factor;
        }
#else
        SCALE_AND_LEAVE_OUT
        UNROLLED(j, OTHERS_EACH) {
#if GRAD_KEYS
          T delta, number;
          LOAD_TWO(delta, number, of_rows, OTHER_OF(j))
#if HAS_PARTS
          const T part = OTHER_OF(j) < end_others ? number : 0;
          LOGARITHM(logarithm, TB_LEAST(OTHER_OF(j), (Index)OTHER_ROWS - 1))
#else
          const T part = 1;
          T logarithm = number;
#endif
          if (OTHER_OF(j) >= end_others) { // no weights, whatever the last row has
            logarithm = (T)INFINITY;
            delta = 0;
          }
          logarithm *= UNIT;
#else
          const T part = 1;
#endif
          UNROLLED(i, ROWS_EACH) {
#if GRAD_QUERY
            const T logarithm = tops[i], delta = totals[i];
#endif
            const Index q = QUERY_OF(OWN_OF(i), OTHER_OF(j)), k = KEY_OF(OWN_OF(i), OTHER_OF(j));
            const T weight = EXP(scores[i][j] - logarithm) * part;
#if GRAD_QUERY && HAS_PARTS
            given[i] += weight;
#endif
            scores[i][j] = KEPT(weight, q, k);
            changes[i][j] = weight * (KEPT(changes[i][j], q, k) - delta);
          }
        }
#endif
#if FORWARD || GRAD_KEYS
        ADD_ELEMENTS(B, sums_b, scores, OTHER_B)
#endif
#if BACKWARD
        ADD_ELEMENTS(A, sums_a, changes, OTHER_A)
#endif
      }
#if FORWARD
#if VARLEN
      TB_GLOBAL char* const out = HERE(p5, out, batch, head);
#else
      TB_GLOBAL char* const out = p5 + (batch_and_part * args.out[0] + head * args.out[1]) * RESULT_BYTES;
#endif
      UNROLLED(i, ROWS_EACH) {
        JOIN(totals[i], SUM)
        const Index own = first + OWN_ROW(i);
#if PARTS
        const i64 of_row = 2 * ((batch_and_part * args.heads + head) * args.rows + own);
        if (across == 0 && own < (Index)OWN_ROWS) {
          TB_STORE_f32(p4, of_row, tops[i] / UNIT);
          TB_STORE_f32(p4, of_row + 1, totals[i]);
        }
#else
        if (across == 0 && own < (Index)OWN_ROWS)
          TB_STORE_f32(p4, logarithms + (i64)own,
                       tops[i] == (T)(-INFINITY) ? log(totals[i]) : tops[i] / UNIT + log(totals[i]));
#endif
      }
      STORE_SUMS(B, out, sums_b, totals[i] == 0 ? 0 : 1 / totals[i])
#elif GRAD_QUERY && HAS_PARTS
      UNROLLED(i, ROWS_EACH) {
        JOIN(given[i], SUM)
        given[i] = given[i] == 0 ? 0 : 1 / given[i];
        const Index own = first + OWN_ROW(i);
        if (across == 0 && own < (Index)OWN_ROWS) TB_STORE_f32(p9, 2 * (deltas + (i64)own) + 1, given[i]);
      }
#endif
    }
    RESULTS
#if GRAD_QUERY
    STORE_SUMS(A, grad_query, sums_a, SCALE * given[i])
#elif GRAD_KEYS
    STORE_SUMS(A, grad_key, sums_a, SCALE)
    STORE_SUMS(B, grad_value, sums_b, 1)
#endif
  }
} TB_END
#endif
