"""``python -m codegen.drift VERSION...``: what changes from one version of torch to the next.

With one version, from the installed torch to it. A version is downloaded into --cache, or is a folder that a torch is
installed in; none is imported.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.util import find_spec
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
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="write JSON")
    form.add_argument("--markdown", action="store_true", help="write the page of the documentation")
    options = parser.parse_args(arguments)
    spec = find_spec("torchgen")  # beside torch, which finding would import
    installed = Path(spec.origin).parents[1] if spec and spec.origin else ROOT
    try:
        folders = [wheels.folder_of(name, installed, options.cache, options.index) for name in options.versions]
        folders = folders if len(folders) > 1 else [installed, *folders]
        names = [wheels.version_of(folder) for folder in folders]
        sources = Sources(options.sources)
        steps = [
            report.Step(names[i], names[i + 1], findings(folders[i], folders[i + 1], sources))
            for i in range(len(folders) - 1)
        ]
    except (wheels.WheelError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps([step.to_json() for step in steps], indent=1))
    elif options.markdown:
        print(report.page(steps), end="")
    else:
        print("\n\n".join(map(str, steps)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
