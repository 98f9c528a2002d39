"""TF32 is what a program allows, and it may change its mind."""

import sys

import torch
import torch.nn.functional as F

what = sys.argv[1]
x = torch.full((1, 1, 2, 2), 1 + 2**-12)


def is_exact() -> bool:
    if what == "convolutions":
        return F.conv2d(x.to("xcuda"), torch.ones(1, 1, 1, 1).to("xcuda")).cpu().equal(x)
    return (x[0, 0].to("xcuda") @ torch.eye(2).to("xcuda")).cpu().equal(x[0, 0])


for allowed in (False, True, False):
    if what == "convolutions":
        torch.backends.cudnn.allow_tf32 = allowed
    elif what == "products":
        torch.backends.xcuda.matmul.allow_tf32 = allowed
    else:
        torch.set_float32_matmul_precision("high" if allowed else "highest")
    assert is_exact() != allowed
