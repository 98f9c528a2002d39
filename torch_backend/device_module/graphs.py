"""Graphs: work that is captured once and replayed, with the names and arguments of torch.cuda's.

While a stream captures, work that is enqueued on it does not run; :meth:`Graph.replay` runs it, on the same memory.
What a graph cannot hold raises RuntimeError when it is captured, names it, and fails the capture: what makes the host
wait (``item()``, ``synchronize()``, copies from and to memory that is not pinned), what has a shape that depends on
data, and operators that run on the CPU through copies. The device works on after that.
"""

import contextlib
import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_backend import _C
from torch_backend.device_module.devices import _lazy_init, synchronize
from torch_backend.device_module.graph_inputs import GraphInputs
from torch_backend.device_module.memory import empty_cache
from torch_backend.device_module.streams import Stream, StreamContext

__all__ = ["CUDAGraph", "Graph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]


class Graph(_C.Graph):
    """Captured work of one device. What :class:`torch.cuda.CUDAGraph` is for CUDA.

    Args:
        keep_graph: the graph is made ready for launches by :meth:`instantiate`, or the first replay, and not when the
            capture ends.

    The device library captures and replays, on an asynchronous device whose library offers ``graph.1``. Inputs are the
    user's to keep alive, what is allocated during the capture is the graph's.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        """An empty graph. Starts the driver."""
        _lazy_init()
        super().__init__(keep_graph)
        self._inputs: GraphInputs | None = None
        self._watching = contextlib.ExitStack()  # while the capture goes on

    def capture_begin(
        self,
        pool: tuple[int, int] | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """Capture what is enqueued on the current stream from now on, which must not be the default stream.

        Raises NotImplementedError on a device that cannot capture.

        Args:
            pool: where memory comes from: that of another graph (:meth:`pool`) or :func:`graph_pool_handle`. Graphs
                that share it must be replayed in the order of their captures. None: one of its own.
            capture_error_mode: "global", "thread_local" or "relaxed": whose calls that wait for the whole device,
                or are unsafe for it in other ways, fail the capture: any thread's, this one's, nobody's. As for CUDA.
            check_input_liveness: remember the tensors that operators read in the capture, so that :meth:`replay` raises
                RuntimeError if one of them has been freed. Costs time in every operator of the capture.
        """
        super().capture_begin(pool, capture_error_mode)
        self._inputs = GraphInputs() if check_input_liveness else None
        if self._inputs is not None:
            self._watching.enter_context(self._inputs)

    def capture_end(self) -> None:
        """End the capture. Raises RuntimeError if it has failed; the graph is empty then."""
        self._watching.close()
        super().capture_end()

    def instantiate(self) -> None:
        """Make the graph ready for launches."""
        super().instantiate()

    def replay(self) -> None:
        """Enqueue the captured work on the device's current stream. Random numbers are new each time."""
        if self._inputs is not None:
            self._inputs.check()
        super().replay()

    def reset(self) -> None:
        """Wait for replays that go on, and give up work and memory. The graph can be captured again."""
        self._inputs = None
        super().reset()

    def pool(self) -> tuple[int, int]:
        """What names the graph's memory."""
        return super().pool()

    def enable_debug_mode(self) -> None:
        """Before :meth:`debug_dump`."""
        super().enable_debug_mode()

    def debug_dump(self, debug_path: str) -> None:
        """Write the names of the steps, in the order of their capture, to a file in the language of Graphviz."""
        super().debug_dump(debug_path)


CUDAGraph = Graph
"""The name that programs written for torch.cuda have."""


class graph:
    """Context manager: capture what is enqueued inside into a :class:`Graph`.

    Args:
        cuda_graph: the graph; the name of the argument is torch.cuda's.
        pool, capture_error_mode, check_input_liveness: as of :meth:`Graph.capture_begin`.
        stream: the stream to capture on; None means one that all captures share.
        enable_annotations: torch.cuda's; True raises NotImplementedError.

    On entry the device is waited for, and its cache emptied.
    """

    _default_stream: Stream | None = None

    def __init__(
        self,
        cuda_graph: Graph,
        pool: tuple[int, int] | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ) -> None:
        """Nothing is captured yet."""
        if enable_annotations:
            raise NotImplementedError("Graphs keep no annotations: leave out enable_annotations.")
        if stream is None:
            stream = graph._default_stream
            if stream is None or stream.device_index != _C.current_device():
                stream = graph._default_stream = Stream()
        self.cuda_graph = cuda_graph
        self.pool = pool
        self.capture_error_mode = capture_error_mode
        self.check_input_liveness = check_input_liveness
        self.stream_context = StreamContext(stream)

    def __enter__(self) -> None:
        """Begin the capture."""
        synchronize()
        gc.collect()
        empty_cache()
        self.stream_context.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode, self.check_input_liveness)
        except BaseException:
            self.stream_context.__exit__(None, None, None)
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the capture. If the body has raised, that error goes on."""
        try:
            if kind is None:
                self.cuda_graph.capture_end()
            else:
                with contextlib.suppress(RuntimeError):
                    self.cuda_graph.capture_end()
                    self.cuda_graph.reset()
        finally:
            self.stream_context.__exit__(None, None, None)


def graph_pool_handle() -> tuple[int, int]:
    """A name for memory that several graphs share."""
    return _C.graph_pool_handle()


def is_current_stream_capturing() -> bool:
    """Whether the current device's current stream captures."""
    return _C.is_current_stream_capturing()


Graphable = Callable[..., Any]


def make_graphed_callables(
    callables: Graphable | tuple[Graphable, ...],
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: tuple[int, int] | None = None,
) -> Any:
    """Functions or modules whose forward and backward passes are replays of graphs.

    As :func:`torch.cuda.make_graphed_callables`: arguments must be tensors, and have the shapes, dtypes and
    ``requires_grad`` of the samples; results are overwritten by the next call. A module is changed in place, and only
    graphed in the mode (training or not) that it is in now.

    Args:
        callables: one, or a tuple in the order in which they will be called.
        sample_args: a tuple of tensors, or one per callable.
        num_warmup_iters: calls before the capture, for what happens only once.
        allow_unused_input: a parameter or argument may have no gradient.
        pool: as of :meth:`Graph.capture_begin`.
    """
    single = not isinstance(callables, tuple)
    functions: Sequence[Graphable] = (callables,) if not isinstance(callables, tuple) else callables
    samples: Sequence[tuple[Any, ...]] = (sample_args,) if single else sample_args
    if len(functions) != len(samples):
        raise ValueError(f"There are {len(functions)} callables and sample_args for {len(samples)}.")
    for function, sample in zip(functions, samples, strict=True):
        if not all(isinstance(value, torch.Tensor) for value in sample):
            raise TypeError(f"The arguments of {function} must be tensors to be captured in a graph.")
    pool = pool or graph_pool_handle()
    _warm_up(functions, samples, num_warmup_iters, allow_unused_input)
    parts = [_Parts(function, sample, pool) for function, sample in zip(functions, samples, strict=True)]
    for part in reversed(parts):
        part.capture_backward(allow_unused_input)
    graphed = tuple(_graphed(part) for part in parts)
    return graphed[0] if single else graphed


def _parameters(function: Graphable) -> tuple[torch.Tensor, ...]:
    return tuple(function.parameters()) if isinstance(function, torch.nn.Module) else ()


def _flat(outputs: Any) -> tuple[torch.Tensor, ...]:
    return (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)


def _warm_up(
    functions: Sequence[Graphable], samples: Sequence[tuple[Any, ...]], times: int, allow_unused: bool
) -> None:
    synchronize()
    with StreamContext(Stream()):
        for function, sample in zip(functions, samples, strict=True):
            inputs = [value for value in (*sample, *_parameters(function)) if value.requires_grad]
            for _ in range(times):
                outputs = [value for value in _flat(function(*sample)) if value.requires_grad]
                if outputs and inputs:
                    seeds = [torch.empty_like(value) for value in outputs]
                    torch.autograd.grad(outputs, inputs, seeds, allow_unused=allow_unused)
    synchronize()


class _Parts:
    """One callable: its graphs, and the memory through which they are fed and read."""

    def __init__(self, function: Graphable, sample: tuple[torch.Tensor, ...], pool: tuple[int, int]) -> None:
        self.function = function
        self.training = isinstance(function, torch.nn.Module) and function.training
        self.pool = pool
        self.arguments = sample
        self.inputs = (*sample, *_parameters(function))
        self.forward = Graph()
        with graph(self.forward, pool):
            outputs = function(*sample)
        self.is_tensor = isinstance(outputs, torch.Tensor)
        self.outputs = _flat(outputs)
        self.backward: Graph | None = None
        self.seeds: tuple[torch.Tensor | None, ...] = ()
        self.gradients: tuple[torch.Tensor | None, ...] = ()

    def capture_backward(self, allow_unused: bool) -> None:
        self.seeds = tuple(torch.empty_like(value) if value.requires_grad else None for value in self.outputs)
        outputs = [value for value in self.outputs if value.requires_grad]
        inputs = [value for value in self.inputs if value.requires_grad]
        found: tuple[torch.Tensor | None, ...] = ()
        if outputs and inputs:
            self.backward = Graph()
            with graph(self.backward, self.pool):
                seeds = [seed for seed in self.seeds if seed is not None]
                found = torch.autograd.grad(outputs, inputs, seeds, allow_unused=allow_unused)
        rest = iter(found)
        self.gradients = tuple(next(rest, None) if value.requires_grad else None for value in self.inputs)


def _graphed(parts: _Parts) -> Graphable:
    class Graphed(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            for static, value in zip(parts.arguments, inputs, strict=False):
                if static.data_ptr() != value.data_ptr():
                    static.detach().copy_(value)
            parts.forward.replay()
            return tuple(value.detach() for value in parts.outputs)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(_: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
            if parts.backward is None:
                return (None,) * len(parts.inputs)
            for seed, gradient in zip(parts.seeds, gradients, strict=True):
                if seed is not None:
                    seed.copy_(gradient)
            parts.backward.replay()
            return tuple(value.detach() if value is not None else None for value in parts.gradients)

    def call(*arguments: torch.Tensor) -> Any:
        outputs = Graphed.apply(*arguments, *parts.inputs[len(parts.arguments) :])  # type: ignore[no-untyped-call]
        return outputs[0] if parts.is_tensor else outputs

    function = parts.function
    if not isinstance(function, torch.nn.Module):
        return call
    eager = function.forward

    def forward(*arguments: Any, **keywords: Any) -> Any:
        graphed = function.training == parts.training and not keywords
        return call(*arguments) if graphed else eager(*arguments, **keywords)

    function.forward = forward
    return function
