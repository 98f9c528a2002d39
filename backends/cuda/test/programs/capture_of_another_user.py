import ctypes

import torch
from _driver import driver, enter_context_of

x = torch.ones(2, device="xcuda")
enter_context_of(1)  # such as torch.cuda's
stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
assert driver.cuStreamCreateWithPriority(ctypes.byref(stream), 1, 0) == 0
assert driver.cuStreamBeginCapture_v2(stream, 0) == 0
y = torch.empty(64 << 20, dtype=torch.uint8, device="xcuda")
z = torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True)
assert (x.exp() > 2).all()
assert driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
