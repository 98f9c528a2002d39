"""The functional and in-place forms of an operator, derived from a Python kernel for its out variant.

A kernel for an out variant gets outputs that have the right shape and dtype already, whatever the caller passed: those
come from the functional operator on meta tensors.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

from torch_backend.operators import schemas

Function = Callable[..., Any]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class OutVariant:
    """An out variant and the operators that compute the same; None where PyTorch has none."""

    out: OpOverload
    functional: OpOverload | None
    inplace: OpOverload | None

    @property
    def output_names(self) -> tuple[str, ...]:
        """Which arguments are outputs."""
        return tuple(argument.name for argument in self.out._schema.arguments if schemas.writes(argument))

    def kernels(self, function: Function) -> dict[OpOverload, Function]:
        """Kernels for all forms, which call ``function``, a kernel for the out variant."""
        if self.functional is None:
            return {self.out: function}
        kernels = {self.out: self._out_kernel(function), self.functional: self._functional_kernel(function)}
        if self.inplace is not None:
            kernels[self.inplace] = self._inplace_kernel(function)
        return kernels

    def _out_kernel(self, function: Function) -> Function:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            given = [kwargs.pop(name) for name in self.output_names]
            likes = self._outputs(args, kwargs)
            for output, like in zip(given, likes, strict=True):
                _check_dtype(like, output)
                _resize(output, like.shape)
            return self._fill(function, (args, kwargs), given, likes)

        return kernel

    def _functional_kernel(self, function: Function) -> Function:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            device = _device_of((args, kwargs))
            outputs = [_allocate(like, device) for like in self._outputs(args, kwargs)]
            return self._fill(function, (args, kwargs), outputs, outputs)

        return kernel

    def _inplace_kernel(self, function: Function) -> Function:
        assert self.functional is not None
        is_pointwise = torch.Tag.pointwise in self.functional.tags

        def kernel(self_: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            arguments: Arguments = ((self_, *args), kwargs)
            (like,) = self._outputs(*arguments)
            if like.shape != self_.shape:
                raise RuntimeError(
                    f"{self.inplace}: the result has shape {list(like.shape)}, which does not fit into a tensor of "
                    f"shape {list(self_.shape)}."
                )
            _check_dtype(like, self_)
            if is_pointwise and not any(_share_memory(self_, other) for other in _tensors((args, kwargs))):
                return self._fill(function, arguments, [self_], [like])
            result = _allocate(like, self_.device)  # the kernel may read what it has written
            if self._fill(function, arguments, [result], [like]) is NotImplemented:
                return NotImplemented
            return self_.copy_(result)

        return kernel

    def _fill(self, function: Function, arguments: Arguments, outputs: list[torch.Tensor], likes: Any) -> Any:
        """Call ``function`` with outputs that have the dtypes of ``likes``, and return ``outputs`` as operators do."""
        args, kwargs = arguments
        targets = [
            output if output.dtype == like.dtype else torch.empty_like(output, dtype=like.dtype)
            for output, like in zip(outputs, likes, strict=True)
        ]
        if function(*args, **kwargs, **dict(zip(self.output_names, targets, strict=True))) is NotImplemented:
            return NotImplemented
        for output, target in zip(outputs, targets, strict=True):
            if target is not output:
                output.copy_(target)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _outputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        assert self.functional is not None
        result = self.functional(*(_to_meta(value) for value in args), **{k: _to_meta(v) for k, v in kwargs.items()})
        return result if isinstance(result, tuple) else (result,)


def out_variant(op: OpOverload) -> OutVariant | None:
    """The forms of ``op``, or None if it is no out variant."""
    written = [argument for argument in op._schema.arguments if schemas.writes(argument)]
    if not written or not all(argument.is_out for argument in written):
        return None
    namespace, _, rest = op._name.partition("::")
    name = rest.partition(".")[0]
    inputs = [_key(argument) for argument in op._schema.arguments if not argument.is_out]
    functional = _matching(namespace, name, inputs, is_inplace=False)
    if functional is None or len(functional._schema.returns) != len(written) or not _has_meta(functional):
        return OutVariant(op, None, None)
    inplace = _matching(namespace, f"{name}_", inputs, is_inplace=True) if len(written) == 1 else None
    return OutVariant(op, functional, inplace)


def _key(argument: torch.Argument) -> tuple[str, str, bool]:
    return argument.name, str(argument.type), argument.kwarg_only


def _matching(namespace: str, name: str, inputs: list[tuple[str, str, bool]], is_inplace: bool) -> OpOverload | None:
    packet = getattr(getattr(torch.ops, namespace), name, None)
    for overload in packet.overloads() if packet is not None else ():
        op: OpOverload = getattr(packet, overload)
        written = [argument.name for argument in op._schema.arguments if schemas.writes(argument)]
        if written == (["self"] if is_inplace else []) and [_key(a) for a in op._schema.arguments] == inputs:
            return op
    return None


def _has_meta(op: OpOverload) -> bool:
    return bool(torch._C._dispatch_has_computed_kernel_for_dispatch_key(op._name, "Meta"))


def _to_meta(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_to_meta(element) for element in value]
    if isinstance(value, torch.Tensor) and not _is_host_scalar(value):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return value


def _is_host_scalar(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.dim() == 0  # counts less in type promotion, on meta too


def _tensors(arguments: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]


def _share_memory(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    pointers = [t.untyped_storage().data_ptr() for t in (tensor, other)]
    return tensor.device == other.device and pointers[0] == pointers[1]


def _device_of(arguments: Arguments) -> torch.device:
    return next(tensor.device for tensor in _tensors(arguments) if tensor.device.type != "cpu")


def _allocate(like: torch.Tensor, device: torch.device) -> torch.Tensor:
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=device)


def _check_dtype(result: torch.Tensor, output: torch.Tensor) -> None:
    if not torch.can_cast(result.dtype, output.dtype):
        raise RuntimeError(f"result type {result.dtype} can't be cast to the desired output type {output.dtype}")


def _resize(output: torch.Tensor, shape: torch.Size) -> None:
    if output.shape == shape:
        return
    if output.numel() != 0:
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {list(output.shape)}, which does not "
            f"match the required output shape {list(shape)}. Resize it to zero elements with out.resize_(0) first.",
            stacklevel=3,
        )
    output.resize_(shape)
