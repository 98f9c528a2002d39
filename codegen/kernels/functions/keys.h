// Keys of elements: unsigned numbers in the order of the values, NaN is the greatest, -0 is 0.
//
// KEY, WIDE    u32 or u64; whether it is that
// VALUE        how elements are stored
// UNSIGNED     as u64, which are turned into i64 of the same order
// DESCENDING   0 or 1: whether keys are in the order of the values the other way round
// BIAS         of whole numbers: as many low bits as they are stored in have their order

#ifdef UNSIGNED
#define LOAD(p, i) (((u64)1 << 63) ^ TB_LOAD_AS(VALUE, p, i))
#else
#define LOAD(p, i) TB_LOAD_AS(VALUE, p, i)
#endif

#ifdef WIDE
typedef union {
  T value;
  u64 bits;
} tb_bits_of;
#define SIGN ((u64)1 << 63)
#define FLIPPED(bits) ((bits) & SIGN ? ~(bits) : (bits) | SIGN)
#define BITS(x) ((tb_bits_of_T(x)))
TB_DEVICE u64 tb_bits_of_T(T x) { tb_bits_of both; both.value = x; return both.bits; }
#else
#define SIGN 0x80000000u
#define FLIPPED(bits) ((bits) & SIGN ? ~(bits) : (bits) | SIGN)
#define BITS(x) tb_bits_f32(x)
#endif

TB_DEVICE KEY tb_key(T x) {
#ifdef FLOATING
  const KEY bits = x == 0 ? (KEY)0 : BITS(x);
  const KEY key = x != x ? ~(KEY)0 : FLIPPED(bits);
#else
  const KEY key = ((KEY)x ^ SIGN) + BIAS;
#endif
  return DESCENDING ? ~key : key;
}
#ifdef FLOATING
#define IS_NAN_KEY(key) ((key) == (DESCENDING ? (KEY)0 : ~(KEY)0))
#else
#define IS_NAN_KEY(key) 0 // every key is a number's
#endif
#define KEYS(p) ((TB_GLOBAL KEY*)(p))
#define PLACES(p) ((TB_GLOBAL i32*)(p))
