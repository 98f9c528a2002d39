"""Fabric under its older name: what :mod:`torch_backend.integrations.lightning` does, for ``lightning_fabric``."""

from torch_backend.integrations.lightning import adapted

LIBRARY = adapted("lightning_fabric", fabric="lightning_fabric")
