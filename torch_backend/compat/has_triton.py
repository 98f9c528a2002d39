"""``torch.utils._triton.has_triton``: its list of devices.

Inductor asks it whether there is Triton at all, and it looks at cuda, xpu, mtia and the CPU alone. Versions 2.11 to
2.13; later ones ask every registered device's ``is_triton_capable``, once, which may have been too early. May go with
2.13, and that.
"""

import functools
import sys
from typing import Any


def say_yes() -> None:
    """From now on there is Triton, also for modules that have imported the function by its name."""
    from torch.utils import _triton

    original = _triton.has_triton

    @functools.cache
    def has_triton(**options: Any) -> bool:  # after torch 2.13: whether the CPU counts
        return True

    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("has_triton") is original:
            module.has_triton = has_triton  # type: ignore[attr-defined]
