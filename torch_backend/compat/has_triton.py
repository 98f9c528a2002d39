"""``torch.utils._triton.has_triton``: its list of devices.

Inductor asks it whether there is Triton at all, and it looks at cuda, xpu, mtia and the CPU alone. Versions 2.11 to
2.15. May go once it asks every registered device's ``is_triton_capable``.
"""

import functools
import sys


def say_yes() -> None:
    """From now on there is Triton, also for modules that have imported the function by its name."""
    from torch.utils import _triton

    original = _triton.has_triton

    @functools.cache
    def has_triton() -> bool:
        return True

    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("has_triton") is original:
            module.has_triton = has_triton  # type: ignore[attr-defined]
