"""What is registered for the device with the dispatcher."""

import torch

from torch_backend import _C

REGISTRATION_KEYS = ("PrivateUse1", "AutogradPrivateUse1", "AutocastPrivateUse1")
"""The dispatch keys of a device: its kernels, what runs before them for gradients, and for autocast."""


def registrations() -> dict[str, tuple[str, ...]]:
    """By dispatch key of :data:`REGISTRATION_KEYS`, the operator overloads that somebody registered a kernel for.

    Only registrations for the device itself: what PyTorch has for all devices (its formulas for gradients, say) is not
    listed.
    """
    listed = torch._C._dispatch_get_registrations_for_dispatch_key
    return {key: tuple(sorted(listed(key))) for key in REGISTRATION_KEYS}


def register_plugin_kernel(op: str) -> list[str]:
    """Use the device library's kernel for an operator that was defined after the device was activated.

    Operators that are defined before need no such call. ``op`` is an overload as the device library names it
    ("acme::scale", "acme::scale.out"). The kernel serves the other forms of the operator too: functional, ``out=`` and
    in place.

    Returns the overloads that it serves from now on, none if it did so before. Raises ValueError if the operator is not
    defined or the device library has no kernel that can serve it, and RuntimeError if no device is active or somebody
    else has registered a kernel for it.
    """
    return _C.register_plugin_kernel(op)
