#include "table.h"

#include <memory>

#include "group.h"

namespace xcpu::ccl {
namespace {

constexpr int32_t kMostRanks = 64;

result element_bytes(tb_dtype dtype, uint64_t* out_bytes) {
  const uint64_t bits = static_cast<uint64_t>(dtype.bits) * dtype.lanes;
  if (bits == 0 || bits % 8 != 0)
    return failure(TB_STATUS_UNSUPPORTED, "elements of %s do not have whole bytes", dtype_name(dtype).c_str());
  *out_bytes = bits / 8;
  return {};
}

result check_rank(const char* what, int32_t rank, const communicator& comm) {
  if (rank >= 0 && rank < comm.num_ranks()) return {};
  return failure(TB_STATUS_INVALID_ARGUMENT, "%s %d of a communicator of %d ranks", what, rank, comm.num_ranks());
}

} // namespace

result comm_create(int32_t device, int32_t num_ranks, int32_t rank, const void* unique_id, tb_comm** out_comm) {
  if (num_ranks < 1 || num_ranks > kMostRanks)
    return failure(TB_STATUS_INVALID_ARGUMENT, "comm_create: %d ranks; 1 to %d are possible", num_ranks, kMostRanks);
  if (rank < 0 || rank >= num_ranks)
    return failure(TB_STATUS_INVALID_ARGUMENT, "comm_create: rank %d of %d", rank, num_ranks);
  std::string name;
  result r = segment_name(unique_id, &name);
  auto comm = std::make_unique<tb_comm>();
  if (r.ok()) r = communicator::join(device, num_ranks, rank, name, &comm->shared);
  if (r.ok()) r = submit_join(comm->shared);
  if (r.ok()) *out_comm = comm.release();
  return r;
}

result comm_destroy(tb_comm* comm) {
  delete comm;
  return {};
}

result comm_abort(tb_comm* comm) {
  comm->shared->abort();
  return {};
}

result comm_query_error(tb_comm* comm) {
  return comm->shared->query_error();
}

result send(const void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream) {
  uint64_t element = 0;
  result r = element_bytes(dtype, &element);
  if (r.ok()) r = check_rank("send: to rank", peer, *comm->shared);
  if (!r.ok()) return r;
  const signature what{operation::point_to_point, dtype, kNoReduction, kNoRoot, count};
  return submit({slot::send, comm->shared, stream, [=, shared = comm->shared](batch& b) {
                   b.needs({shared->device(), buffer, count * element, TB_MAP_READ});
                   b.plan_of(shared).send(peer, what, buffer, count * element);
                 }});
}

result recv(void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream) {
  uint64_t element = 0;
  result r = element_bytes(dtype, &element);
  if (r.ok()) r = check_rank("recv: from rank", peer, *comm->shared);
  if (!r.ok()) return r;
  const signature what{operation::point_to_point, dtype, kNoReduction, kNoRoot, count};
  return submit({slot::recv, comm->shared, stream, [=, shared = comm->shared](batch& b) {
                   b.needs({shared->device(), buffer, count * element, TB_MAP_WRITE});
                   b.plan_of(shared).receive(peer, what, buffer, count * element);
                 }});
}

} // namespace xcpu::ccl
