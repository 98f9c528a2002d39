#include "stream.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "callbacks.h"
#include "device.h"

namespace npu {
namespace {

// Never destroyed: work may be pending at the process' end.
struct all_streams {
  std::mutex mutex; // guards what follows
  std::map<int32_t, acl_stream> defaults;
  std::vector<tb_stream*> unused; // destroyed for the core, whose work may be pending
};

all_streams& all() {
  static auto& a = *new all_streams;
  return a;
}

result create(int32_t priority, acl_stream* out_handle) {
  return check(
      acl.aclrtCreateStreamWithConfig(out_handle, acl_priority(priority), kAclStreamFastLaunch | kAclStreamFastSync),
      "aclrtCreateStreamWithConfig");
}

bool is_idle(const tb_stream& stream) {
  int status = kAclStreamComplete;
  return acl.aclrtStreamQuery(stream.handle, &status) == kAclSuccess && status == kAclStreamComplete;
}

// One that is idle, so that the new owner's work waits for nobody else's. Null if there is none.
tb_stream* take_unused(int32_t device, int32_t priority) {
  const std::lock_guard<std::mutex> lock(all().mutex);
  auto& unused = all().unused;
  const auto found = std::find_if(unused.begin(), unused.end(), [&](const tb_stream* s) {
    return s->device == device && s->priority == priority && is_idle(*s);
  });
  if (found == unused.end()) return nullptr;
  tb_stream* stream = *found;
  unused.erase(found);
  return stream;
}

} // namespace

result handle_of(int32_t device, tb_stream* stream, acl_stream* out_handle) {
  if (stream) {
    *out_handle = stream->handle;
    return {};
  }
  const std::lock_guard<std::mutex> lock(all().mutex);
  acl_stream& handle = all().defaults[device];
  result r = handle ? result{} : create(0, &handle);
  *out_handle = handle;
  return r;
}

result stream_create(int32_t device, int32_t priority, tb_stream** out_stream) {
  if (tb_stream* stream = take_unused(device, priority)) {
    *out_stream = stream;
    return {};
  }
  auto stream = std::make_unique<tb_stream>(tb_stream{device, priority, nullptr});
  result r = create(priority, &stream->handle);
  if (r.ok()) *out_stream = stream.release();
  return r;
}

result stream_destroy(int32_t, tb_stream* stream) {
  const std::lock_guard<std::mutex> lock(all().mutex);
  all().unused.push_back(stream);
  return {};
}

result stream_synchronize(int32_t device, tb_stream* stream) {
  acl_stream handle = nullptr;
  result r = handle_of(device, stream, &handle);
  return r.ok() ? check(acl.aclrtSynchronizeStream(handle), "aclrtSynchronizeStream") : r;
}

result stream_query(int32_t device, tb_stream* stream) {
  acl_stream handle = nullptr;
  int status = kAclStreamComplete;
  result r = handle_of(device, stream, &handle);
  if (r.ok()) r = check(acl.aclrtStreamQuery(handle, &status), "aclrtStreamQuery");
  if (!r.ok()) return r;
  return {status == kAclStreamComplete ? TB_STATUS_OK : TB_STATUS_NOT_READY, ""};
}

result stream_host_function(int32_t device, tb_stream* stream, tb_host_function function, void* argument) {
  acl_stream handle = nullptr;
  result r = handle_of(device, stream, &handle);
  return r.ok() ? launch_callback(device, handle, function, argument) : r;
}

} // namespace npu
