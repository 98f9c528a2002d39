"""Environment variables: those that keep `import torch` from finding a device, and those that nothing reads."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence

from torch_backend.devices.discovery import PATH_VARIABLE
from torch_backend.devices.selection import NO_DEVICE, SELECT_VARIABLE
from torch_backend.diagnosis.finding import Finding, note, problem

AUTOLOAD_VARIABLE = "TORCH_DEVICE_BACKEND_AUTOLOAD"
OWN_VARIABLES = (
    *(SELECT_VARIABLE, PATH_VARIABLE, "TORCH_BACKEND_REROUTE"),
    *("TORCH_BACKEND_CACHE", "TORCH_BACKEND_CACHE_MIB", "TORCH_BACKEND_IMAGES", "TORCH_BACKEND_PROGRESS"),
)


def examine_selection(
    device: str | None, names: Sequence[str], environ: Mapping[str, str], is_on_request: bool
) -> Iterator[Finding]:
    """What decides whether `import torch` activates ``device``, or any device for None; ``names`` can be found."""
    severe = problem if device is not None else note
    autoload = environ.get(AUTOLOAD_VARIABLE, "1")
    if autoload != "1":
        yield severe(
            AUTOLOAD_VARIABLE,
            f"It is '{autoload}', so `import torch` looks for no device; only 1 does.",
            "Unset it, or call torch_backend.activate() in the program.",
        )
    wanted = environ.get(SELECT_VARIABLE)
    if wanted is None:
        if device is not None and is_on_request:
            yield note(
                SELECT_VARIABLE,
                f"It is unset, and `import torch` does not activate '{device}' unasked.",
                f"Set {SELECT_VARIABLE}={device}, or call torch_backend.activate('{device}').",
            )
    elif wanted in ("", NO_DEVICE):
        yield severe(SELECT_VARIABLE, f"It is '{wanted}', which asks for no device.", "Unset it, or set it to a name.")
    elif wanted not in names:
        similar = difflib.get_close_matches(wanted, names, n=1)
        hint = f" Did you mean {similar[0]}?" if similar else ""
        if "/" in wanted:
            hint = f" To use a file, name it in {PATH_VARIABLE}, and the device here."
        yield problem(SELECT_VARIABLE, f"It is '{wanted}', and there is no such device.{hint}", _one_of(names))
    elif device is not None and wanted != device:
        yield problem(
            SELECT_VARIABLE,
            f"It is '{wanted}', so `import torch` activates that and not '{device}'; PyTorch has one slot for "
            "out-of-tree devices.",
            f"Set {SELECT_VARIABLE}={device}, or unset it.",
        )


def _one_of(names: Sequence[str]) -> str:
    return f"Set it to one of {', '.join(names)}, or unset it."


def examine_options(
    keys_by_device: Mapping[str, Sequence[str] | None], names: Sequence[str], environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Variables that nothing reads. ``keys_by_device``: the options of the devices, None for one that names none."""
    for variable in sorted(environ):
        if not variable.startswith(f"{SELECT_VARIABLE}_"):
            if variable != SELECT_VARIABLE and (similar := _misspelled(variable)):
                yield problem(variable, "Neither torch nor torch_backend reads it.", f"Did you mean {similar}?")
            continue
        if variable in OWN_VARIABLES:
            continue
        owner = max((name for name in names if variable.startswith(_prefix(name))), key=len, default=None)
        if owner is None:
            yield _read_by_nobody(variable, names)
        elif (keys := keys_by_device.get(owner)) is not None:
            known = [_prefix(owner) + _spelled(key) for key in keys]
            if variable not in known:
                yield _read_by_no_plugin(variable, owner, known)


def _spelled(key: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", key.upper())


def _prefix(name: str) -> str:
    return f"{SELECT_VARIABLE}_{_spelled(name)}_"


def _misspelled(variable: str) -> str | None:
    """The name of ours that ``variable`` misspells at its beginning: TORCH_BACKEND_PATH of TORCH_BACKND_PATH."""
    first, second, *rest = *variable.split("_", 2), ""
    beginning = f"{first}_{second}"
    if not difflib.get_close_matches(beginning, [SELECT_VARIABLE], cutoff=0.9):
        return None
    return "_".join((SELECT_VARIABLE, *filter(None, rest)))


def _read_by_nobody(variable: str, names: Sequence[str]) -> Finding:
    similar = difflib.get_close_matches(variable, OWN_VARIABLES, n=1, cutoff=0.8)
    todo = f"Did you mean {similar[0]}?" if similar else "Remove it, or make its device available."
    return problem(
        variable,
        "Nothing reads it: it is no setting of torch_backend, and there is no device whose options begin like that. "
        f"There are {', '.join(names)}.",
        todo,
    )


def _read_by_no_plugin(variable: str, owner: str, known: Sequence[str]) -> Finding:
    similar = difflib.get_close_matches(variable, known, n=1)
    has = f"It reads {', '.join(known)}." if known else "It reads no options."
    return problem(
        variable,
        f"The device '{owner}' does not read it. {has}",
        f"Did you mean {similar[0]}?" if similar else "Correct or remove it.",
    )
