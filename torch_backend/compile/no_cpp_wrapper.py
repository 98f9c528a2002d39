"""The answer to who asks for a compiled graph in C++: it is called from Python."""

from typing import Any

import torch


class NoCppWrapper:
    """What torch.compile's option cpp_wrapper asks for."""

    supports_caching = True

    @staticmethod
    def create(*_: Any) -> Any:
        """Raises RuntimeError."""
        name = torch._C._get_privateuse1_backend_name()
        raise RuntimeError(
            f"The kernels of {name} are called from Python: torch.compile(..., options={{'cpp_wrapper': True}}) is not "
            "there for it. Use torch.compile without cpp_wrapper."
        )
