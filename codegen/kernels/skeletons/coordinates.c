// Elements computed from where they are: `row` and `col` are the last two coordinates.
//
// RANK       of the output, at least 2; p0 the output, p1 an input of its shape
// ELEMENT    what is stored, a WORD; args.number belongs to the call

typedef struct {
  i64 count;
  i64 sizes[RANK];
  i64 strides[2][RANK];
  i64 number;
} Args;

// Of the row with this number: where it begins, and its place among the rows of its matrix.
#define LOCATE(number)                                        \
  Index rest = (number), to_row = 0, from_row = 0, row = 0;   \
  for (int d = RANK - 2; d >= 0; --d) {                       \
    const Index next = d > 0 ? rest / (Index)args.sizes[d] : 0; \
    const Index here = rest - next * (Index)args.sizes[d];    \
    if (d == RANK - 2) row = here;                            \
    to_row += here * (Index)args.strides[0][d];               \
    from_row += here * (Index)args.strides[1][d];             \
    rest = next;                                              \
  }
#define ONE                                                                  \
  {                                                                          \
    const Index to = to_row + col * (Index)args.strides[0][RANK - 1];        \
    const Index from = from_row + col * (Index)args.strides[1][RANK - 1];    \
    TB_STORE_PLAIN(WORD, p0, to, ELEMENT);                                   \
  }

TB_KERNEL(coordinates) {
  const Index inner = (Index)args.sizes[RANK - 1];
#ifdef TB_CHUNKED
  TB_FOR(i, (Index)args.count / inner) {
    LOCATE(i)
    for (Index col = 0; col < inner; ++col) ONE
  }
#else
  TB_FOR(i, (Index)args.count) {
    const Index col = i % inner;
    LOCATE(i / inner)
    ONE
  }
#endif
} TB_END
