"""Packages of AOTInductor whose code has kernels that the device compiles."""
# ruff: noqa: F401, F811 - pytest finds fixtures by the names of arguments

import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import DEVICE, to_device, to_host
from fixtures import RunPython, backend, name, run_python, template, two_devices
from packages import (
    Model,
    a_package,
    inputs,
    load,
    on,
    test_a_device_is_chosen_when_a_package_is_loaded,
    test_a_program_on_the_cpu_stays_there,
    test_constants_are_replaced,
    test_inputs_that_it_was_not_compiled_for_are_refused,
    test_memory_and_random_numbers_are_those_of_the_device,
    test_results_are_those_of_the_cpu,
)
from torch import nn
from torch.nn import functional as F

OPTIONS = {"aot_inductor.compile_wrapper_opt_level": "O0"}


class Operators(nn.Module):
    """What is called in each of the ways that code has."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = nn.Conv2d(2, 4, 3)
        self.recurrent = nn.LSTM(3, 4, batch_first=True)
        self.scale = nn.Parameter(torch.tensor(2.5))
        self.tied = self.scale
        self.register_buffer("few", torch.tensor([1, -1, 2]))
        self.register_buffer("calls", torch.zeros(2))
        self.register_buffer("across", torch.arange(6.0).view(2, 3).t())

    def forward(self, x: Any, image: Any, index: Any, number: Any) -> dict[str, Any]:
        self.calls.add_(1)
        query = image.flatten(2).transpose(1, 2)[:, None]
        written = x.clone()
        written[:, index] = x[:, index] * 2
        sequence = x[None, :, :3]
        return {
            "convolution": self.convolution(image.to(memory_format=torch.channels_last)),
            "recurrent": self.recurrent(sequence)[0],
            "attention": F.scaled_dot_product_attention(query, query, query, is_causal=True),
            "scaled": x * self.scale / self.tied + number,
            "few": sequence * self.few,
            "written": written,
            "put": x.index_put((index,), x[: index.numel()], accumulate=True),
            "scattered": x.scatter(1, index[None].expand(len(x), -1), 3.0).scatter_add(0, index[None, :2], x[:1, :2]),
            "reduced": x.scatter_reduce(1, index[None].expand(len(x), -1), x, "amax"),
            "sorted": x.sort(-1).values,
            "spectrum": torch.view_as_real(torch.fft.rfft(x) * 2),
            "branch": torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)),
            "made": torch.arange(len(x), device=x.device) + torch.full((1,), 7, device=x.device),
            "special": torch.special.zeta(x.abs() + 2, 3.0),
            "calls": self.calls.clone(),
            "summed": self.across.sum(0),  # as large as what is changed above and not read again
            "bits": x.view(torch.int32) & 0xFF,
            "viewed": (x.view(torch.int32) & -2).view(torch.float32) @ x.t(),
            "whole": index // -2,
        }


def arguments() -> tuple[torch.Tensor, ...]:
    x = torch.randn(5, 6)
    x[0, :2] = torch.tensor([torch.nan, torch.inf])
    return x, torch.randn(1, 2, 5, 5), torch.tensor([4, 0, 2]), torch.tensor(0.25)


def packaged(module: nn.Module, given: tuple[Any, ...], place: Path) -> Any:
    program = torch.export.export(module.to(DEVICE), given)
    return load(torch._inductor.aoti_compile_and_package(program, package_path=str(place), inductor_configs=OPTIONS))


def test_operators(tmp_path: Path) -> None:
    *others, number = arguments()
    package = packaged(Operators(), (*to_device(others), number), tmp_path / "model.pt2")
    model = Operators()
    for _ in range(3):
        *others, number = given = arguments()
        expected = model(*given)
        results = package(*to_device(others), number)
        for key, value in expected.items():
            torch.testing.assert_close(
                to_host(results[key]), value, equal_nan=True, msg=lambda text, key=key: f"{key}: {text}"
            )


def test_weights_are_updated_in_the_same_memory(path: str, name: str, backend: Any) -> None:
    """However often."""
    package, given = load(path), on(name, inputs())
    given[0].fill_(1)
    weights = {key: value.to(name) for key, value in Model().state_dict().items()}

    def hidden() -> torch.Tensor:
        return package(*given)["hidden"]

    first = hidden()
    package.load_constants(weights, check_full_update=True)
    before = backend.memory_allocated()
    for turn in range(3):
        weights["linear.weight"].fill_(turn)
        package.load_constants(weights, check_full_update=True)
    assert backend.memory_allocated() == before
    doubled = hidden()
    torch.testing.assert_close(doubled, (8 + weights["linear.bias"]).relu().expand(7, 16))
    assert not torch.equal(first, doubled)
    for options in ({}, {"user_managed": True}):
        with pytest.raises(ValueError, match=r"linear_weight has to be of .*\[16, 4\]"):
            package.load_constants({"linear.weight": torch.ones(3, device=name)}, check_full_update=False, **options)
    torch.testing.assert_close(hidden(), doubled)


def test_many_threads(path: str, name: str) -> None:
    package = load(path)
    errors: list[BaseException] = []

    def call(thread: int) -> None:
        try:
            with torch.Stream(name):
                for turn in range(20):
                    value = float(thread * 100 + turn)
                    _, across, index, changed = on(name, inputs())
                    x = torch.full((3, 4), value, device=name)
                    results = package(x, across, index, changed.fill_(value))
                    x.zero_()
                    assert results["row"].tolist() == [[value] * 4] * 2
                    assert results["changed"].tolist() == [2 * value + 1] * 6
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(thread,)) for thread in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_what_cannot_be_packaged_is_said() -> None:
    a = torch.ones(3, device=DEVICE)
    with pytest.raises(Exception, match=f"no library alone for {DEVICE}"):
        torch._inductor.aot_compile(torch.export.export(nn.ReLU(), (a,)).module(), (a,))


@pytest.mark.skipif(DEVICE != "xcpu", reason="another kind of device is xcpu's other mode")
def test_a_device_of_another_kind_is_refused(run_python: RunPython, path: str) -> None:
    here = os.environ["TORCH_BACKEND_XCPU_MODULES"]
    other = "1" if here == "side_by_side" else "side_by_side"
    for modules, message in ((other, "for a device of another kind"), ("0", "and xcpu compiles none")):
        run_python(
            f"""
            import torch
            try:
                torch._inductor.aoti_load_package({path!r})
            except NotImplementedError as error:
                assert {message!r} in str(error), error
            else:
                raise AssertionError("not refused")
            """,
            env={"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_MODULES": modules},
        )
