"""Declarations of the installed torch, of another installation, and of a file."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

from torch_backend.declarations import torchgen_tables
from torch_backend.declarations.model import Declarations

_COLLECT = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
import yaml
from torch_backend.declarations import torchgen_tables
sys.path.insert(0, sys.argv[2])
json.dump(torchgen_tables.collect().to_json(), sys.stdout)
"""


@functools.cache
def installed() -> Declarations:
    """The declarations of the installed torch. About a second the first time.

    Raises ImportError if pyyaml is missing.
    """
    return torchgen_tables.collect()


def load(path: "str | os.PathLike[str]") -> Declarations:
    """The declarations at ``path``.

    Args:
        path: a file that ``torch-backend ops --declarations --json`` wrote; or the site-packages directory of any
            torch, or its torchgen folder. The torchgen in a directory is run, in a process of its own, because each
            version reads its own tables only; torch is not.

    Raises ValueError, with the path, if there is nothing of the kind or it cannot be read; ImportError if pyyaml is
    missing.
    """
    place = Path(path)
    if place.is_dir():
        return _read_directory(place)
    try:
        return Declarations.from_json(json.loads(place.read_text()))
    except FileNotFoundError:
        raise ValueError(f"There is no file or directory {place}.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{place} cannot be read as JSON: {error}.") from None
    except ValueError as error:
        raise ValueError(f"{place} does not hold declarations. {error}") from None


def _read_directory(directory: Path) -> Declarations:
    torchgen = directory if directory.name == "torchgen" else directory / "torchgen"
    if not (torchgen / "packaged" / "ATen" / "native" / "native_functions.yaml").is_file():
        raise ValueError(
            f"{directory} holds no torchgen with PyTorch's operator tables: name the site-packages directory that a "
            "torch is installed in, or its torchgen folder."
        )
    torchgen_tables.require_yaml()
    process = subprocess.run(
        [sys.executable, "-c", _COLLECT, json.dumps(sys.path), str(torchgen.resolve().parent)],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        reason = process.stderr.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise ValueError(f"The tables in {torchgen} cannot be read by the torchgen there: {reason[0]}")
    return Declarations.from_json(json.loads(process.stdout))
