"""Prints what the hardware is doing, or why that is not known."""

import torch

names = ("utilization", "memory_usage", "temperature", "power_draw", "clock_rate")
try:
    for device in (0, 1):
        print(*(getattr(torch.xcuda, name)(device) for name in names))
    print(torch.xcuda.list_gpu_processes(1))
    print(torch.xcuda.list_gpu_processes().splitlines()[-1])
except RuntimeError as error:
    print(error)
