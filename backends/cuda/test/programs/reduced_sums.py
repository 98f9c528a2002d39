"""Sums of four parts, each one more than the type can hold, but for the last."""

import sys

import torch

dtype = getattr(torch, sys.argv[1])
kind, base = {"float16": ("fp16", 2048), "bfloat16": ("bf16", 256)}[sys.argv[1]]
parts = torch.full((4, 256), base / 256)
parts[:, 0] += torch.tensor([1, 1, 1, -3])
x = parts.reshape(1, 1024).to(dtype).to("xcuda")
for allowed in (False, True):
    setattr(torch.backends.xcuda.matmul, f"allow_{kind}_reduced_precision_reduction", allowed)
    is_exact = (x @ torch.ones(1024, 1, dtype=dtype).to("xcuda")).item() == base * 4
    assert is_exact != allowed
