// The same computation on the elements of many tensors: the range of all of them, one after the other, is divided.
//
// LISTS, TENSORS   tensors of each place among the arguments, all dense and laid out alike; spare places have no elements
// TYPE_n           how list n is stored
// POINTERS         of the first tensor's LISTS, the second's, ...
// DECLARE_LISTS    q0, q1, ... of tensor t
// RATE, SCALE, FOUND_INF, INVERSE, X  the one number in an operand that is not a list; FOUND_INF_AT where it is
// EACH             there is a number for each tensor
// APPLY            sets `result` of A, B, C, X and s, for list OUTPUT
// KIND             what is done: BEGIN_KIND before all, PER_TENSOR_KIND before a tensor, BODY_KIND for an element, END_KIND
//                  after all

typedef struct {
  i64 stops[TENSORS];
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

// The elements of tensor t that are this item's: k in the loop is its place in the tensor.
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
#define END_sgd
#define BODY_sgd GRADIENT g += decay * p; BUFFER STORE(0, p - lr * g);

// numbers: lr, weight_decay, eps, lr_decay; lists: self, grads, state_sums, state_steps
#define BEGIN_adagrad SKIP const T lr = RATE, decay = NUMBER(1), eps = NUMBER(2), lr_decay = NUMBER(3); const T scale = SCALE;
#define PER_TENSOR_adagrad const T rate = lr / (TC(1.0) + (FIRST(3) - TC(1.0)) * lr_decay);
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
#define BEGIN_each
#define PER_TENSOR_each const T s = S; (void)s;
#define BODY_each T result; APPLY; STORE(OUTPUT, result);
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
#define END_unscale if (bad) TB_STORE_f32(FOUND_INF_AT, 0, 1.0f);

#ifndef NORM
TB_KERNEL(multi) {
  TB_ADDRESSES(pointers, LISTS * TENSORS, POINTERS)
  TB_PASTE(BEGIN_, KIND)
  const Index last = TB_LAST(COUNT);
  Index i = TB_FIRST(COUNT);
  Index begin = 0;
  for (int t = 0; t < TENSORS; ++t) {
    const Index stop = (Index)args.stops[t] < last ? (Index)args.stops[t] : last;
    if (TB_IS_BEFORE(i, stop)) {
      DECLARE_LISTS
      TB_PASTE(PER_TENSOR_, KIND)
      INDEPENDENT
      for (; TB_IS_BEFORE(i, stop); i = TB_NEXT(i, 1)) {
        const Index k = i - begin;
        TB_PASTE(BODY_, KIND)
      }
    }
    begin = (Index)args.stops[t];
  }
  TB_PASTE(END_, KIND)
} TB_END
#else

// ---- norms. Each block has a part of each tensor's; PARTS is where they go, [TENSORS][BLOCKS] ----

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
#define NUM_PARTS 8 // sums that are not rounded one after the other, and can be vectorized

TB_KERNEL(multi_norm) {
  TB_ADDRESSES(pointers, LISTS * TENSORS, POINTERS)
  TB_LOCAL_ARRAY(T, shared, BLOCK);
  const Index last = TB_LAST(COUNT);
  Index i = TB_FIRST(COUNT);
  Index begin = 0;
  for (int t = 0; t < TENSORS; ++t) {
    const Index stop = (Index)args.stops[t] < last ? (Index)args.stops[t] : last;
    T parts[NUM_PARTS];
    for (int j = 0; j < NUM_PARTS; ++j) parts[j] = 0;
    if (TB_IS_BEFORE(i, stop)) {
      DECLARE_LISTS
      for (; TB_IS_BEFORE(TB_NEXT(i, NUM_PARTS - 1), stop); i = TB_NEXT(i, NUM_PARTS)) {
        for (int j = 0; j < NUM_PARTS; ++j) {
          const Index k = TB_NEXT(i, j) - begin;
          const T x = LOAD(0);
          ADD(parts[j], x);
        }
      }
      for (; TB_IS_BEFORE(i, stop); i = TB_NEXT(i, 1)) {
        const Index k = i - begin;
        const T x = LOAD(0);
        ADD(parts[0], x);
      }
    }
    T sum = parts[0];
    for (int j = 1; j < NUM_PARTS; ++j) sum = JOIN(sum, parts[j]);
    shared[TB_LOCAL_ITEM] = sum;
    TB_BARRIER();
    for (int offset = BLOCK / 2; offset > 0; offset /= 2) {
      if ((int)TB_LOCAL_ITEM < offset) shared[TB_LOCAL_ITEM] = JOIN(shared[TB_LOCAL_ITEM], shared[TB_LOCAL_ITEM + offset]);
      TB_BARRIER();
    }
    if (TB_LOCAL_ITEM == 0) TB_STORE_AS(TB_T, PARTS, t * (Index)TB_BLOCKS + (Index)TB_BLOCK, shared[0]);
    TB_BARRIER();
    begin = (Index)args.stops[t];
  }
} TB_END
#endif
