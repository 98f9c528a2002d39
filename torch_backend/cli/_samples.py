"""Calls of operators with the samples of PyTorch's own tests, for ``torch-backend compile-kernels --operators``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, Any

import torch

from torch_backend.cli import _output
from torch_backend.files import extras
from torch_backend.operators import count_calls, names
from torch_backend.operators.forms import forms_of
from torch_backend.operators.parts import Calls

# Operators that other devices are asked for in place of one with samples.
_STANDS_FOR = {
    "aten::convolution_overrideable": "aten::convolution",
    "aten::convolution_backward_overrideable": "aten::convolution_backward",
    "aten::_scaled_dot_product_fused_attention_overrideable": "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": (
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
    ),
}

# Kernels over lists of tensors are one text for a few and one for many.
_FEW, _MANY = 2, 40


@dataclass
class Outcome:
    """What became of the samples.

    Attributes:
        without: by operator, the dtypes of which no sample has called it on the device.
        failures: what the device has raised that the CPU has not.
    """

    without: dict[str, list[str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def read(file: IO[str], dtypes: str) -> tuple[list[str], list[torch.dtype]]:
    """What ``run`` takes. Ends the command with code 2 for what is no operator or dtype, and 1 without the samples."""
    if missing := extras.missing("check"):
        _output.fail(
            f"The samples for --operators need {', '.join(missing)}. Install them with: "
            "pip install 'torch_backend[check]'",
            code=1,
        )
    return _operators_of(file), _dtypes_of(dtypes)


def _operators_of(file: IO[str]) -> list[str]:
    """The operators of a list: the first word of each line, as ``ops --needed-for`` prints them.

    Its heading and its last line are left out, and what follows #. Ends the command with code 2 for what is none.
    """
    found: dict[str, None] = {}
    for number, line in enumerate(file, 1):
        word = next(iter(line.partition("#")[0].split()), "")
        if not word or word == "operator" or word.replace(",", "").isdigit():
            continue
        try:
            found.update(dict.fromkeys(names.overloads_of(word)))
        except ValueError as error:
            _output.fail(f"{file.name}, line {number}: {error}", code=2)
    if not found:
        _output.fail(f"{file.name} names no operator. Expected one a line: aten::add.out", code=2)
    return list(found)


def _dtypes_of(text: str) -> list[torch.dtype]:
    dtypes: list[torch.dtype] = []
    for name in text.split(","):
        dtype = getattr(torch, name, None)
        if not isinstance(dtype, torch.dtype):
            _output.fail(f"--dtypes: '{name}' is no dtype of torch. Expected e.g. float32,bfloat16", code=2)
        dtypes.append(dtype)
    return dtypes


def run(operators: Sequence[str], dtypes: Sequence[torch.dtype], device: str) -> Outcome:
    """Call each operator on the device with all its samples of each dtype, forward and backward."""
    by_operator = _entries_of(operators)
    entries = list({id(entry): entry for found in by_operator.values() for entry in found}.values())
    outcome = Outcome()
    for dtype in dtypes:
        with count_calls() as counts:
            for entry in entries:
                _run_entry(entry, dtype, device, outcome)
        called = {_main_form(call.op) for call in counts.entries}
        for op in operators:
            if _main_form(op) not in called:
                outcome.without.setdefault(op, []).append(str(dtype).removeprefix("torch."))
    return outcome


def _main_form(op: str) -> str:
    forms = forms_of(op)
    return forms.functional or forms.out or op


# ---- which samples ----


def _entries_of(operators: Iterable[str]) -> Mapping[str, list[Any]]:
    """The entries of OpInfo for each operator: those called like it, else those that call it and little else."""
    all_entries = _all_entries()
    reached: list[tuple[Any, frozenset[str]]] | None = None
    found = {}
    for op in operators:
        wanted = _STANDS_FOR.get(op, op)
        stem = wanted.partition("::")[2].partition(".")[0].rstrip("_")
        entries = [entry for entry in all_entries if stem in (entry.name, entry.aten_name)]
        if not entries:
            reached = [(entry, _reached_by(entry)) for entry in all_entries] if reached is None else reached
            with_it = [(entry, ops) for entry, ops in reached if _main_form(wanted) in ops]
            least = min((len(ops) for _, ops in with_it), default=0)
            entries = [entry for entry, ops in with_it if len(ops) == least]
        found[op] = entries
    return found


def _all_entries() -> list[Any]:
    from torch.testing._internal import common_methods_invocations as of_operators
    from torch.testing._internal.common_optimizers import optim_db

    of_lists = ("binary", "other", "pointwise", "reduce", "unary")
    foreach = [entry for kind in of_lists for entry in getattr(of_operators, f"foreach_{kind}_op_db")]
    steps = [_Steps(info) for info in optim_db if "fused" in info.supported_impls]
    return [*of_operators.op_db, *foreach, *steps]


class _Steps:
    """The steps of an optimizer that has a fused operator for them, as an entry of OpInfo."""

    supports_autograd = False

    def __init__(self, info: Any) -> None:
        self._info = info
        self.name = self.aten_name = self.full_name = f"_fused_{info.optim_cls.__name__.lower()}"

    def supported_dtypes(self, device: str) -> set[torch.dtype]:
        return {torch.float16, torch.bfloat16, torch.float32, torch.float64}

    def sample_inputs(self, device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Any]:
        from torch.testing._internal.opinfo.core import SampleInput

        tensor_lr = {"lr": torch.tensor(0.01)}
        for kwargs in (*(given.kwargs for given in self._info.optim_inputs_func("cpu")), tensor_lr):
            for count in (_FEW, _MANY):
                yield SampleInput(  # type: ignore[no-untyped-call]
                    [torch.ones(4, 8, dtype=dtype) for _ in range(count)], kwargs=kwargs
                )

    def __call__(self, parameters: list[torch.Tensor], **kwargs: Any) -> None:
        for parameter in parameters:
            parameter.requires_grad_().grad = torch.ones_like(parameter)
        optimizer = self._info.optim_cls(parameters, fused=True, **kwargs)
        for _ in range(2):  # some have state from the second on
            optimizer.step()


def _reached_by(entry: Any) -> frozenset[str]:
    """What the entry's first sample calls on the CPU, forward and backward, by the main form."""
    with Calls() as calls:
        for sample, differentiates in islice(_samples(entry, torch.float32), 1):
            calls.names.clear()
            _attempt(entry, sample, differentiates)
    return frozenset(map(_main_form, calls.names))


# ---- calls ----


def _samples(entry: Any, dtype: torch.dtype) -> Iterator[tuple[Any, bool]]:
    """Each with whether it is differentiated."""
    if dtype not in entry.supported_dtypes("cpu"):
        return
    differentiates = (
        entry.supports_autograd and not _is_foreach(entry) and dtype in entry.supported_backward_dtypes("cpu")
    )
    torch.manual_seed(0)
    for sample in entry.sample_inputs("cpu", dtype, requires_grad=differentiates):
        if _is_foreach(entry):
            yield _repeated(sample, _FEW), False
            yield _repeated(sample, _MANY), False
        else:
            yield sample, differentiates


def _copied(x: Any) -> Any:
    return x.clone() if isinstance(x, torch.Tensor) else x


def _repeated(sample: Any, count: int) -> Any:
    """With lists of ``count``."""
    from torch.testing._internal.opinfo.core import SampleInput

    def of_count(x: Any) -> Any:
        return [_copied(x[i % len(x)]) for i in range(count)] if isinstance(x, list | tuple) else x

    kwargs = {name: of_count(value) for name, value in sample.kwargs.items()}
    return SampleInput(  # type: ignore[no-untyped-call]
        of_count(sample.input), args=tuple(map(of_count, sample.args)), kwargs=kwargs
    )


def _run_entry(entry: Any, dtype: torch.dtype, device: str, outcome: Outcome) -> None:
    for sample, differentiates in _samples(entry, dtype):
        there = sample.transform(lambda x: _moved(x, device))
        if _attempt(entry, sample, differentiates) is None and (failure := _attempt(entry, there, differentiates)):
            outcome.failures.append(f"{entry.full_name} of {dtype}: {failure}")


def _moved(x: Any, device: str) -> Any:
    return x.detach().to(device).requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x


def _attempt(entry: Any, sample: Any, differentiates: bool) -> Exception | None:
    """What the call has raised."""
    try:
        result = entry(sample.input, *sample.args, **sample.kwargs)
        if _is_foreach(entry) and entry.inplace_variant is not None:  # what optimizers call, and another kernel
            entry.inplace_variant(sample.input, *sample.args, **sample.kwargs)
        if differentiates:
            results = sample.output_process_fn_grad(result)
            ends = [x for x in torch.utils._pytree.tree_leaves(results) if _has_gradient(x)]
            torch.autograd.backward(ends, [torch.ones(x.shape, dtype=x.dtype).to(x.device) for x in ends])
    except Exception as error:
        return error
    return None


def _is_foreach(entry: Any) -> bool:
    return str(entry.name).startswith("_foreach_")


def _has_gradient(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.requires_grad
