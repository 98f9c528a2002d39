"""The executor of a device, in its daemon: operators by name, computed by ATen's CPU kernels on the device's memory."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from .memory import Memory
from .operators import WRITES_UNSAID, overload
from .wire import TensorAt

Metadata = tuple[tuple[int, ...], str]
"""Shape and dtype of a result; the daemon keeps the result until it is stored."""


class Executor:
    """Runs operators; one thread at a time."""

    def __init__(self, memory: Memory) -> None:
        """Compute on ``memory``."""
        self._memory = memory
        self._numbers = itertools.count()
        self._results: dict[int, list[torch.Tensor | None]] = {}

    def run(self, op: str, arguments: Sequence[Any]) -> None:
        """Call an operator that writes its results into tensors that it is given."""
        with torch.inference_mode():
            values = self._values(arguments)
            laid_out = [(value, value.stride()) for value in values if isinstance(value, torch.Tensor)]
            _refusing(_call_of(op), values)
            for tensor, strides in laid_out:
                _resolve(tensor)
                _lay_out(tensor, strides)

    def fill(self, op: str, arguments: Sequence[Any]) -> None:
        """Call an operator that returns new tensors, and write them into those that follow its arguments."""
        count = len(overload(op)._schema.arguments)
        with torch.inference_mode():
            results = _computed(_call_of(op), self._values(arguments[:count]))
            if op in _ON_CPU and not all(result is None or result.is_contiguous() for result in results):
                raise NotImplementedError("the memory of the results is contiguous, and that of ATen's is not")
            self._write(results, arguments[count:])

    def compute(self, op: str, arguments: Sequence[Any]) -> tuple[int, list[Metadata | None]]:
        """Call an operator that returns new tensors, and keep them under a number until they are stored.

        None stands for one that is undefined.
        """
        with torch.inference_mode():
            values = self._values(arguments[: len(overload(op)._schema.arguments)])
            if (
                op in WRITES_UNSAID and not values[0].is_contiguous()
            ):  # before it writes: the results would not be either
                raise NotImplementedError("the memory of the results is contiguous, and that of ATen's would not be")
            results = _computed(_call_of(op), values)
        number = next(self._numbers)
        self._results[number] = results
        return number, [None if tensor is None else (tuple(tensor.shape), _name(tensor.dtype)) for tensor in results]

    def store(self, number: int, targets: Sequence[TensorAt | None]) -> None:
        """Write results into the device's memory, as far as there are targets, and keep them no longer."""
        with torch.inference_mode():
            self._write(self._results.pop(number), targets)

    def _write(self, results: Sequence[torch.Tensor | None], targets: Sequence[TensorAt | None]) -> None:
        for result, target in zip(results, targets, strict=False):
            # Some kernels leave out a result that the caller will not read, such as the statistics of a batch.
            if result is not None and target is not None and result.numel() > 0:
                self._tensor(target).copy_(result)

    def _values(self, arguments: Sequence[Any]) -> list[Any]:
        return [self._value(argument) for argument in arguments]

    def _value(self, argument: Any) -> Any:
        if isinstance(argument, TensorAt):
            return self._tensor(argument)
        if isinstance(argument, (tuple, list)):
            return [self._value(item) for item in argument]
        return argument

    def _tensor(self, at: TensorAt) -> torch.Tensor:
        dtype: torch.dtype = getattr(torch, at.dtype)
        if 0 in at.shape:
            return torch.empty(at.shape, dtype=dtype)
        # A storage each, as they have on a device: kernels look at storages to see what they may reuse.
        extent = 1 + sum((size - 1) * stride for size, stride in zip(at.shape, at.strides, strict=True))
        flat = torch.frombuffer(self._memory.pages, dtype=dtype, count=extent, offset=at.offset)
        return flat.as_strided(at.shape, at.strides)


Call = Callable[[Sequence[Any]], Any]


def _refusing(call: Call, values: Sequence[Any]) -> Any:
    """Call an operator. What ATen refuses goes to the operator's next source, whose error is then PyTorch's own."""
    try:
        return call(values)
    except (RuntimeError, ValueError, TypeError, LookupError) as error:
        raise NotImplementedError(str(error).split("\nException raised from ")[0]) from error


def _resolve(tensor: torch.Tensor) -> None:
    """Some kernels set the conj bit of their output instead of conjugating it, which its owner does not see."""
    if tensor.is_conj():
        tensor.conj().conj_physical_()
    if tensor.is_neg():
        torch._neg_view(tensor).neg_()


def _lay_out(tensor: torch.Tensor, strides: tuple[int, ...]) -> None:
    """Some kernels lay out what they write as their input is, which its owner does not see either."""
    if tensor.stride() != strides:
        torch.as_strided(tensor, tensor.shape, strides, tensor.storage_offset()).copy_(tensor.clone())


def _computed(call: Call, values: Sequence[Any]) -> list[torch.Tensor | None]:
    result = _refusing(call, values)
    tensors: list[torch.Tensor | None] = []
    for part in result if isinstance(result, (tuple, list)) else [result]:
        tensors += part if isinstance(part, list) else [part]
    for tensor in tensors:
        if tensor is not None and (tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized):
            raise NotImplementedError("only strided tensors can be in device memory")
    return tensors


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class _Parameter:
    """How an argument is passed."""

    name: str
    keyword_only: bool
    is_text: bool
    is_device: bool

    def value(self, given: Any) -> Any:
        """What ATen gets for what was sent."""
        if self.is_device:
            return None if given is None else torch.device("cpu")
        if isinstance(given, str) and not self.is_text:
            return getattr(torch, given)  # a dtype goes by its name
        return given


@cache
def _call_of(op: str) -> Call:
    """The operator as a function of its arguments in the schema's order."""
    function = overload(_ON_CPU.get(op, op))
    if op in _ADAPTED:
        return _ADAPTED[op](function)
    parameters = [
        _Parameter(a.name, a.kwarg_only, "str" in str(a.type), "Device" in str(a.type))
        for a in function._schema.arguments
    ]

    def call(values: Sequence[Any]) -> Any:
        converted = [(p, p.value(value)) for p, value in zip(parameters, values, strict=False)]
        positional = [value for p, value in converted if not p.keyword_only]
        return function(*positional, **{p.name: value for p, value in converted if p.keyword_only})

    return call


_ON_CPU = {
    "aten::convolution_overrideable": "aten::convolution",
    "aten::convolution_backward_overrideable": "aten::convolution_backward",
}
"""What PyTorch calls by another name on a device that is not its own."""


def _convolution_backward(function: Any) -> Call:
    """The CPU's operator is told the bias' sizes as well, which are those of the output's channels."""

    def call(values: Sequence[Any]) -> Any:
        grad, image, weight, *how, mask = values
        return function(grad, image, weight, [grad.shape[1]], *how, [bool(flag) for flag in mask])

    return call


_ADAPTED = {"aten::convolution_backward_overrideable": _convolution_backward}
