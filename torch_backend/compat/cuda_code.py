"""Functions that name CUDA name the device instead: what a library does for its first device, it does for this one.

Libraries ask ``torch.cuda.is_available()``, build ``torch.device("cuda", i)`` and compare ``device.type`` with "cuda".
``torch.<name>`` has torch.cuda's names, so that the same code is right for the device once it says its name. Only
names and short texts of a function's code are exchanged, its ``__code__``; the function stays the same object, for all
who have imported it. Sentences, such as messages and documentation, stay.

In a process whose accelerator is a device of torch_backend, these functions then use no CUDA device: PyTorch has one
accelerator at a time as well.
"""

import functools
import inspect
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

_NAMES = ("cuda",)
_QUESTIONS = ("is_torch_cuda_available",)  # asked elsewhere about CUDA itself: answered for these functions alone


def retarget_module(module: ModuleType, names: Sequence[str], device: str, *, tensors: bool = False) -> None:
    """Let the functions called ``names`` in ``module`` use ``device`` instead of CUDA; without names, all of them.

    Args:
        module: imported.
        names: as ``"function"`` or ``"Class.method"``.
        device: the name of the active device.
        tensors: what is asked ``is_cuda`` there is a tensor, and asked ``is_<device>`` from now on. Not so everywhere:
            other objects have the name too.

    Raises LookupError if one of ``names`` does not exist or has nothing about CUDA.
    """
    functions = dict(_functions_of(module))
    for name in names or functions:
        if name not in functions:
            raise LookupError(f"it has no function {name}")
        changed = [_retarget(function, device, tensors) for function in functions[name]]
        if names and not any(changed):
            raise LookupError(f"{name} has nothing about CUDA")


def _retarget(function: FunctionType, device: str, tensors: bool) -> bool:
    code = retargeted(function.__code__, device, tensors=tensors)
    if code == function.__code__:
        return bool({device, f"{device}:"} & _texts(function.__code__))  # was done before
    for question in _QUESTIONS:
        if question in _all_names(function.__code__):
            function.__globals__.setdefault(_answer(question, device), _yes)
    function.__code__ = code
    return True


def _yes() -> bool:
    """The answer to "is there the device?": it is active."""
    return True


def _answer(question: str, device: str) -> str:
    return question.replace("cuda", device)


def retargeted(code: CodeType, device: str, *, tensors: bool = False) -> CodeType:
    """``code``, and all code inside it, with the device where it has CUDA. ``tensors``: as of retarget_module."""

    def constant(value: Any) -> Any:
        if isinstance(value, CodeType):
            return retargeted(value, device, tensors=tensors)
        if isinstance(value, tuple):
            return tuple(map(constant, value))
        if isinstance(value, frozenset):
            return frozenset(map(constant, value))
        return _text(value, device) if isinstance(value, str) else value

    def name(old: str) -> str:
        if old == "CUDA" and "ProfilerActivity" in code.co_names:
            return "PrivateUse1"
        if old == "is_cuda" and tensors:
            return f"is_{device}"
        return device if old in _NAMES else _answer(old, device) if old in _QUESTIONS else old

    return code.replace(
        co_consts=tuple(map(constant, code.co_consts)),
        co_names=tuple(map(name, code.co_names)),
    )


def _text(text: str, device: str) -> str:
    if text in ("nccl", "cuda:nccl,cpu:gloo"):
        return text.replace("nccl", f"{device}ccl").replace("cuda", device)
    if text in ("cuda", " (cuda)") or (text.startswith("cuda:") and " " not in text):
        return text.replace("cuda", device, 1)
    return text


def _texts(code: CodeType) -> set[str]:
    nested = [value for value in code.co_consts if isinstance(value, CodeType)]
    return {*code.co_names, *(value for value in code.co_consts if isinstance(value, str))}.union(*map(_texts, nested))


def _all_names(code: CodeType) -> set[str]:
    nested = [value for value in code.co_consts if isinstance(value, CodeType)]
    return set(code.co_names).union(*map(_all_names, nested))


def _functions_of(module: ModuleType) -> Iterator[tuple[str, list[FunctionType]]]:
    """Name and parts of what is defined in ``module``: functions, and methods and properties of its classes."""
    for name, value in list(vars(module).items()):
        if inspect.isclass(value) and value.__module__ == module.__name__:
            for inner, attribute in list(vars(value).items()):
                if found := list(_parts(attribute)):
                    yield f"{name}.{inner}", found
        elif found := [part for part in _parts(value) if part.__module__ == module.__name__]:
            yield name, found


def _parts(value: Any) -> Iterator[FunctionType]:
    if isinstance(value, property):
        for part in (value.fget, value.fset, value.fdel):
            yield from _parts(part)
        return
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    elif isinstance(value, functools.cached_property):
        value = value.func
    while hasattr(value, "__wrapped__") and not inspect.isclass(value):
        forget = getattr(value, "cache_clear", None)  # what it has answered before
        if forget is not None:
            forget()
        value = value.__wrapped__
    if isinstance(value, FunctionType):
        yield value
