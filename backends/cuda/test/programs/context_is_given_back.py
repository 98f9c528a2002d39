import torch
from _driver import current, enter_context_of

x = torch.ones(2, device="xcuda")
other = enter_context_of(1)
y = (x + 1).to("xcuda:1").to("xcuda:0") * 2
torch.xcuda.synchronize()
assert y.tolist() == [4, 4]
assert current() == other
