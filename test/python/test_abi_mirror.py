"""torch_backend.abi says in Python what device.h says in C. The compiler is asked, so that neither can drift."""

import ctypes
import re
import shutil
import subprocess
import sys
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

from torch_backend import abi
from torch_backend.abi import dtypes
from torch_backend.files import installed

HEADER = installed.include_dir() / "torch_backend" / "device.h"

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
    "TB_REDUCE_": abi.Reduction,
    "TB_TRACE_": abi.TraceKind,
    "TB_LOG_": abi.LogLevel,
}

SINGLE_VALUES = {
    "TB_ABI_MAJOR": abi.ABI_MAJOR,
    "TB_ABI_MINOR": abi.ABI_MINOR,
    "TB_DTYPE_MASK_WORDS": abi.DTYPE_MASK_WORDS,
    "TB_IPC_HANDLE_BYTES": abi.IPC_HANDLE_BYTES,
}

NO_VALUES = {"TB_EXPORT", "TB_PLUGIN_ENTRY_NAME"}

STRUCTS: dict[str, Any] = {name: value for name, value in vars(abi).items() if hasattr(value, "_fields_")} | {
    "tb_arg_value": abi.tb_arg_value
}
UNNAMED_IN_C = {"tb_arg_value"}

FUNCTION_TYPES = {
    "tb_host_function": abi.tb_host_function,
    "tb_kernel_function": abi.tb_kernel_function,
    "tb_trace_callback": abi.tb_trace_callback,
    "tb_plugin_entry_function": abi.tb_plugin_entry_function,
}

C_TYPES = {
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "tb_status": ctypes.c_int32,
    "tb_dtype": abi.tb_dtype,
    "void": None,
    "tb_host_function": "pointer",
    "tb_trace_callback": "pointer",
}


@pytest.fixture(scope="module")
def compiler() -> str:
    found = shutil.which("cc")
    if found is None:
        pytest.skip("no C compiler")
    return found


@pytest.fixture(scope="module")
def source(compiler: str) -> str:
    """device.h without comments and macros."""
    return subprocess.run([compiler, "-E", "-P", HEADER], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def macros(compiler: str) -> list[str]:
    """The names of the constants that device.h defines."""
    lines = subprocess.run([compiler, "-dM", "-E", HEADER], check=True, capture_output=True, text=True).stdout
    return re.findall(r"^#define (TB_\w+) (?!__attribute__)", lines, re.MULTILINE)


def statuses() -> list[str]:
    return re.findall(r"X\((TB_STATUS_\w+),", HEADER.read_text())


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


def struct_body(source: str, name: str) -> str:
    match = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", source, re.DOTALL)
    assert match, f"device.h has no struct {name}"
    return match.group(1)


def field_names(body: str) -> list[str]:
    names = []
    for declaration in re.sub(r"union \{.*?\}", "union", body, flags=re.DOTALL).split(";"):
        text = " ".join(declaration.split())
        if pointer := re.search(r"\(\*(\w+)\)", text):
            names.append(pointer.group(1))
        elif text:
            names += [re.search(r"(\w+)(\[.*\])?$", part.strip()).group(1) for part in text.split(",")]
    return names


def kind_of_c(type_text: str) -> object:
    """A parameter's type as far as a caller must know it: every pointer is a pointer."""
    text = type_text.strip()
    if "*" in text or "[" in text:
        return "pointer"
    words = [word for word in text.split() if word != "const"]
    return C_TYPES[words[0]]


def kind_of_ctypes(c_type: Any) -> object:
    is_pointer = c_type in (ctypes.c_void_p, ctypes.c_char_p) or hasattr(c_type, "contents")
    return "pointer" if is_pointer or hasattr(c_type, "_argtypes_") else c_type


def signatures(source: str) -> dict[str, tuple[str, str]]:
    """Every function pointer in device.h by "struct.field" or its own name: its result and its parameters."""
    found = {}
    for name in set(STRUCTS) - UNNAMED_IN_C:
        for result, field, parameters in re.findall(
            r"([\w ]+?\*?\s*)\(\*(\w+)\)\s*\((.*?)\);", struct_body(source, name), re.DOTALL
        ):
            found[f"{name}.{field}"] = (result, parameters)
    for result, name, parameters in re.findall(r"typedef ([\w *]+?)\(\*(\w+)\)\((.*?)\);", source, re.DOTALL):
        found[name] = (result, parameters)
    return {name: value for name, value in found.items() if name.startswith("tb_")}


def test_constants_are_those_of_the_header(compiler: str, macros: list[str], tmp_path: Path) -> None:
    names = [name for name in [*macros, *statuses()] if name not in NO_VALUES]
    mirrored = {
        prefix + name: value for prefix, cls in ENUMERATIONS.items() for name, value in cls.__members__.items()
    } | SINGLE_VALUES
    assert sorted(names) == sorted(mirrored), "constants of device.h and of torch_backend.abi"
    assert evaluate(compiler, tmp_path, names) == {name: int(mirrored[name]) for name in names}


def test_the_entry_has_the_name_of_the_header() -> None:
    assert f'#define TB_PLUGIN_ENTRY_NAME "{abi.ENTRY_NAME}"' in HEADER.read_text()


def test_every_struct_is_mirrored(source: str) -> None:
    assert set(re.findall(r"typedef struct (tb_\w+) \{", source)) == set(STRUCTS) - UNNAMED_IN_C


def test_every_function_type_is_mirrored(source: str) -> None:
    assert set(re.findall(r"typedef [\w *]+?\(\*(tb_\w+)\)\(", source)) == set(FUNCTION_TYPES)


@pytest.mark.parametrize("name", sorted(set(STRUCTS) - UNNAMED_IN_C))
def test_fields_have_the_names_offsets_and_sizes_of_the_header(
    name: str, source: str, compiler: str, tmp_path: Path
) -> None:
    struct = STRUCTS[name]
    names = [field[0] for field in struct._fields_]
    assert names == field_names(struct_body(source, name))
    expected = {f"sizeof({name})": ctypes.sizeof(struct)}
    for field in names:
        expected[f"offsetof({name}, {field})"] = getattr(struct, field).offset
        expected[f"sizeof((({name}*)0)->{field})"] = getattr(struct, field).size
    assert evaluate(compiler, tmp_path, list(expected)) == expected


def test_the_values_of_arguments_lie_where_the_header_has_them(compiler: str, tmp_path: Path) -> None:
    expected = {
        f"sizeof(((tb_arg*)0)->v.{field})": getattr(abi.tb_arg_value, field).size
        for field, _ in abi.tb_arg_value._fields_
    }
    assert evaluate(compiler, tmp_path, list(expected)) == expected


def test_functions_take_and_return_what_the_header_says(source: str) -> None:
    found = signatures(source)
    mirrored = dict(FUNCTION_TYPES)
    for name in set(STRUCTS) - UNNAMED_IN_C:
        mirrored |= {f"{name}.{field}": c_type for field, c_type in STRUCTS[name]._fields_}
    mirrored = {name: c_type for name, c_type in mirrored.items() if hasattr(c_type, "_argtypes_")}
    typedefs = {"tb_kernel.function"}  # declared through a type of its own, which is compared
    assert set(found) == set(mirrored) - typedefs
    for name, (result, parameters) in found.items():
        c_type = mirrored[name]
        texts = [text for text in parameters.split(",") if text.strip() not in ("void", "...")]
        assert [kind_of_c(text) for text in texts] == [kind_of_ctypes(t) for t in c_type._argtypes_], name
        assert kind_of_c(result) == kind_of_ctypes(c_type._restype_), name


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
    assert abi.dtypes_in([0] * dtypes.DTYPE_MASK_WORDS) == set(abi.TORCH_DTYPES)


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
