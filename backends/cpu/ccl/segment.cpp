#include "segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "process.h"

namespace xcpu::ccl {
namespace {

// Processes with different builds of this plugin have to agree on what lies where.
constexpr uint64_t kLayoutVersion = 1;

constexpr char kPrefix[] = "/torch_backend_xcpu_", kHexDigits[] = "0123456789abcdef";
constexpr size_t kPrefixLength = sizeof kPrefix - 1, kRandomBytes = 16;
constexpr size_t kNameLength = kPrefixLength + 2 * kRandomBytes;
static_assert(kNameLength < kUniqueIdBytes);

bool is_unique_id(const std::string& name) {
  return name.size() == kNameLength && name.compare(0, kPrefixLength, kPrefix) == 0 &&
         name.find_first_not_of(kHexDigits, kPrefixLength) == std::string::npos;
}

struct shared_header {
  std::atomic<uint64_t> shape; // layout version and number of ranks
  std::atomic<int32_t> num_joined;
};

// Containers often give no more than 64 MiB to shared memory, and a program has several communicators.
constexpr uint64_t kBudgetBytes = 16ull << 20;
constexpr uint64_t kLargestRingBytes = 1ull << 20, kSmallestRingBytes = 8ull << 10;
constexpr uint64_t kPage = 4096;

uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

uint64_t num_channels(int32_t num_ranks) {
  return static_cast<uint64_t>(num_ranks) * static_cast<uint64_t>(num_ranks - 1);
}

uint64_t ring_bytes(int32_t num_ranks) {
  const uint64_t share = kBudgetBytes / std::max<uint64_t>(1, num_channels(num_ranks)) / kPage * kPage;
  return std::clamp(share, kSmallestRingBytes, kLargestRingBytes);
}

uint64_t ranks_offset() {
  return round_up(sizeof(shared_header), kChannelLine);
}

uint64_t controls_offset(int32_t num_ranks) {
  return round_up(ranks_offset() + static_cast<uint64_t>(num_ranks) * sizeof(shared_rank), kChannelLine);
}

uint64_t rings_offset(int32_t num_ranks) {
  return round_up(controls_offset(num_ranks) + num_channels(num_ranks) * sizeof(channel_control), kPage);
}

uint64_t total_bytes(int32_t num_ranks) {
  return rings_offset(num_ranks) + num_channels(num_ranks) * ring_bytes(num_ranks);
}

shared_header& header(unsigned char* memory) {
  return *reinterpret_cast<shared_header*>(memory);
}

} // namespace

result unique_id_create(void* out_unique_id) {
  unsigned char random[kRandomBytes];
  if (getrandom(random, sizeof random, 0) != static_cast<ssize_t>(sizeof random))
    return failure(TB_STATUS_INTERNAL, "unique_id_create: getrandom: %s", std::strerror(errno));
  char name[kUniqueIdBytes] = {};
  std::memcpy(name, kPrefix, kPrefixLength);
  for (size_t i = 0; i < kRandomBytes; ++i) {
    name[kPrefixLength + 2 * i] = kHexDigits[random[i] >> 4];
    name[kPrefixLength + 2 * i + 1] = kHexDigits[random[i] & 15];
  }
  std::memcpy(out_unique_id, name, sizeof name);
  return {};
}

result segment::open(const void* unique_id, int32_t num_ranks, std::unique_ptr<segment>* out_segment) {
  const auto* id = static_cast<const char*>(unique_id);
  const std::string name(id, strnlen(id, kUniqueIdBytes));
  if (!is_unique_id(name))
    return failure(TB_STATUS_INVALID_ARGUMENT,
                   "comm_create: the unique id is not one of unique_id_create of this device; all %zu bytes of it have "
                   "to reach every rank",
                   kUniqueIdBytes);
  std::unique_ptr<segment> opened(new segment(name, num_ranks));
  const int descriptor = shm_open(name.c_str(), O_RDWR | O_CREAT, S_IRUSR | S_IWUSR);
  if (descriptor < 0)
    return failure(TB_STATUS_INTERNAL, "comm_create: shared memory \"%s\": %s", name.c_str(), std::strerror(errno));
  result r = opened->map(descriptor);
  close(descriptor);
  if (!r.ok()) return r;
  uint64_t shape = 0;
  const uint64_t own_shape = kLayoutVersion << 32 | static_cast<uint32_t>(num_ranks);
  if (!header(opened->memory_).shape.compare_exchange_strong(shape, own_shape) && shape != own_shape) {
    if (shape >> 32 != kLayoutVersion)
      return failure(TB_STATUS_INVALID_ARGUMENT, "comm_create: another rank has another version of xcpu");
    return failure(TB_STATUS_INVALID_ARGUMENT, "comm_create: %d ranks, but another rank says %d", num_ranks,
                   static_cast<int32_t>(shape & 0xffffffff));
  }
  *out_segment = std::move(opened);
  return {};
}

// New memory is zero, which is the first state of all that lies there: it is ready as soon as it has its size.
result segment::map(int descriptor) {
  const uint64_t size = total_bytes(num_ranks_);
  // This only grows it, and takes the memory now: later, a full file system would be a signal where it is first used.
  int error;
  do error = posix_fallocate(descriptor, 0, static_cast<off_t>(size));
  while (error == EINTR);
  if (error != 0) {
    unlink();
    return failure(error == ENOSPC ? TB_STATUS_OUT_OF_MEMORY : TB_STATUS_INTERNAL,
                   "comm_create: %llu bytes of shared memory for %d ranks: %s. Containers limit /dev/shm; give it more "
                   "(docker run --shm-size)",
                   static_cast<unsigned long long>(size), num_ranks_, std::strerror(error));
  }
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) {
    error = errno;
    unlink();
    return failure(TB_STATUS_INTERNAL, "comm_create: mmap of %llu bytes: %s", static_cast<unsigned long long>(size),
                   std::strerror(error));
  }
  memory_ = static_cast<unsigned char*>(memory);
  return {};
}

segment::~segment() {
  if (memory_) munmap(memory_, total_bytes(num_ranks_));
}

result segment::join(int32_t number) {
  shared_rank& own = rank(number);
  rank_state state = rank_state::absent;
  if (!own.state.compare_exchange_strong(state, rank_state::joining))
    return failure(TB_STATUS_INVALID_ARGUMENT, "comm_create: rank %d of %d has joined already", number, num_ranks_);
  own.process = getpid();
  own.process_namespace = process_namespace();
  own.state.store(rank_state::present);
  if (header(memory_).num_joined.fetch_add(1) + 1 == num_ranks_) unlink();
  ring_all();
  return {};
}

bool segment::is_complete() const {
  return header(memory_).num_joined.load() == num_ranks_;
}

void segment::unlink() {
  shm_unlink(name_.c_str());
}

shared_rank& segment::rank(int32_t number) const {
  return reinterpret_cast<shared_rank*>(memory_ + ranks_offset())[number];
}

channel segment::between(int32_t from, int32_t to) const {
  const uint64_t number = static_cast<uint64_t>(from) * static_cast<uint64_t>(num_ranks_ - 1) +
                          static_cast<uint64_t>(to > from ? to - 1 : to);
  const uint64_t bytes = ring_bytes(num_ranks_);
  return {reinterpret_cast<channel_control*>(memory_ + controls_offset(num_ranks_)) + number,
          memory_ + rings_offset(num_ranks_) + number * bytes, bytes};
}

void segment::ring_all() const {
  for (int32_t number = 0; number < num_ranks_; ++number) rank(number).bell.ring();
}

} // namespace xcpu::ccl
