// The slots of the table "ccl.1": they check what was asked and submit it.
#pragma once

#include "../result.h"
#include "segment.h"

namespace xcpu::ccl {

result comm_create(int32_t device, int32_t num_ranks, int32_t rank, const void* unique_id, tb_comm** out_comm);
result comm_destroy(tb_comm* comm);
result comm_abort(tb_comm* comm);
result comm_query_error(tb_comm* comm);
result send(const void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream);
result recv(void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream);
result all_reduce(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, tb_comm* comm,
                  tb_stream* stream);
result reduce(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, int32_t root, tb_comm* comm,
              tb_stream* stream);
result broadcast(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t root, tb_comm* comm,
                 tb_stream* stream);
result all_gather(const void* in, void* out, uint64_t count, tb_dtype dtype, tb_comm* comm, tb_stream* stream);
result reduce_scatter(const void* in, void* out, uint64_t count, tb_dtype dtype, int32_t reduction, tb_comm* comm,
                      tb_stream* stream);
result all_to_all(const void* in, const uint64_t* send_counts, const uint64_t* send_offsets, void* out,
                  const uint64_t* recv_counts, const uint64_t* recv_offsets, tb_dtype dtype, tb_comm* comm,
                  tb_stream* stream);

} // namespace xcpu::ccl
