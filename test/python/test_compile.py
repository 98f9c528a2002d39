"""What torch.compile is told of the device: when, what, and what it then says. Most tests need a fresh interpreter."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from fixtures import RunPython
from torch._dynamo.variables import TensorVariable

from torch_backend.compat.after_import import after_import

XCPU = {"TORCH_BACKEND": "xcpu"}


def test_activation_does_not_import_the_compiler(run_python: RunPython) -> None:
    run_python(
        """
        import sys, torch
        torch.ones(3, device="xcpu")
        loaded = [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))]
        assert not loaded, loaded
        """,
        env=XCPU,
    )


@pytest.mark.parametrize("compiler_first", [False, True])
def test_the_compiler_knows_the_device(run_python: RunPython, compiler_first: bool) -> None:
    before, after = ("import torch._dynamo", "") if compiler_first else ("", "import torch._dynamo")
    run_python(
        f"""
        import torch, torch_backend
        {before}
        torch_backend.activate("xcpu")
        {after}
        from torch._dynamo.device_interface import get_interface_for_device
        interface = get_interface_for_device("xcpu")
        assert get_interface_for_device("xcpu:1") is interface
        assert torch.compile(lambda x: x * 2, backend="aot_eager", fullgraph=True)(
            torch.ones(2, device="xcpu:1")).tolist() == [2, 2]
        """,
        warnings=["error::RuntimeWarning"],
    )


@pytest.mark.parametrize(
    ("seam", "options"),
    [
        ("compile_fx.fx_codegen_and_compile", {}),
        ("output_code.CompiledFxGraph.after_deserialization", {}),
        ("codegen.simd.SIMDKernel.codegen_body", {"modules": "1"}),
    ],
)
def test_a_seam_that_is_gone_is_named(run_python: RunPython, seam: str, options: dict[str, str]) -> None:
    """Graphs then run as captured, and those of the CPU are compiled."""
    process = run_python(
        f"""
        import torch, torch_backend
        import torch._inductor.compile_fx, torch._inductor.codegen.simd
        del torch._inductor.{seam}
        torch_backend.activate("xcpu", options={options})
        run = torch.compile(lambda x: x.sin() + 1)
        print(run(torch.zeros(3, device="xcpu")).tolist(), run(torch.zeros(2, device="xcpu")).tolist())
        """,
    )
    assert process.stdout == "[1.0, 1.0, 1.0] [1.0, 1.0]\n"
    assert process.stderr.count("graphs of xcpu as captured") == 1
    assert f"torch._inductor.{seam} is not there" in process.stderr


def test_modules_say_which_parameter_is_gone(run_python: RunPython) -> None:
    """Of the function that takes their pass over graphs."""
    process = run_python(
        """
        import torch, torch_backend
        import torch._inductor.compile_fx
        from torch._inductor.codegen import common
        common.register_backend_for_device = lambda device, device_scheduling, device_wrapper_codegen: None
        torch_backend.activate("xcpu", options={"modules": "1"})
        print(torch.compile(lambda x: x + 1)(torch.zeros(2, device="xcpu")).tolist())
        """,
    )
    assert process.stdout == "[1.0, 1.0]\n"
    assert process.stderr.count("device_fx_wrapper_codegen, device_custom_pass, as it was in torch") == 1


def test_what_there_is_not_is_said(run_python: RunPython) -> None:
    """Once, also of graphs from the cache: graphs of the device around compiled graphs, and streams."""
    process = run_python(
        """
        import torch
        x = torch.ones(3, device="xcpu")
        def by_two(x):
            return x * 2
        def waits(x):
            torch.xcpu.synchronize()
            return x * 3
        for _ in range(2):
            torch.compiler.reset()
            print(torch.compile(by_two, mode="reduce-overhead")(x).tolist(), torch.compile(waits)(x).tolist())
        (graph,) = torch._dynamo.explain(waits)(x).graphs
        print(any(str(node.target).startswith("streams.") for node in graph.graph.nodes))
        """,
        env=XCPU,
    )
    *lines, waits_in_graph = process.stdout.splitlines()
    assert lines == ["[2.0, 2.0, 2.0] [3.0, 3.0, 3.0]"] * 2
    assert process.stderr.count("captures no graphs of xcpu in graphs of the device") == 1
    assert process.stderr.count("a compiled graph is one call on xcpu as it is") == 1
    # What torch 2.11 captures is a function of Python, which AOTAutograd calls once and leaves out.
    assert process.stderr.count("graphs of xcpu as captured") == (waits_in_graph == "True")


def test_a_graph_is_one_item_on_the_stream(run_python: RunPython) -> None:
    """The call returns before it has run; its errors and its memory are as those of other work."""
    run_python(
        """
        import time, torch
        x = torch.ones(1024, device="xcpu")
        run = torch.compile(lambda x: (x * 2 + 1, x))
        run(x)
        torch.xcpu.synchronize()
        before = torch.xcpu.memory_allocated()
        begin = time.perf_counter()
        y = x
        for _ in range(10):
            y, same = run(y)
        enqueued = time.perf_counter() - begin
        assert not torch.xcpu.current_stream().query()
        assert y.unique().tolist() == [2047.0]
        assert time.perf_counter() - begin > 1 > enqueued, enqueued
        assert torch.xcpu.memory_allocated() == before + 2 * x.nbytes
        y = torch.compile(lambda x: (x * 2).view(32, 32).unbind(0)[:2])(x)
        assert y[0].untyped_storage().data_ptr() == y[1].untyped_storage().data_ptr()
        """,
        env=XCPU | {"TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "100000"},
    )


def test_inputs_of_every_kind(run_python: RunPython) -> None:
    """One compiled function, called with what it was not called with before; its stand-ins may outlive the call."""
    run_python(
        """
        import torch
        kept = []
        @torch.library.custom_op("torch_backend_test::keep", mutates_args=())
        def keep(x: torch.Tensor) -> torch.Tensor:
            kept.append(x)
            return x.clone()
        keep.register_fake(torch.empty_like)
        run = torch.compile(keep)
        for number in range(3):
            assert run(torch.full((1000,), float(number), device="xcpu")).unique().tolist() == [number]
        rest = [torch.full((1000,), 9.0, device="xcpu") for _ in range(3)]
        assert [x[0].item() for x in kept] == [0, 1, 2]
        rest = kept = None

        triple = torch.compile(lambda x: (x * 3, x.view_as(x)), dynamic=False)
        x = torch.arange(64.0, device="xcpu").view(8, 8)
        before = torch.xcpu.memory_allocated()
        for each in (x, x.t(), x[2:6, 1:], x[3:7, :7].clone(), x[2:6, 1:], x[4:, :7], x.double(), x[:0, 1:2]):
            for _ in range(2):
                result, view = triple(each)
                assert torch.equal(result.cpu(), each.cpu() * 3)
                assert view.data_ptr() == each.data_ptr()
        with torch.inference_mode():
            assert torch.equal(triple(x.clone())[0].cpu(), x.cpu() * 3)
        del each, result, view
        assert torch.xcpu.memory_allocated() == before

        parts = torch.compile(lambda x: (x * 2).unbind(0))(x)
        assert len({part.untyped_storage().data_ptr() for part in parts}) == 1

        x.requires_grad_()
        torch.compile(torch.sgn)(x).sum().backward()  # the graph returns zeros that are in no memory
        assert x.grad.device == x.device and not x.grad.any()
        """,
        env=XCPU,
    )


WAYS = {
    "at once": {},
    "on a stream": {"TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "0-2000"},
    "kernels": {"TORCH_BACKEND_XCPU_MODULES": "1"},
    "kernels on a stream": {
        "TORCH_BACKEND_XCPU_MODULES": "1",
        "TORCH_BACKEND_XCPU_ASYNC": "1",
        "TORCH_BACKEND_XCPU_DELAY_US": "0-2000",
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_storages_are_resized_in_a_graph(run_python: RunPython, way: str) -> None:
    """As those of sharded parameters are: memory comes and goes in the graph, for all tensors on the storage."""
    run_python(
        """
        import torch

        def gathered(part, whole):
            whole.untyped_storage().resize_(8 * part.numel())
            whole.copy_(torch.cat([part, part]))
            return whole.sin()

        def freed(whole):
            doubled = whole * 2
            whole.untyped_storage().resize_(0)
            return doubled

        part = torch.arange(512.0, device="xcpu")
        whole = torch.empty(1024, device="xcpu")
        view = whole[512:]
        whole.untyped_storage().resize_(0)
        before = torch.xcpu.memory_allocated()
        gather, free = torch.compile(gathered, fullgraph=True), torch.compile(freed, fullgraph=True)
        with torch.no_grad():
            for number in range(4):
                result = gather(part + number, whole)
                assert whole.untyped_storage().nbytes() == 4096
                expected = torch.arange(512.0).add(number).repeat(2)
                torch.testing.assert_close(result.cpu(), expected.sin())
                assert torch.equal(whole.cpu(), expected)
                assert torch.equal(view.cpu(), expected[512:])
                assert torch.equal(free(whole if number % 2 else whole.detach()).cpu(), expected * 2)
                assert whole.untyped_storage().nbytes() == view.untyped_storage().nbytes() == 0
        del result
        torch.xcpu.synchronize()
        assert torch.xcpu.memory_allocated() == before
        """,
        env=XCPU | WAYS[way],
    )


@pytest.mark.parametrize("way", WAYS)
def test_operators_that_the_device_alone_has(run_python: RunPython, way: str) -> None:
    """They write lists, what may be None and what is given by name, and take an object that nobody looks into."""
    run_python(
        """
        import torch
        from torch._library.opaque_object import get_opaque_type_name, register_opaque_type
        from torch._opaque_base import OpaqueBase

        class Name(OpaqueBase):
            def __init__(self, value):
                self.value = value
            def __eq__(self, other):
                return isinstance(other, Name) and other.value == self.value
            def __hash__(self):
                return hash(self.value)
            def __fx_repr__(self):
                return f"Name({self.value!r})", {"Name": Name}

        register_opaque_type(Name, typ="value", hoist=True)
        library = torch.library.Library("alone", "DEF")
        arguments = "Tensor x, Tensor(a!)? into, Tensor(b!)[] all, {} name, *, Tensor(c!) out"
        library.define(f"add_({arguments.format(get_opaque_type_name(Name))}) -> ()")

        def add_(x, into, all, name, *, out):
            assert x.device.type == "xcpu", x.device
            for tensor in (into, *all, out):
                if tensor is not None:
                    tensor.add_(x * len(name.value))

        library.impl("add_", add_, "PrivateUse1")
        torch.library.register_fake("alone::add_", lambda *args, **kwargs: None, lib=library)

        def run(x, into, name):
            parts, out = [x * 2, x * 3], x * 4
            torch.ops.alone.add_(x + 1, into, parts, name, out=out)
            return (*parts, out, *(() if into is None else (into * 1,)))

        x = torch.arange(5.0, device="xcpu")
        for into in (None, x * 5):
            right = run(x, None if into is None else into.clone(), Name("abc"))
            got = torch.compile(run, fullgraph=True)(x, None if into is None else into.clone(), Name("abc"))
            torch.testing.assert_close(got, right, rtol=0, atol=0)
        """,
        env=XCPU | WAYS[way],
    )


def test_a_device_that_nothing_generates_code_for(run_python: RunPython) -> None:
    """Its graphs run as captured, forward and backward; one warning says why."""
    process = run_python(
        """
        import copy, torch
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
        twin = copy.deepcopy(model).to("fake")
        fast = torch.compile(twin, fullgraph=True, mode="max-autotune")
        for size in (3, 5):
            x = torch.linspace(-1, 1, 4 * size).view(size, 4)
            model(x).square().sum().backward()
            fast(x.to("fake")).square().sum().backward()
        for weight, other in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(other.grad.cpu(), weight.grad)
        print(torch.compile(lambda x: x.sort().values)(torch.tensor([2, 1], device="fake")).tolist())
        """,
        env={"TORCH_BACKEND": "fake"},
    )
    assert process.stdout == "[1, 2]\n"
    assert process.stderr.count("RuntimeWarning: torch.compile") == 1
    why = "the host cannot access the memory of fake, and it compiles no kernels."
    assert f"graphs of fake as captured, which is what backend='aot_eager' does: {why}" in process.stderr


def test_a_vendors_own_code_generation_is_left_alone(run_python: RunPython) -> None:
    run_python(
        """
        import torch
        torch.xcpu.Scheduling = torch.xcpu.PythonWrapperCodegen = torch.xcpu.CppWrapperCodegen = object
        torch.xcpu.WrapperFxCodegen = object
        from torch._inductor.codegen import common
        common.init_backend_registration()
        assert common.get_scheduling_for_device("xcpu") is object
        """,
        env=XCPU,
    )


def test_a_registration_that_fails_is_a_warning(run_python: RunPython) -> None:
    process = run_python(
        """
        import sys, torch
        sys.modules["torch_backend.compile.device_interface"] = None
        import torch._dynamo
        print(torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(1, device="xcpu")).item())
        """,
        env=XCPU,
    )
    assert process.stdout == "2.0\n"
    assert "RuntimeWarning: torch.compile cannot be told all about xcpu: ModuleNotFoundError" in process.stderr


def test_every_member_of_the_interface_answers(name: str, backend: ModuleType) -> None:
    from torch._dynamo.device_interface import DeviceInterface, get_interface_for_device

    interface = get_interface_for_device(name)
    asked = {member for member in vars(DeviceInterface) if not member.startswith("__")}
    sentinels = {"device", "Event", "Stream", "Worker"}
    assert sentinels <= asked
    stream = backend.current_stream()
    arguments: dict[str, tuple[object, ...]] = {
        "set_device": (0,),
        "maybe_exchange_device": (0,),
        "exchange_device": (0,),
        "get_cpp_device_options": (False, False),
        "stream": (stream,),
        "set_stream": (stream,),
        "_set_stream_by_id": (stream.stream_id, stream.device_index, stream.device_type),
        "get_raw_stream": (0,),
        "is_dtype_supported": (torch.float32,),
    }
    for member in sorted(asked - sentinels - {"raise_if_triton_unavailable"}):
        answer = getattr(interface, member)(*arguments.get(member, ()))
        if member == "is_dtype_supported":
            assert answer is True
    with pytest.raises(RuntimeError, match=f"no code for {name}"):
        interface.raise_if_triton_unavailable()
    for kind in (interface.device(0), interface.Event(), interface.Stream()):
        assert kind is not None
    assert interface.Worker.get_device_properties(f"{name}:0") == backend.get_device_properties(0)
    assert interface.Worker.current_device() == backend.current_device()


def test_functions_that_end_a_graph_say_why(backend: ModuleType, recwarn: pytest.WarningsRecorder) -> None:
    torch.compiler.reset()

    def run(x: torch.Tensor) -> torch.Tensor:
        backend.set_device(0)
        x = x + backend.memory_allocated()
        backend.empty_cache()
        return x + 1

    x = torch.zeros(2)
    assert torch.equal(torch.compile(run, backend="aot_eager")(x), run(x))
    assert not [warning for warning in recwarn if "does not know how to trace" in str(warning.message)]
    torch.compiler.reset()
    with pytest.raises(Exception, match="not in the graph"):
        torch.compile(lambda x: (backend.set_device(0), x + 1)[1], backend="aot_eager", fullgraph=True)(x)


@pytest.mark.skipif(
    not hasattr(TensorVariable, "method_record_stream"),
    reason="this version of torch follows no class that makes objects of another one",
)
def test_events_are_made_in_the_graph(name: str, backend: ModuleType) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        done = backend.Event()
        side = backend.Stream()
        x = x + 1
        done.record(backend.current_stream())
        side.wait_event(done)
        with backend.stream(side):
            x = x * 2
        backend.current_stream().wait_event(side.record_event())
        return x + 1

    torch.compiler.reset()
    x = torch.ones(1000, device=name)
    assert torch.compile(run, backend="aot_eager", fullgraph=True)(x).unique().tolist() == [5]


def test_after_import_calls_at_once_what_is_late() -> None:
    called = []
    after_import("sys", lambda: called.append("sys"))
    assert called == ["sys"]


def test_after_import_calls_in_order_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "torch_backend_test_waited_for"
    (tmp_path / f"{module}.py").write_text("import sys\nvalue = sys.modules[__name__].__loader__ is not None\n")
    monkeypatch.syspath_prepend(tmp_path)
    called: list[int] = []
    for number in (1, 2):
        after_import(module, lambda n=number: called.append(n))  # type: ignore[misc]
    assert not called
    imported = __import__(module)
    try:
        assert called == [1, 2]
        assert imported.value
        assert type(imported.__loader__).__name__ == "SourceFileLoader"
        assert imported.__spec__.loader is imported.__loader__
    finally:
        del sys.modules[module]
    __import__(module)
    del sys.modules[module]
    assert called == [1, 2]
