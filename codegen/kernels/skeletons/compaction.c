// Elements of a contiguous mask that are not zero, in order: chunks count theirs, one item adds these up, and chunks go
// through theirs again.
//
// p0 the mask, p1 counts before each chunk and in all, p2 and p3 as the action needs them, p4 the error cell
//
// LOAD(p, i)     of the mask
// ACTION_count, ACTION_scan, ACTION_places, ACTION_select, ACTION_scatter

typedef struct {
  i64 count;
  i64 chunks;
  i64 chunk;
  i64 op;
  i64 numbers[4];
  i64 sizes[RANK];
} Args;

#ifdef ACTION_scan
TB_KERNEL(compaction) {
  TB_FOR(only, 1) {
    i64 before = 0;
    for (Index c = 0; c < (Index)args.chunks; ++c) {
      const i64 here = TB_LOAD_i64(p1, c);
      TB_STORE_i64(p1, c, before);
      before += here;
    }
    TB_STORE_i64(p1, args.chunks, before);
  }
} TB_END
#else
TB_KERNEL(compaction) {
  TB_FOR(c, (Index)args.chunks) {
    const Index first = c * (Index)args.chunk;
    const Index end = first + (Index)args.chunk < (Index)args.count ? first + (Index)args.chunk : (Index)args.count;
#ifdef ACTION_count
    i64 found = 0;
    for (Index i = first; i < end; ++i) found += LOAD(p0, i) != 0;
    TB_STORE_i64(p1, c, found);
#else
    i64 at = TB_LOAD_i64(p1, c);
    for (Index i = first; i < end; ++i) {
      if (LOAD(p0, i) != 0) {
#ifdef ACTION_places
        if (at < args.numbers[2]) {
          i64 rest = i;
          for (int d = RANK - 1; d >= 0; --d) {
            const i64 next = d > 0 ? rest / args.sizes[d] : 0;
            TB_STORE_i64(p2, at * args.numbers[0] + d * args.numbers[1], rest - next * args.sizes[d]);
            rest = next;
          }
        }
#elif defined(ACTION_select)
        TB_STORE_PLAIN(WORD, p2, at, TB_LOAD_PLAIN(WORD, p3, i));
#else
        if (at < args.numbers[0]) {
          TB_STORE_PLAIN(WORD, p2, i, TB_LOAD_PLAIN(WORD, p3, at));
        } else {
          tb_report(p4, TB_TOO_FEW_ELEMENTS, args.op, at, args.numbers[0]);
        }
#endif
        ++at;
      }
    }
#endif
  }
} TB_END
#endif
