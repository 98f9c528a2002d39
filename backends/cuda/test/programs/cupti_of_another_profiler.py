import ctypes
import os

import torch
from _trace import measured, trace

cupti = ctypes.CDLL(os.environ["TORCH_BACKEND_XCUDA_LIBRARY_PATH"] + "/libcupti.so.12")
callback, subscriber = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(lambda *_: None), ctypes.c_void_p()
assert cupti.cuptiSubscribe(ctypes.byref(subscriber), callback, None) == 0
x = torch.ones(2, device="xcuda")
assert measured(trace(lambda: x + 1)) == ["device events"]
assert cupti.cuptiUnsubscribe(subscriber) == 0
assert measured(trace(lambda: x + 1)) == ["device trace"]
