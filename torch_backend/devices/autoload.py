"""What ``import torch`` runs: the entry point ``torch_backend`` in the group ``torch.backends``.

Note [Import order]
    Torch calls :func:`autoload` near the end of its own import, with ``torch`` in sys.modules and nearly complete; an
    exception would make ``import torch`` fail, so none leaves this function. Whoever imports torch first may be one of
    our modules: ``torch_backend.device_module.streams`` imports torch, which autoloads, which imports
    ``torch_backend.device_module.streams``, now half done. Therefore the package's ``__init__`` imports neither torch
    nor anything that does, nothing on the way from here to registration (``files``, ``devices``, ``compat``,
    ``compile``, ``distributed``) imports torch at its top, and every module under ``torch_backend.device_module``
    imports torch before anything else. Registration uses ``torch_backend.device_module`` as an object and reads no
    attribute of it, so a half-done one is good enough: it is completed once torch is imported.
"""

import logging
import sys
import warnings

from torch_backend.devices.suppression import is_suppressed

_log = logging.getLogger("torch_backend")


def autoload() -> None:
    """Activate the device that the environment asks for, or the only vendor's one that is present. Never raises.

    Whatever goes wrong becomes one RuntimeWarning.
    """
    if is_suppressed():
        return
    try:
        _autoload()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a vendor's module may even call sys.exit
        _warn(f"torch_backend could not start: {type(error).__name__}: {error} No device of torch_backend is active.")


def _autoload() -> None:
    from torch_backend.devices import activation, selection

    if activation.active() is not None:
        return
    choice = selection.choose()
    for note in choice.notes:
        _log.debug("%s", note)
    for problem in choice.problems:
        _warn(problem)
    if choice.candidate is None:
        return
    try:
        activation.activate(choice.candidate.load())
    except Exception as error:
        _warn(
            f"The device '{choice.candidate.name}' ({choice.candidate.source}) cannot be activated: "
            f"{selection.describe(error)} Set {selection.SELECT_VARIABLE}={selection.NO_DEVICE} to start without it."
        )


def _warn(message: str) -> None:
    try:
        # Explicit, because the stack here is the import system's, which says nothing to the user.
        warnings.warn_explicit(message, RuntimeWarning, "torch_backend", 1, module="torch_backend")
    except Warning:
        # Warnings are errors here, and an error would make `import torch` fail.
        print(f"torch_backend: {message}", file=sys.stderr)
