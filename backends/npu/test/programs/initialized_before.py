"""By the time that the device starts, another library has initialized AscendCL."""

import ctypes
import os

import torch

acl = ctypes.CDLL(os.environ["TORCH_BACKEND_NPU_PATH"] + "/libascendcl.so")
assert acl.aclInit(None) == 0
assert (torch.ones(2, device="npu") + 1).tolist() == [2, 2]
