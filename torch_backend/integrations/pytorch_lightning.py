"""Lightning under its older name: what :mod:`torch_backend.integrations.lightning` does, for ``pytorch_lightning``."""

from torch_backend.integrations.lightning import adapted

LIBRARY = adapted("pytorch_lightning", pytorch="pytorch_lightning")
