import ctypes

import torch
from _driver import driver, enter_context_of

x, y = torch.zeros(2, device="xcuda"), torch.ones(2, device="xcuda:1")
x.to("xcuda:1"), y.to("xcuda")
torch.xcuda.synchronize(0), torch.xcuda.synchronize(1)
enter_context_of(0)
to, source, size = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_size_t(8)
assert driver.cuMemcpyDtoDAsync_v2(to, source, size, None) == 0
assert x.tolist() == [1, 1]
