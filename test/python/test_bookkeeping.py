"""What the core and the package do for themselves is no operator of the user's: modes and profilers see none."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from fixtures import RunPython
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from torch_backend import fallback


class Operators(TorchDispatchMode):
    """Notes what is called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def functions(backend: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """All of the device module, torch.accelerator and the fallback's that take no arguments."""
    for owner in (backend, torch.accelerator, fallback):
        for name, function in inspect.getmembers(owner, inspect.isroutine):
            try:
                parameters = inspect.signature(function).parameters.values()
            except ValueError:
                continue
            optional = [p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters]
            if not name.startswith("__") and all(optional):
                yield f"{owner.__name__}.{name}", function


def fork(name: str) -> None:
    with torch.random.fork_rng(device_type=name):
        torch.manual_seed(3)


def use_events(name: str) -> None:
    first, second = (torch.Event(name, enable_timing=True) for _ in range(2))
    first.record()
    second.record()
    second.synchronize()
    first.elapsed_time(second)
    second.wait()


def use_streams(name: str) -> None:
    stream = torch.Stream(name)
    stream.wait_stream(torch.accelerator.current_stream())
    with stream:
        stream.synchronize()


def use_autocast(name: str) -> None:
    with torch.autocast(name):
        pass


@pytest.fixture
def acts(backend: Any, name: str) -> dict[str, Callable[[], Any]]:
    """What can be done that is no operator, by name."""
    generator, state, x = torch.Generator(name), torch.Generator(name).get_state(), torch.ones(9, device=name)
    given = dict(functions(backend)) | {
        "get_state": generator.get_state,
        "set_state": lambda: generator.set_state(state),
        "clone_state": generator.clone_state,
        "graphsafe_set_state": lambda: generator.graphsafe_set_state(generator.graphsafe_get_state()),
        "set_offset": lambda: generator.set_offset(generator.get_offset()),
        "set_rng_state_all": lambda: backend.set_rng_state_all([state]),
        "seed": generator.seed,
        "manual_seed": lambda: torch.manual_seed(3),
        "fork_rng": lambda: fork(name),
        "events": lambda: use_events(name),
        "streams": lambda: use_streams(name),
        "storage": lambda: torch.UntypedStorage(64, device=name).resize_(128),
        "data_ptr": x.data_ptr,
        "autocast": lambda: use_autocast(name),
        "GradScaler": lambda: torch.amp.GradScaler(name).state_dict(),
    }
    possible = {}
    for what, act in given.items():
        try:
            act()
        except NotImplementedError:
            continue  # what the vendor's package would have to bring
        possible[what] = act
    assert len(possible) > 60
    return possible


def in_dispatch_mode(act: Callable[[], Any]) -> list[str]:
    with Operators() as operators:
        act()
    return operators.seen


def in_fake_mode(act: Callable[[], Any]) -> list[str]:
    with FakeTensorMode():
        result = act()
    return [str(x) for x in tree_leaves(result) if isinstance(x, FakeTensor)]


def in_vmap(act: Callable[[], Any]) -> list[str]:
    seen: list[str] = []
    torch.func.vmap(lambda x: (seen.extend(in_dispatch_mode(act)), x)[1])(torch.ones(2))
    return seen


def in_grad(act: Callable[[], Any]) -> list[str]:
    seen: list[str] = []
    torch.func.grad(lambda x: (seen.extend(in_dispatch_mode(act)), x)[1])(torch.ones(()))
    return seen


def in_profile(act: Callable[[], Any]) -> list[str]:
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        act()
    return [event.name for event in profiled.events() if event.name.startswith("aten::")]


@pytest.mark.parametrize("where", [in_dispatch_mode, in_fake_mode, in_vmap, in_grad, in_profile])
@pytest.mark.filterwarnings("ignore")
def test_nobody_sees_bookkeeping(acts: dict[str, Callable[[], Any]], where: Callable[..., list[str]]) -> None:
    seen = {}
    for what, act in acts.items():
        try:
            seen[what] = where(act)
        except Exception as error:
            seen[what] = [f"{type(error).__name__}: {error}"]
    assert {what: operators for what, operators in seen.items() if operators} == {}


def test_states_of_fake_tensors_are_real(backend: Any, name: str) -> None:
    """So that what is recomputed in a checkpoint draws the same numbers."""
    before = backend.get_rng_state()
    with FakeTensorMode():
        x = torch.ones(3, 4, device=name, requires_grad=True)
        checkpoint(torch.nn.functional.dropout, x, use_reentrant=False).sum().backward()
        assert backend.get_rng_state().tolist() == before.tolist()


MODES = {
    "sync": {},
    "async": {"TORCH_BACKEND_XCPU_ASYNC": "1"},
    "modules": {"TORCH_BACKEND_XCPU_MODULES": "1"},
}


@pytest.mark.parametrize("mode", MODES)
def test_operators_show_no_copies_of_the_core(run_python: RunPython, mode: str) -> None:
    """A profiler sees the operator, whatever memory its values go through, also when its result is first foreseen."""
    run_python(
        """
        import torch
        from torch.profiler import ProfilerActivity, profile
        x, h = torch.ones(3, 4, device="xcpu"), torch.ones(3, 4)
        y = torch.ones(3, 4, device="xcpu:1", dtype=torch.float64)
        copy, copied = torch.Tensor.copy_, ["aten::copy_", "aten::_copy_from"]
        layer_norm = torch.ops.aten.native_layer_norm
        calls = [
            (copied, copy, h, x),
            (copied, copy, h[:, ::2], x[:, 1::2]),
            (copied, copy, h.double(), x),
            (copied, copy, x[:, ::2], h.t().contiguous().t()[:, 1::2]),
            (copied, copy, x[:, ::2], h.double()[:, 1::2]),
            (copied, copy, x[:, ::2], x[:, 1::2]),
            (copied, copy, x[1:, 1:3], x[:-1, :2]),
            (copied, copy, y[:, ::2], x[:, 1::2]),
            (["aten::item", "aten::_local_scalar_dense"], torch.Tensor.item, x[1, 1]),
            (["aten::fill_"], torch.Tensor.fill_, x, 3),
        ]
        if MODE != "sync":  # there the CPU's kernel runs in the call, and calls other operators
            calls.append((["aten::roll"], torch.roll, x, 1))
            calls.append((["aten::native_layer_norm"], layer_norm, x, (4,), None, None, 0))
        for wanted, function, *arguments in calls:
            with profile(activities=[ProfilerActivity.CPU]) as profiled:
                function(*arguments)
            names = [event.name for event in profiled.events() if event.name.startswith("aten::")]
            assert names == wanted, (names, [x.stride() for x in arguments if isinstance(x, torch.Tensor)])
        """.replace("MODE", repr(mode)),
        env={"TORCH_BACKEND": "xcpu", **MODES[mode]},
    )
