// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//
// w[0..3] are the numbers of the counter whose lower half is `step`, the generator's offset / 4 and what a kernel adds to
// it (less than 64), and whose upper half is `n`. See tb_philox in torch_backend/device.h.
#define TB_PHILOX_ROUND                                 \
  {                                                     \
    const u32 high0 = tb_mul_hi(0xD2511F53u, c0);       \
    const u32 high1 = tb_mul_hi(0xCD9E8D57u, c2);       \
    const u32 low0 = 0xD2511F53u * c0;                  \
    const u32 low1 = 0xCD9E8D57u * c2;                  \
    c0 = high1 ^ c1 ^ k0;                               \
    c1 = low1;                                          \
    c2 = high0 ^ c3 ^ k1;                               \
    c3 = low0;                                          \
    k0 += 0x9E3779B9u;                                  \
    k1 += 0xBB67AE85u;                                  \
  }

TB_DEVICE void tb_philox(u64 seed, u64 step, u64 n, TB_PRIVATE u32* w) {
  u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
  u32 c0 = (u32)step, c1 = (u32)(step >> 32), c2 = (u32)n, c3 = (u32)(n >> 32);
  TB_PHILOX_ROUND TB_PHILOX_ROUND TB_PHILOX_ROUND TB_PHILOX_ROUND TB_PHILOX_ROUND
  TB_PHILOX_ROUND TB_PHILOX_ROUND TB_PHILOX_ROUND TB_PHILOX_ROUND TB_PHILOX_ROUND
  w[0] = c0;
  w[1] = c1;
  w[2] = c2;
  w[3] = c3;
}

// (0, 1], of one number.
#define TB_OPEN(x) ((T)(x) * TC(2.3283064365386963e-10) + TC(1.1641532182693481e-10))

// The upper 64 bits of a product.
TB_DEVICE u64 tb_mul_hi_64(u64 a, u64 b) {
  const u64 low_a = (u32)a, high_a = a >> 32, low_b = (u32)b, high_b = b >> 32;
  const u64 middle = low_a * high_b + (low_a * low_b >> 32);
  const u64 other = high_a * low_b + (u32)middle;
  return high_a * high_b + (middle >> 32) + (other >> 32);
}
