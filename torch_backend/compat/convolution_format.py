"""``torch._C._conv_determine_backend_memory_format``: tracing knows how the device lays out convolutions' results.

PyTorch has a rule for each kind of convolution of its own devices. That of out-of-tree devices is "overrideable", for
which it answers "contiguous" whatever the device does; ours is by channels if an argument is, convolution_format in
csrc/ops/dispatch/ResultRules.cpp. All versions up to 2.15. A convolution by channels asks the function; once PyTorch
answers so for overrideable convolutions, nothing is changed and this file may go.
"""

from typing import Any


def replace(name: str) -> None:
    """Let the function answer for convolutions on the device ``name``, if it does not."""
    import torch

    overrideable = torch._C._ConvBackend.Overrideable  # type: ignore[attr-defined]
    original: Any = torch._C._conv_determine_backend_memory_format
    image = torch.empty(1, 2, 2, 2, device="meta", memory_format=torch.channels_last)
    if original(image, image, overrideable) is torch.channels_last:
        return

    def determine(input: torch.Tensor, weight: torch.Tensor, backend: object) -> torch.memory_format:
        if backend != overrideable or input.device.type != name:
            chosen: torch.memory_format = original(input, weight, backend)
            return chosen
        from torch._prims_common import suggest_memory_format

        formats = {suggest_memory_format(input), suggest_memory_format(weight)}
        by_channels = torch.channels_last if input.dim() == 4 else torch.channels_last_3d
        return by_channels if by_channels in formats else torch.contiguous_format

    torch._C._conv_determine_backend_memory_format = determine
