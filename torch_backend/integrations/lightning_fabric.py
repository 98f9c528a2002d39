"""Fabric under its older name: what :mod:`torch_backend.integrations.lightning` does, for ``lightning_fabric``."""

from torch_backend.integrations.lightning import FABRIC, adapted

LIBRARY = adapted("lightning_fabric", {"lightning_fabric": FABRIC})
