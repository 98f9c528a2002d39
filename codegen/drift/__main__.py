"""``python -m codegen.drift VERSION...``: what changes from one version of torch to the next, as Markdown.

With one version, from the installed torch to it. A version is downloaded into --cache, or is a folder that a torch is
installed in; none is imported.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from . import report, wheels
from .compare import findings
from .uses import Sources

ROOT = Path(__file__).parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 1, with a message, if a version cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m codegen.drift", description=__doc__)
    parser.add_argument("versions", nargs="+", metavar="VERSION", help="2.15.0, or a folder that holds a torch")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "drift", help="where wheels are unpacked")
    parser.add_argument("--index", help="the package index to download from")
    parser.add_argument("--sources", type=Path, default=ROOT, help="the checkout that PyTorch's changes may concern")
    parser.add_argument("--json", action="store_true", help="write JSON")
    options = parser.parse_args(arguments)
    spec = find_spec("torchgen")  # beside torch, which finding would import
    installed = Path(spec.origin).parents[1] if spec and spec.origin else ROOT
    sources = Sources(options.sources)
    try:
        folders = [wheels.folder_of(name, installed, options.cache, options.index) for name in options.versions]
        steps = [
            report.Step(wheels.version_of(old), wheels.version_of(new), findings(old, new, sources))
            for old, new in pairwise(folders if len(folders) > 1 else [installed, *folders])
        ]
    except (wheels.WheelError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps([asdict(step) for step in steps], indent=1) + "\n" if options.json else report.page(steps), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
