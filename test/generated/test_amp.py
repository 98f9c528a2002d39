"""Scaled gradients without the host."""

import pytest
import torch
from conftest import DEVICE


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("bad", [None, float("inf"), float("-inf"), float("nan")])
def test_unscale(dtype: torch.dtype, bad: float | None) -> None:
    shapes = [(3,), (0,), (), (4, 5), (70_000,), *[(n + 1,) for n in range(60)]]
    gradients = [torch.randn(shape).to(dtype) for shape in shapes]
    if bad is not None:
        gradients[4][69_999] = bad
    there = [gradient.to(DEVICE) for gradient in gradients]
    found = torch.zeros((), device=DEVICE)
    torch._amp_foreach_non_finite_check_and_unscale_(there, found, torch.tensor(0.25, device=DEVICE))
    assert found.item() == (bad is not None)
    torch.testing.assert_close([t.cpu() for t in there], [t * 0.25 for t in gradients], equal_nan=True)


@pytest.mark.parametrize("found", [0.0, 1.0])
@pytest.mark.parametrize(("scale", "steps"), [(1024.0, 0), (1024.0, 2), (3e38, 2)])
def test_update_scale(found: float, scale: float, steps: int) -> None:
    def run(device: str) -> tuple[float, int]:
        self = torch.tensor(scale, device=device)
        tracker = torch.tensor(steps, dtype=torch.int32, device=device)
        torch._amp_update_scale_(self, tracker, torch.tensor(found, device=device), 2.0, 0.5, 3)
        return self.item(), int(tracker.item())

    assert run(DEVICE) == run("cpu")


@pytest.mark.parametrize("overflow", [False, True])
def test_scaler(overflow: bool) -> None:
    """A step that overflows changes nothing but the scale, with every kind of optimizer."""
    for options in ({"fused": True}, {"foreach": True}, {"foreach": False}):
        parameter = torch.nn.Parameter(torch.ones(5, device=DEVICE))
        optimizer = torch.optim.SGD([parameter], lr=0.5, **options)
        scaler = torch.amp.GradScaler(DEVICE, init_scale=16.0, growth_interval=1)
        scaler.scale(parameter.new_zeros(())).cpu()
        parameter.grad = torch.full((5,), float("inf") if overflow else 32.0, device=DEVICE)
        scaler.step(optimizer)
        scaler.update()
        assert parameter.detach().cpu().unique().tolist() == [1.0 if overflow else 0.0]
        assert scaler.get_scale() == (8 if overflow else 32)
