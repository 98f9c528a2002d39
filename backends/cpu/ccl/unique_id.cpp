#include "unique_id.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

namespace xcpu::ccl {
namespace {

constexpr char kPrefix[] = "/torch_backend_xcpu_";
constexpr size_t kPrefixLength = sizeof kPrefix - 1;
constexpr size_t kRandomBytes = 16;
constexpr size_t kNameLength = kPrefixLength + 2 * kRandomBytes;
static_assert(kNameLength < kUniqueIdBytes);

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

} // namespace

result unique_id_create(void* out_unique_id) {
  unsigned char random[kRandomBytes];
  if (getrandom(random, sizeof random, 0) != static_cast<ssize_t>(sizeof random))
    return failure(TB_STATUS_INTERNAL, "unique_id_create: getrandom: %s", std::strerror(errno));
  char name[kUniqueIdBytes] = {};
  std::memcpy(name, kPrefix, kPrefixLength);
  for (size_t i = 0; i < kRandomBytes; ++i) {
    name[kPrefixLength + 2 * i] = "0123456789abcdef"[random[i] >> 4];
    name[kPrefixLength + 2 * i + 1] = "0123456789abcdef"[random[i] & 15];
  }
  std::memcpy(out_unique_id, name, sizeof name);
  return {};
}

result segment_name(const void* unique_id, std::string* out_name) {
  char name[kUniqueIdBytes];
  std::memcpy(name, unique_id, sizeof name);
  bool valid = std::memcmp(name, kPrefix, kPrefixLength) == 0;
  for (size_t i = kPrefixLength; i < sizeof name; ++i) valid &= i < kNameLength ? is_hex(name[i]) : name[i] == 0;
  if (!valid)
    return failure(TB_STATUS_INVALID_ARGUMENT,
                   "comm_create: the unique id is not one of unique_id_create of this device; all %zu bytes of it have "
                   "to reach every rank",
                   kUniqueIdBytes);
  *out_name = name;
  return {};
}

} // namespace xcpu::ccl
