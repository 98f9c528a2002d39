#include "segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace xcpu::ccl {
namespace {

// Processes with different builds of this plugin have to agree on what lies where.
constexpr uint64_t kLayoutVersion = 2;

constexpr char kPrefix[] = "/torch_backend_xcpu_", kHexDigits[] = "0123456789abcdef";
constexpr size_t kPrefixLength = sizeof kPrefix - 1, kRandomBytes = 16;
constexpr size_t kNameLength = kPrefixLength + 2 * kRandomBytes;
static_assert(kNameLength < kUniqueIdBytes);

bool is_unique_id(const std::string& name) {
  return name.size() == kNameLength && name.compare(0, kPrefixLength, kPrefix) == 0 &&
         name.find_first_not_of(kHexDigits, kPrefixLength) == std::string::npos;
}

// Then come the ranks, and on pages of their own the channels.
struct alignas(kCacheLine) shared_header {
  std::atomic<uint64_t> shape; // layout version and number of ranks
  std::atomic<int32_t> num_joined;
};

// Containers often give no more than 64 MiB to shared memory, and a program has several communicators.
constexpr uint64_t kBudgetBytes = 16ull << 20;
constexpr uint64_t kLargestChannelBytes = 1ull << 20, kSmallestChannelBytes = 8ull << 10;
constexpr uint64_t kPage = 4096;

uint64_t num_channels(int32_t num_ranks) {
  return static_cast<uint64_t>(num_ranks) * static_cast<uint64_t>(num_ranks);
}

uint64_t channel_bytes(int32_t num_ranks) {
  const uint64_t share = kBudgetBytes / num_channels(num_ranks) / kPage * kPage;
  return std::clamp(share, kSmallestChannelBytes, kLargestChannelBytes);
}

uint64_t channels_offset(int32_t num_ranks) {
  const uint64_t end = sizeof(shared_header) + static_cast<uint64_t>(num_ranks) * sizeof(shared_rank);
  return (end + kPage - 1) / kPage * kPage;
}

uint64_t total_bytes(int32_t num_ranks) {
  return channels_offset(num_ranks) + num_channels(num_ranks) * channel_bytes(num_ranks);
}

shared_header& header(unsigned char* memory) {
  return *reinterpret_cast<shared_header*>(memory);
}

// A process holds the lock of its rank's byte until it ends, and those that it forked have. It is that of the open file,
// so that ranks may be in one process, and in containers that do not know each other's processes.
int ask_for_lock(int descriptor, int command, int32_t rank, struct flock* out_lock) {
  *out_lock = {};
  out_lock->l_type = F_WRLCK;
  out_lock->l_whence = SEEK_SET;
  out_lock->l_start = rank;
  out_lock->l_len = 1;
  return fcntl(descriptor, command, out_lock);
}

} // namespace

result unique_id_create(void* out_unique_id) {
  unsigned char random[kRandomBytes];
  if (getrandom(random, sizeof random, 0) != static_cast<ssize_t>(sizeof random))
    return failure(TB_STATUS_INTERNAL, "unique_id_create: getrandom: %s", std::strerror(errno));
  std::string name = kPrefix;
  for (const unsigned char byte : random) name += {kHexDigits[byte >> 4], kHexDigits[byte & 15]};
  name.resize(kUniqueIdBytes);
  std::memcpy(out_unique_id, name.data(), kUniqueIdBytes);
  return {};
}

result segment::join(const void* unique_id, int32_t num_ranks, int32_t rank, std::unique_ptr<segment>* out_segment) {
  const auto* id = static_cast<const char*>(unique_id);
  const std::string name(id, strnlen(id, kUniqueIdBytes));
  if (!is_unique_id(name))
    return failure(TB_STATUS_INVALID_ARGUMENT,
                   "comm_create: the unique id is not one of unique_id_create of this device; all %zu bytes of it have "
                   "to reach every rank",
                   kUniqueIdBytes);
  std::unique_ptr<segment> opened(new segment(name, num_ranks));
  result r = opened->open();
  if (r.ok()) r = opened->agree_on_shape();
  if (r.ok()) r = opened->take_place(rank);
  if (r.ok()) *out_segment = std::move(opened);
  return r;
}

// New memory is zero, which is the first state of all that lies there: it is ready as soon as it has its size.
result segment::open() {
  descriptor_ = shm_open(name_.c_str(), O_RDWR | O_CREAT, S_IRUSR | S_IWUSR);
  if (descriptor_ < 0)
    return failure(TB_STATUS_INTERNAL, "comm_create: shared memory \"%s\": %s", name_.c_str(), std::strerror(errno));
  const uint64_t size = total_bytes(num_ranks_);
  // This only grows it, and takes the memory now: later, a full file system would be a signal where it is first used.
  int error;
  do error = posix_fallocate(descriptor_, 0, static_cast<off_t>(size));
  while (error == EINTR);
  void* memory = MAP_FAILED;
  if (error == 0) {
    memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    error = errno;
  }
  if (memory == MAP_FAILED) {
    unlink();
    return failure(error == ENOSPC ? TB_STATUS_OUT_OF_MEMORY : TB_STATUS_INTERNAL,
                   "comm_create: %llu bytes of shared memory for %d ranks: %s. Containers limit /dev/shm; give it more "
                   "(docker run --shm-size)",
                   static_cast<unsigned long long>(size), num_ranks_, std::strerror(error));
  }
  memory_ = static_cast<unsigned char*>(memory);
  return {};
}

result segment::agree_on_shape() {
  const uint64_t own = kLayoutVersion << 32 | static_cast<uint32_t>(num_ranks_);
  uint64_t shape = 0;
  if (header(memory_).shape.compare_exchange_strong(shape, own) || shape == own) return {};
  if (shape >> 32 != kLayoutVersion)
    return failure(TB_STATUS_INVALID_ARGUMENT, "comm_create: another rank has another version of xcpu");
  return failure(TB_STATUS_INVALID_ARGUMENT, "comm_create: %d ranks, but another rank says %d", num_ranks_,
                 static_cast<int32_t>(shape & 0xffffffff));
}

result segment::take_place(int32_t number) {
  shared_rank& own = rank(number);
  struct flock lock;
  const bool is_locked =
      ask_for_lock(descriptor_, F_OFD_SETLK, number, &lock) != 0 && (errno == EAGAIN || errno == EACCES);
  if (is_locked || own.state.load() != rank_state::absent)
    return failure(TB_STATUS_INVALID_ARGUMENT, "comm_create: rank %d of %d has joined already", number, num_ranks_);
  own.process = getpid();
  own.state.store(rank_state::present);
  if (header(memory_).num_joined.fetch_add(1) + 1 == num_ranks_) unlink();
  return {};
}

segment::~segment() {
  if (memory_) munmap(memory_, total_bytes(num_ranks_));
  if (descriptor_ >= 0) close(descriptor_);
}

bool segment::is_complete() const {
  return header(memory_).num_joined.load() == num_ranks_;
}

void segment::unlink() {
  shm_unlink(name_.c_str());
}

shared_rank& segment::rank(int32_t number) const {
  return reinterpret_cast<shared_rank*>(memory_ + sizeof(shared_header))[number];
}

bool segment::has_ended(int32_t number) const {
  struct flock lock;
  return ask_for_lock(descriptor_, F_OFD_GETLK, number, &lock) == 0 && lock.l_type == F_UNLCK;
}

channel segment::between(int32_t from, int32_t to) const {
  const uint64_t number = static_cast<uint64_t>(from * num_ranks_ + to), bytes = channel_bytes(num_ranks_);
  return {memory_ + channels_offset(num_ranks_) + number * bytes, bytes};
}

} // namespace xcpu::ccl
