"""device.h is the one description of the contract: it only grows, and what is made of it grows with it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures import ROOT, RunPython

from torch_backend.abi import header
from torch_backend.abi.header import Declarations, Function, Variable
from torch_backend.files import installed

sys.path.insert(0, str(ROOT / "docs" / "_extensions"))

HEADER = installed.include_dir() / "torch_backend" / "device.h"
VERSION_1_0 = Path(__file__).with_name("abi_1.0.txt")

LAST_SLOT_OF_1_0 = "  tb_status (*ipc_close)(int32_t device, void* ptr);\n"
LAST_SLOT = "  tb_status (*memory_decommit)(int32_t device, void* ptr, uint64_t size_bytes);\n"
NEW_SLOT = """
  /* Begin to bring a range to the device. Default: nothing is brought. Since 1.1. */
  tb_status (*memory_prefetch)(int32_t device, const void* hint, uint32_t hint_bytes, void* ptr, tb_stream* stream,
                               int64_t* out_pages);
"""


def layout(declarations: Declarations) -> Iterator[str]:
    """Constants, and fields in their places: the rules of C make offsets of these on every platform."""
    yield from (f"{name} {value}" for name, value in declarations.constants.items())
    for name, function in declarations.functions.items():
        yield f"{name}: {signature(function)}"
    for name, fields in declarations.structs.items():
        first = fields[0]
        if not isinstance(first, Variable) or first.name != "struct_size":
            yield f"{name}: {len(fields)} fields"  # it may not grow
        for number, field in enumerate(fields):
            if isinstance(field, tuple):
                yield f"{name} {number}: {field[0]}: union {', '.join(f'{v.type} {v.name}' for v in field[1])}"
            elif isinstance(field, Variable):
                yield f"{name} {number}: {field.name}: {field.type}{f'[{field.length}]' if field.length else ''}"
            else:
                yield f"{name} {number}: {field.name}: {signature(field)}"


def signature(function: Function) -> str:
    return f"{function.result}({', '.join(parameter.type for parameter in function.parameters)})"


def what_is_gone(declarations: Declarations) -> list[str]:
    now = {*layout(declarations), "TB_ABI_MINOR 0u"}
    return [line for line in VERSION_1_0.read_text().splitlines() if line not in now]


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    """The header with one more slot, in an include directory of its own."""
    text = HEADER.read_text()
    assert text.count(LAST_SLOT) == 1
    path = tmp_path / "torch_backend" / "device.h"
    path.parent.mkdir()
    path.write_text(text.replace(LAST_SLOT, LAST_SLOT + NEW_SLOT))
    return path


def test_what_version_1_0_had_stays_as_it_was() -> None:
    """Until 1.0 is released it may change: ``python test/python/test_device_header.py > test/python/abi_1.0.txt``."""
    assert what_is_gone(header.installed_declarations()) == []


def test_a_library_that_was_compiled_with_1_0_works(tmp_path: Path, run_python: RunPython) -> None:
    """With a header without all that came later, whose structs and tables are shorter."""
    first = VERSION_1_0.read_text().splitlines()
    later = [line for line in layout(header.installed_declarations()) if line not in first and "TB_ABI_" not in line]
    text = re.sub("(?<=define TB_ABI_MINOR )[0-9]+", "0", HEADER.read_text())
    for line in later:
        name = re.sub(r"^\w+ \d+: ", "", line).split(":")[0].split()[0]
        declaration = rf"^(#define {name} .*|  [\w ]+(\(\*)?\b{name}\b[^;]*;)\n"
        text, removed = re.subn(declaration, "", text, flags=re.MULTILINE)
        assert removed == 1, line
    path = tmp_path / "include" / "torch_backend" / "device.h"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert [*layout(header.declarations(path))] == first

    library = tmp_path / "libtorch_backend_early.so"
    source = ROOT / "test" / "plugins" / "plugin.c"
    options = ["-std=c99", "-shared", "-fPIC", '-DDEVICE_NAME="early"', f"-I{path.parents[1]}"]
    subprocess.run(["cc", *options, source, "-o", library], check=True)
    code = """
        import torch
        import torch_backend

        plugin = torch_backend.load(LIBRARY)
        torch_backend.activate("early")
        layer = torch.nn.Linear(3, 2).to("early")
        layer(torch.ones(4, 3, device="early")).sum().backward()
        print(plugin.abi_version)
        print(layer.weight.grad.tolist())
    """
    process = run_python(code.replace("LIBRARY", repr(str(library))))
    assert process.stdout.splitlines() == ["(1, 0)", "[[4.0, 4.0, 4.0], [4.0, 4.0, 4.0]]"]
    check = [sys.executable, "-m", "torch_backend", "check", library, "--quick", "--jobs", "1"]
    found = subprocess.run([*check, "--only", "test_properties.py"], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_slots_may_be_appended_and_nothing_else(grown: Path) -> None:
    assert what_is_gone(header.declarations(grown)) == []
    text = HEADER.read_text()
    grown.write_text(text.replace(LAST_SLOT_OF_1_0, NEW_SLOT + LAST_SLOT_OF_1_0))
    assert what_is_gone(header.declarations(grown)) == ["tb_core_table 32: ipc_close: tb_status(int32_t, void*)"]
    grown.write_text(text.replace("ipc_close)(int32_t device, void*", "ipc_close)(int64_t device, void*"))
    assert what_is_gone(header.declarations(grown)) == ["tb_core_table 32: ipc_close: tb_status(int32_t, void*)"]
    grown.write_text(text.replace("#define TB_COPY_PEER 4u", "#define TB_COPY_PEER 5u"))
    assert what_is_gone(header.declarations(grown)) == ["TB_COPY_PEER 4u"]


def test_a_new_slot_is_one_of_a_device_in_python(grown: Path, run_python: RunPython) -> None:
    """Its place in the table, its types, and the function that takes a device's method there."""
    code = f"""
        import ctypes
        from pathlib import Path
        from torch_backend.files import installed

        size_before = {len(header.installed_declarations().structs["tb_core_table"]) * 8}
        installed.include_dir = lambda: Path({str(grown.parents[1])!r})
        from torch_backend import PythonDevice, abi
        from torch_backend.python_device import plugin

        assert abi.tb_core_table.memory_prefetch.offset == size_before
        assert "memory_prefetch" not in abi.REQUIRED_SLOTS

        class Acme(PythonDevice):
            name = "acme"
            device_count = device_properties = memory_allocate = memory_free = memory_copy = lambda self: 1

            def memory_prefetch(self, device, hint, address, stream):
                assert (device, hint, address, stream) == (2, b"abc", 64, None)
                return self.pages

        device = Acme()
        host = abi.host.services()
        library = abi.DeviceLibrary(plugin.entry_of(device)(ctypes.byref(host)))
        pages = ctypes.c_int64()
        device.pages = 5
        library.check("memory_prefetch", 2, b"abc", 3, 64, None, ctypes.byref(pages))
        assert pages.value == 5
        device.pages = "5"
        try:
            library.check("memory_prefetch", 2, b"abc", 3, 64, None, ctypes.byref(pages))
        except abi.DeviceError as error:
            print(error)
    """
    process = run_python(code)
    assert "'5' was returned; expected pages, an int" in process.stdout


def test_a_new_slot_is_one_of_the_lists_for_c(grown: Path) -> None:
    """Of bound.c, which puts a function of its own into every slot."""
    subprocess.run([sys.executable, "-m", "codegen.slots", grown, grown.parent / "slots.h"], cwd=ROOT, check=True)
    includes = [f"-I{grown.parents[1]}", f"-I{grown.parent}"]
    source = ROOT / "test" / "plugins" / "bound.c"
    command = ["cc", "-std=c99", "-Werror", "-E", *includes, '-DLIBRARY="any"']
    expanded = subprocess.run([*command, source], check=True, capture_output=True, text=True).stdout
    assert "if (made.core.memory_prefetch) made.core.memory_prefetch = memory_prefetch_bound;" in expanded
    subprocess.run([*command, "-fsyntax-only", source], check=True)


def test_a_new_slot_is_on_the_page_of_the_header(grown: Path) -> None:
    pytest.importorskip("sphinx", reason="without sphinx there is no page")
    import header_page

    page = "\n".join(header_page._page(grown))
    assert "c:member:: tb_status (*memory_prefetch)(int32_t device, const void* hint," in page
    assert "Begin to bring a range to the device." in page


def test_the_page_says_which_files_have_a_slot() -> None:
    """Each of the core table's is in them all."""
    page = (ROOT / "docs" / "maintain.md").read_text()
    section = page[page.index("## A new slot") :]
    files = re.findall(r"^\| `([\w./]+)` \|", section, re.MULTILINE)
    assert len(files) == 7  # and the caller
    first = VERSION_1_0.read_text()
    missing = [
        f"{file}: {slot.name}"
        for slot in header.installed_declarations().slots("tb_core_table")
        for file in files
        if not (file.endswith("CHANGELOG.md") and f": {slot.name}:" in first)
        and subprocess.run(["git", "grep", "--quiet", "--word-regexp", slot.name, "--", file], cwd=ROOT).returncode
    ]
    assert missing == ["csrc/core/DeviceApi.h: device_properties"]  # called by properties()


if __name__ == "__main__":
    print("\n".join(layout(header.declarations(ROOT / "include" / "torch_backend" / "device.h"))))
