"""Modules: code is compiled, found, kept as an image, and unloaded."""

import ctypes
import random

import pytest

from torch_backend.abi import DeviceLibrary, Status, status_name
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._module_sources import SOURCES, constant_source
from torch_conformance.suite.abi._modules import (
    UNTOUCHED,
    Launch,
    Modules,
    Pointer,
    formats_of,
    modules_in,
    modules_of,
)
from torch_conformance.suite.abi._support import GUARD_BYTES, Hold, expect_bytes, host_function, memory, pause
from torch_conformance.threads import in_numbered_threads

pytestmark = needs.table("kernels.1")

_MISSING = "conformance_missing_name"
_THREADS = 4


def _images(library: DeviceLibrary) -> list[Modules]:
    if "module_image" not in library.tables["kernels.1"]:
        needs.not_offered("the table kernels.1 leaves the slot module_image unset")
    return modules_of(library)


@promise("tb_kernel_table.module_formats 1")
def test_formats_are_names(library: DeviceLibrary) -> None:
    """module_formats lists names, each once; "image" is none of them. They stay."""
    formats = formats_of(library)
    assert formats, "the slots of modules are set, but module_formats is empty"
    assert all(formats), f"module_formats has an empty name: {formats}"
    assert len(set(formats)) == len(formats), f"module_formats lists a name twice: {formats}"
    assert "image" not in formats, "module_formats lists 'image', which is what module_image gives"
    library.initialize()
    assert formats_of(library) == formats, f"module_formats was {formats} and is {formats_of(library)}"


@promise("kernels.1 3 5, module_load 1")
@pytest.mark.parametrize("language", SOURCES)
def test_source_is_compiled(library: DeviceLibrary, language: str) -> None:
    """Source in a format that is offered is compiled, and its function runs."""
    if language not in formats_of(library):
        needs.not_offered(f"{language} is not in module_formats")
    for device in library.devices:
        modules = modules_in(device, language)
        with modules.module(constant_source(language, "-4711")) as module:
            written = modules.constant(module)
        assert written == -4711, f"{modules}: a function that writes -4711 wrote {written}"


@promise("module_load 4")
def test_errors_in_the_source_are_told(library: DeviceLibrary) -> None:
    """Source that cannot be compiled fails, and the reason is what the compiler says; the next module is well."""
    for modules in modules_of(library):
        source = constant_source(modules.language, _MISSING)
        status, _ = modules.try_load(source.encode(), modules.language)
        said = library.error_text()
        assert status != Status.OK, f"{modules}: module_load returned OK for source that uses an unknown name"
        assert _MISSING in said, (
            f"{modules}: module_load returned {status_name(status)} for source that uses the unknown name {_MISSING}, "
            f"but what the compiler says is not told: {said[:300]!r}"
        )
        with modules.module(constant_source(modules.language, "1")) as module:
            assert modules.constant(module) == 1, f"{modules}: a module after one that could not be compiled"


@promise("module_function 1 2")
def test_an_unknown_function_is_refused(library: DeviceLibrary) -> None:
    """module_function of a name that the module does not have is INVALID_ARGUMENT, and writes no function."""
    for modules in modules_of(library):
        with modules.module(constant_source(modules.language, "1")) as module:
            for name in ("write", "write_values", "Write_value", "malloc", ""):
                out = ctypes.c_void_p(UNTOUCHED)
                status = modules.status("module_function", module, name.encode(), ctypes.byref(out))
                assert status == Status.INVALID_ARGUMENT, (
                    f"{modules}: module_function of '{name}', which the module does not have, returned "
                    f"{status_name(status)} instead of INVALID_ARGUMENT"
                )
                assert out.value == UNTOUCHED, f"{modules}: module_function failed but wrote to out_function"


@promise("module_function 1")
def test_functions_of_one_name_are_those_of_their_modules(library: DeviceLibrary) -> None:
    """Modules that have functions of the same name do not mix them up."""
    for modules in modules_of(library):
        with (
            modules.module(constant_source(modules.language, "1")) as first,
            modules.module(constant_source(modules.language, "2")) as second,
        ):
            written = [modules.constant(module) for module in (first, second, first)]
        assert written == [1, 2, 1], f"{modules}: functions of modules 1, 2, 1 wrote {written}"


@promise("module_unload")
def test_modules_come_and_go(library: DeviceLibrary) -> None:
    """A module that is loaded after another was unloaded is itself, whatever was loaded before."""
    for modules in modules_of(library):
        for number in (3, 4, 5):
            with modules.module(constant_source(modules.language, str(number))) as module:
                written = modules.constant(module)
                assert written == number, f"{modules}: the function of module {number} wrote {written}"


@promise("module_load 3")
def test_threads_load_at_once(library: DeviceLibrary) -> None:
    """Loads of several threads give each its module."""
    for modules in modules_of(library):
        written: dict[int, int] = {}

        def load(number: int, modules: Modules = modules, written: dict[int, int] = written) -> None:
            with modules.module(constant_source(modules.language, str(number))) as module:
                written[number] = modules.constant(module)

        in_numbered_threads(_THREADS, load)
        wrong = {number: value for number, value in written.items() if number != value}
        assert not wrong, f"{modules}: of {_THREADS} modules loaded at once some wrote another's number: {wrong}"


@promise("module_unload")
@needs.capability("ASYNC")
@needs.slot("stream_host_function")
def test_a_module_is_unloaded_with_launches_pending(library: DeviceLibrary) -> None:
    """module_unload lets the launches complete that are pending."""
    for modules in modules_of(library):
        device = modules.device
        with device.stream() as stream, memory(device, 4) as address:
            device.write(address, bytes(4))
            with Hold(device, stream), modules.module(constant_source(modules.language, "4711")) as module:
                modules.enqueue(modules.function(module, "write_value"), Launch([Pointer(address)]), stream)
            written = int.from_bytes(device.read(address, 4, stream), "little")
            assert written == 4711, f"{modules}: a launch that was pending when its module was unloaded wrote {written}"


@promise("module_unload")
@needs.capability("ASYNC")
@needs.slot("stream_host_function")
def test_a_module_is_unloaded_with_launches_on_a_stream_that_is_gone(library: DeviceLibrary) -> None:
    """module_unload lets the launches complete that are pending on a stream that was destroyed."""
    for modules in modules_of(library):
        device = modules.device
        with memory(device, 4) as address, modules.device.event() as event:
            device.write(address, bytes(4))
            with modules.module(constant_source(modules.language, "4711")) as module:
                with device.stream() as stream:
                    host_function(device, pause, stream)
                    modules.enqueue(modules.function(module, "write_value"), Launch([Pointer(address)]), stream)
                    device.record(event, stream)
            device.wait_event(event)
            written = int.from_bytes(device.read(address, 4), "little")
            assert written == 4711, f"{modules}: a launch on a stream that was destroyed wrote {written}"


# ---- images ----


@promise("module_load 1, module_image 1")
def test_an_image_is_a_module(library: DeviceLibrary) -> None:
    """What module_image gives is loaded as the same module, also when the first is gone."""
    for modules in _images(library):
        images = []
        for number in (1, 2):
            with modules.module(constant_source(modules.language, str(number))) as module:
                images.append(modules.image(module))
        for number, image in zip((1, 2), images, strict=True):
            with modules.module(image, "image") as module:
                written = modules.constant(module)
                assert written == number, f"{modules}: the image of module {number} wrote {written}"


@promise("module_image 1")
def test_an_image_of_an_image(library: DeviceLibrary) -> None:
    """A module that was loaded from an image gives an image too."""
    for modules in _images(library):
        with modules.module(constant_source(modules.language, "7")) as module:
            image = modules.image(module)
        with modules.module(image, "image") as module:
            second = modules.image(module)
        with modules.module(second, "image") as module:
            written = modules.constant(module)
        assert written == 7, f"{modules}: the image of a module that was loaded from an image wrote {written}"


@promise("module_image 2")
def test_too_little_room_for_an_image(library: DeviceLibrary) -> None:
    """With too little room module_image writes nothing and says how much is needed; with more it writes no more."""
    for modules in _images(library):
        with modules.module(constant_source(modules.language, "1")) as module:
            image = modules.image(module)
            for room in (1, len(image) - 1, len(image), len(image) + 1):
                place = ctypes.create_string_buffer(b"\x5a" * (len(image) + GUARD_BYTES), len(image) + GUARD_BYTES)
                size = ctypes.c_uint64(room)
                modules.check("module_image", module, place, ctypes.byref(size))
                assert size.value == len(image), (
                    f"{modules}: module_image with room for {room} bytes says that {size.value} are needed, and before "
                    f"{len(image)}"
                )
                written = image if room >= len(image) else b""
                expect_bytes(
                    place.raw,
                    written + b"\x5a" * (len(place) - len(written)),
                    f"{modules}: module_image of {len(image)} bytes with room for {room}",
                )


@promise("module_load 5")
def test_what_is_no_image_is_unsupported(library: DeviceLibrary) -> None:
    """Bytes that no driver made are UNSUPPORTED as an image, and the next module is well."""
    for modules in _images(library):
        source = constant_source(modules.language, "9")
        garbage = {
            "random bytes": random.Random(1).randbytes(1000),
            "zeros": bytes(1000),
            "one byte": b"x",
            "source": source.encode(),
        }
        for what, code in garbage.items():
            status, _ = modules.try_load(code, "image")
            assert status == Status.UNSUPPORTED, (
                f"{modules}: module_load of {what} as an image returned {status_name(status)} instead of UNSUPPORTED"
            )
        with modules.module(source) as module:
            assert modules.constant(module) == 9, f"{modules}: a module after images that were none"
