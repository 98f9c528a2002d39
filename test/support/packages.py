"""A package of AOTInductor, and tests of it for devices of every kind. To compile one takes longer than its tests."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.export import Dim, export


class Model(torch.nn.Module):
    """A little of everything."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 16)
        self.narrow = torch.nn.Linear(16, 16).bfloat16()
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x: Any, across: Any, index: Any, changed: Any) -> dict[str, Any]:
        self.calls.add_(1)
        changed.mul_(2)
        hidden = self.linear(x).relu()
        return {
            "hidden": hidden,
            "half": self.narrow(hidden.bfloat16()),
            "across": across.softmax(0),
            "row": x[index],
            "changed": changed + 1,
            "same": index,
            "view": x[0],
            "calls": self.calls.clone(),
            "nothing": across.new_zeros(0, 2),
            "dropout": torch.nn.functional.dropout(torch.ones_like(across), training=True),
        }


def inputs(rows: int = 7) -> list[torch.Tensor]:
    x = torch.randn(rows, 4)
    x[rows // 2 :, 0] = torch.nan
    return [x, torch.randn(50, 6).t(), torch.tensor([0, 0]), torch.arange(6.0)]


def on(device: str, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copies on the device, the last one as a view with gaps."""
    *others, last = (tensor.to(device) for tensor in tensors)
    return [*others, last.new_zeros(last.numel(), 2)[:, 0].copy_(last)]


@pytest.fixture(scope="module", name="path")
def a_package(name: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    rows = {0: Dim("rows")}
    program = export(Model().to(name), tuple(on(name, inputs())), dynamic_shapes=(rows, None, None, None))
    place = str(tmp_path_factory.mktemp("package") / "model.pt2")
    options = {"aot_inductor.compile_wrapper_opt_level": "O0"}
    return torch._inductor.aoti_compile_and_package(program, package_path=place, inductor_configs=options)


def load(path: str, **options: Any) -> Any:
    return torch._inductor.aoti_load_package(path, **options)


def test_results_are_those_of_the_cpu(name: str, path: str) -> None:
    """With other sizes, what changes its inputs and itself, views, no elements, NaN."""
    model, package = Model(), load(path)
    for rows in (7, 2, 64):
        here = inputs(rows)
        there = on(name, here)
        results = package(*there)
        expected = model(*here)
        for key in expected.keys() - {"dropout"}:
            assert results[key].device == there[0].device
            torch.testing.assert_close(results[key].cpu(), expected[key], equal_nan=True)
        for tensor, same in zip(there, here, strict=True):
            torch.testing.assert_close(tensor.cpu(), same, equal_nan=True)
        assert results["same"] is there[2]
        assert results["view"].data_ptr() == there[0].data_ptr()
        assert set(results["dropout"].unique().tolist()) == {0.0, 2.0}


def test_memory_and_random_numbers_are_those_of_the_device(name: str, path: str, backend: ModuleType) -> None:
    package, given = load(path), on(name, inputs())
    package(*given)
    before = backend.memory_allocated()
    results = package(*given)
    new = [results[key] for key in results.keys() - {"same", "view"}]
    assert backend.memory_allocated() - before >= sum(tensor.nbytes for tensor in new)
    del results, new
    assert backend.memory_allocated() == before

    def dropout(seed: int) -> Any:
        torch.manual_seed(seed)
        return package(*given)["dropout"]

    assert torch.equal(dropout(3), dropout(3))
    assert not torch.equal(dropout(3), dropout(4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: lambda x: x.cpu()}, r"Input 0 .*'xcpu float32 \[\?,4\] contiguous'.* is on cpu"),
        ({0: lambda x: x.double()}, "of float64, "),
        ({0: lambda x: x.t().contiguous().t()}, r"\[7, 4\] with strides \[1, 7\]"),
        ({1: lambda x: x.contiguous()}, r"Input 1 .*\[6,50\] \[1,6\]"),
        ({1: lambda x: x[:3]}, r"Input 1 .*\[3, 50\]"),
        ({0: lambda x: x.to("xcpu:1")}, r"loaded for, xcpu:0\. It is on xcpu:1"),
    ],
)
def test_inputs_that_it_was_not_compiled_for_are_refused(
    name: str, path: str, change: dict[int, Any], message: str, two_devices: None
) -> None:
    given = [change.get(index, lambda x: x)(tensor) for index, tensor in enumerate(on(name, inputs()))]
    with pytest.raises(ValueError, match=message.replace("xcpu", name)):
        load(path)(*given)


def test_a_device_is_chosen_when_a_package_is_loaded(name: str, path: str, two_devices: None) -> None:
    results = load(path, device_index=1)(*on(f"{name}:1", inputs()))
    assert {tensor.device.index for tensor in results.values()} == {1}
    with pytest.raises(ValueError, match="loaded for"):
        load(path)(*on(f"{name}:1", inputs()))
    with pytest.raises(IndexError, match="100"):
        load(path, device_index=100)


def test_constants_are_replaced(name: str, path: str) -> None:
    """By copies, and by tensors that others go on using."""
    package, given = load(path), on(name, inputs())
    given[0].fill_(1)
    bias = Model().linear.bias.detach().to(name)

    def expected(weight: torch.Tensor) -> torch.Tensor:
        return (weight.sum(1) + bias).relu().expand(7, 16)

    weight = torch.randn(4, 16, device=name).t().contiguous()
    package.load_constants({"linear.weight": weight}, check_full_update=False)
    copied = weight.clone()
    weight.zero_()
    torch.testing.assert_close(package(*given)["hidden"], expected(copied))
    package.load_constants({"linear.weight": weight}, check_full_update=False, user_managed=True)
    weight.normal_()
    torch.testing.assert_close(package(*given)["hidden"], expected(weight))
    package.load_constants({"linear.weight": copied.cpu()}, check_full_update=False)
    torch.testing.assert_close(package(*given)["hidden"], expected(copied))


def test_a_program_on_the_cpu_stays_there(tmp_path: Path) -> None:
    """Packages of others are not the device's."""
    x = torch.randn(3, 4)
    model = torch.nn.Linear(4, 2)
    place = str(tmp_path / "model.pt2")
    torch._inductor.aoti_compile_and_package(export(model, (x,)), package_path=place)
    torch.testing.assert_close(load(place)(x), model(x))
