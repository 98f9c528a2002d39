"""The files of a version of torch that can be read without importing it: headers, Python sources, torchgen's tables."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

_VERSION = re.compile(r"\d+\.\d+\.\d+\S*")
_COMPARED = re.compile(r"(torch/include|torchgen)/|torch/.*\.pyi?$")  # about a tenth of a wheel


class WheelError(Exception):
    """A version of torch cannot be had; the text says why and what to do."""


def version_of(folder: Path) -> str:
    """The version of the torch in a site-packages folder, without the local part. Raises WheelError if none is there.

    ``torch/version.py`` is read, not run.
    """
    try:
        text = (folder / "torch" / "version.py").read_text(encoding="utf-8")
    except OSError:
        raise WheelError(f"{folder} has no torch: there is no torch/version.py in it.") from None
    found = re.search(r"__version__ = ['\"]([^+'\"]+)", text)
    if not found:
        raise WheelError(f"{folder}/torch/version.py does not say which version it is.")
    return found[1]


def folder_of(wanted: str, installed: Path, cache: Path, index: str | None = None) -> Path:
    """A folder like site-packages with the torch ``wanted``, a version or such a folder. Raises WheelError for none.

    ``installed`` is taken if it has the version, or what is in ``cache`` already. Else a wheel is downloaded from
    ``index``, or where pip looks by default.
    """
    if Path(wanted).is_dir():
        version_of(Path(wanted))
        return Path(wanted)
    if not _VERSION.fullmatch(wanted):
        raise WheelError(f"{wanted!r} is no version of torch and no folder: expected one like 2.15.0.")
    if (installed / "torch" / "version.py").is_file() and version_of(installed) == wanted:
        return installed
    place = cache / f"torch-{wanted}"
    if not place.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            unpack(_download(wanted, scratch, index), Path(scratch) / "files")
            (Path(scratch) / "files").rename(place)
    return place


def unpack(wheel: Path, folder: Path) -> None:
    """Unpack what is compared. Raises WheelError if it is no wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if _COMPARED.match(name)])
    except (OSError, zipfile.BadZipFile) as error:
        raise WheelError(f"{wheel} cannot be unpacked: {error}. Delete it, and try again.") from None


def _download(version: str, folder: str, index: str | None) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    command += ["--index-url", index] if index else []
    process = subprocess.run([*command, f"torch=={version}"], capture_output=True, text=True, check=False)
    for wheel in Path(folder).glob("torch-*.whl"):
        return wheel
    reason = process.stderr.strip().splitlines()[-1:] or ["pip says nothing"]
    raise WheelError(f"pip cannot download torch {version}: {reason[0]}")
