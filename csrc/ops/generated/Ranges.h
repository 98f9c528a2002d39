// Tensors that are made of a range or of ones on the diagonal.
#pragma once

namespace torch_backend {

class Registrar;

namespace generated {

/// Nothing if the device takes no modules.
void register_ranges(Registrar& m);

} // namespace generated
} // namespace torch_backend
