"""``python -m torch_backend.testing.describe DEVICE``: open a device as torch would, and print what it is as JSON.

In a process of its own, because opening a device runs its code for the first time.
"""

import json
import sys
from typing import Any


def main(device: str) -> dict[str, Any]:
    """What the device is; ``no_such_device`` or ``error`` and ``path`` if it cannot be used."""
    from torch_backend.devices import description, selection
    from torch_backend.files import location
    from torch_backend.testing import activation
    from torch_backend.version import __version__

    path = None
    try:
        if not location.is_place(device):
            path = selection.find(device).path
    except ValueError as error:
        return {"no_such_device": str(error)}
    try:
        plugin = activation.activate(device)
        described = description.of_plugin(plugin)
        import torch

        # The device works only if something runs on it.
        torch.ones(1, device=plugin.name).cpu()
    except Exception as error:
        return {"error": f"{device} cannot be used by torch: {selection.describe(error)}", "path": path}
    return {**described, "torch": torch.__version__, "torch_backend": __version__}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
