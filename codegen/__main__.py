"""``python -m codegen --out DIR --shards N``: write everything that is generated."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import emit, model, parse


def main() -> int:
    """Returns the exit status: 1, with a message, if the tables do not fit the installed torch."""
    parser = argparse.ArgumentParser(prog="codegen", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the generated sources")
    parser.add_argument("--shards", type=int, required=True, help="number of files to split the kernels over")
    options = parser.parse_args()
    functions, backends = parse.native_functions()
    try:
        kernels = model.typed_kernels(functions, backends, parse.read_names(Path(__file__).parent / "hot_ops.txt"))
    except model.CodegenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    emit.emit_typed_kernels(kernels, options.out, options.shards)
    print(f"codegen: {len(kernels)} typed kernels in {options.shards} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
