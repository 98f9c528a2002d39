#include "shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "region.h"

namespace xcpu {
namespace {

constexpr char kName[] = "torch_backend_xcpu";

// Far more than a process can use, so that no offset is given out twice; a file takes no memory where nothing is
// written.
constexpr uint64_t kFileBytes = 1ull << 62;

// Says in the handle that it is one of ours, in this layout.
constexpr uint32_t kMagic = 0x78637031;

struct handle {
  uint32_t magic;
  int32_t pid; // of the process that has the file open as `fd`
  int32_t fd;
  int32_t device;
  uint64_t offset, size_bytes;
  uint64_t mark; // what lies in the page before the range as long as that is exported
};
static_assert(sizeof(handle) <= TB_IPC_HANDLE_BYTES);

// Closed when the object goes.
class file {
 public:
  explicit file(int fd) : fd_(fd) {}
  ~file() {
    if (fd_ >= 0) close(fd_);
  }
  file(const file&) = delete;
  file& operator=(const file&) = delete;

  int fd() const {
    return fd_;
  }

 private:
  int fd_;
};

// This process's file; a page for the mark lies before each range.
struct arena {
  int fd = -1;
  uint64_t mark = 0; // told from what any other file holds by being random
  std::atomic<uint64_t> end{0};

  arena() {
    if (getrandom(&mark, sizeof mark, 0) != sizeof mark) return;
    const int fresh = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fresh < 0) return;
    // An importer that cut the file would crash its exporter.
    if (ftruncate(fresh, static_cast<off_t>(kFileBytes)) != 0 ||
        fcntl(fresh, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
      close(fresh);
      return;
    }
    fd = fresh;
  }
};

// Never destroyed: worker threads may outlast static destruction.
arena& own() {
  static arena& a = *new arena;
  return a;
}

uint64_t length_of(uint64_t size_bytes) {
  return round_up(size_bytes, page_bytes());
}

// Ranges that could be huge pages begin where one could, in the file and in memory.
uint64_t alignment_of(uint64_t size_bytes) {
  return is_huge(size_bytes) ? kHugePage : page_bytes();
}

uint64_t take_offset(uint64_t size_bytes) {
  std::atomic<uint64_t>& end = own().end;
  uint64_t before = end.load(), begin = 0;
  do {
    begin = round_up(before + page_bytes(), alignment_of(size_bytes));
  } while (!end.compare_exchange_weak(before, begin + length_of(size_bytes)));
  return begin;
}

void* map_file(int fd, uint64_t size_bytes, uint64_t offset, bool accessible) {
  const uint64_t length = length_of(size_bytes);
  void* place = region_map(length, alignment_of(size_bytes), PROT_NONE);
  if (!place) return nullptr;
  const int protection = accessible ? PROT_READ | PROT_WRITE : PROT_NONE;
  if (mmap(place, length, protection, MAP_SHARED | MAP_FIXED, fd, static_cast<off_t>(offset)) == MAP_FAILED) {
    munmap(place, length);
    return nullptr;
  }
  if (is_huge(size_bytes)) madvise(place, length, MADV_HUGEPAGE);
  return place;
}

result gone(const handle& h, const char* why) {
  return failure(TB_STATUS_INVALID_ARGUMENT, "ipc_import: memory of process %d is not there any more: %s", h.pid, why);
}

// Opens the exporter's file. Only a file of that name is touched: a number may mean another file by now, and to open a
// pipe or a terminal has effects.
result open_exporters_file(const handle& h, int* out_fd) {
  const std::string path = "/proc/" + std::to_string(h.pid) + "/fd/" + std::to_string(h.fd);
  const std::string expected = std::string("/memfd:") + kName + " ";
  char target[sizeof kName + 32] = {};
  if (readlink(path.c_str(), target, sizeof target - 1) < 0) {
    if (errno == ENOENT) return gone(h, "the process has ended");
    return failure(TB_STATUS_INTERNAL, "ipc_import: %s cannot be read: %s", path.c_str(), std::strerror(errno));
  }
  if (std::strncmp(target, expected.c_str(), expected.size()) != 0)
    return gone(h, "the process that has this number now is another one");
  *out_fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (*out_fd >= 0) return {};
  if (errno == ENOENT) return gone(h, "the process has ended");
  return failure(TB_STATUS_INTERNAL, "ipc_import: %s cannot be opened: %s", path.c_str(), std::strerror(errno));
}

} // namespace

void* shared_allocate(uint64_t size_bytes, bool accessible, uint64_t* out_offset) {
  if (own().fd < 0 || size_bytes > kLargestRegion) return nullptr;
  const uint64_t offset = take_offset(size_bytes);
  void* ptr = map_file(own().fd, size_bytes, offset, accessible);
  if (ptr) *out_offset = offset;
  return ptr;
}

void shared_free(void* ptr, uint64_t size_bytes, uint64_t offset) {
  const uint64_t mark_bytes = page_bytes();
  munmap(ptr, length_of(size_bytes));
  fallocate(own().fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset - mark_bytes),
            static_cast<off_t>(length_of(size_bytes) + mark_bytes));
}

result shared_export(int32_t device, uint64_t size_bytes, uint64_t offset, tb_ipc_handle* out_handle) {
  const arena& a = own();
  if (pwrite(a.fd, &a.mark, sizeof a.mark, static_cast<off_t>(offset - page_bytes())) != sizeof a.mark)
    return failure(TB_STATUS_INTERNAL, "ipc_export: %s", std::strerror(errno));
  const handle h{kMagic, getpid(), a.fd, device, offset, size_bytes, a.mark};
  *out_handle = {};
  std::memcpy(out_handle->bytes, &h, sizeof h);
  return {};
}

result shared_import(int32_t device, const tb_ipc_handle& given, bool accessible, void** out_ptr,
                     uint64_t* out_size_bytes) {
  handle h;
  std::memcpy(&h, given.bytes, sizeof h);
  if (h.magic != kMagic) return failure(TB_STATUS_INVALID_ARGUMENT, "ipc_import: this is no handle of xcpu");
  if (h.device != device)
    return failure(TB_STATUS_INVALID_ARGUMENT, "ipc_import: memory of device %d cannot be opened on device %d",
                   h.device, device);
  int fd = -1;
  result r = open_exporters_file(h, &fd);
  if (!r.ok()) return r;
  const file exporters(fd);
  uint64_t mark = 0;
  const auto at = static_cast<off_t>(h.offset - page_bytes());
  if (pread(fd, &mark, sizeof mark, at) != sizeof mark || mark != h.mark) return gone(h, "it was freed");
  void* ptr = map_file(fd, h.size_bytes, h.offset, accessible);
  if (!ptr) return failure(TB_STATUS_OUT_OF_MEMORY, "ipc_import: the system has no room for the mapping");
  *out_ptr = ptr;
  *out_size_bytes = h.size_bytes;
  return {};
}

void shared_unmap(void* ptr, uint64_t size_bytes) {
  munmap(ptr, length_of(size_bytes));
}

} // namespace xcpu
