#include "allocation.h"
#include "result.h"
#include "stream.h"

namespace ocl {
namespace {

// Device memory as OpenCL knows it.
struct place {
  cl_mem buffer = nullptr;
  uint64_t offset = 0;
};

result find_place(const char* what, const void* ptr, uint64_t size_bytes, place* out_place) {
  const lookup addresses;
  const allocation* a = nullptr;
  result r = addresses.find(what, ptr, size_bytes, &a);
  if (r.ok()) *out_place = {a->buffer, a->offset_of(ptr)};
  return r;
}

// Where a region of rows begins: column and row.
struct origin {
  origin(const place& p, uint64_t pitch) : at{p.offset % pitch, p.offset / pitch, 0} {}
  size_t at[3];
};

bool dst_on_device(uint32_t kind) {
  return kind != TB_COPY_DEVICE_TO_HOST;
}
bool src_on_device(uint32_t kind) {
  return kind != TB_COPY_HOST_TO_DEVICE;
}

result check_kind(const char* what, uint32_t kind) {
  if (kind >= TB_COPY_HOST_TO_DEVICE && kind <= TB_COPY_DEVICE_TO_DEVICE) return {};
  return failure(TB_STATUS_UNSUPPORTED, "%s: copies of kind %u are not offered", what, kind);
}

result copy_between_buffers(queue& q, void* dst, const void* src, uint64_t size, uint32_t kind) {
  constexpr char what[] = "memory_copy";
  place to, from;
  result r = dst_on_device(kind) ? find_place(what, dst, size, &to) : result();
  if (r.ok() && src_on_device(kind)) r = find_place(what, src, size, &from);
  if (!r.ok()) return r;
  return q.enqueue(what, [&](cl_command_queue c, cl_event* event) {
    if (kind == TB_COPY_HOST_TO_DEVICE)
      return cl.EnqueueWriteBuffer(c, to.buffer, CL_FALSE, to.offset, size, src, 0, nullptr, event);
    if (kind == TB_COPY_DEVICE_TO_HOST)
      return cl.EnqueueReadBuffer(c, from.buffer, CL_FALSE, from.offset, size, dst, 0, nullptr, event);
    return cl.EnqueueCopyBuffer(c, from.buffer, to.buffer, from.offset, to.offset, size, 0, nullptr, event);
  });
}

} // namespace

result memory_copy(int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size_bytes,
                   uint32_t kind, tb_stream* stream) {
  result r = check_kind("memory_copy", kind);
  if (!r.ok()) return r;
  const int32_t device = kind == TB_COPY_DEVICE_TO_HOST ? src_device : dst_device;
  queue& q = queue_of(device, stream);
  if (!q.owner().svm) return copy_between_buffers(q, dst, src, size_bytes, kind);
  return q.enqueue("memory_copy", [&](cl_command_queue c, cl_event* event) {
    return cl.EnqueueSVMMemcpy(c, CL_FALSE, dst, src, size_bytes, 0, nullptr, event);
  });
}

result memory_copy_2d(int32_t device, void* dst, uint64_t dst_pitch_bytes, const void* src, uint64_t src_pitch_bytes,
                      uint64_t width_bytes, uint64_t height, uint32_t kind, tb_stream* stream) {
  constexpr char what[] = "memory_copy_2d";
  const uint64_t dst_size = (height - 1) * dst_pitch_bytes + width_bytes;
  const uint64_t src_size = (height - 1) * src_pitch_bytes + width_bytes;
  place to, from;
  result r = check_kind(what, kind);
  if (r.ok() && dst_on_device(kind)) r = find_place(what, dst, dst_size, &to);
  if (r.ok() && src_on_device(kind)) r = find_place(what, src, src_size, &from);
  if (!r.ok()) return r;
  // Within one buffer OpenCL wants equal pitches, and drivers take some regions for overlapping that are not.
  const bool within_one = to.buffer == from.buffer;
  if (within_one && dst_pitch_bytes != src_pitch_bytes) return {TB_STATUS_UNSUPPORTED, ""};
  const origin dst_origin(to, dst_pitch_bytes), src_origin(from, src_pitch_bytes);
  const size_t region[] = {width_bytes, height, 1};
  cl_int error = CL_SUCCESS;
  r = queue_of(device, stream).enqueue(what, [&](cl_command_queue c, cl_event* event) {
    if (kind == TB_COPY_HOST_TO_DEVICE)
      error = cl.EnqueueWriteBufferRect(c, to.buffer, CL_FALSE, dst_origin.at, src_origin.at, region, dst_pitch_bytes,
                                        0, src_pitch_bytes, 0, src, 0, nullptr, event);
    else if (kind == TB_COPY_DEVICE_TO_HOST)
      error = cl.EnqueueReadBufferRect(c, from.buffer, CL_FALSE, src_origin.at, dst_origin.at, region, src_pitch_bytes,
                                       0, dst_pitch_bytes, 0, dst, 0, nullptr, event);
    else
      error = cl.EnqueueCopyBufferRect(c, from.buffer, to.buffer, src_origin.at, dst_origin.at, region, src_pitch_bytes,
                                       0, dst_pitch_bytes, 0, 0, nullptr, event);
    return error;
  });
  if (within_one && (error == CL_MEM_COPY_OVERLAP || error == CL_INVALID_VALUE)) r.status = TB_STATUS_UNSUPPORTED;
  return r;
}

result memory_fill(int32_t device, void* dst, const void* pattern, uint32_t pattern_bytes, uint64_t size_bytes,
                   tb_stream* stream) {
  constexpr char what[] = "memory_fill";
  queue& q = queue_of(device, stream);
  if (q.owner().svm)
    return q.enqueue(what, [&](cl_command_queue c, cl_event* event) {
      return cl.EnqueueSVMMemFill(c, dst, pattern, pattern_bytes, size_bytes, 0, nullptr, event);
    });
  place to;
  result r = find_place(what, dst, size_bytes, &to);
  if (!r.ok()) return r;
  return q.enqueue(what, [&](cl_command_queue c, cl_event* event) {
    return cl.EnqueueFillBuffer(c, to.buffer, pattern, pattern_bytes, to.offset, size_bytes, 0, nullptr, event);
  });
}

} // namespace ocl
