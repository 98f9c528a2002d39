"""The reference devices that are written in Python, each a package.

In a checkout they lie where those in C do, in the folder ``backends`` beside this package.
"""

from pathlib import Path

import torch_backend

_roots = [Path(root) for root in torch_backend.__path__]
_checkouts = [root.parent for root in _roots if (root.parent / "include" / "torch_backend" / "device.h").is_file()]

__path__ = [str(folder / "backends") for folder in (*_checkouts, *_roots)]
