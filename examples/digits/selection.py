"""From what the user asked for to a device that can be used."""

import torch

import torch_backend


def select_device(name: str | None) -> torch.device:
    """The device ``name``, activated if need be; the current accelerator for None, or the CPU if there is none.

    Raises ValueError, saying what there is, if there is no such device.
    """
    if name is None:
        return torch.accelerator.current_accelerator() or torch.device("cpu")
    kind = name.split(":")[0]
    accelerator = torch.accelerator.current_accelerator()
    if kind != "cpu" and (accelerator is None or accelerator.type != kind):
        try:
            torch_backend.activate(kind)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, IndexError) as error:
        raise ValueError(f"The device '{name}' cannot be used: {error}") from error
