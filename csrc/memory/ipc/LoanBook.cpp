#include "csrc/memory/ipc/LoanBook.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <tuple>

#include <c10/util/Exception.h>
#include <c10/util/error.h>

namespace torch_backend::ipc {
namespace {

constexpr char kName[] = "torch_backend_loans";

// The mark lies at the beginning, the words behind it. Untouched pages take no memory.
constexpr std::size_t kHeaderBytes = 4096;
constexpr uint64_t kMaxEntries = uint64_t{1} << 20;
constexpr std::size_t kBookBytes = kHeaderBytes + kMaxEntries * sizeof(uint64_t);

// Of a word: the number of times that the message was received, and above it the generation.
constexpr int kGenerationShift = 16;
constexpr uint64_t kReceivedMask = (uint64_t{1} << kGenerationShift) - 1;

static_assert(std::atomic<uint64_t>::is_always_lock_free, "processes share these");

/// All of the book; NULL if that is not possible.
std::atomic<uint64_t>* map_words(int file) {
  void* book = mmap(nullptr, kBookBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return book == MAP_FAILED ? nullptr
                            : reinterpret_cast<std::atomic<uint64_t>*>(static_cast<char*>(book) + kHeaderBytes);
}

void unmap_words(std::atomic<uint64_t>* words) {
  munmap(reinterpret_cast<char*>(words) - kHeaderBytes, kBookBytes);
}

struct flock byte_of(uint64_t entry, short type) {
  struct flock range{};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(kHeaderBytes + entry * sizeof(uint64_t));
  range.l_len = 1;
  return range;
}

std::string gone(const LoanTicket& ticket, const char* why) {
  return c10::str("A tensor that process ", ticket.lender, " sent cannot be received: ", why,
                  ". A process that sends tensors of a device has to live until they are received.");
}

} // namespace

// ---- the lender's side ----

LoanBook& LoanBook::own() {
  static std::atomic<LoanBook*> current{nullptr};
  LoanBook* book = current.load(std::memory_order_acquire);
  if (book && book->process_ == getpid()) {
    return *book;
  }
  auto* fresh = new LoanBook;
  // That of a parent process stays as it is: a thread that does not exist here may have its mutex.
  if (current.compare_exchange_strong(book, fresh, std::memory_order_acq_rel)) {
    return *fresh;
  }
  unmap_words(fresh->words_);
  close(fresh->file_);
  delete fresh;
  return *book;
}

LoanBook::LoanBook() : process_(getpid()) {
  const int file = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const bool made = file >= 0 && ftruncate(file, kBookBytes) == 0 &&
                    fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 &&
                    getrandom(&mark_, sizeof mark_, 0) == sizeof mark_ &&
                    pwrite(file, &mark_, sizeof mark_, 0) == sizeof mark_ && (words_ = map_words(file)) != nullptr;
  if (!made) {
    const int error = errno;
    close(file);
    TORCH_CHECK(false, "The system has no room for a list of the tensors that were sent to other processes: ",
                c10::utils::str_error(error), ".");
  }
  file_ = file;
}

LoanTicket LoanBook::lend(const void* memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& loans = loans_[memory];
  if (loans.entries.size() >= loans.look_at) {
    forget_returned(loans.entries);
    loans.look_at = std::max<std::size_t>(16, 2 * loans.entries.size());
  }
  TORCH_CHECK(!unused_.empty() || num_ever_used_ < kMaxEntries,
              "No tensor can be sent to another process: ", kMaxEntries,
              " were sent that nobody has received, or that are still in use.");
  uint64_t entry = num_ever_used_;
  if (unused_.empty()) {
    ++num_ever_used_;
  } else {
    entry = unused_.back();
    unused_.pop_back();
  }
  loans.entries.push_back(entry);
  return {process_, file_, mark_, entry, words_[entry].load() >> kGenerationShift};
}

/// Under the mutex.
bool LoanBook::has_come_back(uint64_t entry) noexcept {
  uint64_t word = words_[entry].load();
  if ((word & kReceivedMask) == 0) {
    return false;
  }
  auto range = byte_of(entry, F_WRLCK);
  if (fcntl(file_, F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK) {
    return false;
  }
  // Not if the message was received once more in the meantime.
  return words_[entry].compare_exchange_strong(word, ((word >> kGenerationShift) + 1) << kGenerationShift);
}

/// Under the mutex.
void LoanBook::forget_returned(std::vector<uint64_t>& entries) noexcept {
  const auto returned =
      std::partition(entries.begin(), entries.end(), [this](uint64_t entry) { return !has_come_back(entry); });
  unused_.insert(unused_.end(), returned, entries.end());
  entries.erase(returned, entries.end());
}

bool LoanBook::is_lent(const void* memory) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = loans_.find(memory);
  if (found == loans_.end()) {
    return false;
  }
  forget_returned(found->second.entries);
  if (!found->second.entries.empty()) {
    return true;
  }
  loans_.erase(found);
  return false;
}

std::size_t LoanBook::num_lent() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::size_t number = 0;
  for (auto& [memory, loans] : loans_) {
    forget_returned(loans.entries);
    number += loans.entries.size();
  }
  return number;
}

// ---- the borrower's side ----

std::shared_ptr<LendersBook> LendersBook::open(const LoanTicket& ticket) {
  static std::mutex mutex; // guards books
  static auto& books = *new std::map<std::tuple<int32_t, int32_t, int32_t, uint64_t>, std::weak_ptr<LendersBook>>;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& known = books[{getpid(), ticket.lender, ticket.file, ticket.mark}];
  if (auto book = known.lock()) {
    return book;
  }
  for (auto book = books.begin(); book != books.end();) {
    book = book->second.expired() && &book->second != &known ? books.erase(book) : std::next(book);
  }
  // Looked at before it is opened: the number may mean another process by now, or another file of it.
  const std::string path = c10::str("/proc/", ticket.lender, "/fd/", ticket.file);
  const std::string expected = c10::str("/memfd:", kName, " ");
  char target[64] = {};
  const bool is_there = readlink(path.c_str(), target, sizeof target - 1) >= 0;
  TORCH_CHECK(is_there || errno != EACCES, gone(ticket, "this process may not look at that one's files"));
  TORCH_CHECK(is_there && std::string(target).rfind(expected, 0) == 0, gone(ticket, "it has ended"));
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  TORCH_CHECK(file >= 0, gone(ticket, errno == EACCES ? "this process may not open that one's files" : "it has ended"));
  const std::shared_ptr<LendersBook> book(new LendersBook(file, ticket));
  known = book;
  return book;
}

LendersBook::LendersBook(int file, const LoanTicket& ticket) : file_(file), opened_by_(getpid()) {
  uint64_t mark = 0;
  const bool is_same = pread(file, &mark, sizeof mark, 0) == sizeof mark && mark == ticket.mark;
  words_ = is_same ? map_words(file) : nullptr;
  if (!words_) {
    close(file);
  }
  TORCH_CHECK(is_same, gone(ticket, "it has ended, and another one has its number"));
  TORCH_CHECK(words_, gone(ticket, "there is no room for that process's list of tensors"));
}

LendersBook::~LendersBook() {
  unmap_words(words_);
  close(file_);
}

void LendersBook::count_message(const LoanTicket& ticket) {
  uint64_t word = words_[ticket.entry].load();
  do {
    TORCH_CHECK(word >> kGenerationShift == ticket.generation,
                gone(ticket,
                     "it was received before, and all who received it have let go of it, so its memory may be in "
                     "use for something else"));
  } while ((word & kReceivedMask) != kReceivedMask && !words_[ticket.entry].compare_exchange_weak(word, word + 1));
}

void LendersBook::borrow(const LoanTicket& ticket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // The lock first: once the message is counted, what is not locked counts as given back.
  auto range = byte_of(ticket.entry, F_RDLCK);
  TORCH_CHECK(fcntl(file_, F_OFD_SETLK, &range) == 0,
              gone(ticket, "the system does not lock that process's list of tensors"));
  int& held = held_[ticket.entry];
  try {
    count_message(ticket);
  } catch (...) {
    if (held == 0) {
      range.l_type = F_UNLCK;
      fcntl(file_, F_OFD_SETLK, &range);
      held_.erase(ticket.entry);
    }
    throw;
  }
  ++held;
}

void LendersBook::give_back(uint64_t entry) noexcept {
  if (getpid() != opened_by_) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto held = held_.find(entry);
  if (--held->second == 0) {
    held_.erase(held);
    auto range = byte_of(entry, F_UNLCK);
    fcntl(file_, F_OFD_SETLK, &range);
  }
}

void LendersBook::acknowledge(const LoanTicket& ticket) {
  count_message(ticket);
}

} // namespace torch_backend::ipc
