"""What torch.autocast does with single operators of the device, on top of PyTorch's own lists.

PyTorch decides for every operator whether it runs in the lower precision. Where the device knows better::

    torch_backend.autocast.set_policy("aten::linear", "fp32")

A policy holds on this device only, inside ``torch.autocast(<name>)``, for PyTorch's operators and for custom ones.
"""

import threading
from dataclasses import dataclass
from typing import Literal, cast, get_args

import torch  # noqa: F401  # see Note [Import order] in torch_backend/devices/autoload.py

from torch_backend.devices.deferred import when_active
from torch_backend.files import native
from torch_backend.operators import schemas
from torch_backend.operators.removable import Removable

native.require()
from torch_backend import _C  # noqa: E402  # after require(), which explains a failure

Policy = Literal["lower_precision_fp", "fp32", "promote", "fallthrough"]
"""Arguments are cast to autocast's dtype; to float32; to the widest floating type among them; or not at all. Only
floating-point tensors of the device are cast, and not those of float64."""

POLICIES: tuple[Policy, ...] = get_args(Policy)

__all__ = ["POLICIES", "AutocastPolicy", "Policy", "default_policies", "policies", "set_policy"]

_lock = threading.RLock()  # guards _set
_set: dict[str, list["AutocastPolicy"]] = {}  # the newest last


@dataclass(frozen=True, eq=False)
class AutocastPolicy(Removable):
    """One call of :func:`set_policy`. In a with statement it holds until the statement ends."""

    overload: str
    policy: Policy

    def remove(self) -> None:
        """Let what held before hold again: an earlier policy, or PyTorch's lists. Twice is once."""
        with _lock:
            if self in _set.get(self.overload, ()):
                _set[self.overload].remove(self)
                _apply(self.overload)


def set_policy(overload: str, policy: Policy) -> AutocastPolicy:
    """Choose how ``overload`` ("aten::linear") runs under autocast on the device. The latest choice holds.

    Before a device is active the choice is remembered.

    Raises ValueError if there is no such overload or policy, or if the operator would write to a copy: one that writes
    to its arguments can only have "fallthrough".
    """
    if policy not in POLICIES:
        raise ValueError(f"'{policy}' is no autocast policy. There are {', '.join(POLICIES)}.")
    op = schemas.find(overload)
    if policy != "fallthrough" and schemas.is_mutating(op._schema):
        raise ValueError(
            f"{overload} writes to its arguments and cannot have the autocast policy '{policy}': what is cast is a "
            "copy. Only 'fallthrough' is possible."
        )
    made = AutocastPolicy(overload, policy)
    with _lock:
        _set.setdefault(overload, []).append(made)
    when_active(lambda: _apply(overload))
    return made


def default_policies() -> dict[str, str]:
    """PyTorch's own lists in this version of torch: overload -> policy.

    Besides :data:`POLICIES` there is "fp32_set_opt_dtype": float32 results through the operator's own dtype argument.
    """
    return _C.autocast_defaults()


def policies() -> dict[str, str]:
    """Every operator that autocast treats on the device, and how: PyTorch's lists and what :func:`set_policy` changed.

    What is not listed runs on its arguments as they are.
    """
    with _lock:
        chosen = {overload: made[-1].policy for overload, made in _set.items() if made}
    return dict(sorted((default_policies() | cast("dict[str, str]", chosen)).items()))


def _apply(overload: str) -> None:
    with _lock:
        made = _set.get(overload)
        if made:
            _C.set_autocast_policy(overload, made[-1].policy)
        else:
            _set.pop(overload, None)
            _C.reset_autocast_policy(overload)
