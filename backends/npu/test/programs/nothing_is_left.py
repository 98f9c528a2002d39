"""Of operators: no descriptor, no executor."""

import ctypes
import os

import torch

sim = ctypes.CDLL(os.environ["TORCH_BACKEND_NPU_PATH"] + "/libopapi.so")
x = torch.randn(8, 8, device="npu", requires_grad=True)
torch.cat([x.relu(), x.sum(0, keepdim=True)]).mean().backward()
torch.npu.synchronize()
assert sim.aclSimLiveObjects() == 0
