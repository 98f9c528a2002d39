"""Print the requirements that pyproject.toml lists: ``requirements.py build``, or names of its extras and groups.

Without the project itself, so that its tools can be installed before it is built, and without torch, whose version the
Makefile decides.
"""

import re
import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

PYPROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
SELF = re.compile(rf"{PYPROJECT['project']['name']}\[(.+)\]")


def requirements(name: str) -> list[str]:
    """What "build", running included, an extra or a group needs, with the extras it refers to."""
    if name == "build":
        listed = PYPROJECT["build-system"]["requires"] + PYPROJECT["project"]["dependencies"]
    else:
        listed = (PYPROJECT["project"]["optional-dependencies"] | PYPROJECT["dependency-groups"])[name]
    found = []
    for requirement in listed:
        if match := SELF.fullmatch(requirement):
            found += requirements(match.group(1))
        elif not re.match(r"torch\b", requirement):
            found.append(requirement)
    return found


if __name__ == "__main__":
    print("\n".join(dict.fromkeys(line for name in sys.argv[1:] for line in requirements(name))))
