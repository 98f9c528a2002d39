// Rows whose elements are side by side, each read as often as it takes while it is near: first sums or a maximum over the
// row (A), then sums that need those (B), then every element of the output.
//
// OUTPUTS, INPUTS   operands 0 to OUTPUTS - 1, and those after them
// KEPT              rank of what tells rows apart
// LOADS(K)          declares of x0, x1, ..., the inputs' elements at K(n), those that sums need
// LATE_LOADS(K)     declares those that MAP alone needs
// CONSTANTS         declares what LOADS uses of operands that are the same in all the row
// A_SUMS, TERM_A    adds to S(0), S(1) for one element; 0: the maximum of A_VALUE
// B_SUMS, TERM_B    the same; 0: nothing to sum
// DERIVE_A, DERIVE_B  declare what the next steps use of the sums a and b
// MAP               sets out from x0, ...
// TYPE_n            how operand n is stored
// STORE_ROW         after all elements the values of the row
// STASHES           not 0: a value can be kept at the output's place, where it is read again sooner than computed
// GROUP             items of a block
// WIDTH             of them do a row together
// EACH              not 0: most elements of an item, which keeps them: KEPT_ELEMENTS declares kept0, ..., KEEP_ELEMENT sets them
//                   from x0, ..., KEPT_ELEMENT the reverse
// VECTOR            not 0: elements that are moved at once, as rows are aligned and of whole vectors
// AHEAD             how many such vectors, or elements, of each operand an item reads before it goes on: WIDE_DECLARE and
//                   others, as define_wide() has them

#define OPERANDS (OUTPUTS + INPUTS)

typedef struct {
  i64 rows;
  i64 count;
  i64 kept_sizes[KEPT];
  i64 kept_strides[OPERANDS][KEPT];
  tb_scalar scalars[2];
} Args;

#define PLACE(n) (base[n] + k)

#ifdef TB_CHUNKED
#define LANES 32
#define SUM_PASS(SUMS, TERM, total)                               \
  T total[SUMS];                                                  \
  {                                                               \
    T lanes[SUMS][LANES];                                         \
    for (int s = 0; s < SUMS; ++s)                                \
      for (int l = 0; l < LANES; ++l) lanes[s][l] = 0;            \
    Index j = 0;                                                  \
    for (; j + LANES <= count; j += LANES)                        \
      for (int l = 0; l < LANES; ++l) {                           \
        const Index k = j + l;                                    \
        LOADS(PLACE) TERM                                         \
      }                                                           \
    for (Index k = j; k < count; ++k) {                           \
      const int l = (int)(k - j);                                 \
      LOADS(PLACE) TERM                                           \
    }                                                             \
    for (int offset = LANES / 2; offset > 0; offset /= 2)               \
      for (int s = 0; s < SUMS; ++s)                              \
        for (int l = 0; l < offset; ++l) lanes[s][l] += lanes[s][l + offset]; \
    for (int s = 0; s < SUMS; ++s) total[s] = lanes[s][0];        \
  }
#define S(s) lanes[s][l]
#if STASHES
#define STASH(e) TB_STORE_AS(TYPE_0, p0, base[0] + k, (e));
#define STASHED(e) TB_LOAD_AS(TYPE_0, p0, base[0] + k)
#else
#define STASH(e)
#define STASHED(e) (e)
#endif
#else
// WIDTH items do a row, as many rows at once as a block has items for; without EACH they go along it several times. Items
// without a row have no elements, and wait with the others.
#define JOIN_SUMS(x, y) ((x) + (y))
#define JOIN_TOPS(x, y) ((y) > (x) ? (y) : (x))
#ifdef TB_SHUFFLE
// Warps leave a value each, and all items of the row join them in one order.
#define WARP TB_LEAST(WIDTH, TB_SHUFFLED)
#define JOIN_ITEMS(x, JOIN)                                     \
  TB_UNROLL                                                     \
  for (int mask = 1; mask < WARP; mask *= 2) {                  \
    const T other = TB_SHUFFLE(x, mask);                        \
    x = JOIN(x, other);                                         \
  }                                                             \
  if (WIDTH > WARP) {                                           \
    TB_LOCAL const T* const of_row = shared + (item - lane) / WARP; \
    TB_BARRIER();                                               \
    if (lane % WARP == 0) shared[item / WARP] = x;              \
    TB_BARRIER();                                               \
    x = of_row[0];                                              \
    TB_UNROLL                                                   \
    for (int warp = 1; warp < WIDTH / WARP; ++warp) x = JOIN(x, of_row[warp]); \
  }
#else
#define JOIN_ITEMS(x, JOIN)                         \
  TB_UNROLL                                         \
  for (int mask = 1; mask < WIDTH; mask *= 2) {     \
    T other;                                        \
    TB_FROM_OTHER(other, x, mask, shared)           \
    x = JOIN(x, other);                             \
  }
#endif

#define VECTOR_PLACE(n) (base[n] / PER + vector)
// DO for the vectors that this item has from number `first` of the row on, and for the elements of one.
#define FOR_VECTORS(DO)                              \
  TB_UNROLL                                          \
  for (int v = 0; v < AHEAD; ++v) {                  \
    const Index vector = first + lane + v * WIDTH;   \
    if (vector < vectors) { DO }                     \
  }
#define FOR_ELEMENTS(DO)                \
  TB_UNROLL                             \
  for (int j = 0; j < PER; ++j) {       \
    const Index k = vector * PER + j;   \
    DO                                  \
  }
#define KEPT_AT(n) (n)[v * PER + j]
#define FOR_ROW for (Index first = 0; first < vectors; first += AHEAD * WIDTH)
#if EACH
#define FOR_SUMS(TERM) FOR_VECTORS(FOR_ELEMENTS(KEPT_ELEMENT TERM))
#define STASH(e) KEPT_AT(stashed) = (e);
#define STASHED(e) KEPT_AT(stashed)
#else
#define FOR_SUMS(TERM) FOR_ROW { DECLARE FOR_VECTORS(READ) FOR_VECTORS(SHADOWS FOR_ELEMENTS(LOADS(HERE) TERM)) }
#define STASH(e)
#define STASHED(e) (e)
#endif
#define SUM_PASS(SUMS, TERM, total)                               \
  T total[SUMS];                                                  \
  {                                                               \
    for (int s = 0; s < SUMS; ++s) total[s] = 0;                  \
    T* const sums = total;                                        \
    FOR_SUMS(TERM)                                                \
    TB_UNROLL                                                     \
    for (int s = 0; s < SUMS; ++s) {                              \
      JOIN_ITEMS(total[s], JOIN_SUMS)                             \
    }                                                             \
  }
#define S(s) sums[s]
#endif

TB_KERNEL(rows) {
  const T n = (T)args.count;
#ifdef TB_CHUNKED
  const Index count = (Index)args.count;
  TB_FOR(row, (Index)args.rows) {
#else
  TB_LOCAL_ARRAY(T, shared, GROUP);
  const Index item = (Index)TB_LOCAL_ITEM;
  const Index lane = item & (WIDTH - 1);
  const Index rows = (Index)args.rows;
  const Index at_once = GROUP / WIDTH;
  TB_FOR_BLOCKS(several, (rows + at_once - 1) / at_once) {
    const Index wanted = several * at_once + item / WIDTH;
    const Index row = TB_LEAST(wanted, rows - 1);
    const Index vectors = wanted < rows ? (Index)args.count / PER : 0;
#endif
    Index base[OPERANDS];
    TB_LOCATE(base, 0, kept_sizes, kept_strides, KEPT - 1, row, 0, OPERANDS)
    CONSTANTS
#if !defined(TB_CHUNKED) && EACH
    const Index first = 0;
    KEPT_ELEMENTS
    T stashed[EACH];
    {
      DECLARE
      FOR_VECTORS(READ)
      FOR_VECTORS(SHADOWS FOR_ELEMENTS(LOADS(HERE) KEEP_ELEMENT))
    }
#endif
#if A_SUMS > 0
    SUM_PASS(A_SUMS, TERM_A, a)
#elif defined(TB_CHUNKED)
    T a[1];
    {
      T lanes[LANES];
      for (int l = 0; l < LANES; ++l) lanes[l] = (T)(-INFINITY);
      Index j = 0;
      for (; j + LANES <= count; j += LANES)
        for (int l = 0; l < LANES; ++l) {
          const Index k = j + l;
          LOADS(PLACE)
          lanes[l] = A_VALUE > lanes[l] ? A_VALUE : lanes[l];
        }
      for (Index k = j; k < count; ++k) {
        LOADS(PLACE)
        lanes[0] = A_VALUE > lanes[0] ? A_VALUE : lanes[0];
      }
      for (int offset = LANES / 2; offset > 0; offset /= 2)
        for (int l = 0; l < offset; ++l) lanes[l] = lanes[l + offset] > lanes[l] ? lanes[l + offset] : lanes[l];
      a[0] = lanes[0];
    }
#else
    T a[1];
    a[0] = (T)(-INFINITY);
    FOR_SUMS(a[0] = JOIN_TOPS(a[0], A_VALUE);)
    JOIN_ITEMS(a[0], JOIN_TOPS)
#endif
    DERIVE_A
#if B_SUMS > 0
    SUM_PASS(B_SUMS, TERM_B, b)
    DERIVE_B
#endif
#define STORE_ELEMENT(K) T out; MAP TB_STORE_AS(TYPE_0, p0, K(0), out);
#ifdef TB_CHUNKED
    for (Index k = 0; k < count; ++k) {
      LOADS(PLACE)
      LATE_LOADS(PLACE)
      STORE_ELEMENT(PLACE)
    }
    STORE_ROW
#else
#if EACH
    FOR_VECTORS(DECLARE READ { SHADOWS FOR_ELEMENTS(KEPT_ELEMENT LATE_LOADS(HERE) STORE_ELEMENT(HERE)) } WRITE)
#else
    FOR_ROW {
      DECLARE
      FOR_VECTORS(READ)
      FOR_VECTORS({ SHADOWS FOR_ELEMENTS(LOADS(HERE) LATE_LOADS(HERE) STORE_ELEMENT(HERE)) } WRITE)
    }
#endif
    if (lane == 0 && vectors > 0) {
      STORE_ROW
    }
#endif
  }
} TB_END
