// The slots of the table "ccl.1": they check what was asked and submit it.
#pragma once

#include "../result.h"
#include "unique_id.h"

namespace xcpu::ccl {

result comm_create(int32_t device, int32_t num_ranks, int32_t rank, const void* unique_id, tb_comm** out_comm);
result comm_destroy(tb_comm* comm);
result comm_abort(tb_comm* comm);
result comm_query_error(tb_comm* comm);
result send(const void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream);
result recv(void* buffer, uint64_t count, tb_dtype dtype, int32_t peer, tb_comm* comm, tb_stream* stream);

} // namespace xcpu::ccl
