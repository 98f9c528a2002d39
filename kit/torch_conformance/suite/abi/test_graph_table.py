"""The table graph.1: work that is recorded and replayed."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

import pytest

from torch_backend.abi import (
    CaptureMode,
    CopyKind,
    Device,
    DeviceError,
    DeviceLibrary,
    Status,
    status_name,
    tb_host_function,
)
from torch_conformance import needs
from torch_conformance.promises import promise
from torch_conformance.suite.abi._module_sources import constant_source
from torch_conformance.suite.abi._modules import Launch, Modules, Pointer, modules_of
from torch_conformance.suite.abi._support import (
    Hold,
    brief_holds,
    enqueue_function,
    expect_bytes,
    graph_call,
    graph_of,
    host_function,
    host_memory,
    memory,
    pattern,
    replay,
)
from torch_conformance.threads import in_threads

pytestmark = needs.table("graph.1")

_SIZE = 4096
_IMPOSSIBLE_BYTES = 1 << 60


@promise("tb_graph_table 1.2")
def test_all_slots_are_set(library: DeviceLibrary) -> None:
    """Every slot of the table is set."""
    unset = library.tables["graph.1"].lacks
    assert not unset, f"the table graph.1 is offered, but these slots are unset: {', '.join(unset)}"


@contextmanager
def _graph_of_a_copy(device: Device, stream: int, dst: int, src: int, mode: CaptureMode) -> Iterator[int]:
    with graph_of(
        device, stream, lambda: device.copy(dst, src, _SIZE, CopyKind.DEVICE_TO_DEVICE, stream), mode
    ) as graph:
        yield graph


def _is_capturing(device: Device, stream: int) -> int:
    answer = ctypes.c_int32(-7)
    graph_call(device, "stream_is_capturing", stream, ctypes.byref(answer))
    return answer.value


_modes = pytest.mark.parametrize("mode", list(CaptureMode), ids=lambda mode: mode.name)


@promise("tb_graph_table 1.1, capture_begin, graph_instantiate, graph_launch 1")
@_modes
def test_recorded_work_runs_when_it_is_launched(library: DeviceLibrary, mode: CaptureMode) -> None:
    """What is enqueued during a capture does not run then, and runs at every launch with what memory then holds."""
    for device in library.devices:
        with device.stream() as stream, memory(device, _SIZE) as src, memory(device, _SIZE) as dst:
            device.write(src, pattern(_SIZE, seed=1))
            device.write(dst, bytes(_SIZE))
            with _graph_of_a_copy(device, stream, dst, src, mode) as graph:
                device.synchronize(stream)
                expect_bytes(device.read(dst, _SIZE), bytes(_SIZE), f"{device}: after a copy was recorded")
                for seed in (1, 2, 3):
                    device.write(src, pattern(_SIZE, seed=seed))
                    graph_call(device, "graph_launch", graph, stream)
                    expect_bytes(device.read(dst, _SIZE, stream), pattern(_SIZE, seed=seed), f"{device}: launch {seed}")


@promise("stream_is_capturing")
def test_a_stream_tells_whether_it_records(library: DeviceLibrary) -> None:
    """stream_is_capturing is 1 between capture_begin and capture_end, and else 0."""
    for device in library.devices:
        with device.stream() as stream:
            before = _is_capturing(device, stream)
            graph_call(device, "capture_begin", stream, CaptureMode.RELAXED)
            during = _is_capturing(device, stream)
            graph = ctypes.c_void_p()
            graph_call(device, "capture_end", stream, ctypes.byref(graph))
            after = _is_capturing(device, stream)
            graph_call(device, "graph_destroy", graph)
            assert (before, during, after) == (0, 1, 0), (
                f"{device}: stream_is_capturing said {before} before, {during} during and {after} after a capture"
            )


@promise("graph_destroy")
def test_a_graph_may_be_destroyed_while_it_runs(library: DeviceLibrary) -> None:
    """A launch that is pending completes after its graph was destroyed."""
    for device in library.devices:
        with (
            device.stream() as stream,
            device.stream() as aside,
            memory(device, _SIZE) as src,
            memory(device, _SIZE) as dst,
        ):
            device.write(src, pattern(_SIZE, seed=1))
            device.write(dst, bytes(_SIZE))
            can_hold = "stream_host_function" in library.core
            with Hold(device, stream) if can_hold else nullcontext():
                with _graph_of_a_copy(device, aside, dst, src, CaptureMode.RELAXED) as graph:
                    graph_call(device, "graph_launch", graph, stream)
            expect_bytes(
                device.read(dst, _SIZE, stream), pattern(_SIZE, seed=1), f"{device}: a launch of a destroyed graph"
            )


@promise("tb_graph_table 2.1")
def test_streams_that_wait_for_recorded_work_are_recorded(library: DeviceLibrary) -> None:
    """A stream that waits for an event of the capture joins it, and events order its work at every launch."""
    for device in library.devices:
        with ExitStack() as stack:
            first, second = (stack.enter_context(device.stream()) for _ in range(2))
            fork, join = (stack.enter_context(device.event()) for _ in range(2))
            blocks = [stack.enter_context(memory(device, _SIZE)) for _ in range(4)]

            def copy(number: int, stream: int | None, device: Device = device, blocks: list[int] = blocks) -> None:
                device.copy(blocks[number + 1], blocks[number], _SIZE, CopyKind.DEVICE_TO_DEVICE, stream)

            def enqueue(
                device: Device = device, first: int = first, second: int = second, fork: int = fork, join: int = join
            ) -> None:
                copy(0, first)
                device.record(fork, first)
                device.wait_event(fork, second)
                copy(1, second)
                assert _is_capturing(device, second) == 1, (
                    f"{device}: a stream that waits for recorded work is not recorded"
                )
                device.record(join, second)
                device.wait_event(join, first)
                copy(2, first)

            for block in blocks:
                device.write(block, bytes(_SIZE))
            device.write(blocks[0], pattern(_SIZE))
            with graph_of(device, first, enqueue) as graph:
                assert _is_capturing(device, second) == 0, f"{device}: a stream that joined is recorded after the end"
                for block in blocks[1:]:
                    expect_bytes(device.read(block, _SIZE), bytes(_SIZE), f"{device}: after copies were recorded")
                for seed in (1, 2, 3):
                    device.write(blocks[0], pattern(_SIZE, seed=seed))
                    graph_call(device, "graph_launch", graph, first)
                    expect_bytes(
                        device.read(blocks[3], _SIZE, first), pattern(_SIZE, seed=seed), f"{device}: launch {seed}"
                    )


@promise("tb_graph_table 2.3")
def test_recorded_copies_use_what_the_host_has_at_the_launch(library: DeviceLibrary) -> None:
    """A recorded copy from the host reads its memory at every launch, and one to the host writes it."""
    for device in library.devices:
        with ExitStack() as stack:
            stream, address = stack.enter_context(device.stream()), stack.enter_context(memory(device, _SIZE))
            source, target = (stack.enter_context(host_memory(device, bytes(_SIZE))) for _ in range(2))

            def enqueue(
                device: Device = device,
                stream: int = stream,
                address: int = address,
                source: int = source,
                target: int = target,
            ) -> None:
                device.copy(address, source, _SIZE, CopyKind.HOST_TO_DEVICE, stream)
                device.copy(target, address, _SIZE, CopyKind.DEVICE_TO_HOST, stream)

            with graph_of(device, stream, enqueue) as graph:
                for seed in (1, 2):
                    ctypes.memmove(source, pattern(_SIZE, seed=seed), _SIZE)
                    replay(device, graph, stream)
                    device.synchronize(stream)
                    expect_bytes(
                        ctypes.string_at(target, _SIZE),
                        pattern(_SIZE, seed=seed),
                        f"{device}: launch {seed} of a copy from the host, whose memory was written before it",
                    )


@promise("tb_graph_table 1.1")
@needs.slot("memory_fill")
def test_recorded_fills_keep_their_pattern(library: DeviceLibrary) -> None:
    """A recorded fill has the pattern that it was given, though that is gone when the graph is launched."""
    for device in library.devices:
        with device.stream() as stream, memory(device, _SIZE) as address:
            value = ctypes.create_string_buffer(b"\x11\x22\x33\x44", 4)

            def enqueue(
                device: Device = device, stream: int = stream, address: int = address, value: object = value
            ) -> None:
                status = device.library.status("memory_fill", device.index, address, value, 4, _SIZE, stream)
                if status:
                    raise DeviceError("memory_fill", status, device.library.error_text())
                ctypes.memset(value, 0xEE, 4)  # type: ignore[arg-type]

            device.write(address, bytes(_SIZE))
            with graph_of(device, stream, enqueue) as graph:
                expect_bytes(device.read(address, _SIZE), bytes(_SIZE), f"{device}: after a fill was recorded")
                replay(device, graph, stream)
                expected = b"\x11\x22\x33\x44" * (_SIZE // 4)
                expect_bytes(device.read(address, _SIZE, stream), expected, f"{device}: a fill that was recorded")


@promise("stream_host_function 2, tb_graph_table 2.4, graph_launch 2")
@needs.slot("stream_host_function")
def test_host_functions_run_once_a_launch(library: DeviceLibrary) -> None:
    """A recorded host function is called once by every launch, and launches keep their order."""
    calls: list[int] = []

    @tb_host_function  # type: ignore[untyped-decorator]
    def note(argument: int | None) -> None:
        calls.append(argument or 0)

    for device in library.devices:
        with device.stream() as stream, device.stream() as other:

            def enqueue(device: Device = device, stream: int = stream) -> None:
                for number in (1, 2, 3):
                    enqueue_function(device, note, number, stream)

            calls.clear()
            with graph_of(device, stream, enqueue) as graph:
                device.synchronize(stream)
                assert not calls, f"{device}: recorded host functions were called {calls} before a launch"
                for number in range(10):
                    graph_call(device, "graph_launch", graph, other if number % 2 else stream)
                device.synchronize(stream)
                device.synchronize(other)
            assert calls == [1, 2, 3] * 10, f"{device}: 10 launches of host functions 1, 2, 3 called {calls}"


@promise("tb_graph_table 1.1")
@needs.table("kernels.1")
def test_recorded_launches_keep_their_parameters(library: DeviceLibrary) -> None:
    """A launch of a module's function is recorded with its parameters as they were, and runs at every graph_launch."""
    for modules in modules_of(library):
        device = modules.device
        with device.stream() as stream, memory(device, 4) as number:
            device.write(number, bytes(4))

            def enqueue(modules: Modules = modules, stream: int = stream, number: int = number) -> None:
                for add in (1, 2):
                    what = Launch([Pointer(number), ctypes.c_int32(add)])
                    modules.launch("advance", what, stream)
                    what.spoil()

            with graph_of(device, stream, enqueue) as graph:
                expect_bytes(device.read(number, 4), bytes(4), f"{modules}: after launches were recorded")
                expected = 0
                for launch in (1, 2, 3):
                    graph_call(device, "graph_launch", graph, stream)
                    expected = 3 * (3 * expected + 1) + 2
                    actual = int.from_bytes(device.read(number, 4, stream), "little")
                    assert actual == expected, (
                        f"{modules}: graph_launch {launch} of two launches gave {actual} instead of {expected}"
                    )


# ---- what fails during a capture ----


@dataclass(frozen=True)
class _Capture:
    """A capture of a copy, and of an event, and what else a call may be given."""

    device: Device
    stream: int
    event: int
    """That is recorded in the capture."""
    outside: int
    """An event that was recorded before, and is complete."""
    other: int
    """A graph of before."""
    src: int
    dst: int
    """What its copy reads and writes."""
    last: int
    """Memory that is 0, like dst."""


_FORBIDDEN: dict[str, Callable[[_Capture], int]] = {
    "stream_synchronize": lambda of: _status(of, "stream_synchronize", of.stream),
    "stream_query": lambda of: _status(of, "stream_query", of.stream),
    "event_query": lambda of: _status(of, "event_query", of.event),
    "event_synchronize": lambda of: _status(of, "event_synchronize", of.event),
    "stream_destroy": lambda of: _status(of, "stream_destroy", of.stream),
    "stream_wait_event": lambda of: _status(of, "stream_wait_event", of.stream, of.outside),
    "graph_launch": lambda of: of.device.library.noted(
        of.device.library.tables["graph.1"].graph_launch(of.device.index, of.other, of.stream)
    ),
}


def _status(of: _Capture, slot: str, *arguments: object) -> int:
    library = of.device.library
    if slot not in library.core:
        return Status.UNSUPPORTED
    library.bind(of.device.index)
    return library.status(slot, of.device.index, *arguments)


def _end(device: Device, stream: int) -> tuple[int, int | None, str]:
    """What capture_end returned, the graph, and the reason of a failure."""
    library = device.library
    graph = ctypes.c_void_p()
    status = library.noted(library.tables["graph.1"].capture_end(device.index, stream, ctypes.byref(graph)))
    return status, graph.value, "" if status == Status.OK else library.error_text()


@contextmanager
def _capture(device: Device, mode: CaptureMode) -> Iterator[_Capture]:
    """A capture that has begun, of a copy and a record."""
    with ExitStack() as stack:
        stream, aside = (stack.enter_context(device.stream()) for _ in range(2))
        event, outside = (stack.enter_context(device.event()) for _ in range(2))
        src, dst, last, copied = (stack.enter_context(memory(device, _SIZE)) for _ in range(4))
        device.write(src, pattern(_SIZE))
        for address in (dst, last):
            device.write(address, bytes(_SIZE))
        device.record(outside, aside)
        device.synchronize(aside)
        other = stack.enter_context(_graph_of_a_copy(device, aside, copied, src, CaptureMode.RELAXED))
        graph_call(device, "capture_begin", stream, mode)
        device.copy(dst, src, _SIZE, CopyKind.DEVICE_TO_DEVICE, stream)
        device.record(event, stream)
        yield _Capture(device, stream, event, outside, other, src, dst, last)


@promise("tb_graph_table 3.1, capture_end 1")
@_modes
@pytest.mark.parametrize("slot", _FORBIDDEN)
def test_a_capture_fails_with_what_it_forbids(library: DeviceLibrary, slot: str, mode: CaptureMode) -> None:
    """A call that waits for, queries, destroys or launches on what records fails, the capture with it, and no more."""
    for device in library.devices:
        with _capture(device, mode) as capture:
            stream, src, dst = capture.stream, capture.src, capture.dst
            status = _FORBIDDEN[slot](capture)
            ended, graph, reason = _end(device, stream)
            if graph is not None:
                graph_call(device, "graph_destroy", graph)
            if status == Status.UNSUPPORTED and slot in ("stream_query", "event_synchronize"):
                needs.not_offered(f"{slot} answered UNSUPPORTED")
            what = f"{device}: during a capture {slot}"
            assert status not in (Status.OK, Status.NOT_READY), f"{what} returned {status_name(status)}, but must fail"
            assert ended != Status.OK, f"{what} failed, and capture_end returned OK: the capture fails with it"
            assert graph is None, f"{what} failed, and capture_end, which failed too, gave a graph"
            assert reason, f"{what} failed, and capture_end does not say why the capture has failed"
            assert _is_capturing(device, stream) == 0, f"{device}: the stream records after a failed capture"
            expect_bytes(device.read(dst, _SIZE, stream), bytes(_SIZE), f"{device}: after a failed capture of a copy")
            device.copy(dst, src, _SIZE, CopyKind.DEVICE_TO_DEVICE, stream)
            expect_bytes(device.read(dst, _SIZE, stream), pattern(_SIZE), f"{device}: a copy after a failed capture")


def _expect_good(capture: _Capture, what: str) -> None:
    """The capture ends well, and its graph copies."""
    device, stream = capture.device, capture.stream
    status, graph, reason = _end(device, stream)
    assert status == Status.OK, f"{device}: {what}: capture_end returned {status_name(status)}: {reason}"
    graph_call(device, "graph_instantiate", graph)
    replay(device, graph or 0, stream)
    expect_bytes(device.read(capture.dst, _SIZE, stream), pattern(_SIZE), f"{device}: {what}: a launch")
    graph_call(device, "graph_destroy", graph)


@promise("TB_CAPTURE_GLOBAL, TB_CAPTURE_THREAD_LOCAL, TB_CAPTURE_RELAXED, tb_graph_table 3.2")
@needs.slot("device_synchronize")
@pytest.mark.parametrize("thread", ["same", "other"])
@_modes
def test_unsafe_calls_fail_a_capture_by_its_mode(library: DeviceLibrary, mode: CaptureMode, thread: str) -> None:
    """device_synchronize fails a GLOBAL capture, a THREAD_LOCAL one if the thread began it, and no RELAXED one."""
    fails = mode == CaptureMode.GLOBAL or (mode == CaptureMode.THREAD_LOCAL and thread == "same")
    for device in library.devices:
        with _capture(device, mode) as capture:
            statuses: list[int] = []

            def call(capture: _Capture = capture, into: list[int] = statuses) -> None:
                into.append(_status(capture, "device_synchronize"))

            if thread == "same":
                call()
            else:
                in_threads([call])
            what = f"device_synchronize in the {thread} thread during a {mode.name} capture"
            if statuses == [Status.UNSUPPORTED]:
                needs.not_offered("device_synchronize answered UNSUPPORTED")
            if not fails:
                _expect_good(capture, what)
                continue
            ended, graph, _ = _end(device, capture.stream)
            if graph is not None:
                graph_call(device, "graph_destroy", graph)
            assert Status.OK not in (statuses[0], ended), (
                f"{device}: {what} returned {status_name(statuses[0])}, and capture_end {status_name(ended)}: both fail"
            )


_unharmed = pytest.mark.parametrize(
    ("mode", "thread"),
    [(CaptureMode.THREAD_LOCAL, "other"), (CaptureMode.RELAXED, "same"), (CaptureMode.RELAXED, "other")],
    ids=lambda value: value if isinstance(value, str) else value.name,
)


@promise("tb_graph_table 3.2")
@needs.table("kernels.1")
@_unharmed
def test_modules_come_and_go_during_a_capture(library: DeviceLibrary, mode: CaptureMode, thread: str) -> None:
    """A capture whose mode lets unsafe calls be survives that a module is loaded, launched elsewhere and unloaded."""
    for modules in modules_of(library):
        written: list[int] = []

        def use(modules: Modules = modules, into: list[int] = written) -> None:
            with modules.device.stream() as aside, modules.module(constant_source(modules.language, "4711")) as module:
                into.append(modules.constant(module, aside))

        with _capture(modules.device, mode) as capture:
            if thread == "same":
                use()
            else:
                in_threads([use])
            assert written == [4711], f"{modules}: a module that was loaded during a capture wrote {written}"
            _expect_good(capture, f"module_unload in the {thread} thread during a {mode.name} capture")


_Judged = tuple[Callable[[], bool], Callable[[], bool]]
"""A call, and a look at memory when the capture has ended; each says whether all is well."""


def _synchronize(device: Device, stream: int, stack: ExitStack) -> _Judged:
    if "device_synchronize" not in device.library.core:
        needs.not_offered("the device library leaves the slot device_synchronize unset")
    done: list[bool] = []
    host_function(device, lambda: done.append(True), stream)

    def call() -> bool:
        device.library.check("device_synchronize", device.index)
        return bool(done)

    return call, lambda: True


def _unload(device: Device, stream: int, stack: ExitStack) -> _Judged:
    if "kernels.1" not in device.library.tables:
        needs.not_offered("the device library has no table kernels.1")
    modules = next(each for each in modules_of(device.library) if each.device == device)
    address, loaded = stack.enter_context(memory(device, 4)), stack.enter_context(ExitStack())
    module = loaded.enter_context(modules.module(constant_source(modules.language, "4711")))
    modules.enqueue(modules.function(module, "write_value"), Launch([Pointer(address)]), stream)

    def call() -> bool:
        loaded.close()
        return True

    return call, lambda: int.from_bytes(device.read(address, 4, stream), "little") == 4711


@promise("device_synchronize 1, module_unload")
@needs.slot("stream_host_function")
@pytest.mark.parametrize("joins", [False, True], ids=["captured", "joins"])
@pytest.mark.parametrize("prepare", [_synchronize, _unload], ids=["device_synchronize", "module_unload"])
def test_what_a_stream_had_before_a_capture_is_waited_for(
    library: DeviceLibrary, prepare: Callable[[Device, int, ExitStack], _Judged], joins: bool
) -> None:
    """device_synchronize and module_unload let complete what a stream had before it was captured, or joined one."""
    for device in library.devices:
        with device.stream() as first, device.stream() as second:
            for hold in brief_holds(device, second if joins else first):
                if _expect_waited_for(device, (first, second), hold, prepare, joins):
                    break


def _expect_waited_for(
    device: Device,
    streams: tuple[int, int],
    hold: Hold,
    prepare: Callable[[Device, int, ExitStack], _Judged],
    joins: bool,
) -> bool:
    """Whether there was something to wait for, which the hold decides."""
    first, second = streams
    with ExitStack() as stack:
        fork, join = (stack.enter_context(device.event()) for _ in range(2))
        with hold:
            call, look = prepare(device, second if joins else first, stack)
            graph_call(device, "capture_begin", first, CaptureMode.RELAXED)
            if joins:
                device.record(fork, first)
                device.wait_event(fork, second)
            was_held = not hold.ended
            waited = call()
            if joins:
                device.record(join, second)
                device.wait_event(join, first)
            status, graph, reason = _end(device, first)
        assert waited, f"{device}: the call came back before the stream's work of before the capture was complete"
        assert status == Status.OK, f"{device}: after the call capture_end returned {status_name(status)}: {reason}"
        graph_call(device, "graph_destroy", graph)
        assert look(), f"{device}: a launch that was pending before the capture has not written what it should"
        return was_held


@promise("tb_graph_table 3.2 3.3")
@_modes
def test_memory_is_allocated_during_a_capture(library: DeviceLibrary, mode: CaptureMode) -> None:
    """memory_allocate works while a stream records; neither that nor a request that is too large harms the capture."""
    for device in library.devices:
        with _capture(device, mode) as capture:
            with pytest.raises(DeviceError):
                device.allocate(_IMPOSSIBLE_BYTES)
            address = device.allocate(_SIZE)
            _expect_good(capture, "memory_allocate during a capture")
            device.free(address, _SIZE)


@promise("memory_commit 7")
@needs.capability("VIRTUAL_MEMORY")
@_modes
def test_memory_is_committed_during_a_capture(library: DeviceLibrary, mode: CaptureMode) -> None:
    """memory_commit and memory_decommit work while a stream records, and do not harm the capture."""
    for device in library.devices:
        size = device.properties.commit_granularity_bytes
        with _capture(device, mode) as capture, device.reservation(size) as address:
            device.commit(address, size)
            device.decommit(address, size)
            _expect_good(capture, "memory_commit during a capture")


@promise("tb_graph_table 2.2, capture_end 2")
@_modes
def test_any_thread_takes_part_in_a_capture(library: DeviceLibrary, mode: CaptureMode) -> None:
    """What another thread enqueues is recorded, and another one may end the capture."""
    for device in library.devices:
        with _capture(device, mode) as capture:

            def copy(of: _Capture = capture) -> None:
                of.device.library.bind(of.device.index)
                of.device.copy(of.last, of.dst, _SIZE, CopyKind.DEVICE_TO_DEVICE, of.stream)

            def end(of: _Capture = capture) -> None:
                of.device.library.bind(of.device.index)
                _expect_good(of, "capture_end in another thread")

            in_threads([copy])
            in_threads([end])
            expect_bytes(
                device.read(capture.last, _SIZE),
                pattern(_SIZE),
                f"{device}: a launch of a copy that another thread has enqueued during the capture",
            )
