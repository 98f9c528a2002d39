"""Products of groups of rows, or of the depth, whose ends only the device knows (torch.nn.functional.grouped_mm)."""

import pytest
import torch
from conftest import DEVICE, values

LIMITS = {torch.float32: 1e-5, torch.bfloat16: 2**-7, torch.float16: 2**-10}


def expected(left, right, ends=None):
    """In float64. Rows of no group are 0."""
    left, right = left.double(), right.double()
    if ends is None:
        return left @ right
    parts = list(zip([0, *ends.tolist()[:-1]], ends.tolist(), strict=True))
    if left.dim() == 2 and right.dim() == 2:
        return torch.stack([left[:, begin:end] @ right[begin:end] for begin, end in parts])
    if right.dim() == 2:
        return expected(right.mT, left.mT, ends).mT
    result = left.new_zeros(left.shape[0], right.shape[-1])
    for n, (begin, end) in enumerate(parts):
        result[begin:end] = left[begin:end] @ right[n]
    return result


def close(result, wanted, dtype):
    limit = LIMITS[dtype]
    torch.testing.assert_close(result.cpu().double(), wanted, rtol=limit, atol=limit, equal_nan=True)


def product(left, right, ends=None):
    there = [None if x is None else x.to(DEVICE) for x in (left, right, ends)]
    return torch._grouped_mm(there[0], there[1], offs=there[2])


ENDS = {
    "even": [16, 32, 48, 64],
    "uneven": [3, 3, 60, 64],
    "first and last empty": [0, 1, 64, 64],
    "rows of none": [5, 9, 9, 33],
    "nothing": [0, 0, 0, 0],
}


@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_groups(dtype, ends):
    ends = torch.tensor(ends, dtype=torch.int32)
    rows, experts = values(64, 24, dtype=dtype) / 5, values(4, 24, 40, dtype=dtype)
    close(product(rows, experts, ends), expected(rows, experts, ends), dtype)
    close(product(rows, experts.mT.contiguous().mT, ends), expected(rows, experts, ends), dtype)
    close(product(experts.mT, rows.mT, ends), expected(experts.mT, rows.mT, ends), dtype)
    others = values(64, 40, dtype=dtype)
    close(product(rows.mT, others, ends), expected(rows.mT, others, ends), dtype)
    close(product(rows.mT.contiguous(), others, ends), expected(rows.mT, others, ends), dtype)


def test_many_rows_and_few():
    """Larger than tiles, of sizes that are no multiples of theirs, and a row or two for each group."""
    for rows, groups, depth, columns in ((700, 3, 130, 200), (9, 64, 520, 72), (1, 5, 33, 8), (40, 16, 1030, 136)):
        ends = torch.randint(0, rows + 1, (groups,)).sort().values.int()
        ends[-1] = rows
        left, right = values(rows, depth) / depth**0.5, values(groups, depth, columns)
        close(product(left, right, ends), expected(left, right, ends), torch.float32)
        close(product(left, right.mT.contiguous().mT, ends), expected(left, right, ends), torch.float32)


def test_batches_and_sizes_of_nothing():
    left, right = values(3, 17, 24), values(3, 24, 40)
    close(product(left, right), expected(left, right), torch.float32)
    ends = torch.tensor([0, 0], dtype=torch.int32)
    assert product(values(0, 8), values(2, 8, 16), ends).shape == (0, 16)
    assert product(values(4, 0), values(2, 0, 16), ends).eq(0).all()
    assert product(values(4, 8), values(0, 8, 16), ends[:0]).eq(0).all()
    assert product(values(8, 0), values(0, 16), ends).eq(0).all()


def test_any_strides_and_ends():
    """What is not aligned, expanded or reversed in order; ends that lead nowhere are those of empty groups."""
    rows, experts = values(33, 50)[1:, 1:49:2], values(1, 24, 41).expand(3, 24, 41)
    ends = torch.tensor([[7, 0], [9, 0], [32, 0]], dtype=torch.int32)
    got = torch._grouped_mm(rows.to(DEVICE), experts.to(DEVICE)[:, :, 1:], offs=ends.to(DEVICE)[:, 0])
    close(got, expected(rows, experts[:, :, 1:], ends[:, 0]), torch.float32)
    close(product(rows, experts, torch.tensor([-3, 9, 1000], dtype=torch.int32)),
          expected(rows, experts, torch.tensor([0, 9, 32])), torch.float32)  # fmt: skip


def test_what_is_not_finite_stays_in_its_group():
    rows, experts = values(12, 16), values(2, 16, 24)
    rows[0, 0], rows[1, 1], experts[0, 0, 1] = torch.nan, torch.inf, -torch.inf
    ends = torch.tensor([5, 12], dtype=torch.int32)
    close(product(rows, experts, ends), expected(rows, experts, ends), torch.float32)


@pytest.mark.parametrize("transposed", [False, True])
def test_gradients(transposed):
    ends = torch.tensor([3, 3, 60, 64], dtype=torch.int32)
    rows, experts = values(64, 24) / 5, values(4, 24, 40)
    there = [x.to(DEVICE).requires_grad_() for x in (rows, experts.mT.contiguous() if transposed else experts)]
    result = torch.nn.functional.grouped_mm(there[0], there[1].mT if transposed else there[1], offs=ends.to(DEVICE))
    (grad_rows, grad_experts) = torch.autograd.grad(result, there, result.detach())
    leaves = [x.double().requires_grad_() for x in (rows, experts)]
    wanted = expected(*leaves, ends)
    wanted_rows, wanted_experts = torch.autograd.grad(wanted, leaves, wanted.detach())
    close(grad_rows, wanted_rows, torch.float32)
    close(grad_experts.mT if transposed else grad_experts, wanted_experts, torch.float32)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"self": values(8, 16, dtype=torch.float64)}, "Expected mat_a to be Float32, BFloat16 or Float16 matrix"),
        ({"self": values(8, 16, dtype=torch.bfloat16)}, "to have the same dtype, but got: BFloat16 != Float"),
        ({"self": values(8)}, "mat_a has to be 2 or 3d"),
        ({"mat2": values(2, 15, 24)}, "contraction dimension of mat_a and mat_b must match"),
        ({"offs": None}, "Have to provide offsets if there is a 2d matrix"),
        ({"offs": torch.tensor([3, 8])}, "Offsets have to be int32"),
        ({"offs": torch.tensor([8], dtype=torch.int32)}, "matrix batch sizes have to match"),
        ({"offs": torch.tensor([[3, 8]], dtype=torch.int32)}, "offs has to be 1D"),
        ({"bias": values(24)}, "Bias not supported yet"),
        ({"out_dtype": torch.bfloat16}, "output dtype must match `mat_a` dtype"),
    ],
)
def test_groups_that_there_are_not(change, says):
    given = {"self": values(8, 16), "mat2": values(2, 16, 24), "offs": torch.tensor([3, 8], dtype=torch.int32)} | change
    there = {name: value.to(DEVICE) if isinstance(value, torch.Tensor) else value for name, value in given.items()}
    with pytest.raises(RuntimeError, match=says):
        torch.ops.aten._grouped_mm(**there)
