"""Copies of PyTorch's own tests that a vendor has rewritten for a device of its own, as tests of any device.

Such copies import the vendor's package, ``torch_acme``, and say ``torch.acme``, ``x.acme()`` and "acme:0" where
PyTorch's files say cuda. They are run with the name of the device that is checked in these places; what only the
vendor's package has is missing, and fails.
"""

import importlib.util
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch_conformance.upstream_rules import CONTROL

_ABSENT = "absent_device"
"""What ``torch.acme`` is called where the tests are run on the CPU."""

_IMPORT = re.compile(r"^import torch_(\w+)\b", re.MULTILINE)


@contextmanager
def readable_as(root: Path, files: Sequence[Path], device: str) -> Iterator[Path]:
    """A folder with the tests of ``root``, in which ``device`` is named: ``root`` itself unless it holds copies."""
    vendors = _vendors(files)
    if not vendors:
        yield root
        return
    with tempfile.TemporaryDirectory(prefix="torch-backend-upstream-") as directory:
        place = Path(directory) / root.name
        shutil.copytree(root, place, ignore_dangling_symlinks=True)
        for file in place.rglob("*.py"):
            text = file.read_text(encoding="utf-8", errors="surrogateescape")
            for vendor in vendors:
                text = _translated(text, vendor, device)
            file.write_text(text, encoding="utf-8", errors="surrogateescape")
        yield place


def _vendors(files: Sequence[Path]) -> list[str]:
    """The devices of packages that the files import at their top and that are not installed."""
    named = {name for file in files for name in _IMPORT.findall(file.read_text(errors="replace"))}
    return sorted(name for name in named if importlib.util.find_spec(f"torch_{name}") is None)


def _translated(text: str, vendor: str, device: str) -> str:
    text = re.sub(rf"^( *)import torch_{vendor}\b.*$", r"\1pass", text, flags=re.MULTILINE)
    text = text.replace(f"torch_{vendor}.{vendor}.", f"torch.{vendor}.")
    if device == CONTROL:
        text = re.sub(rf"\btorch\.{vendor}\b", f"torch.{_ABSENT}", text)
    return re.sub(rf"\b(is_)?{vendor}\b", rf"\g<1>{device}", text)


class _Absent:
    """A device module of which there is no device; else the CPU's, and CUDA's, which PyTorch always has."""

    @staticmethod
    def is_available() -> bool:
        return False

    @staticmethod
    def device_count() -> int:
        return 0

    @staticmethod
    def get_device_name(device: object = None) -> str:
        return CONTROL

    def __getattr__(self, name: str) -> Any:
        import torch

        return getattr(torch.cpu, name) if hasattr(torch.cpu, name) else getattr(torch.cuda, name)


def let_devices_be_absent() -> None:
    """Give this process, which runs the tests on the CPU, what stands for the vendor's ``torch.acme``."""
    import torch

    setattr(torch, _ABSENT, _Absent())
