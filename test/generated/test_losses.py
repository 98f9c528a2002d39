"""Losses."""

import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICE, values

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
LIMITS = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-6},
    torch.float64: {"rtol": 1e-7, "atol": 1e-7},
    torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2},
    torch.float16: {"rtol": 3e-3, "atol": 3e-3},
}


def with_gradient(function):
    def run(x, *others):
        loss = function(x, *others)
        (gradient,) = torch.autograd.grad(loss.sum() * 3, x)
        return loss.detach(), gradient

    return run


REDUCTIONS = ("none", "mean", "sum")
LOSSES = {
    "mse": lambda x, y, how: F.mse_loss(x, y, reduction=how),
    "smooth_l1": lambda x, y, how: F.smooth_l1_loss(x, y, reduction=how, beta=0.7),
    "huber": lambda x, y, how: F.huber_loss(x, y, reduction=how, delta=0.7),
    "bce": lambda x, y, how: F.binary_cross_entropy(x, y, reduction=how),
    "weighted_bce": lambda x, y, how: F.binary_cross_entropy(x, y, y * 3, reduction=how),
}


@pytest.mark.parametrize("how", REDUCTIONS)
@pytest.mark.parametrize("name", LOSSES)
def test_losses_between_elements(check, name, how):
    dtypes = DTYPES if name in ("mse", "huber") else DTYPES[:1]
    for dtype in dtypes:
        x, y = values(13, 37, dtype=dtype).requires_grad_(), values(37, 13, dtype=dtype).t()
        if "bce" in name:
            x, y = x.detach().sigmoid().requires_grad_(), y.sigmoid()
        run = with_gradient(lambda x, y: LOSSES[name](x, y, how))
        check(run, x, y, **LIMITS[dtype])
    check(with_gradient(lambda x, y: LOSSES[name](x, y, how)), torch.tensor(0.75).requires_grad_(), torch.tensor(0.5))


@pytest.mark.parametrize("how", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_nll(check, how, weighted):
    weight = values(7).abs() if weighted else None
    for shape in ((20, 7), (3, 7, 4), (2, 7, 3, 5)):
        x = values(*shape).requires_grad_()
        target = torch.arange(x.numel() // 7).remainder(7).reshape(shape[:1] + shape[2:])
        run = with_gradient(lambda x, t, w, how=how: F.nll_loss(x, t, w, ignore_index=2, reduction=how))
        check(run, x, target, weight, **LIMITS[torch.float32])
    check(
        with_gradient(lambda x, t, w: F.nll_loss(x, t, w, reduction=how)),
        values(7).requires_grad_(),
        torch.tensor(3),
        weight,
    )
    check(lambda x, t: F.nll_loss(x, t, reduction=how), values(9, 7).t().contiguous().t(), torch.arange(9) % 7)
    check(lambda x, t: F.nll_loss(x, t, ignore_index=1, reduction=how), values(5, 7), torch.ones(5, dtype=torch.int64))


def test_nll_of_images_that_are_views(check):
    """Of as many dimensions as cannot be taken together: each number of them has a kernel of its own."""
    for view in (lambda x: x, lambda x: x[:, :, ::2], lambda x: x[:, :, ::2, ::3]):
        x = view(values(2, 3, 4, 6))
        check(lambda x: F.nll_loss(x, torch.ones_like(x[:, 0], dtype=torch.int64), reduction="none"), x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_cross_entropy(check, dtype):
    x, target = values(40, 11, dtype=dtype).requires_grad_(), torch.arange(40) % 11
    check(with_gradient(F.cross_entropy), x, target, **LIMITS[dtype])
    check(with_gradient(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1)), x, target, **LIMITS[dtype])
    check(with_gradient(F.cross_entropy), x, values(40, 11, dtype=dtype).softmax(1), **LIMITS[dtype])


@pytest.mark.parametrize(("target", "how"), [(5, "none"), (-3, "mean"), (4, "sum")])
def test_a_target_that_is_no_class_is_an_error(target, how):
    with pytest.raises((IndexError, RuntimeError), match=f"nll_loss: index {target} is out of range .* size 4"):
        F.nll_loss(values(2, 4).to(DEVICE), torch.tensor([0, target]).to(DEVICE), reduction=how).cpu()
    there = F.nll_loss(values(2, 4).to(DEVICE), torch.tensor([0, 9]).to(DEVICE), ignore_index=9)
    assert there.cpu().isfinite()


@pytest.mark.parametrize("wrong", [1.5, -0.5, float("nan")])
def test_binary_cross_entropy_refuses_what_is_no_probability(wrong):
    values, ones = torch.tensor([0.5, wrong]).to(DEVICE), torch.ones(2).to(DEVICE)
    with pytest.raises(RuntimeError, match="elements of input should be between 0 and 1"):
        F.binary_cross_entropy(values, ones).cpu()
    with pytest.raises(RuntimeError, match="elements of target should be between 0 and 1"):
        F.binary_cross_entropy(ones, values).cpu()


CTC_CASES = {
    "padded": (torch.tensor([[1, 2, 2, 3], [4, 4, 1, 2], [3, 1, 0, 0], [2, 0, 0, 0]]), [4, 4, 2, 0]),
    "concatenated": (torch.tensor([1, 2, 2, 3, 4, 4, 1, 2, 3, 1]), [4, 4, 2, 0]),
    "of int32": (torch.tensor([[1, 2, 2, 3]] * 4, dtype=torch.int32).t().contiguous().t(), [4, 3, 2, 1]),
    "empty": (torch.zeros(4, 0, dtype=torch.int64), [0, 0, 0, 0]),
    "none": (torch.zeros(0, dtype=torch.int64), [0, 0, 0, 0]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lengths", ["lists", "tensors"])
@pytest.mark.parametrize("case", CTC_CASES)
def test_ctc(check, case, lengths, dtype):
    """Of labels that repeat, too few steps of time and none at all."""
    targets, target_lengths = CTC_CASES[case]
    of = torch.tensor if lengths == "tensors" else list

    def losses(x, targets, reduction, zero_infinity, blank):
        leaf = x.detach().requires_grad_()
        result = F.ctc_loss(
            leaf.log_softmax(2),
            *(targets, of([9, 7, 3, 0]), of(target_lengths)),
            blank=blank,
            reduction=reduction,
            zero_infinity=zero_infinity,
        )
        return [result, *torch.autograd.grad(result, leaf, torch.ones_like(result))]

    x = torch.randn(4, 9, 5, generator=torch.Generator().manual_seed(0)).to(dtype).transpose(0, 1)
    for reduction in ("none", "sum", "mean"):
        for zero_infinity in (False, True):
            check(losses, x, targets, reduction, zero_infinity, 0)
    check(losses, x, targets, "none", True, 4 if case == "of int32" else 0)


def test_ctc_of_many_states(check):
    targets = torch.randint(1, 20, (3, 300), generator=torch.Generator().manual_seed(0))
    x = torch.randn(700, 3, 20, generator=torch.Generator().manual_seed(0)).double().log_softmax(2)
    check(F.ctc_loss, x, targets, (700, 650, 620), (300, 10, 1), reduction="none")


def test_ctc_refuses_what_the_cpu_refuses():
    x = torch.zeros(5, 2, 3).log_softmax(2)
    for targets, inputs, lengths, options in (
        (torch.ones(2, 2, dtype=torch.int64), [5, 6], [2, 2], {}),
        (torch.ones(2, 2, dtype=torch.int64), [5, -1], [2, 2], {}),
        (torch.ones(2, 2, dtype=torch.int64), [5, 5], [2, 3], {}),
        (torch.ones(2, 2, dtype=torch.int64), [5, 5], [2, -1], {}),
        (torch.ones(2, 2, dtype=torch.int64), [5], [2, 2], {}),
        (torch.ones(2, 2, dtype=torch.int64), [5, 5], [2], {}),
        (torch.ones(3, 2, dtype=torch.int64), [5, 5], [2, 2], {}),
        (torch.ones(3, dtype=torch.int64), [5, 5], [2, 2], {}),
        (torch.ones(2, 2), [5, 5], [2, 2], {}),
        (torch.ones(2, 2, dtype=torch.int64), [5, 5], [2, 2], {"blank": 3}),
    ):
        with pytest.raises(RuntimeError) as expected:
            torch._ctc_loss(x, targets, inputs, lengths, **options)
        with pytest.raises(RuntimeError) as actual:
            torch._ctc_loss(x.to(DEVICE), targets.to(DEVICE), inputs, lengths, **options)
        named = [str(error.value).split("; but got")[0] for error in (actual, expected)]  # tensors' types follow
        assert named[0] == named[1]


def test_ctc_of_labels_that_are_none():
    x = torch.zeros(5, 1, 3).log_softmax(2)
    with pytest.raises(IndexError, match="_ctc_loss"):
        torch._ctc_loss(x.to(DEVICE), torch.tensor([[1, 3]], device=DEVICE), [5], [2])[0].cpu()
    torch.ones(1, device=DEVICE).cpu()
