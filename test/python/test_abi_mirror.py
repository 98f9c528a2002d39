"""torch_backend.abi says in Python what device.h says in C. The compiler is asked whether it has read it rightly."""

import ctypes
import inspect
import shutil
import subprocess
import sys
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

from torch_backend import abi
from torch_backend.abi import header
from torch_backend.abi.table import type_of
from torch_backend.files import installed

HEADER = header.installed_declarations()

# By how the names start in C.
ENUMERATIONS: dict[str, type[IntEnum]] = {
    "TB_STATUS_": abi.Status,
    "TB_DTYPE_": abi.DTypeCode,
    "TB_ARG_": abi.ArgTag,
    "TB_CAP_": abi.Capability,
    "TB_MEMORY_": abi.MemoryKind,
    "TB_COPY_": abi.CopyKind,
    "TB_MAP_": abi.MapAccess,
    "TB_EVENT_": abi.EventFlag,
    "TB_CAPTURE_": abi.CaptureMode,
    "TB_KERNEL_": abi.KernelFlag,
    "TB_MATH_": abi.MathFlag,
    "TB_PARAM_": abi.ParamKind,
    "TB_REDUCE_": abi.Reduction,
    "TB_TRACE_": abi.TraceKind,
    "TB_LOG_": abi.LogLevel,
}

SINGLE_VALUES = {
    "TB_ABI_MAJOR": abi.ABI_MAJOR,
    "TB_ABI_MINOR": abi.ABI_MINOR,
    "TB_DTYPE_MASK_WORDS": abi.DTYPE_MASK_WORDS,
    "TB_IPC_HANDLE_BYTES": ctypes.sizeof(abi.tb_ipc_handle),
}

NO_VALUES = {"TB_PLUGIN_ENTRY_NAME"}


@pytest.fixture(scope="module")
def compiler() -> str:
    found = shutil.which("cc")
    if found is None:
        pytest.skip("no C compiler")
    return found


def evaluate(compiler: str, tmp_path: Path, expressions: list[str]) -> dict[str, int]:
    """What the compiler says of constant expressions."""
    prints = "\n".join(f'  printf("%lld\\n", (long long)({expression}));' for expression in expressions)
    program = (
        f"#include <stddef.h>\n#include <stdio.h>\n#include <torch_backend/device.h>\nint main(void) {{\n{prints}\n}}"
    )
    file = tmp_path / "print.c"
    file.write_text(program)
    subprocess.run([compiler, "-std=c99", f"-I{installed.include_dir()}", file, "-o", tmp_path / "print"], check=True)
    out = subprocess.run([tmp_path / "print"], check=True, capture_output=True, text=True).stdout
    return dict(zip(expressions, map(int, out.split()), strict=True))


def test_constants_are_those_of_the_header(compiler: str, tmp_path: Path) -> None:
    names = [name for name in HEADER.constants if name not in NO_VALUES]
    mirrored = {
        prefix + name: value for prefix, cls in ENUMERATIONS.items() for name, value in cls.__members__.items()
    } | SINGLE_VALUES
    assert sorted(names) == sorted(mirrored), "constants of device.h and of torch_backend.abi"
    assert evaluate(compiler, tmp_path, names) == {name: int(mirrored[name]) for name in names}
    assert (
        max(abi.Status) + 1 == len(abi.Status) == evaluate(compiler, tmp_path, ["TB_STATUS_COUNT_"])["TB_STATUS_COUNT_"]
    )


@pytest.mark.parametrize("name", sorted(HEADER.structs))
def test_fields_have_the_offsets_and_sizes_of_the_header(name: str, compiler: str, tmp_path: Path) -> None:
    struct = getattr(abi, name)
    expected = {f"sizeof({name})": ctypes.sizeof(struct)}
    for field, *_ in struct._fields_:
        expected[f"offsetof({name}, {field})"] = getattr(struct, field).offset
        expected[f"sizeof((({name}*)0)->{field})"] = getattr(struct, field).size
    assert evaluate(compiler, tmp_path, list(expected)) == expected


def test_the_values_of_arguments_lie_where_the_header_has_them(compiler: str, tmp_path: Path) -> None:
    expected = {
        f"sizeof(((tb_arg*)0)->v.{field})": getattr(abi.tb_arg_value, field).size
        for field, _ in abi.tb_arg_value._fields_
    }
    assert evaluate(compiler, tmp_path, list(expected)) == expected


ADDRESS, TEXT = ctypes.c_void_p, ctypes.c_char_p
I32, I64, U32, U64 = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint32, ctypes.c_uint64


@pytest.mark.parametrize(
    ("table", "slot", "result", "arguments"),
    [
        (abi.tb_core_table, "memory_copy", I32, (I32, ADDRESS, I32, ADDRESS, U64, U32, ADDRESS)),
        (abi.tb_core_table, "memory_query", I32, (ADDRESS, ctypes.POINTER(abi.tb_pointer_info))),
        (abi.tb_core_table, "stream_host_function", I32, (I32, ADDRESS, abi.tb_host_function, ADDRESS)),
        (abi.tb_core_table, "event_create", I32, (I32, U32, ctypes.POINTER(ADDRESS))),
        (abi.tb_core_table, "event_elapsed", I32, (I32, ADDRESS, ADDRESS, ctypes.POINTER(I64))),
        (abi.tb_core_table, "initialize", I32, ()),
        (abi.tb_kernel_table, "kernel_find", ADDRESS, (TEXT,)),
        (
            abi.tb_kernel_table,
            "module_launch",
            I32,
            (
                *(I32, ADDRESS, ctypes.POINTER(U32), ctypes.POINTER(U32)),
                *(ctypes.POINTER(abi.tb_launch_param), U32, ADDRESS),
            ),
        ),
        (abi.tb_kernel, "function", I32, (ctypes.POINTER(abi.tb_kernel_context), ctypes.POINTER(abi.tb_arg), I32)),
        (abi.tb_ccl_table, "send", I32, (ADDRESS, U64, abi.tb_dtype, I32, ADDRESS, ADDRESS)),
        (abi.tb_host, "fail", I32, (I32, TEXT)),  # what is variadic about it is for C
        (abi.tb_host, "option", TEXT, (TEXT,)),
        (abi.tb_host, "log", None, (I32, TEXT)),
    ],
)
def test_functions_take_and_return_what_the_header_says(
    table: Any, slot: str, result: Any, arguments: tuple[Any, ...]
) -> None:
    found = type_of(table, slot)
    assert (found._restype_, found._argtypes_) == (result, arguments)


def test_type_checkers_are_told_of_fields_that_there_are() -> None:
    """Annotations are for them only, so nothing else would notice."""
    for name in HEADER.structs:
        struct = getattr(abi, name)
        annotations = inspect.get_annotations(struct, eval_str=True)
        assert set(annotations) <= {field[0] for field in struct._fields_}, name
        empty = struct()
        for field, annotation in annotations.items():
            if annotation is not Any and not hasattr(annotation, "_fields_") and "Array" not in str(annotation):
                assert isinstance(getattr(empty, field), annotation), f"{name}.{field}"


@pytest.mark.parametrize("name", sorted(abi.TORCH_DTYPES))
def test_masks_have_the_bits_of_the_header(name: str, compiler: str, tmp_path: Path) -> None:
    code, bits = abi.TORCH_DTYPES[name]
    word, flag = f"TB_DTYPE_MASK_WORD({code}u, {bits}u)", f"TB_DTYPE_MASK_FLAG({code}u, {bits}u)"
    values = evaluate(compiler, tmp_path, [word, flag])
    mask = abi.mask_of([name])
    assert [i for i, value in enumerate(mask) if value] == [values[word]]
    assert mask[values[word]] == values[flag] % 2**64
    assert abi.dtypes_in(mask) == {name}


def test_an_empty_mask_means_every_dtype() -> None:
    assert abi.dtypes_in([0] * abi.DTYPE_MASK_WORDS) == set(abi.TORCH_DTYPES)


def test_dtypes_are_those_that_the_core_names() -> None:
    import torch

    import torch_backend

    torch_names = {
        str(dtype).removeprefix("torch.") for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)
    }
    assert set(abi.TORCH_DTYPES) <= torch_names
    plugin = torch_backend.active()
    if plugin is not None:
        assert {str(dtype).removeprefix("torch.") for dtype in plugin.device_properties(0).dtypes} <= set(
            abi.TORCH_DTYPES
        )


def test_torch_is_not_imported() -> None:
    code = "import sys, torch_backend.abi; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
