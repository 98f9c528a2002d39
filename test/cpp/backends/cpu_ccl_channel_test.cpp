// The ring between two ranks of the xcpu device: messages arrive whole and in order, whatever their size.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "ccl/channel.h"

namespace xcpu::ccl {
namespace {

using bytes = std::vector<unsigned char>;

signature message(uint64_t count) {
  return {operation::point_to_point, {TB_DTYPE_UINT, 8, 1}, kNoReduction, kNoRoot, count};
}

bytes pattern(uint64_t size, uint32_t seed) {
  std::minstd_rand random(seed + 1);
  bytes data(size);
  for (unsigned char& byte : data) byte = static_cast<unsigned char>(random() >> 8);
  return data;
}

class ChannelTest : public ::testing::Test {
 protected:
  explicit ChannelTest(uint64_t ring_bytes = 1024)
      : ring_(new (std::align_val_t(kChannelLine)) unsigned char[ring_bytes]),
        writer({&control_, ring_.get(), ring_bytes}),
        reader({&control_, ring_.get(), ring_bytes}) {}

 private:
  struct release {
    void operator()(unsigned char* ring) const {
      ::operator delete[](ring, std::align_val_t(kChannelLine));
    }
  };
  channel_control control_{};
  std::unique_ptr<unsigned char[], release> ring_;

 protected:
  // Both wait for each other by trying again.
  void send(const bytes& data) {
    uint64_t done = 0;
    do
      while (!writer.write(message(data.size()), data.data(), data.size(), &done)) std::this_thread::yield();
    while (done < data.size());
  }
  bytes receive(uint64_t size, uint64_t at_a_time) {
    bytes data;
    bool first = true;
    while (first || data.size() < size) {
      const record* next = reader.front();
      if (!next) {
        std::this_thread::yield();
        continue;
      }
      EXPECT_EQ(next->call.count, size);
      EXPECT_EQ(next->message_bytes, size);
      const uint64_t taken = std::min(reader.data_bytes(), at_a_time);
      data.insert(data.end(), reader.data(), reader.data() + taken);
      reader.take(taken);
      first = false;
    }
    return data;
  }

  channel_writer writer;
  channel_reader reader;
};

TEST_F(ChannelTest, IsEmptyAtFirst) {
  EXPECT_EQ(reader.front(), nullptr);
}

TEST_F(ChannelTest, KeepsSmallMessagesUntilTheyAreRead) {
  for (uint32_t number = 0; number < 5; ++number) send(pattern(number * 20, number));
  for (uint32_t number = 0; number < 5; ++number)
    EXPECT_EQ(receive(number * 20, 1000), pattern(number * 20, number)) << number;
  EXPECT_EQ(reader.front(), nullptr);
}

TEST_F(ChannelTest, RefusesWhatDoesNotFitAndTakesItLater) {
  const bytes data = pattern(64, 1);
  int written = 0;
  uint64_t done = 0;
  while (writer.write(message(64), data.data(), 64, &done)) {
    ++written;
    done = 0;
  }
  EXPECT_EQ(written, 8); // a line of header and a line of data each, in 16 lines
  EXPECT_EQ(done, 0u);
  EXPECT_EQ(receive(64, 64), data);
  EXPECT_TRUE(writer.write(message(64), data.data(), 64, &done));
  EXPECT_EQ(done, 64u);
}

TEST_F(ChannelTest, NeverGoesAroundTheEnd) {
  // Each round starts one line further.
  for (uint32_t round = 0; round < 64; ++round) {
    std::thread sender([&] {
      send({});
      send(pattern(700, round));
    });
    EXPECT_EQ(receive(0, 1000), bytes());
    EXPECT_EQ(receive(700, 1000), pattern(700, round)) << round;
    sender.join();
  }
}

class LargeChannelTest : public ChannelTest {
 protected:
  LargeChannelTest() : ChannelTest(16 << 10) {}
};

TEST_F(LargeChannelTest, MessagesOfAllSizesArriveInOrder) {
  constexpr uint32_t kMessages = 3000;
  const auto size_of = [](uint32_t number) {
    std::minstd_rand random(number + 1);
    random.discard(2);
    const uint64_t most = number % 10 == 0 ? 60'000 : 900;
    return random() % most;
  };
  std::thread sender([&] {
    for (uint32_t number = 0; number < kMessages; ++number) send(pattern(size_of(number), number));
  });
  for (uint32_t number = 0; number < kMessages; ++number) {
    const uint64_t size = size_of(number);
    if (receive(size, number % 3 == 0 ? 500 : 100'000) != pattern(size, number)) {
      ADD_FAILURE() << "message " << number << " of " << size << " bytes";
      break;
    }
  }
  sender.join();
}

} // namespace
} // namespace xcpu::ccl
