#include "csrc/memory/ipc/SharedStorage.h"

#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include <c10/util/Exception.h>

#include "csrc/core/InterpreterLock.h"
#include "csrc/core/Runtime.h"
#include "csrc/memory/DeviceAllocator.h"

namespace torch_backend::ipc {
namespace {

/// A segment of another process, open as long as somebody uses it: drivers open one only once.
class OpenSegment {
 public:
  explicit OpenSegment(const StorageMessage& message)
      : key_(message.loan.lender, message.device,
             std::string(reinterpret_cast<const char*>(message.segment.bytes), TB_IPC_HANDLE_BYTES)) {
    const WithoutInterpreterLock unlocked;
    const std::lock_guard<std::mutex> lock(mutex());
    auto& [base, users] = open_ones()[key_];
    if (users == 0) {
      try {
        base = device_api().ipc_import(message.device, message.segment);
      } catch (...) {
        open_ones().erase(key_);
        throw;
      }
    }
    ++users;
    base_ = base;
  }
  ~OpenSegment() {
    const WithoutInterpreterLock unlocked;
    const std::lock_guard<std::mutex> lock(mutex());
    const auto found = open_ones().find(key_);
    if (--found->second.second == 0) {
      device_api().ipc_close(std::get<1>(key_), found->second.first);
      open_ones().erase(found);
    }
  }
  OpenSegment(const OpenSegment&) = delete;
  OpenSegment& operator=(const OpenSegment&) = delete;

  void* base() const {
    return base_;
  }

 private:
  using Key = std::tuple<int32_t, c10::DeviceIndex, std::string>;

  /// Guards the map, and is held around the two slots.
  static std::mutex& mutex() {
    static auto& one = *new std::mutex;
    return one;
  }
  /// Base and number of users.
  static std::map<Key, std::pair<void*, int>>& open_ones() {
    static auto& all = *new std::map<Key, std::pair<void*, int>>;
    return all;
  }

  const Key key_;
  void* base_ = nullptr;
};

/// What a borrowed storage keeps.
struct Borrowed {
  Borrowed(std::shared_ptr<LendersBook> book, const StorageMessage& message)
      : book(std::move(book)), entry(message.loan.entry), device(message.device), process(getpid()) {
    this->book->borrow(message.loan);
  }
  ~Borrowed() {
    segment.reset();
    book->give_back(entry);
  }

  const std::shared_ptr<LendersBook> book;
  const uint64_t entry;
  const c10::DeviceIndex device;
  const int32_t process;
  std::unique_ptr<OpenSegment> segment; // none if this process lends
};

void give_back(void* context) {
  std::unique_ptr<Borrowed> borrowed(static_cast<Borrowed*>(context));
  if (borrowed->process != getpid() || device_api().in_bad_fork()) {
    borrowed.release(); // it is the parent process's
    return;
  }
  const WithoutInterpreterLock unlocked;
  try {
    if (!device_api().is_lost(borrowed->device)) {
      synchronize_device(borrowed->device); // the lender may overwrite what is given back
    }
  } catch (const std::exception& error) {
    TORCH_WARN("While waiting for work with a tensor that another process has sent: ", error.what());
  }
}

} // namespace

StorageMessage lend(const c10::Storage& storage) {
  const auto& data = storage.data_ptr();
  const auto device = storage.device();
  TORCH_CHECK(data.get_deleter() != &give_back, "A tensor on ", device,
              " that was received from another process cannot be sent on: its memory belongs to that process. Send a "
              "clone().");
  TORCH_CHECK(device_allocator().is_own(data), "A tensor on ", device,
              " whose memory does not come from the device's allocator cannot be sent to another process. Send a "
              "clone().");
  const WithoutInterpreterLock unlocked;
  synchronize_device(device.index());
  StorageMessage message;
  message.device = device.index();
  device_allocator().export_memory(storage.mutable_data(), device.index(), &message.segment, &message.offset);
  message.size_bytes = storage.nbytes();
  message.address = reinterpret_cast<uintptr_t>(storage.data());
  message.loan = LoanBook::own().lend(storage.data());
  return message;
}

c10::Storage borrow(const StorageMessage& message) {
  resolve_device(message.device);
  auto borrowed = std::make_unique<Borrowed>(LendersBook::open(message.loan), message);
  auto* ptr = reinterpret_cast<char*>(message.address);
  if (message.loan.lender != getpid()) {
    borrowed->segment = std::make_unique<OpenSegment>(message);
    ptr = static_cast<char*>(borrowed->segment->base()) + message.offset;
  }
  c10::DataPtr data(ptr, borrowed.get(), &give_back, c10::Device(c10::DeviceType::PrivateUse1, message.device));
  borrowed.release();
  return c10::Storage(c10::Storage::use_byte_size_t(), message.size_bytes, std::move(data), &device_allocator(),
                      /*resizable=*/false);
}

void acknowledge(const StorageMessage& message) {
  LendersBook::open(message.loan)->acknowledge(message.loan);
}

} // namespace torch_backend::ipc
