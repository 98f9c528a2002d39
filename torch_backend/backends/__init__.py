"""The reference devices that are written in Python, each a package.

In a checkout they lie where those in C do, in the folder ``backends`` beside this package.
"""

from pathlib import Path

import torch_backend

__path__ = [
    *(str(Path(root).parent / "backends") for root in torch_backend.__path__),
    *(str(Path(root) / "backends") for root in torch_backend.__path__),
]
