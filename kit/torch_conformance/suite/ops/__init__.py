"""Level ops: PyTorch's operators on the device, against the CPU."""
