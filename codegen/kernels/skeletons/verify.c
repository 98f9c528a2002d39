// Reports each of p0's flags that is not set, to the error cell p1.

typedef struct {
  i64 count;
  i64 op;
} Args;

TB_KERNEL(verify) {
  TB_FOR(i, (Index)args.count) {
    if (!TB_LOAD_b8(p0, i)) tb_report(p1, TB_INVALID_VALUE, args.op, (i64)i, args.count);
  }
} TB_END
