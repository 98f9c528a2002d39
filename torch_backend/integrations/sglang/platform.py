"""What SGLang asks of a device."""

from typing import Any

import torch
from sglang.srt.platforms.interface import PlatformEnum, SRTPlatform

from torch_backend.integrations.host_memory import share_of_memory
from torch_backend.integrations.sglang import LIBRARY

if reason := LIBRARY.not_tried():
    raise RuntimeError(
        f"torch_backend does not serve by this SGLang: {reason}. Install one that was tried, or set "
        "TORCH_BACKEND_INTEGRATIONS=-sglang to serve without the device."
    )

_NAME = torch._C._get_privateuse1_backend_name()
_device: Any = getattr(torch, _NAME)
_SHARE = 0.85  # of the device's memory for weights and cache: what is left is a step's


class DevicePlatform(SRTPlatform):
    """The active device, without Triton, compilation or graphs."""

    _enum = PlatformEnum.OOT
    device_name = device_type = _NAME

    def apply_server_args_defaults(self, server_args: Any) -> None:
        if server_args.mem_fraction_static is None:
            server_args.mem_fraction_static = _SHARE * share_of_memory(_NAME)

    def get_default_attention_backend(self) -> str:
        return "torch_native"

    def get_device(self, device_id: int | None = None) -> str:
        return _NAME if device_id is None else f"{_NAME}:{device_id}"

    def set_device(self, device: torch.device) -> None:
        torch.accelerator.set_device_index(device)

    def get_device_name(self, device_id: int = 0) -> str:
        name: str = _device.get_device_name(device_id)
        return name

    def get_device_capability(self, device_id: int = 0) -> None:
        """None: the numbers mean NVIDIA's."""

    def get_device_total_memory(self, device_id: int = 0) -> int:
        total: int = _device.get_device_properties(device_id).total_memory
        return total

    def get_available_memory(self, device_id: int = 0) -> tuple[int, int]:
        free, total = _device.mem_get_info(device_id)
        return free, total

    def get_current_memory_usage(self, device: torch.device | None = None) -> float:
        peak: int = _device.max_memory_allocated(device)
        return peak

    def empty_cache(self) -> None:
        _device.empty_cache()

    def synchronize(self) -> None:
        _device.synchronize()

    def get_group_coordinator_device(self, local_rank: int) -> torch.device:
        return torch.device(_NAME, local_rank)
