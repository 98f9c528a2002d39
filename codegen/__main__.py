"""``python -m codegen --out DIR --shards N``: write everything that is generated but OperatorArguments.h."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import device_checks, emit, kernel_texts, operators, parse, schemas, structured, typed


def main() -> int:
    """Returns the exit status: 1, with a message, if the tables do not fit the installed torch."""
    parser = argparse.ArgumentParser(prog="codegen", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the generated sources")
    parser.add_argument("--shards", type=int, required=True, help="number of files to split the kernels over")
    options = parser.parse_args()
    functions, backends = parse.native_functions()
    known = operators.read()
    try:
        schemas.check_schemas(functions, known.hand_written)
        structured_kernels = structured.structured_kernels(parse.structured_groups(functions), backends, known)
        served = {form.overload for kernel in structured_kernels for form in kernel.forms}
        typed_kernels = [
            kernel
            for kernel in typed.typed_kernels(
                functions, backends, known.hot, known.hand_written_overloads, known.draws_few
            )
            if kernel.overload not in served
        ]
    except typed.CodegenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    emit.emit_typed_kernels(typed_kernels, options.out, options.shards)
    emit.emit_structured_kernels(structured_kernels, options.out, options.shards)
    facts = operators.facts(known, device_checks.checked_overloads(functions, backends))
    emit.emit_facts(facts, options.out)
    emit.emit_kernel_texts(
        kernel_texts.texts(), kernel_texts.pointwise_entries(functions), kernel_texts.reduction_entries(), options.out
    )
    print(f"codegen: {len(typed_kernels)} typed and {len(served)} structured overloads, {options.shards} files each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
