"""Ray Train: ``get_device()``, ``prepare_model`` and ``prepare_data_loader`` of a worker that has the device.

A worker has it if it was given a resource of the device's name: ``ScalingConfig(resources_per_worker={"<name>": 1})``,
of as many as ``ray.init(resources={"<name>": torch.accelerator.device_count()})`` has said that there are. Ray lets
others add resources, but not say which device a worker then has. May go once it asks torch.accelerator.
"""

import os
import sys
import warnings
from types import ModuleType
from typing import Any

from torch_backend.integrations.library import Library


def _add_devices(module: ModuleType, device: str) -> None:
    import torch

    for_cuda: Any = module.CUDATorchDeviceManager  # whose code is for the device by now

    class DeviceManager(for_cuda):  # type: ignore[misc]
        """The devices of this process: the CPU if it was given no resource of the device's name."""

        def get_devices(self) -> "list[torch.device]":
            count = int(sys.modules["ray"].get_runtime_context().get_assigned_resources().get(device, 0))
            if count == 0:
                warnings.warn(
                    f"This worker uses the CPU and not the active device '{device}': it was not given the resource "
                    f"'{device}'. Say ray.init(resources={{'{device}': {torch.accelerator.device_count()}}}) and "
                    f"ScalingConfig(resources_per_worker={{'{device}': 1}}).",
                    RuntimeWarning,
                    stacklevel=2,
                )
                return [torch.device("cpu")]
            first = int(os.environ.get("LOCAL_RANK", 0)) * count
            there = torch.accelerator.device_count()
            return [torch.device(device, (first + number) % there) for number in range(count)]

    for name in ("DEFAULT_TORCH_DEVICE_MANAGER_CLS", "CUDATorchDeviceManager"):
        setattr(module, name, DeviceManager)


LIBRARY = Library(
    name="ray",
    versions=("2.50", "3"),
    cuda_code={
        "ray.air._internal.device_manager": ("get_torch_device_manager_by_device_type",),
        "ray.air._internal.device_manager.nvidia_gpu": (),
        "ray.train.torch.config": ("TorchConfigContextManager.__enter__", "_shutdown_torch"),
        "ray.train.v2.torch.train_loop_utils": ("get_devices", "prepare_model"),
    },
    actions={"ray.air._internal.device_manager": _add_devices},
)
