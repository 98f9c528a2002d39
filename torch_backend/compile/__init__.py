"""torch.compile: what PyTorch's compiler has to know of the device.

The compiler is imported when it is first used, and takes seconds to import. What is here is registered then and not
before, so activating a device costs none of that.
"""

import warnings
from collections.abc import Callable

from torch_backend.compat.after_import import OnImport


def register(name: str) -> list[OnImport]:
    """What lets ``torch.compile`` know the device ``name``, once somebody imports the compiler. Imports nothing itself.

    What fails then becomes a RuntimeWarning: without a device, the compiler would still do.
    """

    def register_interface() -> None:
        from torch_backend.compile import device_interface

        device_interface.register(name)

    def mark_functions() -> None:
        from torch_backend.compile import tracing

        tracing.mark_functions()

    def register_graphsafe_rng() -> None:
        from torch._functorch._aot_autograd import utils

        if hasattr(utils, "register_graphsafe_rng_device_type"):  # from torch 2.13 on
            utils.register_graphsafe_rng_device_type(name)

    def extend_rng_prims() -> None:
        from torch_backend.compat import rng_prims
        from torch_backend.compile import on_device

        rng_prims.register(name, on_device.is_ours)

    def list_backend() -> None:
        from torch_backend.compile import named_backend

        named_backend.register(name)

    def prepare_inductor() -> None:
        from torch_backend.compile import inductor

        inductor.prepare(name)

    def allow_flex_attention() -> None:
        from torch_backend.compat import flex_attention_device

        flex_attention_device.register(name)

    actions = [
        ("torch._dynamo.device_interface", register_interface),
        ("torch._dynamo", mark_functions),
        ("torch._functorch._aot_autograd.utils", register_graphsafe_rng),
        ("torch._dynamo", extend_rng_prims),
        ("torch._dynamo.backends.registry", list_backend),
        ("torch._inductor.compile_fx", prepare_inductor),
        ("torch.nn.attention.flex_attention", allow_flex_attention),
    ]
    return [OnImport(module, _warn_if_it_fails(name, action)) for module, action in actions]


def _warn_if_it_fails(name: str, action: Callable[[], None]) -> Callable[[], None]:
    def act() -> None:
        try:
            action()
        except Exception as error:
            message = f"torch.compile cannot be told all about {name}: {type(error).__name__}: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    return act
