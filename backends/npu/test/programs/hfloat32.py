"""HFLOAT32 is what a program allows."""

import torch

x = torch.full((2, 2), 1 + 2**-13)
one, image, kernel = torch.eye(2).to("npu"), torch.full((1, 1, 4, 4), 1 + 2**-13), torch.ones(1, 1, 1, 1)


def exact() -> tuple[bool, bool]:
    """Products, and convolutions."""
    products = (x.to("npu") @ one).cpu().equal(x)
    return products, torch.conv2d(image.to("npu"), kernel.to("npu")).cpu().equal(image)


assert exact() == (True, False)
torch.set_float32_matmul_precision("high")
torch.backends.cudnn.allow_tf32 = False
assert exact() == (False, True)
