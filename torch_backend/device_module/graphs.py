"""Graphs: work that is captured once and replayed, with the names and arguments of torch.cuda's.

While a stream captures, work that is enqueued on it does not run; :meth:`Graph.replay` runs it, on the same memory.
What a graph cannot hold raises RuntimeError when it is captured, names it, and fails the capture: what makes the host
wait (``item()``, ``synchronize()``, copies from and to memory that is not pinned), what has a shape that depends on
data, and operators that run on the CPU through copies. The device works on after that.
"""

import contextlib
import gc
from typing import Any

import torch

from torch_backend import _C
from torch_backend.device_module.devices import _lazy_init, synchronize
from torch_backend.device_module.graph_inputs import GraphInputs
from torch_backend.device_module.memory import MemPool
from torch_backend.device_module.streams import Stream, StreamContext

__all__ = ["CUDAGraph", "Graph", "graph", "graph_pool_handle", "is_current_stream_capturing"]


Pool = tuple[int, int] | MemPool


class Graph(_C.Graph):
    """Captured work of one device. What :class:`torch.cuda.CUDAGraph` is for CUDA.

    Args:
        keep_graph: the graph is made ready for launches by :meth:`instantiate`, or the first replay, and not when the
            capture ends.

    For asynchronous devices. The device library captures and replays if it offers ``graph.1``, else the core does.
    Inputs are the user's to keep alive, what is allocated during the capture is the graph's.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        """An empty graph. Starts the driver."""
        _lazy_init()
        super().__init__(keep_graph)
        self._inputs: GraphInputs | None = None
        self._watching = contextlib.ExitStack()  # while the capture goes on

    def capture_begin(
        self,
        pool: Pool | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """Capture what is enqueued on the current stream from now on, which must not be the default stream.

        Raises NotImplementedError on a device that cannot capture.

        Args:
            pool: where memory comes from: that of another graph (:meth:`pool`), :func:`graph_pool_handle` or a
                :class:`MemPool`. Graphs that share it must be replayed in the order of their captures. None: one of its
                own.
            capture_error_mode: "global", "thread_local" or "relaxed": whose calls that wait for the whole device,
                or are unsafe for it in other ways, fail the capture: any thread's, this one's, nobody's. As for CUDA.
            check_input_liveness: remember the tensors that operators read in the capture, so that :meth:`replay` raises
                RuntimeError if one of them has been freed. Costs time in every operator of the capture.
        """
        super().capture_begin(pool.id if isinstance(pool, MemPool) else pool, capture_error_mode)
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
        enable_annotations, annotation_config: torch.cuda's, for its tools; anything but the defaults raises
            NotImplementedError.

    On entry the device is waited for, and its cache emptied unless another thread captures.
    """

    _default_stream: Stream | None = None

    def __init__(
        self,
        cuda_graph: Graph,
        pool: Pool | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        annotation_config: dict[str, Any] | None = None,
        check_input_liveness: bool = False,
    ) -> None:
        """Nothing is captured yet."""
        if enable_annotations or annotation_config is not None:
            raise NotImplementedError("Graphs keep no annotations: leave out enable_annotations and annotation_config.")
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
        _C.empty_cache_unless_capturing()
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
