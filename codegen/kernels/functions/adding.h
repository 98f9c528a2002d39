// What the items of a block add up: all of them come here together.
//
// GROUP   items of a block
// shared  local memory with a place for each

// before, all: of what the items before this one have, and of all of them.
#define ADD_UP_ITEMS(type, mine)                        \
  type before = 0, all = mine;                          \
  TB_UNROLL                                             \
  for (int mask = 1; mask < GROUP; mask *= 2) {         \
    type other;                                         \
    TB_FROM_OTHER(other, all, mask, shared)             \
    before += (item & mask) != 0 ? other : 0;           \
    all += other;                                       \
  }                                                     \
  (void)before;
