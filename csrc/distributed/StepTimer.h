// Times of DistributedDataParallel's steps, as it logs them.
#pragma once

namespace torch_backend {

/// Let DistributedDataParallel measure on the device's streams. Once per process; more often is a no-op.
void register_step_timer();

} // namespace torch_backend
