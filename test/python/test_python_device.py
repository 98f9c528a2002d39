"""Devices written in Python: how they are named and loaded, what becomes of what they raise, threads and processes."""

import re
import subprocess
from pathlib import Path

import pytest
import python_devices
from fixtures import UNASKED, RunPython, VendorPackage, run_program
from python_devices import Failing

import torch_backend
from torch_backend.abi import Device, DeviceError, DeviceLibrary, LibraryError, Status
from torch_backend.files import location
from torch_backend.python_device import (
    DeviceLost,
    DeviceProperties,
    InternalError,
    NotReady,
    OutOfMemory,
    PythonDevice,
    host_memory,
)

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXAMPLE = ROOT / "examples" / "python_device"
MAX_EXAMPLE_LINES = 60


@pytest.fixture(scope="module")
def failing() -> Device:
    library = DeviceLibrary.open("python_devices:Failing")
    library.initialize()
    return library.devices[0]


@pytest.fixture
def run(run_python: RunPython) -> RunPython:
    """Run code with python_devices in sight."""

    def run_it(code: str, **keywords: object) -> subprocess.CompletedProcess[str]:
        packages = [HERE, *keywords.pop("packages", ())]
        return run_python(code, packages=packages, **keywords)

    return run_it


# ---- what is raised ----


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (OutOfMemory("all 5 banks are full"), Status.OUT_OF_MEMORY, "all 5 banks are full"),
        (MemoryError(), Status.OUT_OF_MEMORY, "MemoryError"),
        (NotImplementedError("no fills"), Status.UNSUPPORTED, "no fills"),
        (ValueError("100% wrong: %s%n"), Status.INVALID_ARGUMENT, "100% wrong: %s%n"),
        (DeviceLost("gone"), Status.DEVICE_LOST, "gone"),
        (NotReady(), Status.NOT_READY, ""),
        (TimeoutError("no answer in 5 s"), Status.TIMEOUT, "no answer in 5 s"),
        (InternalError("ECC"), Status.INTERNAL, "ECC"),
        (DeviceError("copy", Status.TIMEOUT, "late"), Status.TIMEOUT, "copy failed with TIMEOUT: late"),
        (ValueError("zero\0byte é"), Status.INVALID_ARGUMENT, "zero\\0byte é"),
        (SystemExit(3), Status.INTERNAL, "SystemExit: 3"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_what_is_raised_becomes_a_status(failing: Device, error: BaseException, status: int, text: str) -> None:
    with failing.allocation(64) as address:
        Failing.outcome = error
        try:
            assert failing.library.status("memory_fill", 0, address, b"1234", 4, 64, None) == status
        finally:
            Failing.outcome = None
        said = failing.library.error_text()
        assert said == text or (status == Status.INTERNAL and said.startswith(text)), said
        failing.fill(address, b"ab", 64)
        assert failing.read(address, 64) == b"ab" * 32, "the device does not go on after a failure"


def test_other_errors_are_reported_with_their_place(failing: Device) -> None:
    with failing.allocation(64) as address:
        Failing.outcome = KeyError("register 7")
        try:
            with pytest.raises(DeviceError) as caught:
                failing.fill(address, b"1234", 64)
        finally:
            Failing.outcome = None
    assert caught.value.status == Status.INTERNAL
    assert "KeyError: 'register 7'" in caught.value.text
    assert re.search(r"python_devices\.py:\d+ in memory_fill: raise Failing\.outcome", caught.value.text)
    assert "slots.py" not in caught.value.text, "frames of torch_backend tell the author of a device nothing"


def test_unknown_handles_and_kinds_are_refused() -> None:
    library = DeviceLibrary.open("python_devices:Threaded")
    library.initialize()
    assert library.status("stream_synchronize", 0, 0x5550) == Status.INVALID_ARGUMENT
    assert library.error_text() == "0x5550 is no stream"
    with pytest.raises(DeviceError, match="UNSUPPORTED: there is no MemoryKind 77"):
        library.devices[0].allocate(64, kind=77)
    with pytest.raises(DeviceError, match="UNSUPPORTED: there is no EventFlag 0x80"):
        library.devices[0].create_event(flags=0x80)


# ---- what is returned ----


class Wrong(python_devices.Plain):
    name = "wrong"


@pytest.mark.parametrize(
    ("method", "result", "text"),
    [
        ("device_count", "2", "'2' was returned; expected number of devices, 0 to 64, an int"),
        ("device_properties", {"name": "x"}, "{'name': 'x'} was returned; expected DeviceProperties"),
        ("device_properties", DeviceProperties("x" * 64, 1), "name has 64 bytes; at most 63 fit"),
        ("device_properties", DeviceProperties("x", 1, uuid=b"12"), "uuid has 2 bytes; it has 16, or none"),
        ("device_properties", DeviceProperties("x", 1, dtypes=["float31"]), "dtypes are ['float31']; expected some of"),
        ("memory_allocate", None, "None was returned; expected an address, an int"),
        ("memory_allocate", 0, "the address 0 was returned; raise OutOfMemory"),
    ],
)
def test_results_of_the_wrong_kind_are_explained(method: str, result: object, text: str) -> None:
    from torch_backend.abi import host
    from torch_backend.python_device.plugin import entry_of

    cls = type("Wrong", (Wrong,), {method: lambda self, *arguments: result})
    services = host.services()
    library = DeviceLibrary(entry_of(cls)(services))

    def use() -> None:
        library.initialize()
        library.devices[0].allocate(64)

    with pytest.raises(DeviceError) as caught:
        use()
    assert text in caught.value.text
    assert caught.value.call == method


# ---- classes that cannot be loaded ----


class NoName(python_devices.Plain):
    name = None  # type: ignore[assignment]


class BadName(python_devices.Plain):
    name = "Bad-Name"


class BadStart(python_devices.Plain):
    name = "badstart"

    def __init__(self) -> None:
        raise OSError("no driver in /dev")


class NoCopy(PythonDevice):
    name = "nocopy"

    def device_count(self) -> int:
        return 1

    def device_properties(self, device: int) -> DeviceProperties:
        return DeviceProperties("x", 1)


class HalfAsync(python_devices.Plain):
    name = "halfasync"

    def stream_create(self, device: int, priority: int) -> object:
        return object()


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (NoCopy, "NoCopy has no memory_allocate, memory_free and memory_copy; every device needs device_count, "),
        (NoName, "NoName has no name; set the class attribute name"),
        (BadName, "calls its device 'Bad-Name'; a device name is a lower-case letter"),
        (BadStart, "refused to load: OSError: no driver in /dev"),
        (HalfAsync, "stream_create set, but stream_destroy, stream_synchronize"),
        (object(), "load() takes the path of a device library, a PythonDevice, or 'module:Class'; got <object"),
        ("nosuchmodule:Device", "There is no module 'nosuchmodule' for 'nosuchmodule:Device'. Is its folder in"),
        ("python_devices:Gone", "'python_devices:Gone': module 'python_devices' has no attribute 'Gone'"),
        ("python_devices:ALIGNMENT", "got 64"),
    ],
)
def test_what_cannot_be_loaded_says_why(source: object, text: str) -> None:
    with pytest.raises((RuntimeError, ValueError, TypeError, ImportError, AttributeError)) as caught:
        torch_backend.load(source)  # type: ignore[arg-type]
    assert text in str(caught.value)
    if isinstance(source, str):
        with pytest.raises(LibraryError):
            DeviceLibrary.open(source)


def test_options_are_not_there_before_the_device_is_loaded() -> None:
    with pytest.raises(RuntimeError, match=r"Plain has not been loaded.*Give the class to\s+torch_backend"):
        python_devices.Plain()


def test_memory_of_unknown_size(run: RunPython) -> None:
    run("""
        import pytest, torch, torch_backend
        from python_devices import Plain
        from torch_backend.python_device import DeviceProperties

        class Unknown(Plain):
            def device_properties(self, device):
                return DeviceProperties("Unknown")

        torch_backend.activate(Unknown)
        x = torch.ones(1 << 20, device="plain")
        properties = torch.plain.get_device_properties(0)
        assert properties.total_memory == 0 and "total_memory='unknown'" in repr(properties)
        for call in (torch.plain.mem_get_info, torch.plain.device_memory_used,
                     lambda: torch.plain.set_per_process_memory_fraction(0.5)):
            with pytest.raises(NotImplementedError, match="plain:0 does not say how much memory it has"):
                call()
        assert "The device does not say how much memory it has" in torch.plain.memory_summary()
        with pytest.raises(torch.OutOfMemoryError) as raised:
            torch.empty(1 << 40, device="plain")
        assert "capacity" not in str(raised.value) and "bytes left" in str(raised.value), raised.value
    """)


# ---- ways to name one ----


def test_a_class_is_loaded_once(run: RunPython) -> None:
    run("""
        import torch_backend
        from python_devices import Plain, plain_object
        plugin = torch_backend.load(Plain, options={"devices": 2})
        assert plugin is torch_backend.load("python_devices:Plain") is torch_backend.load(Plain)
        assert plugin.path == "python_devices:Plain" and plugin.version == "2.1", plugin
        assert torch_backend.activate("python_devices:Plain") is plugin
        assert torch_backend.activate(Plain) is plugin
        assert torch_backend.activate("plain") is plugin, "a loaded device is found by its name"
        import torch
        assert torch.plain.device_count() == 2
        x = torch.arange(5, device="plain:1") * 2
        assert x.tolist() == [0, 2, 4, 6, 8] and x.to("plain:0").tolist() == x.tolist()
        try:
            torch_backend.load(Plain, options={"devices": 3})
        except RuntimeError as error:
            assert "come too late" in str(error), error
        else:
            raise AssertionError("late options are accepted")
        other = torch_backend.load(plain_object)
        assert other is torch_backend.load(plain_object) and other is not plugin and other.device_count() == 3
    """)


def test_torch_backend_names_a_class(run: RunPython) -> None:
    done = run(
        "import torch; print(torch.ones(2, device='plain:1').sum().item())",
        env={"TORCH_BACKEND": "python_devices:Plain", "TORCH_BACKEND_PLAIN_DEVICES": "2"},
    )
    assert done.stdout == "2.0\n"
    assert not done.stderr


def test_misspelt_options_are_told(run: RunPython) -> None:
    done = run("import torch", env={"TORCH_BACKEND": "python_devices:Plain", "TORCH_BACKEND_PLAIN_DEVICE": "2"})
    assert "has no option 'TORCH_BACKEND_PLAIN_DEVICE'. It has: devices, memory" in done.stderr


def test_an_entry_point_gives_a_class(run: RunPython, vendor_package: VendorPackage) -> None:
    body = "from python_devices import Plain\n\nclass Acme(Plain):\n    name = 'acme'\n"
    site = vendor_package("acme", body, attribute="Acme")
    done = run("import torch; print(torch.ones(2, device='acme') + 1)", packages=[site], env=UNASKED)
    assert done.stdout == "tensor([2., 2.], device='acme:0')\n"


@pytest.mark.parametrize(
    ("body", "env"),
    [
        ("import nosuchdriver", UNASKED),
        ("import sys; sys.exit(5)", {"TORCH_BACKEND": "acme_torch:Acme"}),
        ("class Acme: pass", {"TORCH_BACKEND": "acme_torch:Acme"}),
    ],
    ids=["import", "exit", "class"],
)
def test_a_broken_package_leaves_torch_alone(
    run: RunPython, vendor_package: VendorPackage, body: str, env: dict[str, str | None]
) -> None:
    site = vendor_package("acme", body, attribute="Acme")
    done = run("import torch; print(torch.ones(1).item())", packages=[site], env=env)
    assert done.stdout == "1.0\n"
    assert done.stderr.count("RuntimeWarning") == 1, done.stderr


def test_the_command_line_takes_a_class() -> None:
    for arguments, code, said in (
        (["doctor", "numpy_device:NumpyDevice"], 0, "numpy_device:NumpyDevice: 1 device, tensors work."),
        (["doctor", "numpy_device:Nothing"], 1, "has no attribute 'Nothing'"),
    ):
        # As the console script does, which has no folder of its own in sys.path.
        script = f"import sys; sys.path.pop(0); import torch_backend.__main__ as m; sys.exit(m.main({arguments}))"
        done = run_program("python", "-c", script, cwd=EXAMPLE, code=code, COLUMNS="200")
        assert said in done.stdout, done.stdout + done.stderr


def test_places_are_told_from_names() -> None:
    assert all(map(location.is_place, ("./a.so", "/lib/a.so", "acme.device:Device", "acme:Outer.Inner")))
    assert not any(map(location.is_place, ("acme", "acme:0", "acme:", ":Device", "a b:C")))
    assert location.folder("python_devices:Plain") == HERE, "expectations.toml lies beside the module"
    assert location.folder("nosuchmodule:Device") is None
    assert location.name_in("python_devices:Plain") == "plain"
    assert location.name_in("nosuchmodule:Device") is None


# ---- in torch ----


def test_failures_reach_the_user(run: RunPython) -> None:
    run("""
        import torch, torch_backend
        from python_devices import Losable
        torch_backend.activate(Losable, options={"devices": 2})
        a, b = torch.ones(3, device="losable:0"), torch.ones(3, device="losable:1")
        Losable.lost = True
        for _ in range(2):
            try:
                a.cpu()
            except torch.AcceleratorError as error:
                assert "losable:0" in str(error), error
            else:
                raise AssertionError("a lost device answers")
        Losable.lost = False
        assert b.tolist() == [1, 1, 1], "the other device went as well"
    """)


def test_kernels(run: RunPython) -> None:
    done = run("""
        import torch, torch_backend
        import python_devices
        torch_backend.activate(python_devices.Computing, options={"devices": 2})
        calls = python_devices.calls
        x = torch.arange(6.0, device="computing:1").reshape(2, 3)
        calls.clear()
        assert torch.add(x.t(), torch.tensor([10.0, 20.0], device="computing:1"), alpha=2).tolist() == [
            [20, 43], [21, 44], [22, 45]]
        device, stream, a, b, alpha, out = calls.pop()
        assert (device, stream, alpha) == (1, None, 2), (device, stream, alpha)
        assert a.shape == b.shape == out.shape == (3, 2) and a.strides == (1, 3) and b.strides == (0, 1)
        assert a.dtype == "float32" and a.itemsize == 4 and a.device == 1 and a.address == x.data_ptr()
        assert (x + 1).sum(0).tolist() == [5, 7, 9] and calls[-1] == ((0,), False, None), calls
        assert x.sum(1, keepdim=True, dtype=torch.float64).dtype == torch.float64
        assert calls[-1] == ((1,), True, "float64"), calls
        assert torch.cat([x, x], 1).shape == (2, 6) and torch.cat([x, x], 1)[1, 3:].tolist() == [3, 4, 5]
        assert x.nonzero().tolist() == [[0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
        assert x.nonzero().stride() == (1, 5), "columns, as PyTorch promises"
        assert torch.softmax(x, -1).sum().item() == 2 and ("float32", -1, False) in calls, "left to the next source"
        assert torch.relu(-x).sum().item() == 0 and ("relu", (2, 3)) in calls, "found by name"
        assert (x.double() * 2).sum().item() == 30, "a dtype that the kernel does not take"
        assert (x.bfloat16() + 1).sum().item() == 21, "a dtype that numpy has not"
        try:
            x * 2
        except torch.AcceleratorError as error:
            assert "aten::mul.out failed" in str(error) and "KeyError: 'no such register'" in str(error), error
        else:
            raise AssertionError("a broken kernel works")
    """)
    assert "kernel_find('aten::tanh.out'): RuntimeError: the table is torn" in done.stderr


def test_a_kernel_may_be_told_its_inputs_dtypes_alone(run: RunPython) -> None:
    run("""
        import torch, torch_backend
        import python_devices
        torch_backend.activate(python_devices.Attending)
        calls = python_devices.calls
        x = torch.tensor([[1.0, 3, 2], [6, 5, 4]], device="attending")
        calls.clear()
        assert x.argmax(1).tolist() == [1, 0] and calls == [("largest", "float32", "int64")], calls
        calls.clear()
        assert x.double().argmax(1).tolist() == [1, 0] and calls == [], calls
    """)


def test_attention(run: RunPython) -> None:
    """That a device lists serves PyTorch's, and what it leaves is computed from other operators."""
    run("""
        import torch, torch_backend
        import python_devices
        from torch.nn.functional import scaled_dot_product_attention as attention
        from torch.nn.attention import SDPBackend, sdpa_kernel
        torch_backend.activate(python_devices.Attending)
        calls = python_devices.calls
        torch.manual_seed(0)
        here = [torch.randn(2, 3, 5, 8) for _ in range(3)]
        there = [x.to("attending") for x in here]
        mask = torch.randn(5, 5)
        for options in ({}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": mask}):
            on_device = {key: x.to("attending") if key == "attn_mask" else x for key, x in options.items()}
            calls.clear()
            with torch.no_grad():
                result = attention(*there, **on_device).cpu()
            torch.testing.assert_close(result, attention(*here, **options))
            assert calls == [("attend", False, (2, 3, 0), "float32")], calls  # an output without elements
            calls.clear()
            wanted, got = [], []
            for tensors, found, given in ((here, wanted, options), (there, got, on_device)):
                leaves = [x.clone().requires_grad_() for x in tensors]
                y = attention(*leaves, **given)
                found += [y.detach().cpu(), *(g.cpu() for g in torch.autograd.grad(y, leaves, y.detach()))]
            for one, other in zip(got, wanted):
                torch.testing.assert_close(one, other)
            assert calls == [("attend", True, (2, 3, 32), "float32"), ("attend_backward", (2, 3, 32))], calls
        calls.clear()
        for tensors in ([x.double() for x in there], [x[None] for x in there]):  # not its dtype, not its dimensions
            attention(*tensors)
        torch.testing.assert_close(attention(*(x[0] for x in there)).cpu(), attention(*(x[0] for x in here)))
        # Torch 2.15 makes four dimensions of three.
        assert calls in ([], [("attend", False, (1, 3, 0), "float32")]), calls
        calls.clear()
        attention(*there, dropout_p=0.5)
        with sdpa_kernel(SDPBackend.MATH):
            attention(*there)
        assert calls == [], calls
        q, k = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8)
        shared = attention(*(x.to("attending") for x in (q, k, k)), enable_gqa=True)
        torch.testing.assert_close(shared.cpu(), attention(q, k, k, enable_gqa=True))
        tangent = torch.func.jvp(lambda q: attention(q, *there[1:]), (there[0],), (there[0],))[1]
        with sdpa_kernel(SDPBackend.MATH):
            wanted = torch.func.jvp(lambda q: attention(q, *here[1:]), (here[0],), (here[0],))[1]
        torch.testing.assert_close(tangent.cpu(), wanted)
    """)


def test_kernels_of_several_dtypes_and_of_random_numbers(run: RunPython) -> None:
    run("""
        import torch, torch_backend
        import python_devices
        from torch_backend.python_device import Philox
        torch_backend.activate(python_devices.Computing)
        calls = python_devices.calls
        x = torch.arange(3.0, device="computing")
        calls.clear()
        assert (x - x.long()).tolist() == [0, 0, 0] and calls.pop() == ("float32", "float32", "int64", "float32")
        assert (x - 2).tolist() == [-2, -1, 0] and calls.pop() == ("float32", "float32", 2, "float32")
        assert (x.int() - 0.5).tolist() == [-0.5, 0.5, 1.5] and calls.pop() == ("float32", "int32", 0.5, "float32")
        assert torch.sub(x.double(), x, alpha=2).tolist() == [0, -1, -2]
        assert calls.pop() == ("float64", "float64", "float32", "float64")
        torch.manual_seed(11)
        assert x.bernoulli_(0.25).tolist() == [0, 0, 0] and calls.pop() == (None, 0.25, Philox(11, 0))
        assert x.bernoulli_().tolist() == [256] * 3 and calls.pop() == (None, 0.5, Philox(11, 256))
        own = torch.Generator("computing").manual_seed(2**63)
        x.bernoulli_(generator=own)
        assert calls.pop() == (None, 0.5, Philox(2**63, 0))
    """)


def test_a_convolution_by_channels(run: RunPython) -> None:
    """The kernel's output is laid out as the image, and tracing knows it."""
    run("""
        import torch, torch_backend
        import python_devices
        torch_backend.activate(python_devices.Computing)
        calls = python_devices.calls
        image = torch.arange(96.0).reshape(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
        weight = torch.arange(36.0).reshape(3, 3, 2, 2)
        expected = torch.nn.functional.conv2d(image, weight)
        function = lambda x, w: torch.nn.functional.conv2d(x, w).flatten()
        image, weight = image.to("computing"), weight.to("computing")
        calls.clear()
        actual = torch.nn.functional.conv2d(image, weight)
        assert calls == [("convolve", image.stride(), expected.stride())], calls
        assert actual.stride() == expected.stride()
        torch.testing.assert_close(actual.cpu(), expected)
        compiled = torch.compile(function, backend="aot_eager")(image, weight)
        torch.testing.assert_close(compiled.cpu(), expected.flatten())
    """)


# ---- threads ----


def test_threads_start_the_device_together(run: RunPython) -> None:
    """Each may hold the interpreter's lock while it waits for the one that starts the driver."""
    run(
        """
        import faulthandler
        import torch, torch_backend
        from torch_conformance.threads import in_threads
        faulthandler.dump_traceback_later(60, exit=True)  # a deadlock would hold that lock
        plugin = torch_backend.activate("python_devices:SlowStart")
        uses = (lambda: torch.ones(4, device="slowstart").sum().item(), lambda: torch.slowstart.mem_get_info(),
                lambda: torch.slowstart.get_device_properties(0), plugin.device_count,
                lambda: plugin.device_properties(0).name)  # holds the interpreter's lock
        in_threads(uses * 4)
        """,
    )


def test_threads_share_an_asynchronous_device(run: RunPython) -> None:
    """Streams are made by many threads at once, and backward passes run in threads of the engine."""
    run("""
        import torch, torch_backend
        from torch_conformance.threads import in_numbered_threads
        torch_backend.activate("python_devices:Threaded", options={"devices": 2, "delay": 0.001})

        def use(number):
            device = f"threaded:{number % 2}"
            stream = torch.Stream(device)
            with stream:
                w = torch.full((4,), float(number), device=device, requires_grad=True)
                (w * w).sum().backward()
                copy = w.grad.to("cpu", non_blocking=True)
                event = stream.record_event()
            event.synchronize()
            stream.synchronize()
            assert copy.tolist() == [2.0 * number] * 4

        in_numbered_threads(8, use)
    """)


def test_ctrl_c_arrives(run: RunPython) -> None:
    run("""
        import signal, time
        import torch, torch_backend
        from python_devices import Plain

        class Interrupted(Plain):
            name = "interrupted"
            armed = False

            def memory_copy(self, *arguments):
                if Interrupted.armed:
                    Interrupted.armed = False
                    signal.raise_signal(signal.SIGINT)
                super().memory_copy(*arguments)

        torch_backend.activate(Interrupted)
        x = torch.ones(3, device="interrupted")
        Interrupted.armed = True
        try:
            try:
                x.cpu()
            except torch.AcceleratorError as error:
                assert "memory_copy was interrupted" in str(error), error
            time.sleep(30)
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("Ctrl-C was lost")
        assert x.tolist() == [1, 1, 1]
    """)


# ---- processes ----


def test_a_forked_child_is_refused_and_ends(run: RunPython) -> None:
    run("""
        import os, sys
        import torch, torch_backend
        torch_backend.activate("python_devices:Plain")
        x = torch.ones(3, device="plain")
        child = os.fork()
        if child == 0:
            try:
                x.cpu()
            except RuntimeError as error:
                sys.exit(0 if "forked process" in str(error) else 3)
            sys.exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert x.tolist() == [1, 1, 1]
    """)


@pytest.mark.parametrize("device", ["plain", "threaded"])
def test_the_process_ends_in_order(run: RunPython, device: str) -> None:
    """With tensors alive, work pending, and an exit handler that uses the device."""
    done = run(f"""
        import atexit
        import torch, torch_backend
        torch_backend.activate("python_devices:{device.capitalize()}")
        kept = torch.ones(1000, device="{device}")
        pinned = torch.ones(10).pin_memory().to("{device}", non_blocking=True)
        atexit.register(lambda: print(kept.sum().item()))
        class Cycle: pass
        cycle = Cycle()
        cycle.me, cycle.tensor = cycle, torch.ones(5, device="{device}")
    """)
    assert done.stdout == "1000.0\n"
    assert not done.stderr


def test_calls_leave_nothing_behind(run: RunPython) -> None:
    run("""
        import gc, sys
        import torch, torch_backend
        torch_backend.activate("python_devices:Computing")
        import python_devices

        def work(times):
            for _ in range(times):
                x = torch.ones(8, device="computing")
                torch.cat([x + 1, x]).nonzero().cpu()
                try:
                    x * 2
                except torch.AcceleratorError:
                    pass
            python_devices.calls.clear()
            gc.collect()
            return sys.getallocatedblocks()

        work(50)
        before = work(50)
        after = work(500)
        assert after - before < 500, f"{after - before} objects are left of 500 rounds"
    """)


def test_host_memory_is_checked() -> None:
    with pytest.raises(ValueError, match="There are no 8 bytes at 0x0"):
        host_memory(0, 8)
    assert len(host_memory(0, 0)) == 0


# ---- the example ----


def test_the_example_is_short() -> None:
    lines = (EXAMPLE / "numpy_device.py").read_text().splitlines()
    assert len(lines) <= MAX_EXAMPLE_LINES, f"numpy_device.py has {len(lines)} lines"


def test_the_example_trains(run: RunPython) -> None:
    done = run((EXAMPLE / "train.py").read_text(), packages=[EXAMPLE])
    assert re.match(r"loss \d+\.\d+ -> 0\.", done.stdout), done.stdout
    assert "aten::addmm" in done.stdout, "what ran on the CPU is listed"


def test_the_example_conforms() -> None:
    """A part of level 1; all of levels 1 and 2 take longer than a test should."""
    only = [f"--only=abi/test_{part}.py" for part in ("kernel_table", "copies", "threads")]
    check = ("-m", "torch_backend", "check", "numpy_device:NumpyDevice", "--level", "2", "--quick", "-j1")
    run_program("python", *check, *only, cwd=EXAMPLE)
