"""What the library says of itself before anything is used."""

import ctypes
import re

from torch_backend.abi import ABI_MINOR, DeviceLibrary, tb_core_table, tb_plugin
from torch_backend.diagnosis.steps import option_keys
from torch_conformance.promises import promise
from torch_conformance.suite.abi._support import run_child


@promise("all calls 7.1, tb_plugin.version")
def test_vendor_and_version_are_said(library: DeviceLibrary) -> None:
    """The library names its vendor and its version."""
    for field in ("vendor", "version"):
        text = getattr(library.plugin, field)
        assert text, f"tb_plugin.{field} is {'NULL' if text is None else 'empty'}"
        text.decode("utf-8")


@promise("all calls 3.2, tb_plugin.abi_major")
def test_struct_sizes_belong_to_the_minor_version(library: DeviceLibrary) -> None:
    """The structs are not longer than those of the minor version that the library says it was compiled with."""
    if library.plugin.abi_minor > ABI_MINOR:
        return
    for name, size, struct in (
        ("tb_plugin", library.plugin.struct_size, tb_plugin),
        ("tb_core_table", library.core.declared_size, tb_core_table),
    ):
        most = ctypes.sizeof(struct)
        assert size <= most, f"{name} declares {size} bytes, but version 1.{library.plugin.abi_minor} has {most}"
        assert size % 8 == 0, f"{name} declares {size} bytes, which ends inside a field"


@promise("table 1")
def test_an_unknown_table_is_not_offered(library: DeviceLibrary) -> None:
    """A table of a name that the library cannot know is NULL."""
    if not library.plugin.table:
        assert not library.tables
        return
    for name in (b"no.such.table", b"kernels.999", b"graph", b""):
        assert library.plugin.table(name) is None, f"table({name.decode()!r}) is not NULL"


@promise("tb_plugin")
def test_tables_stay_where_they_are(library: DeviceLibrary) -> None:
    """A table that is asked for again is the same."""
    for name, table in library.tables.items():
        again = library.plugin.table(name.encode())
        assert again == table.address, f"table({name!r}) was at {table.address:#x} and is now at {again or 0:#x}"


@promise("tb_plugin.option_keys 1")
def test_option_keys_are_names(library: DeviceLibrary) -> None:
    """The list of option keys ends with NULL and holds names, each once, without the device's."""
    keys = option_keys(library)
    if keys is None:
        return
    wrong = [key for key in keys if not re.fullmatch(r"[a-z][a-z0-9_.]*", key)]
    assert not wrong, f"these are no option keys: {wrong}"
    prefixed = [key for key in keys if key.startswith(f"{library.name}.")]
    assert not prefixed, f"option_keys are listed without '{library.name}.', but there are {prefixed}"
    assert len(set(keys)) == len(keys), f"option_keys has duplicates: {keys}"


@promise("all calls 3.2")
def test_a_newer_host_opens_the_library(library: DeviceLibrary) -> None:
    """A host of a later minor version, whose struct is longer, opens and uses the library."""
    run_child(library, "open_with_newer_host")


@promise("all calls 3.2")
def test_the_host_is_not_read_past_its_size(library: DeviceLibrary) -> None:
    """The library reads nothing past the struct_size of the host's services."""
    run_child(library, "open_with_host_at_the_end_of_memory")


@promise("all calls 6.1, TB_PLUGIN_ENTRY_NAME 3")
def test_a_host_of_another_major_version_gets_an_answer(library: DeviceLibrary) -> None:
    """A host of another major version is refused with a reason, or learns the library's own version."""
    run_child(library, "open_with_other_major")
