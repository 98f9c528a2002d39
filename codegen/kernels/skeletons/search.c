// Where values belong in sorted rows: before the first element that is not less, or with RIGHT before the first that is
// greater. Comparisons are the CPU's: what is NaN is neither.
//
// p0 places, p1 values, p2 the rows, p3 the order of each with SORTER
//
// VALUE   how values and elements are stored
// PLACE   how places are

typedef struct {
  i64 count;
  i64 values; // of each row
  i64 size;   // of each row
  i64 rows;   // 1: the same for all values
} Args;

TB_KERNEL(search) {
  TB_FOR(i, (Index)args.count) {
    const Index start = args.rows == 1 ? 0 : i / (Index)args.values * (Index)args.size;
    const T value = (T)TB_LOAD_AS(VALUE, p1, i);
    Index low = 0, high = (Index)args.size;
    while (low < high) {
      const Index middle = low + (high - low) / 2;
#ifdef SORTER
      const T there = (T)TB_LOAD_AS(VALUE, p2, start + (Index)TB_LOAD_i64(p3, start + middle));
#else
      const T there = (T)TB_LOAD_AS(VALUE, p2, start + middle);
#endif
#ifdef RIGHT
      if (!(there > value)) low = middle + 1;
#else
      if (!(there >= value)) low = middle + 1;
#endif
      else high = middle;
    }
    TB_STORE_AS(PLACE, p0, i, low);
  }
} TB_END
