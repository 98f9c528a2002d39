"""make_graphed_callables: a module, or a function, whose forward and backward passes are graphs that are replayed."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from torch_backend.device_module._utils import _device_type
from torch_backend.device_module.devices import synchronize
from torch_backend.device_module.graphs import Graph, Pool, graph, graph_pool_handle
from torch_backend.device_module.streams import Stream, StreamContext

__all__ = ["make_graphed_callables"]

Graphable = Callable[..., Any]


def make_graphed_callables(
    callables: Graphable | tuple[Graphable, ...],
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Pool | None = None,
    capture_error_mode: str = "global",
    enable_annotations: bool = False,
) -> Any:
    """Functions or modules whose forward and backward passes are replays of graphs.

    As :func:`torch.cuda.make_graphed_callables`: arguments are tensors, or lists, tuples and dicts of tensors, and have
    the structure, shapes, dtypes and ``requires_grad`` of the samples; results are overwritten by the next call. A
    module is changed in place, and only graphed in the mode (training or not) that it is in now.

    Args:
        callables: one, or a tuple in the order in which they will be called.
        sample_args: a tuple of arguments, or one per callable.
        num_warmup_iters: calls before the capture, for what happens only once.
        allow_unused_input: a parameter or argument may have no gradient.
        pool, capture_error_mode: as of :meth:`Graph.capture_begin`.
        enable_annotations: torch.cuda's; True raises NotImplementedError.

    Raises:
        RuntimeError: autocast is on, with a cache: a graph would keep what another has cast.
        ValueError: a module has hooks, which would run in the capture and with every call again, or a buffer with
            ``requires_grad``; there are not as many sample_args as callables.
        TypeError: a sample has something other than tensors.
    """
    single = not isinstance(callables, tuple)
    functions: Sequence[Graphable] = (callables,) if not isinstance(callables, tuple) else callables
    samples: Sequence[tuple[Any, ...]] = (sample_args,) if single else sample_args
    if torch.is_autocast_enabled(_device_type()) and torch.is_autocast_cache_enabled():
        raise RuntimeError("Graphed callables share no casts: make them inside autocast(..., cache_enabled=False).")
    if len(functions) != len(samples):
        raise ValueError(f"There are {len(functions)} callables and sample_args for {len(samples)}.")
    for function, sample in zip(functions, samples, strict=True):
        _check(function, sample)
    if pool is None:
        pool = graph_pool_handle()

    def capture() -> tuple[Graph, graph]:
        made = Graph()
        return made, graph(made, pool, None, capture_error_mode, enable_annotations)

    _warm_up(functions, samples, num_warmup_iters, allow_unused_input)
    parts = [_Parts(function, sample, capture) for function, sample in zip(functions, samples, strict=True)]
    for part in reversed(parts):
        part.capture_backward(capture, allow_unused_input)
    graphed = tuple(_graphed(part) for part in parts)
    return graphed[0] if single else graphed


def _check(function: Graphable, sample: tuple[Any, ...]) -> None:
    if not all(isinstance(value, torch.Tensor) for value in tree_leaves(sample)):
        raise TypeError(f"The arguments of {function} must be tensors to be captured in a graph.")
    if isinstance(function, torch.nn.Module):
        if function._forward_hooks or function._forward_pre_hooks or function._backward_hooks:
            raise ValueError(f"{type(function).__name__} has hooks: register them after it is made a graph.")
        if any(buffer.requires_grad for buffer in function.buffers()):
            raise ValueError(f"{type(function).__name__} has a buffer that requires a gradient: only parameters may.")


def _parameters(function: Graphable) -> tuple[torch.Tensor, ...]:
    return tuple(function.parameters()) if isinstance(function, torch.nn.Module) else ()


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _warm_up(
    functions: Sequence[Graphable], samples: Sequence[tuple[Any, ...]], times: int, allow_unused: bool
) -> None:
    synchronize()
    with StreamContext(Stream()):
        for function, sample in zip(functions, samples, strict=True):
            inputs = [value for value in (*tree_leaves(sample), *_parameters(function)) if value.requires_grad]
            for _ in range(times):
                outputs = [value for value in tree_leaves(function(*sample)) if _requires_grad(value)]
                if outputs and inputs:
                    seeds = [torch.empty_like(value) for value in outputs]
                    torch.autograd.grad(outputs, inputs, seeds, allow_unused=allow_unused)
    synchronize()


Capture = Callable[[], tuple[Graph, graph]]


def _shapes(values: Sequence[Any]) -> list[Any]:
    return [list(value.shape) if isinstance(value, torch.Tensor) else type(value) for value in values]


class _Parts:
    """One callable: its graphs, and the memory through which they are fed and read."""

    def __init__(self, function: Graphable, sample: tuple[Any, ...], capture: Capture) -> None:
        self.function = function
        self.training = isinstance(function, torch.nn.Module) and function.training
        self.arguments: list[torch.Tensor]
        self.arguments, self.structure = tree_flatten(sample)
        self.inputs = (*self.arguments, *_parameters(function))
        self.forward, capturing = capture()
        with capturing:
            outputs = function(*sample)
        self.outputs, self.result = tree_flatten(outputs)
        self.backward: Graph | None = None
        self.seeds: tuple[torch.Tensor | None, ...] = ()
        self.gradients: tuple[torch.Tensor | None, ...] = ()

    def capture_backward(self, capture: Capture, allow_unused: bool) -> None:
        self.seeds = tuple(torch.empty_like(value) if _requires_grad(value) else None for value in self.outputs)
        outputs = [value for value in self.outputs if _requires_grad(value)]
        inputs = [value for value in self.inputs if value.requires_grad]
        found: tuple[torch.Tensor | None, ...] = ()
        if outputs and inputs:
            self.backward, capturing = capture()
            with capturing:
                seeds = [seed for seed in self.seeds if seed is not None]
                found = torch.autograd.grad(outputs, inputs, seeds, allow_unused=allow_unused)
        rest = iter(found)
        self.gradients = tuple(next(rest, None) if value.requires_grad else None for value in self.inputs)

    def call(self, *arguments: Any) -> Any:
        given, structure = tree_flatten(arguments)
        if structure != self.structure or _shapes(given) != _shapes(self.arguments):
            asked, got = (
                tree_unflatten(_shapes(values), how)
                for values, how in ((self.arguments, self.structure), (given, structure))
            )
            raise ValueError(f"This graph was captured with arguments of the shapes {asked}, not {got}.")
        outputs = _Replay.apply(self, *given, *self.inputs[len(given) :])  # type: ignore[no-untyped-call]
        return tree_unflatten(list(outputs), self.result)


class _Replay(torch.autograd.Function):
    """The parts are an argument, not the class's: a class is freed by the garbage collector, perhaps in a capture."""

    @staticmethod
    def forward(ctx: Any, parts: _Parts, *inputs: torch.Tensor) -> tuple[Any, ...]:
        ctx.parts = parts
        for static, value in zip(parts.arguments, inputs, strict=False):
            if static.data_ptr() != value.data_ptr():
                static.detach().copy_(value)
        parts.forward.replay()
        results = tuple(value.detach() if isinstance(value, torch.Tensor) else value for value in parts.outputs)
        captured = zip(results, parts.outputs, strict=True)
        ctx.mark_non_differentiable(
            *(result for result, value in captured if isinstance(value, torch.Tensor) and not value.requires_grad)
        )
        return results

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        parts: _Parts = ctx.parts
        if parts.backward is None:
            return (None,) * (1 + len(parts.inputs))
        for seed, gradient in zip(parts.seeds, gradients, strict=True):
            if seed is not None and gradient is not None:
                seed.copy_(gradient)
        parts.backward.replay()
        return (None, *(value.detach() if value is not None else None for value in parts.gradients))


def _graphed(parts: _Parts) -> Graphable:
    function = parts.function
    if not isinstance(function, torch.nn.Module):
        return parts.call
    eager = function.forward

    def forward(*arguments: Any, **keywords: Any) -> Any:
        graphed = function.training == parts.training and not keywords
        return parts.call(*arguments) if graphed else eager(*arguments, **keywords)

    function.forward = forward
    return function
