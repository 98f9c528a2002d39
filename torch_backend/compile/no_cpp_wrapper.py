"""The answer to who asks for a graph in C++: kernels are called from Python."""

from typing import Any

import torch


class NoCppWrapper:
    """cpp_wrapper and AOTInductor's packages."""

    supports_caching = True

    @staticmethod
    def create(*_: Any) -> Any:
        """Raises RuntimeError."""
        name = torch._C._get_privateuse1_backend_name()
        raise RuntimeError(
            f"The kernels of {name} are called from Python: torch.compile(..., options={{'cpp_wrapper': True}}) and "
            "packages of AOTInductor are not there for it. Use torch.compile without cpp_wrapper, or torch.export.save."
        )
