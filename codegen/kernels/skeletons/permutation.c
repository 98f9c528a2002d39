// A random permutation of [0, n). Goes after "philox".
//
// Up to MANY numbers the place of each is how many keys of 64 bits are smaller than its own; key i is the first two numbers
// of the counter {offset / 4, i}. More of them go through ROUNDS rounds of an unbalanced Feistel network on as many bits as
// n - 1 has, again and again until the result is below n (Mitchell et al., "Bandwidth-optimal random shuffling for GPUs",
// 2022).
#define MANY 512

typedef struct {
  i64 n;
  i64 stride;
  i64 seed;
  i64 step;
  i64 bits;
  i64 keys[ROUNDS];
} Args;

TB_DEVICE u64 key_of(u64 seed, u64 step, i64 i) {
  u32 w[4];
  tb_philox(seed, step, (u64)i, w);
  return (u64)w[0] << 32 | w[1];
}

TB_KERNEL(permutation) {
  const i64 n = args.n;
  if (n <= MANY) {
    const u64 seed = (u64)args.seed, step = (u64)args.step;
    TB_FOR(i, n) {
      const u64 own = key_of(seed, step, i);
      i64 place = 0;
      for (i64 j = 0; j < n; ++j) {
        const u64 other = key_of(seed, step, j);
        place += other < own || (other == own && j < i);
      }
      TB_STORE_AS(OUT, p0, place * args.stride, i);
    }
  } else {
    const int left_bits = (int)args.bits / 2;
    const int right_bits = (int)args.bits - left_bits;
    const u64 left_mask = ((u64)1 << left_bits) - 1, right_mask = ((u64)1 << right_bits) - 1;
    TB_FOR(i, n) {
      u64 x = (u64)i;
      do {
        u64 left = x >> right_bits, right = x & right_mask;
        for (int round = 0; round < ROUNDS; ++round) {
          const u64 product = ((u64)0xD2B74407u << 32 | 0xB1CE6E93u) * left;
          const u64 mixed = (product >> 32 ^ (u64)args.keys[round] ^ right) & left_mask;
          const u64 moved = (product << (right_bits - left_bits) | right >> left_bits) & right_mask;
          left = mixed;
          right = moved;
        }
        x = left << right_bits | right;
      } while (x >= (u64)n);
      TB_STORE_AS(OUT, p0, i * args.stride, (i64)x);
    }
  }
} TB_END
