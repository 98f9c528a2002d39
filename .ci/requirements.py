"""Print the requirements that pyproject.toml lists: ``requirements.py build``, or names of its extras and groups.

``backends/NAME:tools`` is an extra of a vendor's pyproject.toml, which need not have it. Without the project itself and
the conformance kit, so that their tools can be installed before they are built, and without torch, whose version the
Makefile decides.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).parents[1]


def metadata(folder: str) -> dict[str, Any]:
    """What the pyproject.toml of a folder says."""
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))


CORE, KIT = metadata("."), metadata("kit")
EXTRA = re.compile(rf"{CORE['project']['name']}\[(.+)\]")


def requirements(name: str) -> Iterator[str]:
    """What "build", running included, an extra or a group needs, with the extras it refers to."""
    folder, _, group = name.rpartition(":")
    if folder:
        listed = metadata(folder)["project"].get("optional-dependencies", {}).get(group, [])
    elif name == "build":
        listed = [*(each for project in (CORE, KIT) for each in project["build-system"]["requires"])]
        listed += CORE["project"]["dependencies"]
    else:
        listed = (CORE["project"]["optional-dependencies"] | CORE["dependency-groups"])[name]
    return _without_our_own(listed)


def _without_our_own(listed: list[str]) -> Iterator[str]:
    for requirement in listed:
        if match := EXTRA.match(requirement):
            yield from requirements(match.group(1))
        elif requirement.startswith(KIT["project"]["name"]):
            yield from _without_our_own(KIT["project"]["dependencies"])
        elif not re.match(r"torch\b", requirement):
            yield requirement


if __name__ == "__main__":
    print("\n".join(dict.fromkeys(line for name in sys.argv[1:] for line in requirements(name))))
