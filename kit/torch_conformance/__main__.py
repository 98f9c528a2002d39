"""``python -m torch_conformance``."""

from torch_conformance.cli.app import app

app(prog_name="torch-conformance")
