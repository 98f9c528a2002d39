"""Finding and loading device libraries, in this process: loading activates nothing."""

import os
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from fixtures import BuildPlugin, VendorPackage

import torch_backend
from torch_backend.devices import loading, selection
from torch_backend.devices.discovery import Origin, discover
from torch_backend.devices.selection import choose, find

Isolate = Callable[..., dict[str, str]]


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests have loaded takes no precedence here."""
    monkeypatch.setattr(loading, "_loaded", {})


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Isolate:
    """``only(*places, packages=[...])``: an environment with these and no other vendor's devices."""

    def isolate(*places: Path | str, packages: tuple[Path, ...] = (), **variables: str) -> dict[str, str]:
        for package in packages:
            monkeypatch.syspath_prepend(package)
        ours = {path.name.removeprefix("site-") for path in packages}
        every = metadata.entry_points()
        points = (point for group in every.groups for point in every.select(group=group))
        kept = metadata.EntryPoints(point for point in points if point.value.split(":")[0] in ours)
        monkeypatch.setattr(metadata, "entry_points", lambda: kept)
        return {"TORCH_BACKEND_PATH": os.pathsep.join(map(str, places)), **variables}

    return isolate


def test_reference_devices_are_found_unloaded(only: Isolate) -> None:
    found = {candidate.name: candidate for candidate in discover(only()) if candidate.origin is Origin.REFERENCE}
    assert set(found) == {"fake", "xcpu"}
    assert found["fake"].is_on_request
    assert found["fake"].error is None
    assert found["fake"].load().name == "fake"


def test_path_lists_files_and_directories(only: Isolate, build_plugin: BuildPlugin) -> None:
    file, other = build_plugin(), build_plugin(name="zeta")
    found = [c for c in discover(only(file, other.parent)) if c.origin is Origin.PATH]
    assert [(c.name, c.path) for c in found] == [("acme", str(file)), ("zeta", str(other))]
    assert found[0].load().version == "1.2.3"
    assert found[0].load() is found[0].load()


def test_path_that_does_not_exist(only: Isolate, tmp_path: Path) -> None:
    (candidate,) = (c for c in discover(only(tmp_path / "gone.so")) if c.origin is Origin.PATH)
    assert candidate.error is not None
    assert "gone.so', which does not exist" in candidate.error


def test_path_without_libraries(only: Isolate, tmp_path: Path) -> None:
    (candidate,) = (c for c in discover(only(tmp_path)) if c.origin is Origin.PATH)
    assert candidate.error is not None
    assert "holds no libtorch_backend_<name>.so" in candidate.error


@pytest.mark.parametrize(
    "body",
    [
        "library = {path!r}",
        "import pathlib; library = pathlib.Path({path!r})",
        "def library(): return {path!r}",
        "import torch_backend; library = torch_backend.load({path!r})",
    ],
    ids=["string", "path", "function", "plugin"],
)
def test_entry_point_values(
    only: Isolate, vendor_package: VendorPackage, build_plugin: BuildPlugin, body: str, request: pytest.FixtureRequest
) -> None:
    package = "vendor_" + request.node.callspec.id
    path = build_plugin()
    environ = only(packages=(vendor_package("acme", body.format(path=str(path)), package=package),))
    (candidate,) = (c for c in discover(environ) if c.origin is Origin.ENTRY_POINT)
    assert candidate.name == "acme"
    assert candidate.source == f"entry point 'acme' of {package} 1.2"
    assert package not in sys.modules  # listing imports nothing
    assert candidate.load().path == str(path.resolve())


def test_entry_point_of_another_type(only: Isolate, vendor_package: VendorPackage) -> None:
    environ = only(packages=(vendor_package("acme", "library = 3", package="vendor_number"),))
    (candidate,) = (c for c in discover(environ) if c.origin is Origin.ENTRY_POINT)
    assert candidate.error is not None
    assert "gives a int. It must give the path of a device library" in candidate.error


def test_entry_point_with_another_name(only: Isolate, vendor_package: VendorPackage, build_plugin: BuildPlugin) -> None:
    library = vendor_package("other", f"library = {str(build_plugin())!r}", package="vendor_misnamed")
    (candidate,) = (c for c in discover(only(packages=(library,))) if c.origin is Origin.ENTRY_POINT)
    assert candidate.error is not None
    assert "entry point 'other' of vendor_misnamed 1.2 gives the device 'acme'" in candidate.error


def test_path_goes_before_entry_point(only: Isolate, vendor_package: VendorPackage, build_plugin: BuildPlugin) -> None:
    installed = vendor_package("acme", "raise ImportError('not this one')", package="vendor_shadowed")
    environ = only(build_plugin(), packages=(installed,))
    assert find("acme", discover(environ)).origin is Origin.PATH
    choice = choose(environ)
    assert choice.candidate is not None
    assert choice.candidate.origin is Origin.PATH
    assert choice.problems == ()


def test_unknown_name_lists_what_exists(only: Isolate, build_plugin: BuildPlugin) -> None:
    with pytest.raises(ValueError, match=r"no device 'nope'.*'acme' \(TORCH_BACKEND_PATH.*'xcpu' \(reference device"):
        find("nope", discover(only(build_plugin())))


def test_library_with_any_file_name_is_found_by_the_name_inside(only: Isolate, build_plugin: BuildPlugin) -> None:
    environ = only(build_plugin(name="quiet", file="driver.so"))
    assert find("quiet", discover(environ)).load().name == "quiet"
    with pytest.raises(ValueError, match="no device 'driver'"):
        find("driver", discover(environ))


def test_two_packages_with_one_device(only: Isolate, vendor_package: VendorPackage, build_plugin: BuildPlugin) -> None:
    body = f"library = {str(build_plugin())!r}"
    packages = tuple(vendor_package("acme", body, package=package) for package in ("vendor_one", "vendor_two"))
    environ = only(packages=packages)
    with pytest.raises(ValueError, match=r"Several packages offer the device 'acme'.*vendor_.*vendor_.*Uninstall"):
        find("acme", discover(environ))
    choice = choose(environ)
    assert choice.candidate is None
    assert "Several packages offer the device 'acme'" in choice.problems[0]


# ---- what `import torch` alone would activate ----


def test_nothing_installed_chooses_nothing(only: Isolate) -> None:
    assert choose(only()) == selection.Choice(None)


def test_sole_vendor_is_chosen(only: Isolate, build_plugin: BuildPlugin) -> None:
    choice = choose(only(build_plugin()))
    assert choice.candidate is not None
    assert choice.candidate.name == "acme"
    assert choice.problems == ()


def test_reference_device_is_not_chosen_wherever_it_lies(only: Isolate, build_plugin: BuildPlugin) -> None:
    assert choose(only(build_plugin(name="fake"))).candidate is None
    assert choose(only(build_plugin(name="fake", file="nameless.so"))).candidate is None


def test_a_device_on_request_is_not_chosen_wherever_it_lies(
    only: Isolate, vendor_package: VendorPackage, build_plugin: BuildPlugin
) -> None:
    library = build_plugin()
    package = vendor_package("acme", f"library = {str(library)!r}", group="torch_backend.devices.on_request")
    environment = only(packages=(package,))
    assert choose(environment).candidate is None
    assert choose({**environment, "TORCH_BACKEND_PATH": str(library)}).candidate is None
    found = choose({**environment, "TORCH_BACKEND": "acme"}).candidate
    assert found is not None
    assert found.load().name == "acme"


def test_two_vendors_want_the_slot(only: Isolate, build_plugin: BuildPlugin) -> None:
    choice = choose(only(build_plugin(), build_plugin(name="zeta")))
    assert choice.candidate is None
    (problem,) = choice.problems
    assert "2 devices want PyTorch's one slot" in problem
    assert "'acme'" in problem
    assert "'zeta'" in problem
    assert "TORCH_BACKEND=acme, TORCH_BACKEND=zeta, or TORCH_BACKEND=none" in problem


def test_vendor_without_hardware_does_not_want_the_slot(only: Isolate, build_plugin: BuildPlugin) -> None:
    absent = build_plugin("DEVICES=0", name="absent")
    alone = choose(only(absent))
    assert (alone.candidate, alone.problems) == (None, ())
    assert "'absent'" in alone.notes[0]
    assert "finds no devices" in alone.notes[0]
    beside = choose(only(absent, build_plugin()))
    assert beside.candidate is not None
    assert beside.candidate.name == "acme"


def test_name_in_the_environment_is_chosen(only: Isolate, build_plugin: BuildPlugin) -> None:
    choice = choose(only(build_plugin(), build_plugin(name="zeta"), TORCH_BACKEND="zeta"))
    assert choice.candidate is not None
    assert choice.candidate.name == "zeta"


@pytest.mark.parametrize("value", ["none", ""])
def test_environment_asks_for_no_device(only: Isolate, build_plugin: BuildPlugin, value: str) -> None:
    choice = choose(only(build_plugin(), TORCH_BACKEND=value))
    assert (choice.candidate, choice.problems) == (None, ())


def test_named_device_without_hardware(only: Isolate, build_plugin: BuildPlugin) -> None:
    choice = choose(only(build_plugin("DEVICES=0", name="absent"), TORCH_BACKEND="absent"))
    assert choice.candidate is None
    assert "TORCH_BACKEND=absent" in choice.problems[0]
    assert "finds no devices" in choice.problems[0]


def test_named_device_that_does_not_exist(only: Isolate) -> None:
    choice = choose(only(TORCH_BACKEND="nope"))
    assert choice.candidate is None
    assert choice.problems[0].startswith("TORCH_BACKEND=nope: There is no device 'nope'. There are 'fake'")


def test_named_file(only: Isolate, build_plugin: BuildPlugin) -> None:
    path = build_plugin()
    choice = choose(only(TORCH_BACKEND=str(path)))
    assert choice.candidate is not None
    assert (choice.candidate.name, choice.candidate.path, choice.problems) == ("acme", str(path), ())


def test_named_file_that_is_missing_or_in_this_folder(
    only: Isolate, build_plugin: BuildPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build_plugin()
    (problem,) = choose(only(TORCH_BACKEND=f"{path}x")).problems
    assert problem.startswith(f"TORCH_BACKEND={path}x: There is no device library {path}x.")
    monkeypatch.chdir(path.parent)
    (problem,) = choose(only(TORCH_BACKEND=path.name)).problems
    assert f"To load the file in this folder, write ./{path.name}." in problem


def test_broken_vendor_is_reported_and_leaves_the_other(only: Isolate, build_plugin: BuildPlugin) -> None:
    choice = choose(only(build_plugin("COUNT_FAILS", name="ill"), build_plugin()))
    assert choice.candidate is not None
    assert choice.candidate.name == "acme"
    (problem,) = choice.problems
    assert "The device 'ill'" in problem
    assert "the driver does not answer" in problem


# ---- libraries that cannot be loaded ----


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        (("NO_ENTRY",), "not a device library: it does not export tb_plugin_entry"),
        (("ENTRY_SILENT",), "refused to load.*gave no reason"),
        (('ENTRY_FAILS="no driver before version 5"',), "refused to load: no driver before version 5"),
        (("ABI_MAJOR=9",), r"speaks version 9\.\d+ of the device ABI and this torch_backend speaks 1\."),
        (("PLUGIN_SIZE=8",), "its tb_plugin has struct_size 8, too small"),
        (("CORE_SIZE=16",), "its tb_core_table has struct_size 16, but the five required slots need"),
        (("NO_CORE",), "has no core table"),
        (("UNSET_COPY",), "the required slot memory_copy is not set"),
        (("HALF_ASYNC",), "stream_create, stream_destroy set, but .*event_query not"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_unusable_library(build_plugin: BuildPlugin, switches: tuple[str, ...], message: str) -> None:
    with pytest.raises((RuntimeError, ValueError), match=message):
        torch_backend.load(build_plugin(*switches))


def test_device_name_with_capitals(build_plugin: BuildPlugin) -> None:
    with pytest.raises(RuntimeError, match="calls its device 'Acme'; a device name is a lower-case letter"):
        torch_backend.load(build_plugin(name="Acme"))


def test_file_that_is_no_library(tmp_path: Path) -> None:
    path = tmp_path / "libtorch_backend_text.so"
    path.write_text("This is a text.\n")
    with pytest.raises(RuntimeError, match=r"Cannot load device library '.*libtorch_backend_text\.so'"):
        torch_backend.load(path)


def test_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"no device library at '.*gone\.so'"):
        torch_backend.load(tmp_path / "gone.so")
    with pytest.raises(RuntimeError, match="is not a file"):
        torch_backend.load(tmp_path)


# ---- libraries of another age ----


@pytest.mark.parametrize("switch", ["NEWER_MINOR", "OLDER_MINOR"])
def test_other_minor_versions_load(build_plugin: BuildPlugin, switch: str) -> None:
    plugin = torch_backend.load(build_plugin(switch))
    assert plugin.abi_version[0] == 1
    assert plugin.tables == []
    properties = plugin.device_properties(0)
    assert (properties.name, properties.arch) == ("Acme acme", "acme_v1")
    assert (properties.major, properties.minor) == (1, 2)


# ---- options ----


def test_options_reach_the_library(build_plugin: BuildPlugin) -> None:
    path = build_plugin(name="tuned")
    assert torch_backend.load(path, {"devices": 5}).device_count() == 5
    with pytest.raises(RuntimeError, match=r"come too late.*TORCH_BACKEND_TUNED_DEVICES=6"):
        torch_backend.load(path, {"devices": 6})
    assert torch_backend.load(path).device_count() == 5


def test_options_need_a_name(build_plugin: BuildPlugin) -> None:
    with pytest.raises(ValueError, match=r"cannot be given to '.*anonymous\.so'.*libtorch_backend_<name>\.so"):
        torch_backend.load(build_plugin(file="anonymous.so"), {"devices": 5})


def test_options_are_simple_values(build_plugin: BuildPlugin) -> None:
    with pytest.raises(TypeError, match="option 'devices' of 'typed' is"):
        torch_backend.load(build_plugin(name="typed"), {"devices": [1]})  # type: ignore[dict-item]
