"""What the dispatcher has registered for an operator overload."""

import torch

COMPOSITE_KEYS = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def schema(overload: str) -> torch._C.FunctionSchema:
    """The schema of ``overload``, "aten::add.Tensor"."""
    name, _, suffix = overload.partition(".")
    return torch._C._get_schema(name, suffix)


def has_kernel(overload: str, key: str) -> bool:
    """Whether a kernel is registered for exactly this key."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(overload, key)


def composite_key(overload: str) -> str | None:
    """The key under which PyTorch has a kernel made of other operators, None if it has none."""
    return next((key for key in COMPOSITE_KEYS if has_kernel(overload, key)), None)


def registration(overload: str, key: str) -> str | None:
    """What the kernel in force for ``key`` says of itself: its label, or where it was registered."""
    for line in torch._C._dispatch_dump(overload).splitlines():
        if line.startswith(f"{key}: "):
            return line.removeprefix(f"{key}: ").split(" :: ")[0]
    return None


def has_tag(overload: str, tag: torch.Tag) -> bool:
    """Whether the schema of ``overload`` carries ``tag``."""
    name, _, suffix = overload.partition(".")
    return tag in torch._C._get_operation_overload(name, suffix)[2]
