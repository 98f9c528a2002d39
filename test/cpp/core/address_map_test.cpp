// The helper for device libraries whose memory has handles: torch_backend/address_map.h.
#include "torch_backend/address_map.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <random>

namespace {

void* at(uintptr_t address) {
  return reinterpret_cast<void*>(address);
}

class AddressMapTest : public ::testing::Test {
 protected:
  void TearDown() override {
    tb_address_map_clear(&map);
  }
  // The base of the range that is found, 0 if none is.
  uintptr_t find(uintptr_t address) {
    const tb_address_range* range = tb_address_map_find(&map, at(address));
    return range ? reinterpret_cast<uintptr_t>(range->base) : 0;
  }
  tb_address_map map = {};
};

TEST_F(AddressMapTest, FindsTheRangeThatHasAnAddress) {
  EXPECT_EQ(find(100), 0u);
  int handle = 0;
  ASSERT_TRUE(tb_address_map_insert(&map, at(100), 50, &handle));
  ASSERT_TRUE(tb_address_map_insert(&map, at(150), 1, nullptr));
  ASSERT_TRUE(tb_address_map_insert(&map, at(10), 20, nullptr));
  EXPECT_EQ(find(9), 0u);
  EXPECT_EQ(find(10), 10u);
  EXPECT_EQ(find(29), 10u);
  EXPECT_EQ(find(30), 0u);
  EXPECT_EQ(find(149), 100u);
  EXPECT_EQ(find(150), 150u);
  EXPECT_EQ(find(151), 0u);
  EXPECT_EQ(tb_address_map_find(&map, at(120))->handle, &handle);
  EXPECT_EQ(tb_address_map_find(&map, at(120))->size_bytes, 50u);
}

TEST_F(AddressMapTest, RefusesWhatOverlaps) {
  ASSERT_TRUE(tb_address_map_insert(&map, at(100), 50, nullptr));
  EXPECT_FALSE(tb_address_map_insert(&map, at(100), 50, nullptr));
  EXPECT_FALSE(tb_address_map_insert(&map, at(149), 5, nullptr));
  EXPECT_FALSE(tb_address_map_insert(&map, at(90), 11, nullptr));
  EXPECT_FALSE(tb_address_map_insert(&map, at(90), 1000, nullptr));
  EXPECT_FALSE(tb_address_map_insert(&map, at(90), 0, nullptr));
  EXPECT_FALSE(tb_address_map_insert(&map, at(90), UINT64_MAX, nullptr));
  EXPECT_TRUE(tb_address_map_insert(&map, at(90), 10, nullptr));
  EXPECT_TRUE(tb_address_map_insert(&map, at(150), 10, nullptr));
}

TEST_F(AddressMapTest, RemovesByTheBaseOnly) {
  ASSERT_TRUE(tb_address_map_insert(&map, at(100), 50, nullptr));
  EXPECT_FALSE(tb_address_map_remove(&map, at(101)));
  EXPECT_FALSE(tb_address_map_remove(&map, at(99)));
  EXPECT_TRUE(tb_address_map_remove(&map, at(100)));
  EXPECT_FALSE(tb_address_map_remove(&map, at(100)));
  EXPECT_EQ(find(120), 0u);
}

// Against a std::map, through growth and in any order.
TEST_F(AddressMapTest, AgreesWithAModel) {
  std::mt19937 random(1);
  std::map<uintptr_t, uintptr_t> model; // end by base
  for (int step = 0; step < 20000; ++step) {
    const uintptr_t address = 1 + random() % 5000, size = 1 + random() % 6;
    const auto next = model.upper_bound(address);
    const auto before = next == model.begin() ? model.end() : std::prev(next);
    const bool inside = before != model.end() && address < before->second;
    ASSERT_EQ(find(address), inside ? before->first : 0);
    if (random() % 5 < 3) {
      const bool is_free = !inside && (next == model.end() || address + size <= next->first);
      ASSERT_EQ(tb_address_map_insert(&map, at(address), size, nullptr), is_free);
      if (is_free) model[address] = address + size;
    } else {
      ASSERT_EQ(tb_address_map_remove(&map, at(address)), static_cast<int>(model.erase(address)));
    }
  }
  EXPECT_EQ(map.count, model.size());
  EXPECT_GT(map.count, 64u);
}

TEST(AddressReservation, CannotBeLoadedFrom) {
  constexpr uint64_t size = 1ull << 36; // more than there is memory
  void* base = tb_address_reserve(size);
  ASSERT_NE(base, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % 4096, 0u);
  void* other = tb_address_reserve(1);
  const auto [low, high] = std::minmax({reinterpret_cast<uintptr_t>(base), reinterpret_cast<uintptr_t>(other)});
  EXPECT_GT(high - low, low == reinterpret_cast<uintptr_t>(base) ? size : 1) << "one ends where the other begins";
  EXPECT_EQ(msync(base, 1, MS_ASYNC), 0); // the address is the program's, and nobody can read it
  EXPECT_DEATH({ [[maybe_unused]] volatile char c = *static_cast<volatile char*>(base); }, "");
  tb_address_release(base, size);
  EXPECT_EQ(msync(base, 1, MS_ASYNC), -1);
  tb_address_release(other, 1);
}

TEST(AddressReservation, SaysIfThereAreNone) {
  EXPECT_EQ(tb_address_reserve(0), nullptr);
  EXPECT_EQ(tb_address_reserve(UINT64_MAX - 100), nullptr);
  EXPECT_EQ(tb_address_reserve(1ull << 62), nullptr);
}

} // namespace
