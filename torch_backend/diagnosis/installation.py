"""torch, the native part of torch_backend, and the extras."""

from collections.abc import Iterator
from importlib import metadata

from torch_backend.diagnosis.finding import Finding, note, ok, problem
from torch_backend.files import extras, installed, native
from torch_backend.version import __version__


def examine() -> Iterator[Finding]:
    """What of the installation is missing or does not fit. Imports no torch, which may be what is broken."""
    yield _torch()
    for path in (installed.host_library(), *map(installed.reference_library, installed.REFERENCE_DEVICES)):
        if not path.is_file():
            yield problem("torch_backend", f"'{path}' is missing.", f"Rebuild it: {native.REBUILD_COMMAND}")
    for extra in extras.EXTRAS:
        if missing := extras.missing(extra):
            yield note(
                f"torch_backend[{extra}]",
                f"{', '.join(missing)}: not installed.",
                f"What needs it says so; to have it: pip install 'torch_backend[{extra}]'",
            )


def _torch() -> Finding:
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return problem("torch", "It is not installed for this Python.", "Install it: pip install torch")
    built_for = installed.torch_built_for()
    try:
        native.check_version(version)
    except ImportError as error:
        return problem("torch", str(error))
    return ok("torch", f"{version}; torch_backend {__version__} was built for {built_for or 'an unrecorded version'}.")
