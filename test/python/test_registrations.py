"""torch_backend.operators.registrations: what is registered for the device, by dispatch key."""

import torch

import torch_backend
from torch_backend import operators


def test_kernels_of_the_core(name: str) -> None:
    listed = operators.registrations()
    assert tuple(listed) == operators.REGISTRATION_KEYS
    assert {"aten::empty.memory_format", "aten::as_strided", "aten::_copy_from"} <= set(listed["PrivateUse1"])
    assert {"aten::mm", "aten::softmax.int"} <= set(listed["AutocastPrivateUse1"])
    sources = operators.operator_sources()
    made_of_others = {op for op in listed["PrivateUse1"] if sources[op] == "composite"}
    assert "aten::mm.dtype" in made_of_others
    assert {sources[op] for op in listed["PrivateUse1"]} <= {"native", "aten", "extension", "fallback", "composite"}


def test_all_keys_follow_changes(name: str) -> None:
    def listed() -> dict[str, bool]:
        return {key: "aten::relu6" in ops for key, ops in operators.registrations().items()}

    def relu6(x: torch.Tensor) -> torch.Tensor:
        return x.clamp(0, 6)

    nowhere = dict.fromkeys(operators.REGISTRATION_KEYS, False)
    assert listed() == nowhere
    with torch_backend.kernel("aten::relu6", backward=lambda ctx, grad: grad)(relu6):
        with torch_backend.autocast.set_policy("aten::relu6", "fp32"):
            assert listed() == dict.fromkeys(operators.REGISTRATION_KEYS, True)
    assert listed() == nowhere
