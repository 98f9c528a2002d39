"""Lightning under its older name: what :mod:`torch_backend.integrations.lightning` does, for ``pytorch_lightning``."""

from torch_backend.integrations.lightning import PYTORCH, adapted

LIBRARY = adapted("pytorch_lightning", {"pytorch_lightning": PYTORCH})
