// Operators made of other operators, for devices with modules.
#pragma once

namespace torch_backend {

class Registrar;

namespace generated {

/// Nothing if the device takes no modules.
void register_compositions(Registrar& m);

} // namespace generated
} // namespace torch_backend
