import torch
from torch_conformance import bare

library, _ = bare.open_library("xcuda")
print(library.properties(0).driver_version.decode(), (torch.ones(2, device="xcuda") + 1).tolist())
