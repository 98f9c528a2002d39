"""What a test needs of a device. A device that does not declare it does not run the test: it is "not offered".

These are decorators of tests::

    @needs.capability("ASYNC")
    @needs.devices(2)
    def test_a_copy_between_devices_is_ordered(device: str) -> None: ...

:func:`not_offered` is for what only the running test can find out. A test that is skipped in any other way fails.
"""

from typing import NoReturn

import pytest

from torch_conformance.features import FEATURES


def capability(name: str) -> pytest.MarkDecorator:
    """A ``TB_CAP_`` flag, named without the prefix, on every device."""
    return pytest.mark.needs("capability", name)


def devices(count: int) -> pytest.MarkDecorator:
    """At least ``count`` devices."""
    return pytest.mark.needs("devices", count)


def dtype(name: str) -> pytest.MarkDecorator:
    """A dtype, named as in torch without "torch."."""
    return pytest.mark.needs("dtype", name)


def table(name: str) -> pytest.MarkDecorator:
    """An optional table of the device library, "graph.1"."""
    return pytest.mark.needs("table", name)


def slot(name: str) -> pytest.MarkDecorator:
    """An optional slot of tb_core_table. Only for tests of the bare device library."""
    return pytest.mark.needs("slot", name)


def feature(name: str) -> pytest.MarkDecorator:
    """A part of PyTorch that devices may be without, one of :data:`torch_conformance.features.FEATURES`."""
    if name not in FEATURES:  # while the test's file is loaded
        raise ValueError(f"There is no feature '{name}'. There are {', '.join(FEATURES)}.")
    return pytest.mark.needs("feature", name)


class NotOffered(pytest.skip.Exception):  # type: ignore[name-defined,misc]  # documented, made at run time
    """Ends a test that the device has declared, or answered, not to offer."""

    # pytest names the exception in messages as its own.
    __module__ = "builtins"


def not_offered(reason: str) -> NoReturn:
    """End the running test because the device does not offer what it tests, which its answer has shown.

    For answers such as TB_STATUS_UNSUPPORTED. ``reason`` says what was asked and what the device answered.
    """
    raise NotOffered(reason)
