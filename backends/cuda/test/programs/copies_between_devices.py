import torch

x = torch.arange(1000.0)
assert x.to("xcuda").to("xcuda:1").cpu().equal(x)
