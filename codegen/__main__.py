"""``python -m codegen --out DIR --shards N``: write everything that is generated."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import device_checks, emit, parse, schemas, structured, typed


def main() -> int:
    """Returns the exit status: 1, with a message, if the tables do not fit the installed torch."""
    parser = argparse.ArgumentParser(prog="codegen", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the generated sources")
    parser.add_argument("--shards", type=int, required=True, help="number of files to split the kernels over")
    options = parser.parse_args()
    functions, backends = parse.native_functions()
    try:
        tables = Path(__file__).parent
        schemas.check_schemas(functions, tables / "own_schemas.txt")
        names = parse.read_names(tables / "hot_ops.txt")
        structured_kernels = structured.structured_kernels(parse.structured_groups(functions), backends, names)
        served = {form.overload for kernel in structured_kernels for form in kernel.forms}
        typed_kernels = [k for k in typed.typed_kernels(functions, backends, names) if k.overload not in served]
    except typed.CodegenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    emit.emit_typed_kernels(typed_kernels, options.out, options.shards)
    emit.emit_structured_kernels(structured_kernels, options.out, options.shards)
    emit.emit_device_checks(device_checks.checked_overloads(functions, backends), options.out)
    print(f"codegen: {len(typed_kernels)} typed and {len(served)} structured overloads, {options.shards} files each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
