// The same computation on the elements of many tensors. An item that runs alone has a stretch of all elements, one tensor
// after the other; items that run side by side have, by blocks, parts of `part` elements of one tensor each.
//
// LISTS, TENSORS   tensors of each place among the arguments, dense and laid out alike; spare places have no elements
// TYPE_n           how list n is stored
// CHOOSE_LISTS     declares q0, q1, ..., the addresses of tensor t
// RATE, SCALE, FOUND_INF, INVERSE, X  the one number in an operand that is not a list; FOUND_INF_AT where it is
// EACH             there is a number for each tensor
// APPLY            sets `result` of A, B, C, x and s, for list OUTPUT
// KIND             what is done: BEGIN_KIND before all, PER_TENSOR_KIND before a tensor, BODY_KIND for its element k, the n-th
//                  of those that are done at once, AFTER_TENSOR_KIND, and END_KIND after all
// VECTOR, AHEAD    elements that are moved at once where tensors are ALIGNED, and how many such vectors of each an item reads
//                  before it writes any: WIDE_DECLARE and others, as define_wide() has them

typedef struct {
  i64 stops[TENSORS]; // where the tensor's elements end, or its parts
#ifndef TB_CHUNKED
  i64 sizes[TENSORS];
  i64 part;
#endif
  tb_scalar scalars[TENSORS + NUMBERS]; // those of EACH, then those of the call
} Args;

#define NUMBER(n) ((T)TB_SCALAR(TENSORS + (n)))
#define LOAD_AT_(n, k) ((T)TB_LOAD_AS(TYPE_##n, q##n, k))
#define LOAD(n) LOAD_AT_(n, k)
#define FIRST(n) LOAD_AT_(n, 0)
#define STORE_(n, x) TB_STORE_AS(TYPE_##n, q##n, k, x)
#define STORE(n, x) STORE_(n, x)
#if defined(TB_CHUNKED) && defined(__cplusplus)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

#define COUNT ((Index)args.stops[TENSORS - 1])

// ---- optimizers; the lists are self, grads, and then what each has. As PyTorch's, in the order of their operations ----

#ifndef RATE
#define RATE NUMBER(0)
#endif
#ifdef SCALE
#define UNSCALE g = g / scale; STORE(1, g);
#else
#define SCALE TC(1.0)
#define UNSCALE
#endif
#ifdef FOUND_INF
#define SKIP if (FOUND_INF == TC(1.0)) return;
#else
#define SKIP
#endif
#define GRADIENT \
  T p = LOAD(0); \
  T g = LOAD(1); \
  UNSCALE        \
  if (MAXIMIZE) g = -g;

// numbers: lr, weight_decay, momentum, 1 - dampening
#define BEGIN_sgd SKIP const T lr = RATE, decay = NUMBER(1), momentum = NUMBER(2), damped = NUMBER(3); const T scale = SCALE;
#define PER_TENSOR_sgd
#ifdef MOMENTUM
#define BUFFER                                                       \
  const T buffer = FIRST_STEP ? g : momentum * LOAD(2) + damped * g; \
  STORE(2, buffer);                                                  \
  g = NESTEROV ? g + momentum * buffer : buffer;
#else
#define BUFFER
#endif
#define AFTER_TENSOR_sgd
#define END_sgd
#define BODY_sgd GRADIENT g += decay * p; BUFFER STORE(0, p - lr * g);

// numbers: lr, weight_decay, eps, lr_decay; lists: self, grads, state_sums, state_steps
#define BEGIN_adagrad SKIP const T lr = RATE, decay = NUMBER(1), eps = NUMBER(2), lr_decay = NUMBER(3); const T scale = SCALE;
#define PER_TENSOR_adagrad const T rate = lr / (TC(1.0) + (FIRST(3) - TC(1.0)) * lr_decay);
#define AFTER_TENSOR_adagrad
#define END_adagrad
#define BODY_adagrad             \
  GRADIENT g += decay * p;       \
  const T sum = LOAD(2) + g * g; \
  STORE(2, sum);                 \
  STORE(0, p - rate * g / (sqrt(sum) + eps));

// numbers: lr, weight_decay, eps, beta2, 1 - beta1, 1 - beta2, log(beta1), log(beta2)
// lists: self, grads, exp_avgs, exp_avg_sqs, state_steps, and max_exp_avg_sqs if AMSGRAD
#define BEGIN_adam                                                                                                   \
  SKIP const T lr = RATE, decay = NUMBER(1), eps = NUMBER(2), beta2 = NUMBER(3), new1 = NUMBER(4), new2 = NUMBER(5); \
  const T log1 = NUMBER(6), log2_ = NUMBER(7);                                                                       \
  const T scale = SCALE;
#define PER_TENSOR_adam                     \
  const T steps = FIRST(4);                 \
  const T rate = lr / -expm1(steps * log1); \
  const T correction = TC(1.0) / sqrt(-expm1(steps * log2_));
#ifdef AMSGRAD
#define LARGEST const T before = LOAD(5); const T largest = before > square ? before : square; STORE(5, largest);
#else
#define LARGEST const T largest = square;
#endif
#define AFTER_TENSOR_adam
#define END_adam
#define BODY_adam                                          \
  GRADIENT                                                 \
  if (DECOUPLED) p -= lr * decay * p; else g += decay * p; \
  T average = LOAD(2);                                     \
  average += new1 * (g - average);                         \
  const T square = beta2 * LOAD(3) + new2 * g * g;         \
  STORE(2, average);                                       \
  STORE(3, square);                                        \
  LARGEST                                                  \
  STORE(0, p - rate * average / (sqrt(largest) * correction + eps));

// ---- one expression ----

#ifdef EACH
#define S ((T)TB_SCALAR(t))
#else
#define S NUMBER(0)
#endif
#define A LOAD(0)
#define B LOAD(1)
#define C LOAD(2)
#ifdef X
#define BEGIN_each const T x = X;
#else
#define BEGIN_each
#endif
#define PER_TENSOR_each const T s = S; (void)s;
#define BODY_each T result; APPLY; STORE(OUTPUT, result);
#define AFTER_TENSOR_each
#define END_each

// ---- gradients of a scaled loss ----

#ifdef TB_T_f64
#define MOST TB_MAX_f64
#else
#define MOST TB_MAX_f32
#endif
#define BEGIN_unscale const T inverse = INVERSE; int bad = 0;
#define PER_TENSOR_unscale
#define BODY_unscale const T g = LOAD(0); bad |= !(fabs(g) <= MOST); STORE(0, inverse == TC(1.0) ? g : g * inverse);
#define AFTER_TENSOR_unscale
#define END_unscale if (bad) TB_STORE_f32(FOUND_INF_AT, 0, 1.0f);

// ---- norms: what each item that runs alone, or each part, has of a tensor's goes to PARTS ----

#if NORM == 2
#define ADD(sum, x) sum += (x) * (x)
#define JOIN(a, b) ((a) + (b))
#elif NORM == 1
#define ADD(sum, x) sum += fabs(x)
#define JOIN(a, b) ((a) + (b))
#else
#define ADD(sum, x) sum = LARGER(sum, fabs(x))
#define JOIN(a, b) LARGER(a, b)
#endif
#define LARGER(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define NUM_SUMS 8 // that are not rounded one after the other, and can be vectorized
#ifdef TB_CHUNKED
#define PLACE_OF_PART (t * (Index)TB_BLOCKS + (Index)TB_BLOCK)
#else
#define PLACE_OF_PART part
#endif
#define BEGIN_norm TB_LOCAL_ARRAY(T, shared, BLOCK);
#define PER_TENSOR_norm T sums[NUM_SUMS]; for (int j = 0; j < NUM_SUMS; ++j) sums[j] = 0;
#define BODY_norm const T x = LOAD(0); ADD(sums[n % NUM_SUMS], x);
#define AFTER_TENSOR_norm                                             \
  T sum = sums[0];                                                    \
  for (int j = 1; j < NUM_SUMS; ++j) sum = JOIN(sum, sums[j]);        \
  TB_UNROLL                                                           \
  for (int mask = 1; mask < BLOCK; mask *= 2) {                       \
    T other;                                                          \
    TB_FROM_OTHER(other, sum, mask, shared)                           \
    sum = JOIN(sum, other);                                           \
  }                                                                   \
  if (TB_LOCAL_ITEM == 0) TB_STORE_AS(TB_T, PARTS, PLACE_OF_PART, sum);
#define END_norm

TB_KERNEL(multi) {
  TB_PASTE(BEGIN_, KIND)
#ifdef TB_CHUNKED
  const Index end = TB_LAST(COUNT);
  Index i = TB_FIRST(COUNT);
  Index begin = 0;
  for (int t = 0; t < TENSORS; begin = (Index)args.stops[t++]) {
    const Index stop = TB_LEAST((Index)args.stops[t], end);
#ifndef NORM
    if (i >= stop) continue;
#endif
    CHOOSE_LISTS
    TB_PASTE(PER_TENSOR_, KIND)
#ifdef NORM
    for (; i + NUM_SUMS <= stop; i += NUM_SUMS) {
      for (int n = 0; n < NUM_SUMS; ++n) {
        const Index k = i + n - begin;
        TB_PASTE(BODY_, KIND)
      }
    }
#endif
    INDEPENDENT
    for (; i < stop; ++i) {
      const Index k = i - begin;
      const int n = 0;
      TB_PASTE(BODY_, KIND)
    }
    TB_PASTE(AFTER_TENSOR_, KIND)
  }
#else
  TB_FOR_BLOCKS(part, COUNT) {
    int t = 0;
    Index begin = 0;
    TB_UNROLL
    for (int s = 0; s < TENSORS - 1; ++s) {
      if (part >= (Index)args.stops[s]) {
        t = s + 1;
        begin = (Index)args.stops[s];
      }
    }
    const Index first = (part - begin) * (Index)args.part;
    const Index last = TB_LEAST(first + (Index)args.part, (Index)args.sizes[t]);
    const Index item = (Index)TB_LOCAL_ITEM, items = (Index)TB_BLOCK_ITEMS;
    CHOOSE_LISTS
    TB_PASTE(PER_TENSOR_, KIND)
    Index rest = first;
#ifdef TB_HAS_VECTORS
#define VECTOR_AT(list) (v + a * items)
    if (ALIGNED) {
      rest = last / VECTOR * VECTOR;
      for (Index v = first / VECTOR + item; v < last / VECTOR; v += AHEAD * items) {
        WIDE_DECLARE
        TB_UNROLL
        for (int a = 0; a < AHEAD; ++a) {
          if (VECTOR_AT(0) < last / VECTOR) { WIDE_READ(a, VECTOR_AT) }
        }
        TB_UNROLL
        for (int a = 0; a < AHEAD; ++a) {
          if (VECTOR_AT(0) < last / VECTOR) {
            {
              WIDE_SHADOWS(a)
              TB_UNROLL
              for (int k = 0; k < VECTOR; ++k) {
                const int n = a * VECTOR + k;
                TB_PASTE(BODY_, KIND)
              }
            }
            WIDE_WRITE(a, VECTOR_AT)
          }
        }
      }
    }
#endif
    for (Index k = rest + item; k < last; k += items) {
      const int n = 0;
      TB_PASTE(BODY_, KIND)
    }
    TB_PASTE(AFTER_TENSOR_, KIND)
  }
#endif
  TB_PASTE(END_, KIND)
} TB_END
