"""What programs compare: results of the device with those of the CPU in double, as closely as the dtype allows."""

import torch

ACCURACY = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}


def drawn(*shape: int, dtype: torch.dtype = torch.float32, last: bool = False) -> torch.Tensor:
    """Random numbers, with channels ``last``."""
    x = torch.randn(shape).to(dtype)
    return x.to(memory_format={4: torch.channels_last, 5: torch.channels_last_3d}[x.dim()]) if last else x


def close(got: torch.Tensor, wanted: torch.Tensor, scale: float = 10) -> None:
    """Assert that they are equal, but for ``scale`` times what rounding does to numbers near 1."""
    accuracy = ACCURACY[got.dtype]
    torch.testing.assert_close(got.cpu().double(), wanted.double(), rtol=scale * accuracy, atol=scale * accuracy)


def upload(x: torch.Tensor, device: str = "xcuda") -> torch.Tensor:
    """As it lies in its memory."""
    whole = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    return whole.to(device).as_strided(x.size(), x.stride(), x.storage_offset())
