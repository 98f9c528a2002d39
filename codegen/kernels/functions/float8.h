// Eight-bit floating dtypes: they are stored, and computed with as f32. Bit by bit what PyTorch's conversions give
// (c10/util/Float8_*.h): to the nearest, ties to even, and beyond the largest number to infinity, or NaN where there is none.
// Those that end in "uz" have one zero, and NaN in place of the other.
//
// E4M3FN_BEYOND  what e4m3fn has for larger numbers: the largest, or NaN

// With `digits` bits below the leading one and exponents that are `bias` too large; `largest` are the bits of the largest
// finite number, and `beyond` and `nan` those of what is larger, and of NaN, `is_signed` or not.
TB_DEVICE u8 tb_float8(float x, int digits, int bias, u32 largest, u32 beyond, u32 nan, int is_signed) {
  const u32 bits = tb_bits_f32(x);
  const u32 sign = bits >> 24 & 0x80;
  const u32 size = bits & 0x7fffffff;
  const int shift = 23 - digits;
  u32 result;
  if (size > 0x7f800000) {
    result = nan;
  } else if (size < (u32)(128 - bias) << 23) { // less than the least normal number: a sum rounds it to a whole place
    const u32 place = (u32)(128 - bias + shift) << 23;
    result = tb_bits_f32(tb_f32_of_bits(size) + tb_f32_of_bits(place)) - place;
  } else {
    result = ((size + (size >> shift & 1) + (1u << (shift - 1)) - 1) >> shift) - ((u32)(127 - bias) << digits);
    result = result > largest ? beyond : result;
  }
  return (u8)(is_signed || (result != 0 && result != 0x80) ? result | sign : result);
}

TB_DEVICE float tb_f32_of_float8(u32 bits, int digits, int bias) {
  const u32 exponent = (bits & 0x7f) >> digits;
  const u32 rest = bits & ((1u << digits) - 1);
  const float size = exponent != 0 ? tb_f32_of_bits((exponent + (u32)(127 - bias)) << 23 | rest << (23 - digits))
                                   : (float)rest * tb_f32_of_bits((u32)(128 - bias - digits) << 23);
  return bits & 0x80 ? -size : size;
}

#define TB_NAN_F32 tb_f32_of_bits(0x7fc00000)
// The bits as those of f32, whose exponent is larger by 120.
TB_DEVICE float tb_load_e4m3fn(u8 x) {
  const u16 size = (u16)(x & 0x7f);
  const u16 sign = (u16)((x & 0x80) << 8);
#ifdef __OPENCL_VERSION__
  // Numbers below the least normal one may be 0: of those of e4m3fn, what they have beyond it is the difference of normal ones.
  const u16 least = (u16)(size < 8 ? 0x3c80 : 0);
  const u16 bits = (u16)(size == 0x7f ? 0x7fc0 : (size << 4) + (size < 8 ? 0x3c80 : 0x3c00));
  const float value = tb_f32_of_bits((u32)bits << 16) - tb_f32_of_bits((u32)least << 16);
  return tb_f32_of_bits(tb_bits_f32(value) | (u32)sign << 16);
#else
  const u16 bits = (u16)((size == 0x7f ? 0x7fc0 : size << 4) | sign);
  return tb_f32_of_bits((u32)bits << 16) * 1.329227995784916e36f; // 2^120
#endif
}
TB_DEVICE float tb_load_e5m2(u8 x) {
  return tb_f32_of_half((u16)(x << 8));
}
TB_DEVICE float tb_load_e4m3fnuz(u8 x) {
  return x == 0x80 ? TB_NAN_F32 : tb_f32_of_float8(x, 3, 8);
}
TB_DEVICE float tb_load_e5m2fnuz(u8 x) {
  return x == 0x80 ? TB_NAN_F32 : tb_f32_of_float8(x, 2, 16);
}
#define TB_LOAD_e4m3fn(p, i) tb_load_e4m3fn(TB_LOAD_PLAIN(u8, p, i))
#define TB_LOAD_e5m2(p, i) tb_load_e5m2(TB_LOAD_PLAIN(u8, p, i))
#define TB_LOAD_e4m3fnuz(p, i) tb_load_e4m3fnuz(TB_LOAD_PLAIN(u8, p, i))
#define TB_LOAD_e5m2fnuz(p, i) tb_load_e5m2fnuz(TB_LOAD_PLAIN(u8, p, i))
#define TB_STORE_e4m3fn(p, i, x) TB_STORE_PLAIN(u8, p, i, tb_float8((float)(x), 3, 7, 0x7e, E4M3FN_BEYOND, 0x7f, 1))
#define TB_STORE_e5m2(p, i, x) TB_STORE_PLAIN(u8, p, i, tb_float8((float)(x), 2, 15, 0x7b, 0x7c, 0x7f, 1))
#define TB_STORE_e4m3fnuz(p, i, x) TB_STORE_PLAIN(u8, p, i, tb_float8((float)(x), 3, 8, 0x7f, 0x80, 0x80, 0))
#define TB_STORE_e5m2fnuz(p, i, x) TB_STORE_PLAIN(u8, p, i, tb_float8((float)(x), 2, 16, 0x7f, 0x80, 0x80, 0))
