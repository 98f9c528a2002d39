"""Backward functions for torch.library.register_autograd, from what was declared."""

from typing import Any

import torch

from torch_backend.custom_ops._declaration import BackwardFunction, BackwardOperator, Function
from torch_backend.operators import schemas


def autograd_functions(
    schema: torch.FunctionSchema, backward: BackwardFunction | BackwardOperator
) -> tuple[Function, Function | None]:
    """``backward`` and ``setup_context`` of an operator with this schema."""
    if isinstance(backward, BackwardOperator):
        return _operator_backward(schema, backward)
    if backward.setup_context is not None or not backward.save:
        return backward.function, backward.setup_context
    return backward.function, _saver(schema, backward.save)


def _saver(schema: torch.FunctionSchema, sources: tuple[str, ...]) -> Function:
    def setup_context(ctx: Any, inputs: Any, output: Any, keyword_only_inputs: dict[str, Any] | None = None) -> None:
        values = _values(schema, inputs, keyword_only_inputs or {}, output)
        ctx.save_for_backward(*(values[source] for source in sources))

    return setup_context


def _operator_backward(schema: torch.FunctionSchema, backward: BackwardOperator) -> tuple[Function, Function]:
    op = schemas.find(backward.operator)
    names = [argument.name for argument in schema.arguments]
    results = [f"output.{i}" for i in range(len(schema.returns))] + [f"grad.{i}" for i in range(len(schema.returns))]
    known = {*names, *results, "output", "grad"}
    sources = {a.name: backward.arguments.get(a.name, a.name) for a in op._schema.arguments}
    sources = {name: source for name, source in sources.items() if source in known}
    saved = [source for source in dict.fromkeys(sources.values()) if source in names or source.startswith("output")]

    def setup_context(ctx: Any, inputs: Any, output: Any, keyword_only_inputs: dict[str, Any] | None = None) -> None:
        values = _values(schema, inputs, keyword_only_inputs or {}, output)
        tensors = [source for source in saved if isinstance(values[source], torch.Tensor)]
        ctx.tb_tensors = tensors
        ctx.tb_values = {source: values[source] for source in saved if source not in tensors}
        ctx.tb_missing = [name for name in backward.gradients if values.get(name) is None]
        ctx.save_for_backward(*(values[source] for source in tensors))

    def backward_function(ctx: Any, *grads: Any) -> Any:
        values = {"grad": grads[0], **{f"grad.{index}": grad for index, grad in enumerate(grads)}}
        values.update(ctx.tb_values)
        values.update(zip(ctx.tb_tensors, ctx.saved_tensors, strict=True))
        arguments = {name: values[source] for name, source in sources.items()}
        ordered = [arguments.pop(a.name, a.default_value) for a in schemas.positional(op._schema)]
        found = op(*ordered, **arguments)
        gradients = dict(zip(backward.gradients, found if isinstance(found, tuple) else (found,), strict=True))
        gradients |= dict.fromkeys(ctx.tb_missing)  # autograd wants none of what was not there
        return tuple(gradients.get(argument.name) for argument in schemas.positional(schema))

    return backward_function, setup_context


def _values(schema: torch.FunctionSchema, inputs: Any, keyword_only: dict[str, Any], output: Any) -> dict[str, Any]:
    outputs = output if isinstance(output, tuple) else (output,)
    values = dict(zip((argument.name for argument in schemas.positional(schema)), inputs, strict=False))
    values.update(keyword_only)
    names = {argument.name for argument in schema.arguments}
    own = {"output": outputs[0], **{f"output.{index}": value for index, value in enumerate(outputs)}}
    return {**{name: value for name, value in own.items() if name not in names}, **values}
