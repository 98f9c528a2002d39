"""torch_backend.abi opens device libraries without torch, and tables that Python filled are used like any other."""

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torch_backend import abi

SLOT_TYPES = dict(abi.tb_core_table._fields_)


def table_of(**functions: Callable[..., int]) -> abi.tb_core_table:
    """A core table of Python functions, which ends after initialize; what is required and not given is UNSUPPORTED."""

    def unsupported(*arguments: object) -> int:
        return abi.Status.UNSUPPORTED

    core = abi.tb_core_table(struct_size=abi.tb_core_table.initialize.offset + abi.tb_core_table.initialize.size)
    for slot, function in {**dict.fromkeys(abi.REQUIRED_SLOTS, unsupported), **functions}.items():
        setattr(core, slot, SLOT_TYPES[slot](function))
    return core


def plugin_of(core: abi.tb_core_table) -> abi.tb_plugin:
    return abi.tb_plugin(
        struct_size=ctypes.sizeof(abi.tb_plugin), abi_major=abi.ABI_MAJOR, name=b"py", core=ctypes.addressof(core)
    )


def three_devices(out_count: Any) -> int:
    out_count[0] = 3
    return abi.Status.OK


def test_a_table_that_python_filled_is_used_like_any_other() -> None:
    core = table_of(device_count=three_devices, initialize=lambda: abi.Status.OK)
    plugin = plugin_of(core)
    library = abi.DeviceLibrary(ctypes.addressof(plugin))
    library.initialize()
    assert library.device_count == 3
    with pytest.raises(abi.DeviceError, match="device_properties failed with UNSUPPORTED and gave no reason"):
        library.properties(0)


def test_what_lies_past_a_table_is_not_read() -> None:
    core = table_of()
    core.thread_bind = SLOT_TYPES["thread_bind"](lambda device: abi.Status.INTERNAL)
    plugin = plugin_of(core)
    library = abi.DeviceLibrary(ctypes.addressof(plugin))
    assert library.core.thread_bind is None
    assert list(library.core) == list(abi.REQUIRED_SLOTS)
    with pytest.raises(abi.LibraryError, match="py leaves the slot memory_fill unset"):
        library.status("memory_fill", 0)


def test_a_thread_is_bound_to_the_device_that_it_uses() -> None:
    bound: list[int] = []

    def bind(device: int) -> int:
        bound.append(device)
        return abi.Status.OK

    core = table_of(thread_bind=bind)
    core.struct_size = ctypes.sizeof(abi.tb_core_table)
    plugin = plugin_of(core)
    library = abi.DeviceLibrary(ctypes.addressof(plugin))
    for device in (0, 0, 1, 0):
        library.status("memory_free", device, 0, None, 1, None)
    library.status("memory_copy", -1, None, 2, None, 1, abi.CopyKind.DEVICE_TO_HOST, None)
    library.status("memory_copy", 3, None, -1, None, 1, abi.CopyKind.HOST_TO_DEVICE, None)
    assert bound == [0, 1, 0, 2, 3]


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ((), None),
        (("NO_ENTRY",), "does not export tb_plugin_entry"),
        (('ENTRY_FAILS="no driver"',), "refused to load: no driver"),
        (("ENTRY_SILENT",), "returned NULL and gave no reason"),
        (("ABI_MAJOR=9",), "speaks version 9.1 of the device ABI and this torch_backend speaks 1.1"),
        (("NO_CORE",), "has no core table"),
        (("PLUGIN_SIZE=8",), "its tb_plugin has struct_size 8, too small"),
        (("CORE_SIZE=16",), "has struct_size 16, but the five required slots need 48"),
        (("UNSET_COPY",), "required and not set: memory_copy"),
        (("NEWER_MINOR",), None),
        (("OLDER_MINOR",), None),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_libraries_are_opened_or_refused_with_the_reason(
    build_plugin: Any, switches: tuple[str, ...], message: str | None
) -> None:
    path = build_plugin(*switches)
    if message is not None:
        with pytest.raises(abi.LibraryError, match=re.escape(message)):
            abi.DeviceLibrary.open(path)
        return
    library = abi.DeviceLibrary.open(path)
    library.initialize()
    assert library.name == "acme"
    assert library.device_count == 1


def test_a_device_that_cannot_say_how_many_it_has_says_why(build_plugin: Any) -> None:
    library = abi.DeviceLibrary.open(build_plugin("COUNT_FAILS"))
    with pytest.raises(abi.DeviceError, match="device_count failed with INTERNAL: the driver does not answer"):
        _ = library.device_count


def test_options_are_given_to_the_library(build_plugin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_BACKEND_OPTED_DEVICES", "4")
    monkeypatch.setenv("TORCH_BACKEND_ENVIRON_DEVICES", "5")
    set_here = abi.DeviceLibrary.open(build_plugin(name="opted"), options={"devices": "3"})
    from_environment = abi.DeviceLibrary.open(build_plugin(name="environ"))
    assert (set_here.device_count, from_environment.device_count) == (3, 5)
    with pytest.raises(abi.LibraryError, match="is open already"):
        abi.DeviceLibrary.open(set_here.path, options={"devices": "3"})


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "There is no device library at"), (b"no library", "Cannot load device library")],
    ids=["missing", "no library"],
)
def test_files_that_are_no_libraries_are_refused(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "libtorch_backend_none.so"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(abi.LibraryError, match=message):
        abi.DeviceLibrary.open(path)
