"""Which operators and dtypes there is a test for: PyTorch's list of operators with samples (OpInfo)."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from torch.testing._internal import common_device_type
from torch.testing._internal.common_device_type import (
    DeviceTypeTestBase,
    OpDTypes,
    instantiate_device_type_tests,
    ops,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

from torch_conformance import needs, routes, selection
from torch_conformance.levels import SUITE

from ._left_out import reason_to_leave_out

Decorator: TypeAlias = Callable[[Any], Any]


def full_name(op: OpInfo) -> str:
    """The name of the entry with its variant, "linalg.norm.subgradients_at_zero"."""
    return str(op.full_name)


def dtype_name(dtype: torch.dtype) -> str:
    """As torch names it, without "torch."."""
    return str(dtype).removeprefix("torch.")


class each_operator(ops):  # type: ignore[misc]  # a decorator, and named as such
    """Make one test per entry of PyTorch's list and dtype.

    A dtype that the device does not declare is left out by its declaration. PyTorch's own decorators of an entry
    (skips, expected failures) are about PyTorch's tests and devices, so none of them is applied: every test runs, or
    says why it does not, see :mod:`._left_out`.

    Args:
        part: what the test tries, as the report calls it.
        entries: PyTorch's list, or some of it with other dtypes.
        select: which entries have a test.
        dtypes: the dtypes that there is a test for, if PyTorch says that the entry supports them.
        backward: whether the entry has to support the dtype in its backward pass.
        any_one: whether one dtype is enough.
        quick: the dtypes of the tests that a quick run includes.
    """

    def __init__(
        self,
        part: str,
        *,
        entries: Iterable[OpInfo] = op_db,
        select: Callable[[OpInfo], bool] = lambda op: True,
        dtypes: Iterable[torch.dtype] | None = None,
        backward: bool = False,
        any_one: bool = False,
        quick: Iterable[torch.dtype] = (),
    ) -> None:
        which = OpDTypes.any_one if any_one else OpDTypes.supported_backward if backward else OpDTypes.supported
        super().__init__(
            [op for op in entries if select(op)],
            dtypes=which,
            allowed_dtypes=None if dtypes is None else tuple(dtypes),
            skip_if_dynamo=False,
        )
        self.part = part
        self.quick = frozenset(quick)

    def _parametrize_test(self, test: Any, generic_cls: Any, device_cls: Any) -> Iterator[tuple[Any, ...]]:
        # PyTorch's wrapper of the test looks through the call stack, which takes longer than most tests.
        for _, name, arguments, _ in super()._parametrize_test(test, generic_cls, device_cls):
            if selection.of_this_process.quick and arguments["dtype"] not in self.quick:
                continue  # to make the ten thousand that are left out takes seconds
            yield _wrapper(test), name, arguments, partial(self._decorators, arguments["op"], arguments["dtype"])

    def _decorators(self, op: OpInfo, dtype: torch.dtype, arguments: object) -> list[Decorator]:
        found: list[Decorator] = [needs.dtype(dtype_name(dtype))]
        if dtype not in self.quick:
            found.append(pytest.mark.thorough)
        reason = reason_to_leave_out(full_name(op), dtype_name(dtype), self.part)
        if reason is not None:
            found.append(_replaced_by(reason))
        return found


def _first_of(name: str) -> str:
    index = torch.empty(0, device=name).device.index
    return name if index is None else f"{name}:{index}"


def _wrapper(test: Any) -> Any:
    """A function of its own for each generated test, for its marks."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        test(*args, **kwargs)

    return run


def _replaced_by(reason: str) -> Decorator:
    def decorate(test: Any) -> Any:
        @wraps(test)
        def left_out(*args: object, **kwargs: object) -> None:
            needs.not_offered(reason)

        return left_out

    return decorate


def instantiate(generic: type, scope: dict[str, Any]) -> None:
    """Put the tests of ``generic`` for the device that this run has into ``scope``, the globals of its module."""
    name = routes.active().name
    # PyTorch's own classes are for the devices in its tree, and ask torch.<name> for more than tests need.
    bases = {"device_type": name, "get_primary_device": classmethod(lambda _: _first_of(name))}
    common_device_type.device_type_test_bases = [type("OnTheDevice", (DeviceTypeTestBase,), bases)]
    instantiate_device_type_tests(generic, scope, only_for=name)
    tests = scope[f"{generic.__name__}{name.upper()}"]
    file = Path(scope["__file__"]).relative_to(SUITE).as_posix()
    for name, test in [(name, test) for name, test in vars(tests).items() if name.startswith("test_")]:
        is_thorough = any(mark.name == "thorough" for mark in getattr(test, "pytestmark", ()))
        if not selection.of_this_process.has(f"{file}::{tests.__name__}::{name}", is_thorough=is_thorough):
            delattr(tests, name)
