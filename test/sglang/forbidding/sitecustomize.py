"""Every process of the engine begins with this: an operator that falls back is an error."""

import torch_backend

torch_backend.fallback.set_policy(None, "error")
