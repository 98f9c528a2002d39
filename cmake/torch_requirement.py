"""The requirement of torch, added to those of pyproject.toml: of a wheel the minor version that it was built for.

The native part loads with no other one. scikit-build-core calls this, with the torch of the build.
"""

import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

VERSION = Path(__file__).parents[1] / "torch_backend" / "version.py"


class Requirement:
    """A provider as ``[[tool.dynamic-metadata]]`` defines them."""

    def build_state(self, state: str) -> None:
        """Remember what is being built: "sdist", "wheel", "editable", ..."""
        self._is_binary = state != "sdist"

    def dynamic_metadata(self, _settings: Mapping[str, Any], _project: Mapping[str, Any]) -> dict[str, list[str]]:
        """``torch==2.13.*`` for a build with torch 2.13; for an sdist all versions that it can be built for."""
        if not self._is_binary:
            (versions,) = re.findall(r'^TORCH = "(.+)"$', VERSION.read_text(encoding="utf-8"), re.MULTILINE)
            return {"dependencies": [f"torch{versions}"]}
        major, minor, *_ = metadata.version("torch").split(".")
        return {"dependencies": [f"torch=={major}.{minor}.*"]}

    def dynamic_wheel(self, _settings: Mapping[str, Any]) -> dict[str, bool]:
        """Say that the dependencies of a wheel differ from those of the sdist."""
        return {"dependencies": True}
