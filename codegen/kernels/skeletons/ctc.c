// Connectionist temporal classification (Graves et al., 2006): a target's labels, with blanks between and around them, are
// states, through which a row goes with the labels' probabilities at each step of time.
//
// STEP_alpha   p0 the losses, p1 logarithms of the probability of reaching a state, p2 those of labels, p3 the targets,
//              p4 sizes, p5 the error cell; a block does a row
// STEP_beta    p0 the same of what is left behind a state, p1 to p5 as above: a state's own probability is in both
// STEP_gather  p0 by label, logarithms of what its states add up to, p1 alpha, p2 beta, p3, p4, p5: an item does one step
//              of time of a row
// STEP_finish  p0, which becomes the gradient, p1 the losses, p2 labels' logarithms, p3 the losses' gradients, p4, p5
//
// TARGET   how labels are stored

typedef struct {
  i64 rows, times, labels;
  i64 states;        // between the rows of alpha and beta
  i64 blank;
  i64 target_stride;
  i64 gradient_stride; // of the losses
  i64 zeroes_infinity;
  i64 op;
  i64 strides[3];    // time, row, label
} Args;

#ifdef TB_CHUNKED
#define FOR_STATES(s, first, count) for (Index s = (first); s < (count); ++s)
#define FOR_LINES(row, count) TB_FOR(row, count)
#define ONE_ITEM
#else
#define FOR_STATES(s, first, count) \
  for (Index s = (first) + (Index)TB_LOCAL_ITEM; s < (count); s += (Index)TB_BLOCK_ITEMS)
#define FOR_LINES(row, count) TB_FOR_BLOCKS(row, count)
#define ONE_ITEM if (TB_LOCAL_ITEM == 0)
#endif
#define NONE ((T)(-INFINITY))
#define SIZES(row)                                                                         \
  const Index time_count = (Index)TB_LOAD_i64(p4, row);                                    \
  const Index target_count = (Index)TB_LOAD_i64(p4, (Index)args.rows + (row));             \
  const Index target_start = (Index)TB_LOAD_i64(p4, 2 * (Index)args.rows + (row));         \
  const Index state_count = 2 * target_count + 1;
#define LABEL_AT(s) \
  ((s) % 2 == 0 ? (Index)args.blank : (Index)TB_LOAD_AS(TARGET, p3, target_start + (s) / 2 * (Index)args.target_stride))
#define IS_LABEL(label) ((label) >= 0 && (label) < (Index)args.labels)
#define LABEL(s) (IS_LABEL(LABEL_AT(s)) ? LABEL_AT(s) : (Index)args.blank)
#define PROBABILITY(t, row, label)                                                                    \
  TB_LOAD_AS(TB_T, p2, (t) * (Index)args.strides[0] + (row) * (Index)args.strides[1] + (label) * (Index)args.strides[2])
#define STATE(t, row, s) (((row) * (Index)args.times + (t)) * (Index)args.states + (s))

TB_DEVICE T sum_of(T a, T b, T c) {
  T top = a;
  if (b > top) top = b;
  if (c > top) top = c;
  if (top == NONE) top = 0;
  return log(exp(a - top) + exp(b - top) + exp(c - top)) + top;
}

TB_KERNEL(ctc) {
#ifdef STEP_alpha
  FOR_LINES(row, (Index)args.rows) {
    SIZES(row)
    FOR_STATES(s, 0, target_count) {
      const Index label = LABEL_AT(2 * s + 1);
      if (!IS_LABEL(label)) tb_report(p5, TB_INDEX_OUT_OF_RANGE, args.op, label, args.labels);
    }
    FOR_STATES(s, 0, args.times > 0 ? (Index)args.states : 0) {
      const int is_first = time_count > 0 && s < 2 && s < state_count;
      TB_STORE_AS(TB_T, p1, STATE(0, row, s), is_first ? PROBABILITY(0, row, LABEL(s)) : NONE);
    }
    for (Index t = 1; t < time_count; ++t) {
      TB_GLOBAL_BARRIER();
      FOR_STATES(s, 0, state_count) {
        const T stay = TB_LOAD_AS(TB_T, p1, STATE(t - 1, row, s));
        const T step = s > 0 ? TB_LOAD_AS(TB_T, p1, STATE(t - 1, row, s - 1)) : NONE;
        const T leap = s > 1 && LABEL(s) != LABEL(s - 2) ? TB_LOAD_AS(TB_T, p1, STATE(t - 1, row, s - 2)) : NONE;
        TB_STORE_AS(TB_T, p1, STATE(t, row, s), sum_of(stay, step, leap) + PROBABILITY(t, row, LABEL(s)));
      }
    }
    TB_GLOBAL_BARRIER();
    ONE_ITEM {
      T loss;
      if (time_count == 0) {
        loss = target_count == 0 ? (T)0 : (T)INFINITY;
      } else if (target_count == 0) {
        loss = -TB_LOAD_AS(TB_T, p1, STATE(time_count - 1, row, 0));
      } else {
        const T last = TB_LOAD_AS(TB_T, p1, STATE(time_count - 1, row, state_count - 1));
        loss = -sum_of(last, TB_LOAD_AS(TB_T, p1, STATE(time_count - 1, row, state_count - 2)), NONE);
      }
      TB_STORE_AS(TB_T, p0, row, loss);
    }
  }
#endif

#ifdef STEP_beta
  FOR_LINES(row, (Index)args.rows) {
    SIZES(row)
    for (Index t = time_count - 1; t >= 0; --t) {
      TB_GLOBAL_BARRIER();
      FOR_STATES(s, 0, state_count) {
        T left;
        if (t == time_count - 1) {
          left = s + 2 < state_count ? NONE : (T)0;
        } else {
          const T stay = TB_LOAD_AS(TB_T, p0, STATE(t + 1, row, s));
          const T step = s + 1 < state_count ? TB_LOAD_AS(TB_T, p0, STATE(t + 1, row, s + 1)) : NONE;
          const T leap =
              s + 2 < state_count && LABEL(s) != LABEL(s + 2) ? TB_LOAD_AS(TB_T, p0, STATE(t + 1, row, s + 2)) : NONE;
          left = sum_of(stay, step, leap);
        }
        TB_STORE_AS(TB_T, p0, STATE(t, row, s), left + PROBABILITY(t, row, LABEL(s)));
      }
    }
  }
#endif

#ifdef STEP_gather
  TB_FOR(i, (Index)(args.rows * args.times)) {
    const Index t = i / (Index)args.rows, row = i - t * (Index)args.rows;
    SIZES(row)
    if (t < time_count) {
      for (Index s = state_count - 1; s >= 0; --s) {
        const Index at = i * (Index)args.labels + LABEL(s);
        const T both = TB_LOAD_AS(TB_T, p1, STATE(t, row, s)) + TB_LOAD_AS(TB_T, p2, STATE(t, row, s));
        const T before = TB_LOAD_AS(TB_T, p0, at);
        TB_STORE_AS(TB_T, p0, at, before == NONE ? both : sum_of(before, both, NONE));
      }
    }
  }
#endif

#ifdef STEP_finish
  TB_FOR(i, (Index)(args.times * args.rows * args.labels)) {
    const Index line = i / (Index)args.labels, label = i - line * (Index)args.labels;
    const Index t = line / (Index)args.rows, row = line - t * (Index)args.rows;
    const T loss = TB_LOAD_AS(TB_T, p1, row);
    T result = 0;
    if (t < (Index)TB_LOAD_i64(p4, row) && !(args.zeroes_infinity && loss == (T)INFINITY)) {
      const T own = PROBABILITY(t, row, label);
      result = (exp(own) - exp(TB_LOAD_AS(TB_T, p0, i) + loss - own)) *
               TB_LOAD_AS(TB_T, p3, row * (Index)args.gradient_stride);
    }
    TB_STORE_AS(TB_T, p0, i, result);
  }
#endif
} TB_END
