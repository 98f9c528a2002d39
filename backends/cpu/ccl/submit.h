// From calls to work on streams: what group_begin and group_end collect, and what runs at once.
#pragma once

#include <functional>
#include <memory>

#include "../fault.h"
#include "../result.h"
#include "batch.h"

namespace xcpu::ccl {

// One call of a collective on a stream: what it adds to the batch that it runs in.
struct call {
  slot which;
  std::shared_ptr<communicator> comm;
  tb_stream* stream;
  std::function<void(batch&)> add;
};

// Runs the call, or enqueues it on an asynchronous device. In a group that is left to group_end.
result submit(call next);

// The wait for the other ranks of a new communicator; in a group that is left to group_end.
result submit_join(const std::shared_ptr<communicator>& comm);

// Of the calling thread. They nest; what is inside runs at the end of the outermost group.
result group_begin();
result group_end();

} // namespace xcpu::ccl
