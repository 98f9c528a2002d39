"""Which of PyTorch's own tests are about a device, which of these it does not offer, and what their skips mean."""

import inspect
import re
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest

from torch_conformance.declaration import Declaration

_DTYPE = re.compile(r"bool|bfloat16|float8_e\d+m\d+(?:fnuz|fnu|fn)?|u?int\d+|float\d+|complex\d+")


_OF_EACH = 4
"""So many of the tests that PyTorch makes of one function does a quick run take."""

CONTROL = "cpu"
"""The device of a run that tells whether a test's failure is the device's: one that fails on the CPU too is not."""


def is_about(item: pytest.Item, device: str) -> bool:
    """Whether instantiate_device_type_tests made the test for ``device``, and its class is classified as about it.

    As PyTorch's ``--hw-classification ACCELERATOR`` selects. A class that says nothing counts, as in older releases.
    """
    from torch.testing._internal.common_device_type import DeviceTypeTestBase

    cls = getattr(item, "cls", None)
    if cls is None or not issubclass(cls, DeviceTypeTestBase) or cls.device_type != device:
        return False
    classified = getattr(cls, "hw_classification", None)
    return classified is None or classified.name in ("ACCELERATOR", device.upper())


def few_of_each(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Of the tests that PyTorch made of one function, for operators, dtypes and other parameters, a few all along."""
    made: dict[Hashable, list[pytest.Item]] = {}
    for item in items:
        if isinstance(item, pytest.Function):
            made.setdefault((item.parent, inspect.unwrap(item.function)), []).append(item)
    return {found[number * (len(found) - 1) // (_OF_EACH - 1)] for found in made.values() for number in range(_OF_EACH)}


def control_declaration() -> Declaration:
    """What the CPU offers to PyTorch's own tests: everything, as these tests have their own rules for it.

    What files have for other devices only they have for the CPU too.
    """
    from torch.testing._internal import common_device_type

    make: Callable[..., None] = common_device_type.instantiate_device_type_tests
    common_device_type.instantiate_device_type_tests = lambda *given, only_for=None, **rest: make(*given, **rest)
    common_device_type.onlyPRIVATEUSE1 = lambda test: test
    _ask_the_cpu_for_the_devices_dtypes()
    return Declaration(CONTROL, 1, frozenset(_every_dtype()))


def tell_what_the_device_is_called() -> None:
    """Let PyTorch's tests know the name of a PrivateUse1 device while they are made.

    It learns it itself when it makes the first of a class, in an order that differs from process to process: those
    made before would have none of the dtypes that a file says are for this device.
    """
    import torch
    from torch.testing._internal.common_device_type import PrivateUse1TestBase

    base: Any = PrivateUse1TestBase
    base.device_type = torch._C._get_privateuse1_backend_name()


def _ask_the_cpu_for_the_devices_dtypes() -> None:
    """Let tests with dtypes of their own for the active device, ``dtypesIfPRIVATEUSE1``, have these for the CPU too."""
    import torch
    from torch.testing._internal.common_device_type import CPUTestBase

    base: Any = CPUTestBase
    of_the_cpu = base._get_dtypes
    active = torch._C._get_privateuse1_backend_name()

    def of_the_device(test: Callable[..., None]) -> object:
        dtypes: dict[str, object] = getattr(test, "dtypes", {})
        return dtypes[active] if active in dtypes else of_the_cpu(test)

    base._get_dtypes = staticmethod(of_the_device)


def _every_dtype() -> list[str]:
    import torch

    return [str(value).removeprefix("torch.") for value in vars(torch).values() if isinstance(value, torch.dtype)]


def file_of(test: str) -> str:
    """The file in the id of a test."""
    return test.split("::")[0]


def is_file(test: str) -> bool:
    """Whether the id is a file's: of one that could not be loaded, so that no test of it is known."""
    return "::" not in test


def general_name(test: str, device: str) -> str:
    """The id of a test without the device, the same for the active device and for the CPU: of TestViewsACME."""
    if is_file(test):
        return test
    file, cls, name = test.split("::")
    return f"{file}::{cls.removesuffix(device.upper())}::{_with_device(name, device, '')}"


def name_on_the_cpu(test: str, device: str) -> str:
    """The name of the same test for the CPU, without its file and class; of a file what all of its ids begin with."""
    return f"{test}::" if is_file(test) else _with_device(test.split("::")[2], device, f"_{CONTROL}")


def _with_device(name: str, device: str, replacement: str) -> str:
    return re.sub(rf"(.*)_{device}(?=_|$)", rf"\1{replacement}", name)  # the last: test_with_cpu_scalars_cpu


def lacks(item: pytest.Item, declaration: Declaration) -> str | None:
    """Why the device does not offer what the test is about; None if it does.

    PyTorch ends the name of such a test with the device and the dtypes: ``test_abs_acme_float32``.
    """
    _, separator, end = item.name.rpartition(f"_{declaration.name}")
    dtypes = _DTYPE.findall(end) if separator else []
    return next((reason for dtype in dtypes if (reason := declaration.lacks("dtype", dtype))), None)


def explain_skip(report: pytest.TestReport, error: BaseException) -> None:
    """Give PyTorch's reason for a skip; a failure that PyTorch expects counts as passed."""
    if hasattr(report, "wasxfail"):
        report.outcome = "passed"
        report.user_properties.append(("expected_failure", True))
    else:
        report.user_properties.append(("not_offered", f"PyTorch's test leaves this device out: {error}"))
