// Elements computed from where they are: `row` and `col` are the last two coordinates.
//
// RANK       of the output, at least 2; p0 the output, p1 an input of its shape where there is one
// ELEMENT    what is stored; NUMBER(n) are numbers of the call in A, args.whole[n] whole ones
// WORD       stored as it is

#ifdef TB_HAS_f64
typedef f64 A;
#define NUMBER(n) (args.wide[n].f64_)
#else
typedef f32 A;
#define NUMBER(n) (args.narrow[n].f32_)
#endif

typedef struct {
  i64 count;
  i64 sizes[RANK];
  i64 strides[2][RANK];
  i64 whole[4];
  tb_scalar wide[4];
  tb_scalar narrow[4];
} Args;

TB_KERNEL(coordinates) {
  TB_FOR(i, (Index)args.count) {
    Index rest = i, to = 0, from = 0, row = 0, col = 0;
    for (int d = RANK - 1; d >= 0; --d) {
      const Index next = d > 0 ? rest / (Index)args.sizes[d] : 0;
      const Index here = rest - next * (Index)args.sizes[d];
      if (d == RANK - 1) col = here;
      if (d == RANK - 2) row = here;
      to += here * (Index)args.strides[0][d];
      from += here * (Index)args.strides[1][d];
      rest = next;
    }
    (void)row;
    (void)col;
    (void)from;
    STORE(p0, to, ELEMENT);
  }
} TB_END
