"""``python -m codegen.slots DEVICE_H OUT``: write the slots of every table as lists for C's preprocessor.

``TB_CORE_SLOTS(X)`` is X(slot) for every slot of the core table in its order, ``TB_CORE_REQUIRED_SLOTS(X)`` for those
that it needs; likewise with GRAPH, KERNELS, CCL and PROF, and with ASYNCHRONOUS and OPTIONAL. ``TB_SLOT_<slot>`` is
"table, device, parameters, arguments" of one: the device is that which the calling thread has to be bound to, as an
expression of the parameters; -1 for none.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from torch_backend.abi.header import Declarations, Function, declarations

from .emit import write_if_changed

_NEEDS = ("required", "asynchronous", "optional")


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="codegen.slots", description=__doc__)
    parser.add_argument("header", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    write_if_changed(options.out, "\n".join(_lists(declarations(options.header))) + "\n")
    return 0


def _lists(header: Declarations) -> Iterator[str]:
    for name, struct in header.tables.items():
        table = name.partition(".")[0]
        for need in ("", *_NEEDS):
            macro = "_".join(filter(None, ("TB", table.upper(), need.upper(), "SLOTS")))
            yield f"#define {macro}(X) {' '.join(f'X({slot.name})' for slot in header.slots(struct, need))}"
        for slot in header.slots(struct):
            arguments = ", ".join(parameter.name for parameter in slot.parameters)
            yield f"#define TB_SLOT_{slot.name} {table}, {_device(slot)}, {slot.text}, ({arguments})"


def _device(slot: Function) -> str:
    names = {parameter.name for parameter in slot.parameters}
    if "src_device" in names:
        return "(kind == TB_COPY_DEVICE_TO_HOST || kind == TB_COPY_PEER ? src_device : dst_device)"
    if "comm" in names:
        return "comm->device"  # what a communicator is, a plugin says
    return "device" if "device" in names and slot.name != "device_properties" else "-1"


if __name__ == "__main__":
    sys.exit(main())
