// What a step's overflow does to the scale of the loss: scale, growth_tracker (i32), found_inf.
typedef struct {
  tb_scalar growth, backoff;
  i64 interval;
} Args;
TB_KERNEL(amp_scale) {
  TB_FOR(only, 1) {
    const f32 scale = TB_LOAD_f32(p0, 0);
    const i32 steps = TB_LOAD_i32(p1, 0) + 1;
    if (TB_LOAD_f32(p2, 0) > 0) {
      TB_STORE_f32(p0, 0, scale * args.backoff.f32_);
      TB_STORE_i32(p1, 0, 0);
    } else if (steps == (i32)args.interval) {
      const f32 grown = scale * args.growth.f32_;
      if (isfinite(grown)) TB_STORE_f32(p0, 0, grown);
      TB_STORE_i32(p1, 0, 0);
    } else {
      TB_STORE_i32(p1, 0, steps);
    }
  }
} TB_END
