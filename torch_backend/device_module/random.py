"""Random numbers: the default generator of each device, its seed and its state.

Generators live on the host, so nothing here starts the driver.
"""

from collections.abc import Iterable, Sequence
from typing import overload

import torch
from torch.types import Device

from torch_backend import _C
from torch_backend.device_module._utils import _existing_device_index
from torch_backend.device_module.devices import device_count, is_available


class _DefaultGenerators(Sequence[torch.Generator]):
    """The default generators by device index; each is made when it is first asked for."""

    @overload
    def __getitem__(self, index: int) -> torch.Generator: ...
    @overload
    def __getitem__(self, index: slice) -> list[torch.Generator]: ...
    def __getitem__(self, index: int | slice) -> torch.Generator | list[torch.Generator]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return _C.default_generator(_existing_device_index(index + len(self) if index < 0 else index))

    def __len__(self) -> int:
        return device_count()


default_generators: Sequence[torch.Generator] = _DefaultGenerators()
"""One torch.Generator per device."""


def _get_generator(device: Device = None) -> torch.Generator:
    """The default generator of ``device``; None is the current device."""
    return _C.default_generator(_existing_device_index(device))


def get_rng_state(device: Device = None) -> torch.Tensor:
    """The state of a device's default generator: a uint8 tensor on the CPU of 16 bytes, seed and offset."""
    return _get_generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """:func:`get_rng_state` of every device."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: torch.Tensor, device: Device = None) -> None:
    """Put back what :func:`get_rng_state` returned. Raises RuntimeError if ``new_state`` is no such state."""
    _get_generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Put back what :func:`get_rng_state_all` returned, one state per device."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the current device's generator. Does nothing without a device."""
    if is_available():
        _get_generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed every device's generator. Does nothing without a device."""
    for index in range(device_count() if is_available() else 0):
        _get_generator(index).manual_seed(int(seed))


def seed() -> None:
    """Seed the current device's generator with a random number. Does nothing without a device."""
    if is_available():
        _get_generator().seed()


def seed_all() -> None:
    """Seed every device's generator with the same random number. Does nothing without a device."""
    if is_available():
        manual_seed_all(_get_generator(0).seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _get_generator().initial_seed()


def _get_rng_state_offset(device: Device = None) -> int:
    """The offset of a device's default generator, in random numbers drawn; a multiple of 4."""
    return _get_generator(device).get_offset()


def _set_rng_state_offset(offset: int, device: Device = None) -> None:
    """Set what :func:`_get_rng_state_offset` returns."""
    _get_generator(device).set_offset(offset)
