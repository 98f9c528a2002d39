"""Inductor, which generates no code for the device and has to say so."""

from typing import Any, NoReturn

from torch._inductor.codegen import common

from torch_backend import device_module


def refuse(name: str) -> None:
    """Make inductor's refusal of the device ``name`` one that says what to do.

    A vendor who has code generation registers it as PyTorch documents: ``register_backend_for_device``, or the classes
    ``Scheduling``, ``PythonWrapperCodegen`` and ``CppWrapperCodegen`` in ``torch.<name>``.
    """
    if hasattr(device_module, "Scheduling") or common.get_scheduling_for_device(name) is not None:
        return

    def fail() -> NoReturn:
        raise RuntimeError(
            f"Inductor, the default backend of torch.compile, generates no code for {name}. Use "
            "torch.compile(..., backend='aot_eager'), which captures graphs and runs the operators of the device."
        )

    class Refusal(type):
        def __getattr__(cls, attribute: str) -> Any:
            fail()

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            fail()

    class Codegen(metaclass=Refusal):
        supports_caching = True  # asked before the device is looked at

    class Overrides(common.DeviceOpOverrides):
        def __getattribute__(self, attribute: str) -> Any:
            fail()

    codegen: Any = Codegen
    common.register_backend_for_device(name, codegen, codegen, codegen)
    common.register_device_op_overrides(name, Overrides())
