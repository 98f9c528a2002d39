import torch
from _trace import measured, trace

x = torch.ones(2, device="xcuda")
assert measured(trace(lambda: x + 1)) == ["device events"]
