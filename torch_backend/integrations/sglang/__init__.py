"""SGLang serves on the active device: a platform plugin, found by the entry point ``sglang.srt.platforms``.

:mod:`.platform` says what SGLang asks of a device; attention, caches and layers are what SGLang has in PyTorch's
operators. Importing this package imports neither torch nor SGLang.
"""

import os

from torch_backend.integrations.library import Library

LIBRARY = Library(name="sglang", versions=("0.5.23", "0.5.24"))


def platform() -> str | None:
    """SGLang's entry point: the name of the platform's class if a device of torch_backend is active, else None."""
    import torch_backend
    from torch_backend import integrations

    if "sglang" not in integrations.chosen():
        return None
    plugin = torch_backend.active()
    if plugin is None:
        return None
    os.environ.setdefault("TORCH_BACKEND", plugin.name)  # what SGLang starts has the environment alone
    return "torch_backend.integrations.sglang.platform.DevicePlatform"
