// Which memory other processes use, written down where all of them see it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace torch_backend::ipc {

/// Note [Lending memory to other processes]
/// A process that sends a tensor lends its memory: the allocator does not reuse the block, whatever becomes of the
/// sender's tensors, until every process that received it has let go. Every message is a loan of its own, an entry of
/// the lender's book. The book is a file without a name, which borrowers open through /proc, so nothing is left behind
/// when processes end, in whatever way.
///
/// An entry is a word that counts how often the message was received, and a byte of the file that each process which
/// uses the memory holds a shared lock on. The memory has come back when the message was received and nobody holds the
/// lock. The system drops the locks of processes that end, killed ones included, so none of them can keep memory. A
/// message that nobody ever receives does: the lender cannot tell it from one that is on its way.
///
/// As an entry is used again for another loan, the word also has a generation, which goes up when memory comes back. A
/// message that is received after that (a copy of one, say) is refused.
///
/// The lender holds no lock of its own; what it receives itself is locked through another open file, as by any process.

/// Names a loan; travels with the message.
struct LoanTicket {
  int32_t lender = 0; // process id
  int32_t file = -1;  // the lender's descriptor of its book
  uint64_t mark = 0;  // of the book
  uint64_t entry = 0;
  uint64_t generation = 0;
};

/// The lender's book of this process. Functions may be called from any thread.
class LoanBook {
 public:
  /// In a process that was forked from a lender: a new one. Throws if the system has no room for it.
  static LoanBook& own();

  /// A loan of `memory`, whose message is about to be sent.
  LoanTicket lend(const void* memory);
  /// Whether somebody may use the memory, or a message is on its way; loans that have come back are forgotten.
  bool is_lent(const void* memory) noexcept;
  /// Loans that have not come back.
  std::size_t num_lent() noexcept;

 private:
  LoanBook();
  bool has_come_back(uint64_t entry) noexcept;
  void forget_returned(std::vector<uint64_t>& entries) noexcept;

  const int32_t process_;
  int file_ = -1;
  uint64_t mark_ = 0;
  std::atomic<uint64_t>* words_ = nullptr;

  std::mutex mutex_; // guards all below
  uint64_t num_ever_used_ = 0;
  std::vector<uint64_t> unused_; // entries to use again
  struct Loans {
    std::vector<uint64_t> entries;
    std::size_t look_at = 16; // number of entries at which those that have come back are forgotten
  };
  std::map<const void*, Loans> loans_; // by memory
};

/// A lender's book, opened by a process that receives from it.
class LendersBook {
 public:
  /// One object per book, however many loans. Throws if the lender has ended or may not be looked at.
  static std::shared_ptr<LendersBook> open(const LoanTicket& ticket);
  ~LendersBook();
  LendersBook(const LendersBook&) = delete;
  LendersBook& operator=(const LendersBook&) = delete;

  /// The message has arrived, and this process uses the memory until give_back. Throws if the memory has gone back
  /// already.
  void borrow(const LoanTicket& ticket);
  void give_back(uint64_t entry) noexcept;
  /// The message has arrived, and this process has the memory by an earlier loan.
  void acknowledge(const LoanTicket& ticket);

 private:
  LendersBook(int file, const LoanTicket& ticket);
  void count_message(const LoanTicket& ticket);

  const int file_;
  const int32_t opened_by_; // process: one forked from it shares its locks, and must leave them alone
  std::atomic<uint64_t>* words_ = nullptr;
  std::mutex mutex_; // guards held_, and locks
  std::map<uint64_t, int> held_;
};

} // namespace torch_backend::ipc
