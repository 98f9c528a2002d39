"""Activation: what `import torch` does by itself, and torch_backend.activate. Each test has its own interpreter."""

import json
from pathlib import Path
from typing import Any

import pytest
from fixtures import UNASKED, BuildPlugin, RunPython, VendorPackage

USE_XCPU = """
import torch
assert torch.accelerator.current_accelerator() == torch.device("xcpu")
x = torch.arange(4.0, device="xcpu:1")
assert x.device == torch.device("xcpu", 1)
assert (x + 1).cpu().tolist() == [1, 2, 3, 4]
"""

SHOW_ACTIVE = """
import torch, torch_backend
plugin = torch_backend.active()
print(plugin.name if plugin is not None else None)
"""


def warnings_in(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if "RuntimeWarning" in line]


# ---- import torch alone ----


def test_environment_picks_a_reference_device(run_python: RunPython) -> None:
    process = run_python(USE_XCPU, env={"TORCH_BACKEND": "xcpu"}, warnings=["error"])
    assert process.stderr == ""


def test_reference_devices_wait_to_be_asked(run_python: RunPython) -> None:
    assert run_python(SHOW_ACTIVE, env=UNASKED).stdout == "None\n"


@pytest.mark.parametrize("value", ["none", ""])
def test_environment_asks_for_no_device(run_python: RunPython, build_plugin: BuildPlugin, value: str) -> None:
    environment = {"TORCH_BACKEND": value, "TORCH_BACKEND_PATH": build_plugin()}
    process = run_python(SHOW_ACTIVE, env=environment)
    assert (process.stdout, process.stderr) == ("None\n", "")


def test_torch_own_switch(run_python: RunPython) -> None:
    environment = {"TORCH_BACKEND": "xcpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    assert run_python(SHOW_ACTIVE, env=environment).stdout == "None\n"


def test_sole_vendor_package_is_activated(
    run_python: RunPython, vendor_package: VendorPackage, build_plugin: BuildPlugin
) -> None:
    package = vendor_package("acme", f"import torch, torch_backend\ndef library(): return {str(build_plugin())!r}")
    process = run_python(
        "import torch; print(torch.ones(3, device='acme').sum().item(), torch.acme.get_device_name())",
        env=UNASKED,
        packages=[package],
        warnings=["error"],
    )
    assert (process.stdout, process.stderr) == ("3.0 Acme acme\n", "")


def test_two_vendors(run_python: RunPython, vendor_package: VendorPackage, build_plugin: BuildPlugin) -> None:
    package = vendor_package("acme", f"library = {str(build_plugin())!r}")
    environment = UNASKED | {"TORCH_BACKEND_PATH": build_plugin(name="zeta")}
    process = run_python(SHOW_ACTIVE, env=environment, packages=[package])
    assert process.stdout == "None\n"
    (warning,) = warnings_in(process.stderr)
    assert "'acme' (entry point 'acme' of acme_torch 1.2)" in warning
    assert "'zeta' (TORCH_BACKEND_PATH" in warning
    assert "Choose with TORCH_BACKEND=" in warning
    chosen = run_python(SHOW_ACTIVE, env=environment | {"TORCH_BACKEND": "acme"}, packages=[package])
    assert (chosen.stdout, chosen.stderr) == ("acme\n", "")


def test_vendor_without_hardware_is_silent(run_python: RunPython, build_plugin: BuildPlugin) -> None:
    process = run_python(SHOW_ACTIVE, env=UNASKED | {"TORCH_BACKEND_PATH": build_plugin("DEVICES=0")})
    assert (process.stdout, process.stderr) == ("None\n", "")


def test_named_device_without_hardware_warns(run_python: RunPython, build_plugin: BuildPlugin) -> None:
    environment = {"TORCH_BACKEND_PATH": build_plugin("DEVICES=0"), "TORCH_BACKEND": "acme"}
    process = run_python(SHOW_ACTIVE, env=environment)
    (warning,) = warnings_in(process.stderr)
    assert "TORCH_BACKEND=acme" in warning
    assert "finds no devices" in warning
    assert process.stdout == "None\n"


@pytest.mark.parametrize("warnings", [[], ["error"]], ids=["", "warnings-are-errors"])
def test_unknown_device_warns(run_python: RunPython, warnings: list[str]) -> None:
    process = run_python(SHOW_ACTIVE, env={"TORCH_BACKEND": "nope"}, warnings=warnings)
    assert process.stdout == "None\n"
    assert "TORCH_BACKEND=nope: There is no device 'nope'" in process.stderr
    assert "'fake' (reference device" in process.stderr
    assert "'xcpu' (reference device" in process.stderr


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ImportError('libacme.so.5 is missing')", "libacme.so.5 is missing"),
        ("import sys; sys.exit('no licence')", "SystemExit: no licence"),
        ("def library(): raise KeyError('ACME_HOME')", "KeyError: 'ACME_HOME'"),
        ("library = '/nowhere/libacme.so'", "There is no device library at '/nowhere/libacme.so'"),
        ("library = __file__", "Cannot load device library"),
    ],
    ids=["import-error", "exit", "exception", "no-file", "text-file"],
)
def test_broken_vendor_package(run_python: RunPython, vendor_package: VendorPackage, body: str, message: str) -> None:
    process = run_python(SHOW_ACTIVE, env=UNASKED, packages=[vendor_package("acme", body)])
    assert process.stdout == "None\n"
    (warning,) = warnings_in(process.stderr)
    assert "The device 'acme' (entry point 'acme' of acme_torch 1.2) cannot be used:" in warning
    assert message in warning
    assert "Set TORCH_BACKEND=none" in warning


@pytest.mark.parametrize(
    ("switch", "message"),
    [("NO_ENTRY", "does not export tb_plugin_entry"), ("COUNT_FAILS", "the driver does not answer")],
)
def test_broken_library(run_python: RunPython, build_plugin: BuildPlugin, switch: str, message: str) -> None:
    process = run_python(SHOW_ACTIVE, env=UNASKED | {"TORCH_BACKEND_PATH": build_plugin(switch)})
    assert process.stdout == "None\n"
    (warning,) = warnings_in(process.stderr)
    assert message in warning


def test_functions_of_a_vendors_own(
    run_python: RunPython, vendor_package: VendorPackage, build_plugin: BuildPlugin
) -> None:
    """They are in torch.<name> of their device only, and replace nothing."""
    library = build_plugin()
    body = f"""
import torch_backend
def library(): return {str(library)!r}
@torch_backend.device_function("acme")
def temperature(): return 37.0
@torch_backend.device_function("other")
def pressure(): return 1.0
"""
    code = """
import torch, torch_backend
print(torch.acme.temperature(), hasattr(torch.acme, "pressure"))
try:
    @torch_backend.device_function("acme")
    def synchronize(): pass
except RuntimeError as error:
    print(error)
"""
    said = run_python(code, env=UNASKED, packages=[vendor_package("acme", body)]).stdout
    assert said.startswith("37.0 False\ntorch.acme.synchronize exists already")


@pytest.mark.parametrize("module", ["torch_backend.devices.selection", "torch_backend._C"])
def test_broken_installation(run_python: RunPython, module: str) -> None:
    code = f"""
        import sys
        sys.modules[{module!r}] = None  # makes its import fail
        import torch
        assert torch.ones(2).sum().item() == 2
    """
    process = run_python(code, env={"TORCH_BACKEND": "xcpu"})
    (warning,) = warnings_in(process.stderr)
    assert "torch_backend" in warning


def test_built_for_another_torch(run_python: RunPython) -> None:
    code = """
        import torch_backend.files.installed
        torch_backend.files.installed.torch_built_for = lambda: "2.9.1"
        import torch
        print(torch.__version__)
    """
    process = run_python(code, env={"TORCH_BACKEND": "xcpu"})
    (warning,) = warnings_in(process.stderr)
    assert f"was built for torch 2.9.1, but torch {process.stdout.strip()} is installed" in warning
    assert "Rebuild it with `pip install" in warning


# ---- import order ----


def test_importing_the_package_imports_nothing_heavy(run_python: RunPython) -> None:
    run_python(
        """
        import sys, torch_backend
        assert "torch" not in sys.modules
        assert torch_backend.active() is None
        assert "torch" not in sys.modules
        """,
        env={"TORCH_BACKEND": "xcpu"},
    )


@pytest.mark.parametrize(
    "first",
    [
        "import torch_backend",
        "from torch_backend import Plugin",
        "import torch_backend; torch_backend.discover()",
        "import torch_backend.device_module.streams",
        "from torch_backend.device_module import memory",
        "import torch_backend.fallback",
        "from torch_backend import fallback, operators",
        "import torch_backend.devices.activation, torch_backend.devices.registration, torch_backend.files.native",
        "import torch_backend; torch_backend.activate('xcpu')",
    ],
)
def test_any_import_order(run_python: RunPython, first: str) -> None:
    process = run_python(f"{first}\n{USE_XCPU}", env={"TORCH_BACKEND": "xcpu"}, warnings=["error"])
    assert process.stderr == ""


# ---- activate ----


def test_activate_by_name(run_python: RunPython) -> None:
    process = run_python(
        """
        import json, sys
        import torch, torch_backend
        torch.get_device_module()  # remembers the module of "no accelerator" unless told to forget
        assert torch_backend.active() is None
        plugin = torch_backend.activate("xcpu", options={"devices": 4})
        assert torch_backend.active() is plugin
        assert torch_backend.activate("xcpu") is plugin
        assert torch_backend.activate(plugin) is plugin

        import torch.xcpu
        import torch.xcpu.random
        from torch.xcpu import memory
        assert torch.get_device_module() is torch.xcpu
        assert torch.get_device_module("xcpu") is torch.xcpu
        assert sys.modules["torch.xcpu.streams"] is torch.xcpu.streams
        assert memory is torch.xcpu.memory
        assert torch.xcpu.device_count() == 4
        assert not torch.xcpu.is_initialized()

        from torch.utils import backend_registration
        assert backend_registration._privateuse1_backend_name == "xcpu"
        if torch.__version__ >= "2.13":  # the first with names of the device for the profiler's
            assert torch.profiler.ProfilerActivity.XCPU == torch.profiler.ProfilerActivity.PrivateUse1
        tensor = torch.ones(2).xcpu(3)
        assert torch.xcpu.is_initialized()
        assert tensor.is_xcpu and tensor.device.index == 3
        assert next(torch.nn.Linear(2, 2).xcpu().parameters()).is_xcpu
        assert tensor.untyped_storage().is_xcpu
        assert torch.ones(2).untyped_storage().xcpu(1).device.index == 1
        packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2)])
        assert packed.xcpu().is_xcpu
        """,
        warnings=["error"],
    )
    assert process.stderr == ""


def test_activate_a_loaded_plugin(run_python: RunPython, build_plugin: BuildPlugin) -> None:
    path = build_plugin("NEWER_MINOR")
    run_python(
        f"""
        import torch_backend
        plugin = torch_backend.load({str(path)!r}, {{"devices": 2}})
        assert torch_backend.active() is None
        torch_backend.activate(plugin)
        import torch
        x = torch.arange(3, device="acme:1")
        assert x.cpu().tolist() == [0, 1, 2]
        assert x.to("acme:0").cpu().tolist() == [0, 1, 2]
        """
    )


def test_activation_before_torch_goes_before_the_sole_vendor(run_python: RunPython, build_plugin: BuildPlugin) -> None:
    code = "import torch_backend; torch_backend.activate('fake')\n" + SHOW_ACTIVE
    process = run_python(code, env=UNASKED | {"TORCH_BACKEND_PATH": build_plugin()})
    assert (process.stdout, process.stderr) == ("fake\n", "")


def outcome(run_python: RunPython, code: str, **arguments: Any) -> tuple[str, str]:
    """The type and text of the exception that the last line of `code` raises."""
    *before, last = code.strip().splitlines()
    body = "\n".join(
        [
            *before,
            "import json",
            "try:",
            f"    {last}",
            "except Exception as error:",
            "    print(json.dumps([type(error).__name__, str(error)]))",
        ]
    )
    kind, text = json.loads(run_python(body, **arguments).stdout)
    return kind, text


def test_second_device(run_python: RunPython) -> None:
    kind, text = outcome(
        run_python, "import torch_backend\ntorch_backend.activate('xcpu')\ntorch_backend.activate('fake')"
    )
    assert kind == "RuntimeError"
    assert "'xcpu'" in text
    assert "'fake'" in text
    assert "TORCH_BACKEND" in text


def test_unknown_device(run_python: RunPython) -> None:
    kind, text = outcome(run_python, "import torch_backend\ntorch_backend.activate('nope')")
    assert kind == "ValueError"
    assert "There is no device 'nope'. There are " in text
    assert "'fake' (reference device of torch_backend)" in text


def test_path_instead_of_a_name(run_python: RunPython) -> None:
    kind, text = outcome(run_python, "import torch_backend\ntorch_backend.activate('/x/libacme.so')")
    assert kind == "ValueError"
    assert "activate(load('/x/libacme.so'))" in text


def test_no_devices(run_python: RunPython, build_plugin: BuildPlugin) -> None:
    code = "import torch_backend\ntorch_backend.activate('acme')"
    kind, text = outcome(run_python, code, env={"TORCH_BACKEND_PATH": build_plugin("DEVICES=0")})
    assert kind == "RuntimeError"
    assert "'acme'" in text
    assert "finds no devices" in text


def test_options_come_too_late(run_python: RunPython) -> None:
    code = "import torch, torch_backend\ntorch_backend.activate('xcpu', options={'devices': 4})"
    kind, text = outcome(run_python, code, env={"TORCH_BACKEND": "xcpu"})
    assert kind == "RuntimeError"
    assert "come too late" in text
    assert "TORCH_BACKEND_XCPU_DEVICES=4" in text


def test_refused_option_can_be_corrected(run_python: RunPython) -> None:
    run_python(
        """
        import torch_backend
        try:
            torch_backend.activate("fake", options={"devices": "many"})
        except RuntimeError as error:
            assert 'fake.devices is "many"; expected a whole number' in str(error), error
        torch_backend.activate("fake", options={"devices": 3})
        import torch
        assert torch.fake.device_count() == 3
        """
    )


@pytest.mark.parametrize("name", ["nn", "add", "cuda"])
def test_name_that_torch_uses(run_python: RunPython, build_plugin: BuildPlugin, name: str) -> None:
    path = str(build_plugin(name=name))
    code = f"import torch, torch_backend\nplugin = torch_backend.load({path!r})\ntorch_backend.activate(plugin)"
    kind, text = outcome(run_python, code)
    assert kind == "RuntimeError"
    assert f"'{name}' cannot be used: torch.{name} exists already" in text


def test_slot_taken_by_a_stranger(run_python: RunPython) -> None:
    code = "import torch, torch_backend\ntorch.utils.rename_privateuse1_backend('npu')\ntorch_backend.activate('xcpu')"
    kind, text = outcome(run_python, code)
    assert kind == "RuntimeError"
    assert "taken by 'npu'" in text
    assert "'xcpu'" in text


def test_failed_check_registers_nothing(run_python: RunPython, build_plugin: BuildPlugin) -> None:
    path = str(build_plugin(name="nn"))
    run_python(
        f"""
        import torch, torch_backend
        try:
            torch_backend.activate(torch_backend.load({path!r}))
        except RuntimeError:
            pass
        assert torch_backend.active() is None
        assert torch._C._get_privateuse1_backend_name() == "privateuseone"
        torch_backend.activate("fake")
        assert torch.ones(2, device="fake").sum().item() == 2
        """
    )


def test_dlpack_takes_the_device(run_python: RunPython) -> None:
    run_python(
        """
        import torch
        from torch.utils.dlpack import DLDeviceType
        x = torch.arange(3, device="xcpu:1")
        assert x.__dlpack_device__() == (DLDeviceType.kDLExtDev, 1)
        y = torch.from_dlpack(x)
        assert y.device == x.device and y.data_ptr() == x.data_ptr()
        assert torch.ones(1).__dlpack_device__() == (DLDeviceType.kDLCPU, 0)
        class Sub(torch.Tensor): pass
        assert x.as_subclass(Sub).__dlpack_device__() == (DLDeviceType.kDLExtDev, 1)
        """,
        env={"TORCH_BACKEND": "xcpu"},
    )


def test_no_device_active(run_python: RunPython) -> None:
    kind, text = outcome(run_python, "import torch_backend.device_module as backend\nbackend.Stream()")
    assert kind == "RuntimeError"
    assert "No device of torch_backend is active. Set TORCH_BACKEND=<name>" in text
    run_python("import torch_backend.device_module as backend; assert not backend.is_available()")


def test_command_line_paths_need_no_torch(run_python: RunPython) -> None:
    process = run_python(
        """
        import sys
        sys.modules["torch"] = None
        from torch_backend.__main__ import main
        assert main(["--include-dir"]) == 0
        """
    )
    assert (Path(process.stdout.strip()) / "torch_backend" / "device.h").is_file()
