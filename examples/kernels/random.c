/* Random numbers: the core says where in a generator's sequence a call is, and moves it on. */
#include <stdint.h>

#include "kernels.h"

/* Philox 4x32-10: four numbers for each counter, whose halves are `low` and `high`. */
static void philox(uint64_t seed, uint64_t low, uint64_t high, uint32_t numbers[4]) {
  uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  uint32_t c[4] = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
    const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ key[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ key[1],
                              (uint32_t)a};
    for (int i = 0; i < 4; ++i) c[i] = next[i];
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  for (int i = 0; i < 4; ++i) numbers[i] = c[i];
}

struct draws {
  tb_philox generator;
  double p;
  uint64_t num_drawn;
  uint32_t numbers[4];
};

/* Element n takes number n % 4 of the counter {offset / 4, n / 4}. */
static void draw(void* const* at, const void* state) {
  struct draws* d = (struct draws*)state;
  const uint64_t n = d->num_drawn++;
  if (n % 4 == 0) philox(d->generator.seed, d->generator.offset / 4, n / 4, d->numbers);
  *(float*)at[0] = (d->numbers[n % 4] >> 8) * 0x1p-24 < d->p ? 1 : 0;
}

/* aten::bernoulli_.float(Tensor(a!) self, float p=0.5, *, Generator? generator=None) -> Tensor(a!): the tensor is written,
 * and there is no output */
KERNEL(bernoulli) {
  const tb_tensor* self = tensor_of(&args[0]);
  struct draws d = {.generator = *(const tb_philox*)args[2].v.p, .p = number_of(&args[1])};
  (void)context, (void)num_args;
  trace("aten::bernoulli_.float");
  return for_each_element(&self, 1, draw, &d);
}
