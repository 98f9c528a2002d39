"""What vendors can say wrong, each in a process of its own: ``import torch`` works, and sentences say what is wrong."""

from pathlib import Path

import pytest
from fixtures import RunPython

HERE = Path(__file__).parent
RIGHT = '"interpreting_backend:Compiler"'
REGISTER = """
    from torch_backend.triton import TritonBackend, register
    register("{device}", TritonBackend({driver}, {compiler}))
    """
COMPILE = """
    import torch, torch_backend
    torch_backend.activate("{device}")
    got = torch.compile(lambda a: a + 1)(torch.ones(3, device="{device}"))
    assert got.cpu().tolist() == [2, 2, 2]
    from torch._inductor.codegen import common
    scheduling = common.get_scheduling_for_device("{device}")
    assert scheduling is None or scheduling.__name__ != "DeviceTritonScheduling"
    """

WRONG = {
    "no such module": ('"acme_triton:Driver"', RIGHT, "no module 'acme_triton' for 'acme_triton:Driver'"),
    "no such class": ('"interpreting_backend:Drivers"', RIGHT, "Did you mean Driver"),
    "no driver": ('"interpreting_backend:Compiler"', RIGHT, "no class derived from triton.backends.driver.DriverBase"),
    "half a driver": ('"faulty_backends:Half"', RIGHT, "faulty_backends.Half lacks launch, load"),
    "fails to import": ('"faulty_import:Driver"', RIGHT, "RuntimeError: the SDK is not installed"),
    "fails to start": ('"faulty_backends:Fails"', RIGHT, "does not start: OSError: no such chip"),
    "not active": ('"faulty_backends:Inactive"', RIGHT, "says that it is not active"),
    "target is refused": (
        '"faulty_backends:Elsewhere"',
        RIGHT,
        "interpreting_backend.Compiler of {device} refuses the target of the driver, GPUTarget(backend='elsewhere'",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_and_torch_works(run_python: RunPython, device: str, case: str) -> None:
    driver, compiler, said = WRONG[case]
    code = (REGISTER + COMPILE).format(device=device, driver=driver, compiler=compiler)
    assert said.format(device=device) in run_python(code, packages=[HERE]).stderr


def test_nobody_has_declared_a_backend(run_python: RunPython, device: str) -> None:
    run_python(
        f"""
        import torch, torch_backend
        torch_backend.activate("{device}")
        from torch._dynamo.device_interface import get_interface_for_device
        interface = get_interface_for_device("{device}")
        assert not interface.is_triton_capable()
        try:
            interface.raise_if_triton_unavailable()
        except RuntimeError as error:
            assert str(error).startswith("Triton generates no code for {device}. Nobody has said"), error
        else:
            raise AssertionError
        """
    )


def test_triton_is_not_installed(run_python: RunPython, device: str) -> None:
    code = """
    import sys
    sys.modules["triton"] = None
    """
    code += (REGISTER + COMPILE).format(device=device, driver='"interpreting_backend:Driver"', compiler=RIGHT)
    said = f"{device} has a Triton backend, and triton cannot be imported"
    assert said in run_python(code, packages=[HERE]).stderr


def test_an_entry_point_names_no_backend(run_python: RunPython, device: str, installed: Path) -> None:
    points = installed / "triton_test_vendor-1.dist-info" / "entry_points.txt"
    points.write_text(f"[torch_backend.triton]\n{device} = interpreting_backend:launches\n")
    said = "the entry point names a list, not a torch_backend.triton.TritonBackend"
    assert said in run_python(COMPILE.format(device=device), packages=[HERE, installed]).stderr


def test_a_backend_comes_too_late_or_twice(run_python: RunPython, device: str) -> None:
    run_python(
        f"""
        import torch_backend
        from torch_backend.triton import TritonBackend, register
        one, other = TritonBackend("a:A", "a:B"), TritonBackend("b:A", "b:B")
        register("elsewhere", one)
        register("elsewhere", one)
        for name, reason in ("elsewhere", "has TritonBackend"), ("{device}", "comes too late: triton was imported"):
            try:
                register(name, other)
            except RuntimeError as error:
                assert reason in str(error), error
            else:
                raise AssertionError(name)
            torch_backend.activate("{device}")
            import triton
        """
    )


def test_the_drivers_module_may_be_imported_first(run_python: RunPython, device: str, installed: Path) -> None:
    run_python(
        f"""
        import torch, torch_backend
        torch_backend.activate("{device}")
        import interpreting_backend, triton
        assert type(triton.runtime.driver.active) is interpreting_backend.Driver
        assert list(triton.backends.backends)[0] == "{device}"
        """,
        packages=[HERE, installed],
    )
