// Memory that was lent to other processes: who has it, and when the allocator may use it again.
#include <cstring>

#include <c10/util/Exception.h>

#include "core/allocator_test_device.h"
#include "csrc/memory/ipc/LoanBook.h"

namespace torch_backend::test {
namespace {

using ipc::LendersBook;
using ipc::LoanBook;
using ipc::LoanTicket;

/// A process that receives is this one here: it opens the book as any other does.
std::shared_ptr<LendersBook> receive(const LoanTicket& ticket) {
  auto book = LendersBook::open(ticket);
  book->borrow(ticket);
  return book;
}

class LentMemoryTest : public AllocatorTest {
 protected:
  LentMemoryTest() {
    DeviceOptions options;
    options.extra_capabilities |= TB_CAP_IPC;
    restart(options);
  }
  LoanTicket lend(void* ptr) {
    allocator->export_memory(ptr, &handle, &offset);
    return LoanBook::own().lend(ptr);
  }
  int64_t active_bytes() const {
    return stats().active_bytes[0].current;
  }

  tb_ipc_handle handle{};
  uint64_t offset = 0;
};

TEST_F(LentMemoryTest, ItIsNotReusedBeforeItComesBack) {
  void* ptr = allocate(1000);
  const auto ticket = lend(ptr);
  allocator->free(ptr);
  EXPECT_EQ(allocated_bytes(), 0);
  EXPECT_EQ(active_bytes(), 1024);
  EXPECT_NE(allocate(1000), ptr); // on its way
  const auto book = receive(ticket);
  allocator->collect_lent();
  EXPECT_NE(allocate(1000), ptr); // received
  book->give_back(ticket.entry);
  EXPECT_NE(allocate(1000), ptr); // nobody has looked
  allocator->collect_lent();
  EXPECT_EQ(allocate(1000), ptr);
  expect_consistent(*allocator);
  EXPECT_EQ(LoanBook::own().num_lent(), 0u);
}

TEST_F(LentMemoryTest, WhatHasComeBackIsFreedAtOnce) {
  void* ptr = allocate(1000);
  const auto ticket = lend(ptr);
  receive(ticket)->give_back(ticket.entry);
  allocator->free(ptr);
  EXPECT_EQ(active_bytes(), 0);
  EXPECT_EQ(allocate(1000), ptr);
  allocator->free(ptr); // this allocation was not lent
  EXPECT_EQ(active_bytes(), 0);
}

TEST_F(LentMemoryTest, EveryMessageIsALoan) {
  void* ptr = allocate(1000);
  const auto first = lend(ptr), second = lend(ptr);
  allocator->free(ptr);
  receive(first)->give_back(first.entry);
  allocator->collect_lent();
  EXPECT_EQ(active_bytes(), 1024);
  LendersBook::open(second)->acknowledge(second); // whoever has it has it by another loan
  allocator->collect_lent();
  EXPECT_EQ(active_bytes(), 0);
}

TEST_F(LentMemoryTest, OtherStreamsAreWaitedForToo) {
  void* ptr = allocate(1000);
  EXPECT_TRUE(allocator->record_stream(ptr, stream(2)));
  const auto ticket = lend(ptr);
  allocator->free(ptr);
  receive(ticket)->give_back(ticket.entry);
  allocator->collect_lent();
  EXPECT_EQ(active_bytes(), 1024);
  device->complete_all();
  EXPECT_EQ(allocate(1000), ptr);
  expect_consistent(*allocator);
}

TEST_F(LentMemoryTest, SegmentsOfLentMemoryStay) {
  void* ptr = allocate(4 * kMiB);
  const auto ticket = lend(ptr);
  allocator->free(ptr);
  allocator->empty_cache();
  EXPECT_EQ(device->num_frees, 0);
  receive(ticket)->give_back(ticket.entry);
  allocator->empty_cache();
  EXPECT_EQ(device->num_frees, 1);
  EXPECT_EQ(reserved_bytes(), 0);
}

TEST_F(LentMemoryTest, ItIsCollectedBeforeThePluginIsAsked) {
  void* ptr = allocate(20 * kMiB);
  const auto ticket = lend(ptr);
  allocator->free(ptr);
  receive(ticket)->give_back(ticket.entry);
  EXPECT_EQ(allocate(20 * kMiB), ptr);
  EXPECT_EQ(device->num_allocates, 1);
}

TEST_F(LentMemoryTest, ASegmentIsExportedOnce) {
  void *a = allocate(1000), *b = allocate(2000);
  const auto one = lend(a);
  const tb_ipc_handle first = handle;
  EXPECT_EQ(offset, 0u);
  const auto other = lend(b);
  EXPECT_EQ(offset, 1024u);
  for (const auto& ticket : {one, other}) {
    receive(ticket)->give_back(ticket.entry);
  }
  EXPECT_EQ(std::memcmp(first.bytes, handle.bytes, sizeof first.bytes), 0);
  EXPECT_EQ(device->num_exports, 1);
}

TEST_F(LentMemoryTest, OnlyMemoryInUseIsExported) {
  void* ptr = allocate(1000);
  EXPECT_THROW(allocator->export_memory(static_cast<char*>(ptr) + 512, &handle, &offset), c10::Error);
  allocator->free(ptr);
  EXPECT_THROW(allocator->export_memory(ptr, &handle, &offset), c10::Error);
}

TEST_F(LentMemoryTest, AMessageCountsNoMoreWhenTheMemoryIsBack) {
  int memory = 0;
  const auto ticket = LoanBook::own().lend(&memory);
  const auto book = receive(ticket);
  book->borrow(ticket); // received twice: both have to give it back
  book->give_back(ticket.entry);
  EXPECT_TRUE(LoanBook::own().is_lent(&memory));
  book->give_back(ticket.entry);
  EXPECT_FALSE(LoanBook::own().is_lent(&memory));
  EXPECT_THROW(book->borrow(ticket), c10::Error);
  EXPECT_THROW(book->acknowledge(ticket), c10::Error);
  const auto next = LoanBook::own().lend(&memory); // the same entry
  EXPECT_EQ(next.entry, ticket.entry);
  EXPECT_THROW(book->borrow(ticket), c10::Error);
  EXPECT_TRUE(LoanBook::own().is_lent(&memory));
  receive(next)->give_back(next.entry);
  EXPECT_FALSE(LoanBook::own().is_lent(&memory));
}

TEST_F(LentMemoryTest, BooksOfOthersAreToldApart) {
  int memory = 0;
  auto ticket = LoanBook::own().lend(&memory);
  receive(ticket)->give_back(ticket.entry);
  auto other_mark = ticket;
  other_mark.mark ^= 1;
  EXPECT_THROW(LendersBook::open(other_mark), c10::Error);
  auto other_file = ticket;
  other_file.file = 0;
  EXPECT_THROW(LendersBook::open(other_file), c10::Error);
  auto nobody = ticket;
  nobody.lender = 0x7fffffff;
  EXPECT_THROW(LendersBook::open(nobody), c10::Error);
  EXPECT_FALSE(LoanBook::own().is_lent(&memory));
}

} // namespace
} // namespace torch_backend::test
